//! What an execution waits for, and since when, derived from its journal alone.

use std::collections::{BTreeMap, BTreeSet};

use onward_base::Timestamp;
use onward_journal::{
    AwaitKind, AwaitState, Event, ExecutionId, ExecutionPhase, InvokePerformer, Journal,
    JournalEvent, PromiseId, RetryPolicy,
};

use onward_api::DisplayText;
use onward_api::waits::{ExecutionWait, ExecutionWaits, WaitTarget};

/// Returns what the execution of this journal waits for; empty if it has ended or not started.
pub fn pending_waits(journal: &Journal) -> ExecutionWaits {
    let state = journal.journal_state();
    let mut scan = WaitScan::new(state.execution_id());
    journal
        .events()
        .iter()
        .for_each(|event| scan.apply_event(event));
    if state.phase().is_terminal() || state.phase() == ExecutionPhase::New {
        return ExecutionWaits::default();
    }
    match &scan.open_await {
        Some(open)
            if state
                .open_await()
                .is_some_and(|wait| !AwaitState::is_satisfied(wait)) =>
        {
            ExecutionWaits {
                mode: Some(open.kind.as_str().into()),
                waits_for: scan.blocking_waits(open),
                also_waits_for: scan.background_waits(&open.waiting_on),
            }
        }
        _ => {
            let code = ExecutionWait {
                target: WaitTarget::Code,
                promise: None,
                join_set: None,
                since: DisplayText(scan.last_event_at),
            };
            ExecutionWaits {
                mode: None,
                waits_for: vec![code],
                also_waits_for: scan.background_waits(&[]),
            }
        }
    }
}

/// State of a scan along a journal: the invocations, timers and await that began and have not
/// ended.
struct WaitScan {
    execution: ExecutionId,
    invocations: BTreeMap<u32, OpenInvocation>,
    timers: BTreeMap<u32, Timestamp>,
    open_await: Option<UnresolvedAwait>,
    last_event_at: Timestamp,
}

struct OpenInvocation {
    function: String,
    max_attempts: Option<u32>,
    join_set: Option<String>,
    state: InvocationState,
    since: Timestamp,
}

enum InvocationState {
    Scheduled,
    Started {
        attempt: u32,
        performer: InvokePerformer,
    },
    Retrying {
        attempt: u32,
        error: String,
        at: Timestamp,
    },
}

struct UnresolvedAwait {
    waiting_on: Vec<PromiseId>,
    kind: AwaitKind,
    since: Timestamp,
}

impl WaitScan {
    const fn new(own: ExecutionId) -> Self {
        Self {
            execution: own,
            invocations: BTreeMap::new(),
            timers: BTreeMap::new(),
            open_await: None,
            last_event_at: Timestamp::EPOCH,
        }
    }

    fn apply_event(&mut self, recorded: &JournalEvent) {
        let since = recorded.timestamp;
        self.last_event_at = since;
        match &recorded.event {
            Event::InvokeScheduled { .. }
            | Event::InvokeStarted { .. }
            | Event::InvokeRetrying { .. }
            | Event::InvokeCompleted { .. } => self.apply_invoke_event(&recorded.event, since),
            Event::JoinSetSubmitted {
                join_set_id,
                promise_id,
            } => {
                let set = join_set_id.0.relative_to(self.execution).to_string();
                self.invocation_mut(promise_id)
                    .into_iter()
                    .for_each(|invocation| invocation.join_set = Some(set.clone()));
            }
            Event::TimerScheduled {
                promise_id,
                fire_at,
                ..
            } => {
                promise_id
                    .child_number_in(self.execution)
                    .and_then(|number| self.timers.insert(number, *fire_at));
            }
            Event::TimerFired { promise_id } => {
                promise_id
                    .child_number_in(self.execution)
                    .and_then(|number| self.timers.remove(&number));
            }
            Event::ExecutionAwaiting { waiting_on, kind } => {
                self.open_await = Some(UnresolvedAwait {
                    waiting_on: waiting_on.clone(),
                    kind: kind.clone(),
                    since,
                });
            }
            Event::ExecutionResumed | Event::CancelRequested { .. } => self.open_await = None,
            _ => {}
        }
    }

