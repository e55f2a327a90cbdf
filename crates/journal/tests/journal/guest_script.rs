//! A guest as a list of calls, and the interface of the host that answers them.

use std::collections::BTreeSet;

use onward_journal::{AwaitKind, JoinSetId, PromiseId};

use super::script::*;

/// A call that the guest makes. Numbers choose among the promises it has; the last flag says
/// whether there is a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
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

/// The answer to a call. A cancelled guest continues with its cleanup, which is the rest of its
/// calls.
pub(crate) type Told = String;

/// The answers for a signal and for a result that missed the deadline.
pub(crate) const LATE: &str = "[None]";

pub(crate) const NO_RESULT: &str = "no result in time";

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

/// The host that answers a guest: live, or from the journal.
pub(crate) trait Host {
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
pub(crate) fn run(calls: &[Call], host: &mut impl Host) -> Vec<Told> {
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
