//! A guest runs live, with everything that can happen to it happening at random times, cancellation included; then it runs
//! again, answered from the journal alone. It must be told the same, call by call.

use std::collections::BTreeSet;

use onward_base::Timestamp;
use onward_journal::{
    AwaitEnd, AwaitKind, DeliveryGuarantee, Event, ExecutionError, InvokeKind, InvokePerformer,
    InvokePhase, JoinSetId, Journal, JournalCommand, PromiseId, PromiseState, RecordedOutcome,
    ReplayIndex,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::script::*;

/// A call that the guest makes. Numbers choose among the promises it has; the last flag says whether there is a deadline.
#[derive(Clone, Copy, Debug)]
enum Call {
    Random,
    Clock,
    Sleep,
    Invoke,
    Schedule,
    AwaitAny(u8),
    AwaitAll(u8),
    AwaitSignal(bool, bool),
    CreateSet,
    Submit(u8, u8),
    Next(u8, bool),
}

/// What a guest is told. Once cancelled it goes on with its cleanup, which is the rest of its calls.
type Told = String;

/// What a guest is told of a signal that did not come in time, and of a result that did not.
const LATE: &str = "[None]";
const NO_RESULT: &str = "no result in time";

/// The guest's side: which promises and sets it has, the same live and on replay.
#[derive(Default)]
struct Guest {
    children: u32,
    awaitable: Vec<PromiseId>,
    sets: Vec<JoinSetId>,
}

impl Guest {
    fn allocate(&mut self) -> PromiseId {
        self.children += 1;
        promise(self.children - 1)
    }

    /// A timer for a wait that has a deadline.
    fn deadline(&mut self, is_wanted: bool, host: &mut impl Host) -> Option<PromiseId> {
        let id = is_wanted.then(|| self.allocate())?;
        host.sleep(&id);
        Some(id)
    }

    fn pick(&self, number: u8) -> Vec<PromiseId> {
        let picked: BTreeSet<usize> = [number, number / 3]
            .map(|n| usize::from(n) % self.awaitable.len().max(1))
            .into();
        picked
            .into_iter()
            .filter_map(|index| self.awaitable.get(index).cloned())
            .collect()
    }
}

/// Who answers a guest: the world, or the journal.
trait Host {
    fn random(&mut self, id: &PromiseId) -> Told;
    fn clock(&mut self, id: &PromiseId) -> Told;
    fn sleep(&mut self, id: &PromiseId);
    fn schedule(&mut self, id: &PromiseId);
    fn create_set(&mut self, id: &JoinSetId);
    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Told;
    /// `None` if cancellation interrupted it.
    fn wait(&mut self, ids: &[PromiseId], kind: AwaitKind) -> Option<Told>;
    fn signal(&mut self, id: &PromiseId, name: &str, deadline: Option<PromiseId>) -> Option<Told>;
    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Told>;
}

/// Runs the guest until it returns, or until its host has no answer yet.
fn run(calls: &[Call], host: &mut impl Host) -> Vec<Told> {
    let mut guest = Guest::default();
    calls
        .iter()
        .map(|call| make(*call, &mut guest, host))
        .collect()
}

fn make(call: Call, guest: &mut Guest, host: &mut impl Host) -> Told {
    let answer = match call {
        Call::Random => Some(host.random(&guest.allocate())),
        Call::Clock => Some(host.clock(&guest.allocate())),
        Call::Sleep | Call::Invoke | Call::Schedule => {
            let id = guest.allocate();
            if matches!(call, Call::Sleep) {
                host.sleep(&id)
            } else {
                host.schedule(&id)
            }
            guest.awaitable.push(id.clone());
            if matches!(call, Call::Schedule) {
                Some("scheduled".to_owned())
            } else {
                host.wait(&[id], AwaitKind::Single)
            }
        }
        Call::AwaitAny(number) | Call::AwaitAll(number) => match guest.pick(number) {
            none if none.is_empty() => Some("nothing to await".to_owned()),
            ids if matches!(call, Call::AwaitAny(_)) => host.wait(&ids, AwaitKind::Any),
            ids => host.wait(&ids, AwaitKind::All),
        },
        Call::AwaitSignal(is_go, has_deadline) => {
            let deadline = guest.deadline(has_deadline, host);
            let id = guest.allocate();
            let told = host.signal(&id, if is_go { "go" } else { "stop" }, deadline);
            if told.as_deref() == Some(LATE) {
                guest.awaitable.push(id);
            }
            told
        }
        Call::CreateSet => {
            let set = JoinSetId(guest.allocate());
            host.create_set(&set);
            guest.sets.push(set);
            Some("created".to_owned())
        }
        Call::Submit(set, number) => {
            let set = guest
                .sets
                .get(usize::from(set) % guest.sets.len().max(1))
                .cloned();
            let id = guest.pick(number).pop();
            Some(
                set.zip(id)
                    .map_or("nothing to submit".to_owned(), |(set, id)| {
                        host.submit(&set, &id)
                    }),
            )
        }
        Call::Next(set, has_deadline) => match guest
            .sets
            .get(usize::from(set) % guest.sets.len().max(1))
            .cloned()
        {
            None => Some("no set".to_owned()),
            Some(set) => {
                let deadline = guest.deadline(has_deadline, host);
                host.next(&set, deadline)
            }
        },
    };
    answer.unwrap_or_else(|| "cancelled".to_owned())
}

/// The world: records through commands, and lets things happen at random.
struct World<'a> {
    journal: Journal,
    chance: Box<dyn FnMut(u32) -> u32 + 'a>,
    now_ms: u64,
}

