//! A core with a single execution, handed its inputs by hand.

use std::sync::Arc;

use onward_engine::offers::Offers;
use onward_engine::shard::{Action, Attempt, AttemptId, By, Core, End, Functions, Input, Options, signal};
use onward_execution::{Execution as InMemory, Limits, Start};
use onward_journal::{ComponentDigest, ExecutionId, Timestamp, codec};
use onward_store::tables::{Execution, Message};
use onward_store::{Commit, Epoch, Error, Receipt, Serial, Shard};

use crate::code::json;

pub(crate) fn digest() -> ComponentDigest {
    ComponentDigest::of(b"alone")
}

pub(crate) struct Alone(Core);

impl Alone {
    /// Begins the execution. Returns what is to be done, too.
    pub(crate) fn begin(functions: impl Functions + 'static) -> (Self, Vec<Action>) {
        Self::begin_with(functions, Arc::default())
    }

    /// The same, with workers that wait for tasks.
    pub(crate) fn begin_with(functions: impl Functions + 'static, offers: Arc<Offers>) -> (Self, Vec<Action>) {
        let (id, now) = (ExecutionId::from_bytes([7; 32]), Timestamp::EPOCH);
        let start =
            Start { component_digest: digest(), input: json("1"), parent: None, key: None, signals: Vec::new() };
        let execution = Box::new(InMemory::start(id, start, now, Limits::default()).unwrap());
        let entropy = Box::new(|bytes: &mut [u8]| bytes.fill(1));
        let core = Core::new(Shard(0), Epoch(1), Arc::new(functions), entropy, Options::default());
        let mut alone = Self(core.with_offers(offers));
        let actions = alone.tell(Input::Begin { row: row(), execution });
        (alone, actions)
    }

    fn tell(&mut self, input: Input) -> Vec<Action> {
        self.0.handle(input, Timestamp::EPOCH)
    }

    pub(crate) fn committed(&mut self, ticket: u64) -> Vec<Action> {
        self.tell(Input::Committed { ticket, result: Ok(Receipt::default()) })
    }

    pub(crate) fn failed(&mut self, ticket: u64, error: Error) -> Vec<Action> {
        self.tell(Input::Committed { ticket, result: Err(error) })
    }

    /// A signal comes to the execution, the same one each time.
    pub(crate) fn signalled(&mut self) -> Vec<Action> {
        let (id, now) = (ExecutionId::from_bytes([7; 32]), Timestamp::EPOCH);
        let signal = signal(id, Shard(0), "go".parse().unwrap(), json("1"), None, now).unwrap();
        self.tell(Input::Messages(vec![(Message { message_id: Serial(Some(1)), ..signal }, 1)]))
    }

    /// The attempt returns what it was called with.
    pub(crate) fn ended(&mut self, attempt: &Attempt) -> Vec<Action> {
        self.ended_with(attempt, attempt.input.as_str())
    }

    pub(crate) fn ended_with(&mut self, attempt: &Attempt, result: &str) -> Vec<Action> {
        let by = By::Owner(attempt.performance);
        self.tell(Input::Ended(vec![End { attempt: attempt.id, by, result: Ok(json(result)) }]))
    }

    /// All of the attempts return 1.
    pub(crate) fn ended_together(&mut self, attempts: &[Attempt]) -> Vec<Action> {
        let end = |attempt: &Attempt| {
            let by = By::Owner(attempt.performance);
            End { attempt: attempt.id, by, result: Ok(json("1")) }
        };
        self.tell(Input::Ended(attempts.iter().map(end).collect()))
    }

    /// A worker says that the attempt has returned 1.
    pub(crate) fn reported(&mut self, attempt: AttemptId) -> Vec<Action> {
        self.tell(Input::Ended(vec![End { attempt, by: By::Worker, result: Ok(json("1")) }]))
    }

    /// It is read as this commit has left it.
    pub(crate) fn loaded(&mut self, commit: &Commit) -> Vec<Action> {
        let append = &commit.journals[0];
        let events = codec::decode(append.execution, &append.records).unwrap();
        self.tell(Input::Loaded { row: row(), version: 1, events })
    }
}

fn row() -> Box<Execution> {
    Box::new(Execution {
        execution_id: ExecutionId::from_bytes([7; 32]),
        tenant_id: "acme".parse().unwrap(),
        project_id: "shop".parse().unwrap(),
        environment_id: "prod".parse().unwrap(),
        shard: Shard(0),
        function: "alone".into(),
        component_digest: digest(),
        start_key: None,
        state: "Running".into(),
        wake_at: Timestamp::EPOCH,
        created_at: Timestamp::EPOCH,
        body: [].into(),
    })
}

/// The commits among actions.
pub(crate) fn commits(actions: &[Action]) -> Vec<(u64, &Commit)> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Commit { ticket, commit } => Some((*ticket, &**commit)),
            _ => None,
        })
        .collect()
}

/// The attempts to perform among actions.
pub(crate) fn attempts(actions: &[Action]) -> Vec<Attempt> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Perform(attempt) => Some((**attempt).clone()),
            _ => None,
        })
        .collect()
}

/// The names of the events that a commit appends.
pub(crate) fn events(commit: &Commit) -> Vec<String> {
    let events = commit.journals.iter().flat_map(|append| codec::decode(append.execution, &append.records).unwrap());
    events.map(|recorded| recorded.event.kind().to_string()).collect()
}
