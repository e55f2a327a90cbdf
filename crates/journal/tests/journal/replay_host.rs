//! The replay host of a guest: answers from the recorded journal alone.

use onward_journal::{AwaitKind, Event, JoinSetId, PromiseId};

use super::guest_script::{Answer, Host, NO_RESULT};
use super::replay_index::{AwaitEnd, ReplayIndex};

/// The journal as a host. It looks only at what the index offers.
pub(crate) struct Recording<'a> {
    pub(crate) replay: ReplayIndex<'a>,
    pub(crate) awaits: usize,
    pub(crate) taken: std::collections::BTreeMap<JoinSetId, usize>,
    pub(crate) submitted: std::collections::BTreeMap<PromiseId, JoinSetId>,
    pub(crate) members: std::collections::BTreeMap<JoinSetId, usize>,
}

impl<'a> Recording<'a> {
    fn outcome(&self, id: &PromiseId) -> Answer {
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

    fn seen(&self, ids: &[PromiseId], sequence: u64) -> Answer {
        format!(
            "{:?}",
            ids.iter()
                .map(|id| self.replay.outcome_before(id, sequence))
                .collect::<Vec<_>>()
        )
    }
}

impl Host for Recording<'_> {
    fn random(&mut self, id: &PromiseId) -> Answer {
        self.outcome(id)
    }

    fn clock(&mut self, id: &PromiseId) -> Answer {
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
    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Answer {
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

    fn wait(&mut self, ids: &[PromiseId], _: AwaitKind) -> Option<Answer> {
        let resumed = self.next_await()?;
        Some(self.seen(ids, resumed))
    }

    fn signal(&mut self, id: &PromiseId, _: &str, _: Option<PromiseId>) -> Option<Answer> {
        let resumed = match self.replay.allocating_event(id) {
            Some(Event::SignalReceived { .. }) => u64::MAX,
            _ => self.next_await()?,
        };
        Some(self.seen(std::slice::from_ref(id), resumed))
    }

    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Answer> {
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