impl World<'_> {
    fn ask(
        &mut self,
        command: JournalCommand,
    ) -> Result<Vec<onward_journal::JournalEvent>, onward_journal::RuleViolation> {
        self.now_ms += 1;
        self.journal
            .handle_command(command, Timestamp::EPOCH.plus_ms(self.now_ms))
    }

    /// Something happens, or not.
    fn happen(&mut self) {
        self.now_ms += 10_000;
        let known = self.journal.journal_state().next_promise_id().path()[0];
        let promise = promise((self.chance)(known + 1));
        let signal_name = name(["go", "stop"][(self.chance)(2) as usize]);
        let what = (self.chance)(40);
        let flight = self
            .journal
            .journal_state()
            .invoke_state(&promise)
            .map(|invoke| invoke.phase);
        let is_timer = matches!(
            self.journal.journal_state().promise_state(&promise),
            Some(PromiseState::Timer { .. })
        );
        let command = match flight {
            Some(InvokePhase::Started) if what.is_multiple_of(3) => JournalCommand::FailAttempt {
                promise,
                error: error(&what.to_string()),
                entropy: 0,
            },
            Some(InvokePhase::Started) => JournalCommand::CompleteAttempt {
                promise,
                result: payload(what),
            },
            Some(InvokePhase::Retrying { .. }) if what.is_multiple_of(4) => {
                JournalCommand::GiveUpInvoke {
                    promise,
                    error: error("enough"),
                }
            }
            Some(InvokePhase::Scheduled | InvokePhase::Retrying { .. }) => {
                JournalCommand::StartAttempt {
                    promise,
                    performer: InvokePerformer::Owner,
                }
            }
            _ if is_timer => JournalCommand::FireTimer { promise },
            _ if what == 0 => JournalCommand::RequestCancel {
                reason: "enough".into(),
            },
            _ if what < 10 => JournalCommand::DeliverSignal {
                signal_name,
                payload: payload(what),
            },
            _ => return,
        };
        // What cannot happen now does not.
        let _ = self.ask(command);
    }

    /// Lets things happen until the open await ends; `None` if it was interrupted.
    fn block(&mut self) -> Option<()> {
        for _ in 0..10_000 {
            let wait = self.journal.journal_state().open_await()?;
            if wait.is_satisfied() && (self.chance)(3) == 0 {
                self.ask(JournalCommand::Resume).unwrap();
                return Some(());
            }
            let waiting: Vec<PromiseId> = self.journal.journal_state().waiting_on().collect();
            for promise in waiting {
                let is_signal = matches!(
                    self.journal.journal_state().promise_state(&promise),
                    Some(PromiseState::Signal {
                        received: false,
                        ..
                    })
                );
                if is_signal && self.ask(JournalCommand::ReceiveSignal { promise }).is_ok() {
                    continue;
                }
            }
            self.happen();
        }
        panic!("whatever happens, the await does not end");
    }

    fn seen(&self, ids: &[PromiseId]) -> Told {
        let replay = ReplayIndex::new(own(), self.journal.events());
        format!(
            "{:?}",
            ids.iter()
                .map(|id| replay.recorded_outcome(id))
                .collect::<Vec<_>>()
        )
    }
}

