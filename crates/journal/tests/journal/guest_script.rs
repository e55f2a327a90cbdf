//! A guest as a list of calls, and the interface of the host that answers them.

use std::collections::BTreeSet;

use onward_journal::{AwaitKind, JoinSetId, PromiseId};

use super::script::*;

/// A call that the guest makes. Numbers select among the promises it has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Random,
    Clock,
    Sleep,
    Invoke,
    Schedule,
    AwaitAny(u8),
    AwaitAll(u8),
    AwaitSignal(&'static str, Deadline),
    CreateSet,
    Submit(u8, u8),
    Next(u8, Deadline),
}

/// Whether a wait has a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deadline {
    Set,
    Unset,
}

/// The answer to a call. A cancelled guest continues with its cleanup, which is the rest of its
/// calls.
pub(crate) type Answer = String;

/// The answers for a signal and for a result that did not arrive before the deadline.
pub(crate) const LATE: &str = "[None]";

pub(crate) const NO_RESULT: &str = "no result in time";

/// The promises and join sets of the guest: the same live and on replay.
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

    /// Schedules the timer of a wait that has a deadline.
    fn deadline(&mut self, deadline: Deadline, host: &mut impl Host) -> Option<PromiseId> {
        let id = (deadline == Deadline::Set).then(|| self.allocate())?;
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

/// The host that answers a guest: live, or from the journal.
pub(crate) trait Host {
    fn random(&mut self, id: &PromiseId) -> Answer;
    fn clock(&mut self, id: &PromiseId) -> Answer;
    fn sleep(&mut self, id: &PromiseId);
    fn schedule(&mut self, id: &PromiseId);
    fn create_set(&mut self, id: &JoinSetId);
    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Answer;
    /// `None` if cancellation interrupted it.
    fn wait(&mut self, ids: &[PromiseId], kind: AwaitKind) -> Option<Answer>;
    fn signal(&mut self, id: &PromiseId, name: &str, deadline: Option<PromiseId>)
    -> Option<Answer>;
    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Answer>;
}

/// Runs the guest until it returns, or until its host has no answer yet.
pub(crate) fn run(calls: &[Call], host: &mut impl Host) -> Vec<Answer> {
    let mut guest = Guest::default();
    calls
        .iter()
        .map(|call| make(*call, &mut guest, host))
        .collect()
}

fn make(call: Call, guest: &mut Guest, host: &mut impl Host) -> Answer {
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
        Call::AwaitSignal(name, deadline) => {
            let deadline = guest.deadline(deadline, host);
            let id = guest.allocate();
            let answer = host.signal(&id, name, deadline);
            if answer.as_deref() == Some(LATE) {
                guest.awaitable.push(id);
            }
            answer
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
        Call::Next(set, deadline) => match guest
            .sets
            .get(usize::from(set) % guest.sets.len().max(1))
            .cloned()
        {
            None => Some("no set".to_owned()),
            Some(set) => {
                let deadline = guest.deadline(deadline, host);
                host.next(&set, deadline)
            }
        },
    };
    answer.unwrap_or_else(|| "cancelled".to_owned())
}
