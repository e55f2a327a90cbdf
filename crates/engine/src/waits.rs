//! What an execution waits for, and since when: read from its journal alone.

use std::collections::{BTreeMap, BTreeSet};

use onward_journal::{
    AwaitKind, Event, ExecutionId, Journal, JournalEvent, Phase, PromiseId, RetryPolicy, Timestamp, Wait,
};
use serde::Serialize;

use crate::{Shown, ago, span};

/// What an execution waits for. Nothing when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// For how many of them: `single`, `any`, `all` or `signal`; absent when it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// What it waits for.
    pub waits_for: Vec<Waiting>,
    /// What is under way besides, and not waited for now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub besides: Vec<Waiting>,
}

/// One thing that has not happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// What it is.
    #[serde(flatten)]
    pub what: What,
    /// The operation, such as `root.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
    /// The join set that the operation is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_set: Option<String>,
    /// Since when it is as it is.
    pub since: Shown<Timestamp>,
}

/// What has not happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "for", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// Its own code: it has something to do.
    Code,
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// When it goes on without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline: Option<Shown<Timestamp>>,
    },
    /// A timer.
    Timer {
        /// When it fires.
        until: Shown<Timestamp>,
    },
    /// The first attempt of an invocation: it is wanted, and was not begun.
    Start {
        /// The function.
        function: String,
    },
    /// A task or a request that is under way.
    Task {
        /// The function.
        function: String,
        /// Which attempt.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// The next attempt of an invocation whose last one failed.
    Retry {
        /// The function.
        function: String,
        /// The attempt that is next.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        /// What the last one failed with.
        error: String,
        /// When it is tried again.
        at: Shown<Timestamp>,
    },
    /// Another workflow.
    Child {
        /// The function.
        function: String,
        /// Which attempt.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        /// The execution that performs it.
        execution: Shown<ExecutionId>,
        /// Its state, where somebody has looked.
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

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
            mode: Some(open.kind.as_str()),
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
    Started { attempt: u32, child: Option<ExecutionId> },
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
            Event::InvokeStarted { promise_id, attempt, child } => {
                self.fly(promise_id, Flight::Started { attempt: *attempt, child: *child }, since);
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
            Flight::Started { attempt, child: None } => What::Task { function, attempt: *attempt, attempts },
            Flight::Started { attempt, child: Some(child) } => {
                What::Child { function, attempt: *attempt, attempts, execution: Shown(*child), state: None }
            }
            Flight::Retrying { attempt, error, at } => {
                What::Retry { function, attempt: *attempt, attempts, error: error.clone(), at: Shown(*at) }
            }
        };
        let promise = Some(self.own.child(number).relative_to(self.own).to_string());
        Some(Waiting { what, promise, join_set: join_set.clone(), since: Shown(*since) })
    }
}

/// The beginning of an id, enough to find it by.
pub(crate) fn short(id: ExecutionId) -> String {
    id.to_string().chars().take(12).collect()
}

/// `attempt 2 of 5`.
fn counted(attempt: u32, attempts: Option<u32>) -> String {
    attempts.map_or_else(|| format!("attempt {attempt}"), |all| format!("attempt {attempt} of {all}"))
}

impl Waiting {
    /// What it is, without when.
    pub fn name(&self) -> String {
        match &self.what {
            What::Code => "its own code".to_owned(),
            What::Signal { name, .. } => format!("signal {name}"),
            What::Timer { .. } => "timer".to_owned(),
            What::Start { function } => format!("the first attempt of {function}"),
            What::Task { function, attempt, attempts } => format!("{function}, {}", counted(*attempt, *attempts)),
            What::Retry { function, attempt, attempts, .. } => {
                format!("{function}, {}", counted(*attempt, *attempts))
            }
            What::Child { function, execution, state, .. } => {
                let state = state.as_ref().map(|state| format!(" ({state})")).unwrap_or_default();
                format!("child {function} {}{state}", short(execution.0))
            }
        }
    }

    /// When it ends by itself, if it does.
    pub const fn due(&self) -> Option<Timestamp> {
        match &self.what {
            What::Timer { until: Shown(at) } | What::Retry { at: Shown(at), .. } => Some(*at),
            What::Signal { deadline: Some(Shown(at)), .. } => Some(*at),
            _ => None,
        }
    }

    /// One short line: `signal approval, 12 s`.
    pub fn in_short(&self, now: Timestamp) -> String {
        let name = self.name();
        let since = span(self.since.0, now);
        match (&self.what, self.due()) {
            (What::Signal { .. }, Some(at)) => format!("{name}, {since}, at most until {}", ago(at, now)),
            (What::Timer { .. }, Some(at)) => format!("{name}, due {}", ago(at, now)),
            (What::Retry { error, .. }, Some(at)) => format!("{name}, due {}: {error}", ago(at, now)),
            _ => format!("{name}, {since}"),
        }
    }
}

impl Waits {
    /// One short line for people: `waits for signal approval, 12 s`.
    pub fn in_short(&self, now: Timestamp) -> String {
        let Some(first) = self.waits_for.first() else { return "waits for nothing".to_owned() };
        let more = match self.waits_for.len() {
            1 => String::new(),
            all => format!(" and {} more", all - 1),
        };
        match &first.what {
            What::Code => format!("its code is to run, {}", span(first.since.0, now)),
            _ => format!("waits for {}{more}", first.in_short(now)),
        }
    }
}
