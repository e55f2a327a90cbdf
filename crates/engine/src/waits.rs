//! What an execution waits for, and since when: read from its journal alone.

use std::collections::{BTreeMap, BTreeSet};

use onward_journal::{
    AwaitKind, Event, ExecutionId, Journal, JournalEvent, Performer, Phase, PromiseId, RetryPolicy, Timestamp, Wait,
};

use onward_api::Shown;
use onward_api::waits::{Waiting, Waits, What};

/// What the execution of this journal waits for.
pub fn of(journal: &Journal) -> Waits {
    let fold = journal.fold();
    let mut walk = Walk::new(fold.execution());
    journal.events().iter().for_each(|event| walk.pass(event));
    if fold.phase().is_terminal() || fold.phase() == Phase::New {
        return Waits::default();
    }
    match &walk.open {
        Some(open) if fold.wait().is_some_and(|wait| !Wait::is_satisfied(wait)) => Waits {
            mode: Some(open.kind.as_str().into()),
            waits_for: walk.waited_for(open),
            besides: walk.besides(&open.waiting_on),
        },
        _ => {
            let code = Waiting { what: What::Code, promise: None, join_set: None, since: Shown(walk.last) };
            Waits { mode: None, waits_for: vec![code], besides: walk.besides(&[]) }
        }
    }
}

/// A walk along a journal: what began and has not ended.
struct Walk {
    own: ExecutionId,
    invocations: BTreeMap<u32, Invocation>,
    timers: BTreeMap<u32, Timestamp>,
    open: Option<Open>,
    last: Timestamp,
}

struct Invocation {
    function: String,
    attempts: Option<u32>,
    join_set: Option<String>,
    flight: Flight,
    since: Timestamp,
}

enum Flight {
    Scheduled,
    Started { attempt: u32, performer: Performer },
    Retrying { attempt: u32, error: String, at: Timestamp },
}

struct Open {
    waiting_on: Vec<PromiseId>,
    kind: AwaitKind,
    since: Timestamp,
}

impl Walk {
    const fn new(own: ExecutionId) -> Self {
        Self { own, invocations: BTreeMap::new(), timers: BTreeMap::new(), open: None, last: Timestamp::EPOCH }
    }

    fn pass(&mut self, recorded: &JournalEvent) {
        let since = recorded.timestamp;
        self.last = since;
        match &recorded.event {
            Event::InvokeScheduled { promise_id, function_name, retry_policy, .. } => {
                let policy = retry_policy.as_deref().map_or_else(RetryPolicy::default, RetryPolicy::clone);
                let (function, attempts) = (function_name.to_string(), policy.max_attempts.map(Into::into));
                let begun = Invocation { function, attempts, join_set: None, flight: Flight::Scheduled, since };
                promise_id.number_in(self.own).and_then(|number| self.invocations.insert(number, begun));
            }
            Event::InvokeStarted { promise_id, attempt, performer } => {
                self.fly(promise_id, Flight::Started { attempt: *attempt, performer: *performer }, since);
            }
            Event::InvokeRetrying { promise_id, failed_attempt, error, retry_at } => {
                let flight = Flight::Retrying { attempt: failed_attempt + 1, error: error.to_string(), at: *retry_at };
                self.fly(promise_id, flight, since);
            }
            Event::InvokeCompleted { promise_id, .. } => {
                promise_id.number_in(self.own).and_then(|number| self.invocations.remove(&number));
            }
            Event::JoinSetSubmitted { join_set_id, promise_id } => {
                let set = join_set_id.0.relative_to(self.own).to_string();
                self.invocation(promise_id).into_iter().for_each(|invocation| invocation.join_set = Some(set.clone()));
            }
            Event::TimerScheduled { promise_id, fire_at, .. } => {
                promise_id.number_in(self.own).and_then(|number| self.timers.insert(number, *fire_at));
            }
            Event::TimerFired { promise_id } => {
                promise_id.number_in(self.own).and_then(|number| self.timers.remove(&number));
            }
            Event::ExecutionAwaiting { waiting_on, kind } => {
                self.open = Some(Open { waiting_on: waiting_on.clone(), kind: kind.clone(), since });
            }
            Event::ExecutionResumed | Event::CancelRequested { .. } => self.open = None,
            _ => {}
        }
    }

    fn invocation(&mut self, promise: &PromiseId) -> Option<&mut Invocation> {
        self.invocations.get_mut(&promise.number_in(self.own)?)
    }

    fn fly(&mut self, promise: &PromiseId, flight: Flight, since: Timestamp) {
        if let Some(invocation) = self.invocation(promise) {
            (invocation.flight, invocation.since) = (flight, since);
        }
    }

    /// What an open await names and has not ended.
    fn waited_for(&self, open: &Open) -> Vec<Waiting> {
        let timer = |promise: &PromiseId| self.timers.get(&promise.number_in(self.own)?).copied().map(Shown);
        let since = Shown(open.since);
        let waiting = |promise: &PromiseId, what| Waiting {
            what,
            promise: Some(promise.relative_to(self.own).to_string()),
            join_set: None,
            since,
        };
        if let (AwaitKind::Signal(name), Some(promise)) = (&open.kind, open.waiting_on.first()) {
            let deadline = open.waiting_on.get(1).and_then(timer);
            return vec![waiting(promise, What::Signal { name: name.to_string(), deadline })];
        }
        let one = |promise: &PromiseId| match timer(promise) {
            Some(until) => Some(waiting(promise, What::Timer { until })),
            None => self.under_way(promise.number_in(self.own)?),
        };
        open.waiting_on.iter().filter_map(one).collect()
    }

    fn besides(&self, waited_for: &[PromiseId]) -> Vec<Waiting> {
        let named: BTreeSet<u32> = waited_for.iter().filter_map(|promise| promise.number_in(self.own)).collect();
        let others = self.invocations.keys().filter(|number| !named.contains(number));
        others.filter_map(|number| self.under_way(*number)).collect()
    }

    fn under_way(&self, number: u32) -> Option<Waiting> {
        let Invocation { function, attempts, join_set, flight, since } = self.invocations.get(&number)?;
        let (function, attempts) = (function.clone(), *attempts);
        let what = match flight {
            Flight::Scheduled => What::Start { function },
            Flight::Started { attempt, performer } => {
                let attempt = *attempt;
                match performer {
                    Performer::Owner => What::Task { function, attempt, attempts },
                    Performer::Child(child) => {
                        What::Child { function, attempt, attempts, execution: Shown(*child), state: None }
                    }
                    Performer::Worker => What::Worker { function, attempt, attempts, worker: None, until: None },
                }
            }
            Flight::Retrying { attempt, error, at } => {
                What::Retry { function, attempt: *attempt, attempts, error: error.clone(), at: Shown(*at) }
            }
        };
        let promise = Some(self.own.child(number).relative_to(self.own).to_string());
        Some(Waiting { what, promise, join_set: join_set.clone(), since: Shown(*since) })
    }
}
