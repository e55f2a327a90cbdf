//! Tasks for workers that ask this process: who waits for which, and which are being given to somebody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use onward_journal::Text;
use tokio::sync::Notify;

use crate::shard::AttemptId;

/// When there are more lines than this, those are removed that nobody stands in.
const LINES_MAX: usize = 1_000;

/// Those who wait for the same, in turn.
type Line = VecDeque<Weak<Notify>>;

/// Who waits for tasks here. All of it is a hint: whoever misses it finds the task in the store a little later.
#[derive(Default)]
pub(crate) struct Offers {
    /// By owner and function.
    waiting: Mutex<BTreeMap<(Text, Text), Line>>,
    taking: Mutex<BTreeSet<AttemptId>>,
}

impl Offers {
    /// Is told of the next task of one of these functions that nobody else is told of.
    pub(crate) fn wait(&self, owner: &Text, functions: &[Text]) -> Arc<Notify> {
        let told = Arc::new(Notify::new());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() > LINES_MAX {
            waiting.retain(|_, line| line.iter().any(|waiting| waiting.strong_count() > 0));
        }
        for function in functions {
            let line = waiting.entry((owner.clone(), function.clone())).or_default();
            line.retain(|waiting| waiting.strong_count() > 0);
            line.push_back(Arc::downgrade(&told));
        }
        told
    }

    /// There is a task of each of these functions: each is told to somebody who waits.
    pub(crate) fn offer(&self, owner: &Text, functions: &[Text]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for function in functions {
            let Some(line) = waiting.get_mut(&(owner.clone(), function.clone())) else { continue };
            if let Some(told) = std::iter::from_fn(|| line.pop_front()).find_map(|waiting| waiting.upgrade()) {
                told.notify_one();
            }
            if line.is_empty() {
                waiting.remove(&(owner.clone(), function.clone()));
            }
        }
    }

    /// Takes some of these tasks that nobody else of this process is about to claim.
    pub(crate) fn take(&self, tasks: impl Iterator<Item = AttemptId>, most: usize) -> Taken<'_> {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = tasks.filter(|id| taking.insert(*id)).take(most).collect();
        Taken { offers: self, ids }
    }

    /// How many tasks are being claimed now: they may still look as if nobody had them.
    pub(crate) fn in_hand(&self) -> usize {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Tasks that nobody else of this process claims meanwhile.
pub(crate) struct Taken<'a> {
    offers: &'a Offers,
    pub(crate) ids: BTreeSet<AttemptId>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taking = self.offers.taking.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.ids {
            taking.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_told(told: &Notify) -> bool {
        told.notified().now_or_never().is_some()
    }

    #[test]
    fn each_task_is_told_to_one_that_waits_and_is_still_there() {
        let offers = Offers::default();
        let (owner, functions) = (Text::from("acme"), [Text::from("charge"), Text::from("refund")]);
        drop(offers.wait(&owner, &functions));
        let first = offers.wait(&owner, &functions);
        let second = offers.wait(&owner, &functions[..1]);
        offers.offer(&Text::from("others"), &functions);
        assert!(!is_told(&first) && !is_told(&second));
        offers.offer(&owner, &[functions[0].clone(), functions[0].clone()]);
        assert!(is_told(&first) && is_told(&second));
        offers.offer(&owner, &functions[..1]);
        assert!(!is_told(&first) && !is_told(&second), "they were told once");
    }

    #[test]
    fn a_task_is_given_to_one_until_that_is_done_with_it() {
        let offers = Offers::default();
        let id = |number| AttemptId { execution: onward_journal::ExecutionId::default(), number, attempt: 1 };
        let first = offers.take([id(1), id(2), id(3)].into_iter(), 2);
        assert_eq!(first.ids, [id(1), id(2)].into());
        assert_eq!(offers.take([id(1), id(3)].into_iter(), 2).ids, [id(3)].into());
        assert_eq!(offers.in_hand(), 2);
        drop(first);
        assert_eq!(offers.in_hand(), 0);
    }
}