    /// Applies an event of an invocation, from its schedule to its end.
    fn apply_invoke_event(&mut self, event: &Event, since: Timestamp) {
        match event {
            Event::InvokeScheduled {
                promise_id,
                function_name,
                retry_policy,
                ..
            } => {
                let invocation = OpenInvocation {
                    function: function_name.to_string(),
                    max_attempts: max_attempts_of(retry_policy.as_deref()),
                    join_set: None,
                    state: InvocationState::Scheduled,
                    since,
                };
                promise_id
                    .child_number_in(self.execution)
                    .and_then(|number| self.invocations.insert(number, invocation));
            }
            Event::InvokeStarted {
                promise_id,
                attempt,
                performer,
            } => {
                let started = InvocationState::Started {
                    attempt: *attempt,
                    performer: *performer,
                };
                self.set_invocation_state(promise_id, started, since);
            }
            Event::InvokeRetrying {
                promise_id,
                failed_attempt,
                error,
                retry_at,
            } => {
                let retrying = InvocationState::Retrying {
                    attempt: failed_attempt + 1,
                    error: error.to_string(),
                    at: *retry_at,
                };
                self.set_invocation_state(promise_id, retrying, since);
            }
            Event::InvokeCompleted { promise_id, .. } => {
                promise_id
                    .child_number_in(self.execution)
                    .and_then(|number| self.invocations.remove(&number));
            }
            _ => {}
        }
    }

    fn invocation_mut(&mut self, promise: &PromiseId) -> Option<&mut OpenInvocation> {
        self.invocations
            .get_mut(&promise.child_number_in(self.execution)?)
    }

    fn set_invocation_state(
        &mut self,
        promise: &PromiseId,
        flight: InvocationState,
        since: Timestamp,
    ) {
        if let Some(invocation) = self.invocation_mut(promise) {
            (invocation.state, invocation.since) = (flight, since);
        }
    }

    /// The promises that an open await names and that have not ended.
    fn blocking_waits(&self, open: &UnresolvedAwait) -> Vec<ExecutionWait> {
        let timer = |promise: &PromiseId| {
            self.timers
                .get(&promise.child_number_in(self.execution)?)
                .copied()
                .map(DisplayText)
        };
        let since = DisplayText(open.since);
        let waiting = |promise: &PromiseId, what| ExecutionWait {
            target: what,
            promise: Some(promise.relative_to(self.execution).to_string()),
            join_set: None,
            since,
        };
        if let (AwaitKind::Signal(name), Some(promise)) = (&open.kind, open.waiting_on.first()) {
            let deadline = open.waiting_on.get(1).and_then(timer);
            return vec![waiting(
                promise,
                WaitTarget::Signal {
                    name: name.to_string(),
                    deadline,
                },
            )];
        }
        let one = |promise: &PromiseId| match timer(promise) {
            Some(fires_at) => Some(waiting(promise, WaitTarget::Timer { fires_at })),
            None => self.invocation_wait(promise.child_number_in(self.execution)?),
        };
        open.waiting_on.iter().filter_map(one).collect()
    }

    fn background_waits(&self, waited_for: &[PromiseId]) -> Vec<ExecutionWait> {
        let named: BTreeSet<u32> = waited_for
            .iter()
            .filter_map(|promise| promise.child_number_in(self.execution))
            .collect();
        let others = self
            .invocations
            .keys()
            .filter(|number| !named.contains(number));
        others
            .filter_map(|number| self.invocation_wait(*number))
            .collect()
    }

    fn invocation_wait(&self, number: u32) -> Option<ExecutionWait> {
        let OpenInvocation {
            function,
            max_attempts,
            join_set,
            state: flight,
            since,
        } = self.invocations.get(&number)?;
        let (function, max_attempts) = (function.clone(), *max_attempts);
        let what = match flight {
            InvocationState::Scheduled => WaitTarget::Start { function },
            InvocationState::Started { attempt, performer } => {
                let attempt = *attempt;
                match performer {
                    InvokePerformer::Owner => WaitTarget::Task {
                        function,
                        attempt,
                        max_attempts,
                    },
                    InvokePerformer::Child(child) => WaitTarget::Child {
                        function,
                        attempt,
                        max_attempts,
                        execution: DisplayText(*child),
                        state: None,
                    },
                    InvokePerformer::Worker => WaitTarget::Worker {
                        function,
                        attempt,
                        max_attempts,
                        worker: None,
                        leased_until: None,
                    },
                }
            }
            InvocationState::Retrying { attempt, error, at } => WaitTarget::Retry {
                function,
                attempt: *attempt,
                max_attempts,
                error: error.clone(),
                retry_at: DisplayText(*at),
            },
        };
        let promise = Some(
            self.execution
                .child_promise(number)
                .relative_to(self.execution)
                .to_string(),
        );
        Some(ExecutionWait {
            target: what,
            promise,
            join_set: join_set.clone(),
            since: DisplayText(*since),
        })
    }
}

/// Maximum number of attempts that a retry policy allows; of the default policy if there is none.
fn max_attempts_of(retry_policy: Option<&RetryPolicy>) -> Option<u32> {
    let default_policy = RetryPolicy::default();
    let policy = retry_policy.unwrap_or(&default_policy);
    policy.max_attempts.map(Into::into)
}