impl Host for World<'_> {
    fn random(&mut self, _: &PromiseId) -> Told {
        let value = [(self.chance)(256) as u8];
        self.ask(JournalCommand::GenerateRandom {
            value: value.into(),
        })
        .unwrap();
        format!("{:?}", RecordedOutcome::Random(&value))
    }

    fn clock(&mut self, _: &PromiseId) -> Told {
        self.ask(JournalCommand::ReadClock).unwrap();
        format!(
            "{:?}",
            RecordedOutcome::Time(Timestamp::EPOCH.plus_ms(self.now_ms))
        )
    }

    fn sleep(&mut self, _: &PromiseId) {
        self.ask(JournalCommand::ScheduleTimer { duration_ms: 5_000 })
            .unwrap();
    }

    fn schedule(&mut self, _: &PromiseId) {
        let (kind, function_name) = (InvokeKind::Function, name("task"));
        let (retry_policy, delivery) = (None, DeliveryGuarantee::AtLeastOnce);
        self.ask(JournalCommand::ScheduleInvoke {
            kind,
            function_name,
            input: payload(0),
            retry_policy,
            delivery,
        })
        .unwrap();
        self.happen();
    }

    fn create_set(&mut self, _: &JoinSetId) {
        self.ask(JournalCommand::CreateJoinSet).unwrap();
    }

    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Told {
        let submitted = self.ask(JournalCommand::SubmitToJoinSet {
            set: set.clone(),
            promise: id.clone(),
        });
        // A refused submit is the guest's mistake; it leaves no event, so it must be judged from what there is.
        submitted.map_or_else(
            |violation| violation.rule.to_string(),
            |_| "submitted".to_owned(),
        )
    }

    fn wait(&mut self, ids: &[PromiseId], kind: AwaitKind) -> Option<Told> {
        let events = self
            .ask(JournalCommand::Await {
                waiting_on: ids.to_vec(),
                kind,
            })
            .unwrap();
        if events.len() == 1 {
            self.block()?;
        }
        Some(self.seen(ids))
    }

    fn signal(
        &mut self,
        id: &PromiseId,
        signal: &str,
        deadline: Option<PromiseId>,
    ) -> Option<Told> {
        self.ask(JournalCommand::AwaitSignal {
            signal_name: name(signal),
            timeout: deadline,
        })
        .unwrap();
        if self.journal.journal_state().open_await().is_some() {
            self.block()?;
        }
        Some(self.seen(std::slice::from_ref(id)))
    }

    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Told> {
        loop {
            let mut events = match self.ask(JournalCommand::TakeNextResult {
                set: set.clone(),
                timeout: deadline.clone(),
            }) {
                Err(violation) => return Some(violation.rule.to_string()),
                Ok(events) => events,
            };
            match events.remove(0).event {
                Event::JoinSetAwaited {
                    promise_id, result, ..
                } => return Some(format!("{promise_id} {result:?}")),
                Event::ExecutionAwaiting { waiting_on, .. } => {
                    if events.is_empty() {
                        self.block()?;
                    }
                    let fold = self.journal.journal_state();
                    let is_there = |id: &PromiseId| {
                        fold.invoke_state(id).is_some()
                            && fold.promise_state(id).unwrap().is_complete()
                    };
                    if !waiting_on.iter().any(is_there) {
                        return Some(NO_RESULT.to_owned());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The journal as a host. It looks only at what the index offers.
struct Recording<'a> {
    replay: ReplayIndex<'a>,
    awaits: usize,
    taken: std::collections::BTreeMap<JoinSetId, usize>,
    submitted: std::collections::BTreeMap<PromiseId, JoinSetId>,
    members: std::collections::BTreeMap<JoinSetId, usize>,
}

impl<'a> Recording<'a> {
    fn outcome(&self, id: &PromiseId) -> Told {
        format!("{:?}", self.replay.recorded_outcome(id).unwrap())
    }

    /// The end of the guest's next await: when it went on, or `None` if it was interrupted.
    fn next_await(&mut self) -> Option<u64> {
        let awaited = self.replay.recorded_await(self.awaits).unwrap();
        self.awaits += 1;
        match awaited.end {
            AwaitEnd::Resumed(sequence) => Some(sequence),
            AwaitEnd::Interrupted(_) => None,
            AwaitEnd::Open => panic!("the live run ended every await"),
        }
    }

    fn seen(&self, ids: &[PromiseId], sequence: u64) -> Told {
        format!(
            "{:?}",
            ids.iter()
                .map(|id| self.replay.outcome_before(id, sequence))
                .collect::<Vec<_>>()
        )
    }
}

impl Host for Recording<'_> {
    fn random(&mut self, id: &PromiseId) -> Told {
        self.outcome(id)
    }

    fn clock(&mut self, id: &PromiseId) -> Told {
        self.outcome(id)
    }

    fn sleep(&mut self, id: &PromiseId) {
        assert!(matches!(
            self.replay.allocating_event(id),
            Some(Event::TimerScheduled { .. })
        ));
    }

    fn schedule(&mut self, id: &PromiseId) {
        assert!(matches!(
            self.replay.allocating_event(id),
            Some(Event::InvokeScheduled { .. })
        ));
    }

    fn create_set(&mut self, set: &JoinSetId) {
        assert!(matches!(
            self.replay.allocating_event(&set.0),
            Some(Event::JoinSetCreated { .. })
        ));
    }

    /// Whether a submit is refused follows from the guest's own calls.
    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Told {
        if !matches!(
            self.replay.allocating_event(id),
            Some(Event::InvokeScheduled { .. })
        ) {
            return "H-12".to_owned();
        }
        match self.submitted.get(id) {
            Some(owner) if owner == set => return "H-2".to_owned(),
            Some(_) => return "JS-7".to_owned(),
            None if self.taken.get(set).is_some_and(|taken| *taken > 0) => {
                return "JS-2".to_owned();
            }
            None => {}
        }
        self.submitted.insert(id.clone(), set.clone());
        *self.members.entry(set.clone()).or_default() += 1;
        "submitted".to_owned()
    }

    fn wait(&mut self, ids: &[PromiseId], _: AwaitKind) -> Option<Told> {
        let resumed = self.next_await()?;
        Some(self.seen(ids, resumed))
    }

    fn signal(&mut self, id: &PromiseId, _: &str, _: Option<PromiseId>) -> Option<Told> {
        let resumed = match self.replay.allocating_event(id) {
            Some(Event::SignalReceived { .. }) => u64::MAX,
            _ => self.next_await()?,
        };
        Some(self.seen(std::slice::from_ref(id), resumed))
    }

    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Told> {
        loop {
            let taken = self.taken.get(set).copied().unwrap_or(0);
            let next = self.replay.join_result(set, taken);
            if self.members.get(set).copied().unwrap_or(0) == taken {
                return Some("JS-6".to_owned());
            }
            let awaited = self.replay.recorded_await(self.awaits);
            match next {
                Some(next) if awaited.is_none_or(|awaited| next.sequence < awaited.sequence) => {
                    *self.taken.entry(set.clone()).or_default() += 1;
                    return Some(format!("{} {:?}", next.promise_id, next.result));
                }
                _ => {
                    let resumed = self.next_await()?;
                    let members = awaited
                        .unwrap()
                        .waiting_on
                        .iter()
                        .filter(|id| Some(*id) != deadline.as_ref());
                    if members
                        .into_iter()
                        .all(|id| self.replay.outcome_before(id, resumed).is_none())
                    {
                        return Some(NO_RESULT.to_owned());
                    }
                }
            }
        }
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        1 => Just(Call::Random),
        1 => Just(Call::Clock),
        1 => Just(Call::Sleep),
        1 => Just(Call::Invoke),
        3 => Just(Call::Schedule),
        2 => (0..12_u8).prop_map(Call::AwaitAny),
        1 => (0..12_u8).prop_map(Call::AwaitAll),
        2 => any::<(bool, bool)>().prop_map(|(is_go, has_deadline)| Call::AwaitSignal(is_go, has_deadline)),
        1 => Just(Call::CreateSet),
        3 => (0..3_u8, 0..12_u8).prop_map(|(set, number)| Call::Submit(set, number)),
        3 => (0..3_u8, any::<bool>()).prop_map(|(set, has_deadline)| Call::Next(set, has_deadline)),
    ];
    prop::collection::vec(call, 1..30)
}

#[test]
fn a_replayed_guest_is_told_what_it_was_told_live() {
    let config = Config {
        cases: 600,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
    let (mut cancelled, mut cleaned, mut results, mut late) = (0, 0, 0, 0);
    let counts = std::cell::RefCell::new((&mut cancelled, &mut cleaned, &mut results, &mut late));
    TestRunner::new_with_rng(config, rng)
        .run(&(calls(), any::<u64>()), |(calls, seed)| {
            let mut state = seed | 1;
            let chance = Box::new(move |below: u32| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u32 % below
            });
            let mut world = World {
                journal: Journal::new(own()),
                chance,
                now_ms: 0,
            };
            world
                .journal
                .append(record(&[started()]).remove(0))
                .unwrap();
            let live = run(&calls, &mut world);
            let replay = ReplayIndex::new(own(), world.journal.events());
            let (awaits, taken) = (0, Default::default());
            let (submitted, members) = Default::default();
            let again = run(
                &calls,
                &mut Recording {
                    replay,
                    awaits,
                    taken,
                    submitted,
                    members,
                },
            );
            prop_assert_eq!(&again, &live);
            let mut counts = counts.borrow_mut();
            let stopped = live.iter().position(|told| told == "cancelled");
            *counts.0 += usize::from(stopped.is_some());
            *counts.1 += usize::from(stopped.is_some_and(|at| at + 3 < live.len()));
            *counts.2 += live.len();
            *counts.3 += live
                .iter()
                .filter(|told| [LATE, NO_RESULT].contains(&told.as_str()))
                .count();
            Ok(())
        })
        .unwrap();
    println!(
        "{results} answers, {late} of them too late; {cancelled} guests cancelled, {cleaned} of them with cleanup"
    );
    assert!(
        late > 100,
        "deadlines are too rare to mean anything: {late}"
    );
    assert!(
        cancelled > 100 && cleaned > 50,
        "cancellation is too rare to mean anything: {cancelled}, {cleaned}"
    );
}

#[test]
fn a_timer_that_fires_after_it_was_interrupted_is_not_seen() {
    let events = record(&[
        started(),
        timer(0),
        awaiting_one(0),
        cancel_requested(),
        scheduled(1),
        fired(0),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    let awaited = replay.recorded_await(0).unwrap();
    assert_eq!(awaited.end, AwaitEnd::Interrupted(3));
    assert_eq!(
        (
            replay.outcome_before(&promise(0), 3),
            replay.recorded_outcome(&promise(0))
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(replay.recorded_await(1), None);
}

#[test]
fn an_await_sees_what_was_complete_when_it_resumed() {
    let any = awaiting(AwaitKind::Any, &[0, 1]);
    let events = record(&[
        started(),
        timer(0),
        timer(1),
        any,
        fired(1),
        resumed(),
        fired(0),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    assert_eq!(replay.recorded_await(0).unwrap().end, AwaitEnd::Resumed(5));
    assert_eq!(
        (
            replay.outcome_before(&promise(0), 5),
            replay.outcome_before(&promise(1), 5)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(
        (
            replay.outcome_before(&promise(1), 4),
            replay.outcome_before(&promise(0), 7)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!((replay.len(), replay.is_empty()), (2, false));
    assert!(ReplayIndex::new(own(), &events[..1]).is_empty());
    assert_eq!(replay.recorded_outcome(&promise(2)), None);
}

#[test]
fn a_failed_invoke_is_an_outcome() {
    let failed = Event::InvokeCompleted {
        promise_id: promise(0),
        result: Err(error("no")),
        attempt: 1,
    };
    let events = record(&[started(), scheduled(0), attempted(0, 1), failed]);
    let replay = ReplayIndex::new(own(), &events);
    let expected: Result<_, ExecutionError> = Err(error("no"));
    assert_eq!(
        replay.recorded_outcome(&promise(0)),
        Some(RecordedOutcome::Invoke(&expected))
    );
}

#[test]
fn a_signal_that_came_after_its_deadline_is_not_seen_at_that_resume() {
    let events = record(&[
        started(),
        timer(0),
        awaiting_signal_until(1, "go", 0),
        fired(0),
        resumed(),
        awaiting_one(1),
        delivered("go", 1, 7),
        received(1, "go", 1, 7),
        resumed(),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    let (first, second) = (
        replay.recorded_await(0).unwrap(),
        replay.recorded_await(1).unwrap(),
    );
    assert_eq!(
        (first.waiting_on, first.end),
        (&[promise(1), promise(0)][..], AwaitEnd::Resumed(4))
    );
    assert_eq!(
        (
            replay.outcome_before(&promise(1), 4),
            replay.outcome_before(&promise(0), 4)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(second.end, AwaitEnd::Resumed(8));
    assert_eq!(
        replay.outcome_before(&promise(1), 8),
        Some(RecordedOutcome::Signal(&payload(7)))
    );
    assert_eq!(
        (replay.len(), replay.await_count(), replay.recorded_await(2)),
        (2, 2, None)
    );
    assert_eq!(
        ReplayIndex::new(own(), &events[..5]).recorded_outcome(&promise(1)),
        None
    );
    assert_eq!(ReplayIndex::new(own(), &events[..2]).await_count(), 0);
}
