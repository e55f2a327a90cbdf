//! Tasks for workers that ask this process: who waits for which, and which are being given to somebody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use onward_journal::Text;
use tokio::sync::Notify;

use crate::shard::AttemptId;
use crate::work::{Claim, Held};

/// When there are more lines than this, those are removed that nobody stands in.
const LINES_MAX: usize = 1_000;

/// Those who wait for the same, in turn.
type Line = VecDeque<Weak<Waiter>>;

/// Who waits for tasks here. All of it is a hint: whoever misses it finds the task in the store a little later.
#[derive(Default)]
pub struct Offers {
    /// By owner and function.
    lines: Mutex<BTreeMap<(Text, Text), Line>>,
    taking: Mutex<BTreeSet<AttemptId>>,
    turns: AtomicUsize,
}

/// Somebody who waits.
struct Waiter {
    worker: Text,
    lease_ms: u32,
    told: Notify,
    hands: Mutex<Hands>,
}

/// What somebody who waits has, and can take.
#[derive(Default)]
struct Hands {
    /// Tasks that they would take as they are stored, rather than look for them.
    room: usize,
    /// Tasks that are being stored as theirs.
    expected: usize,
    /// Tasks that are theirs.
    given: Vec<Held>,
    is_gone: bool,
}

impl Hands {
    /// Whether nothing is theirs, or about to be: who has something need not be told of more.
    fn are_empty(&self) -> bool {
        !self.is_gone && self.expected == 0 && self.given.is_empty()
    }
}

impl Offers {
    /// Is told of the next task of one of these functions that nobody else is told of.
    pub fn wait(&self, owner: &Text, wanted: &Claim) -> Waiting {
        self.stand(owner, wanted, Line::push_back)
    }

    /// The same, before all others: whoever is done with a task gets what follows from that.
    pub(crate) fn wait_first(&self, owner: &Text, wanted: &Claim) -> Waiting {
        self.stand(owner, wanted, Line::push_front)
    }

    fn stand(&self, owner: &Text, wanted: &Claim, place: fn(&mut Line, Weak<Waiter>)) -> Waiting {
        let waiter = Arc::new(Waiter {
            worker: wanted.worker.clone(),
            lease_ms: wanted.lease_ms,
            told: Notify::new(),
            hands: Mutex::default(),
        });
        let mut lines = lock(&self.lines);
        if lines.len() > LINES_MAX {
            lines.retain(|_, line| line.iter().any(|waiting| waiting.strong_count() > 0));
        }
        for function in &wanted.functions {
            let line = lines.entry((owner.clone(), function.clone())).or_default();
            line.retain(|waiting| waiting.strong_count() > 0);
            place(line, Arc::downgrade(&waiter));
        }
        Waiting(waiter)
    }

    /// There is a task of each of these functions: each is told to somebody who waits. Returns those that nobody waits for.
    pub(crate) fn offer<'a>(&self, owner: &Text, functions: &'a [Text]) -> Vec<&'a Text> {
        let mut lines = lock(&self.lines);
        let mut unwanted = Vec::new();
        for function in functions {
            let Some(line) = lines.get_mut(&(owner.clone(), function.clone())) else {
                unwanted.push(function);
                continue;
            };
            let in_turn = std::iter::from_fn(|| line.pop_front()).filter_map(|waiting| waiting.upgrade());
            if let Some(waiter) = in_turn.into_iter().find(|waiter| lock(&waiter.hands).are_empty()) {
                waiter.told.notify_one();
            } else {
                unwanted.push(function);
            }
            if line.is_empty() {
                lines.remove(&(owner.clone(), function.clone()));
            }
        }
        unwanted
    }

    /// There are tasks of this function elsewhere: all who wait may look for them.
    pub(crate) fn offer_to_all(&self, owner: &Text, function: &Text) {
        let lines = lock(&self.lines);
        for waiter in lines.get(&(owner.clone(), function.clone())).into_iter().flatten().filter_map(Weak::upgrade) {
            waiter.told.notify_one();
        }
    }

    /// Somebody who takes a task of this function as it is stored. Nothing if nobody would.
    pub(crate) fn seat(&self, owner: &Text, function: &Text) -> Option<Seat> {
        let lines = lock(&self.lines);
        let line = lines.get(&(owner.clone(), function.clone()))?;
        line.iter().filter_map(Weak::upgrade).find_map(Seat::new)
    }

    /// Takes some of these tasks that nobody else of this process is about to claim.
    pub(crate) fn take(&self, tasks: impl Iterator<Item = AttemptId>, most: usize) -> Taken<'_> {
        let mut taking = lock(&self.taking);
        let ids = tasks.filter(|id| taking.insert(*id)).take(most).collect();
        Taken { offers: self, ids }
    }

    /// A number that is another each time.
    pub(crate) fn turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// How many tasks are being claimed now: they may still look as if nobody had them.
    pub(crate) fn in_hand(&self) -> usize {
        lock(&self.taking).len()
    }
}

/// A place in the line.
pub struct Waiting(Arc<Waiter>);

impl Waiting {
    /// Takes so many tasks from here on as they are stored.
    pub fn open(&self, room: usize) {
        lock(&self.0.hands).room = room;
    }

    /// Returns when there may be something.
    pub(crate) async fn told(&self) {
        self.0.told.notified().await;
    }

    /// Takes no more. Returns the tasks that are theirs, when those that were on their way have come.
    pub(crate) async fn close(&self) -> Vec<Held> {
        self.open(0);
        loop {
            if lock(&self.0.hands).expected == 0 {
                return self.take();
            }
            self.told().await;
        }
    }

    /// The tasks that have come so far.
    pub fn take(&self) -> Vec<Held> {
        std::mem::take(&mut lock(&self.0.hands).given)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut hands = lock(&self.0.hands);
        hands.room = 0;
        hands.is_gone = true;
    }
}

/// A task that somebody who waits will have, if it is stored.
pub struct Seat(Arc<Waiter>);

impl Seat {
    fn new(waiter: Arc<Waiter>) -> Option<Self> {
        let mut hands = lock(&waiter.hands);
        hands.room = hands.room.checked_sub(1)?;
        hands.expected += 1;
        drop(hands);
        Some(Self(waiter))
    }

    /// Who it is, for people.
    pub(crate) fn worker(&self) -> &Text {
        &self.0.worker
    }

    /// How long they may go without a sign of life.
    pub(crate) fn lease_ms(&self) -> u32 {
        self.0.lease_ms
    }

    /// The task is stored as theirs. Returns it if they have gone.
    pub fn give(self, held: Held) -> Result<(), Held> {
        let mut hands = lock(&self.0.hands);
        if hands.is_gone {
            return Err(held);
        }
        hands.given.push(held);
        // Whoever has something asks again rather than to wait for more.
        hands.room = 0;
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.0.hands).expected -= 1;
        self.0.told.notify_one();
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seat").field(&self.0.worker).finish()
    }
}

/// Tasks that nobody else of this process claims meanwhile.
pub(crate) struct Taken<'a> {
    offers: &'a Offers,
    pub(crate) ids: BTreeSet<AttemptId>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taking = lock(&self.offers.taking);
        for id in &self.ids {
            taking.remove(id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use onward_journal::{Delivery, Payload, Timestamp};

    use super::*;

    fn is_told(waiting: &Waiting) -> bool {
        waiting.told().now_or_never().is_some()
    }

    fn claim(functions: &[Text]) -> Claim {
        Claim { worker: "anna".into(), functions: functions.to_vec(), most: 2, lease_ms: 1_000 }
    }

    fn id(number: u32) -> AttemptId {
        AttemptId { execution: onward_journal::ExecutionId::default(), number, attempt: 1 }
    }

    fn held(number: u32) -> Held {
        Held {
            id: id(number),
            claim: "secret".into(),
            function: "charge".into(),
            input: Payload::null(),
            delivery: Delivery::AtLeastOnce,
            timeout_ms: None,
            leased_until: Timestamp::MAX,
        }
    }

    #[test]
    fn each_task_is_told_to_one_that_waits_and_is_still_there() {
        let offers = Offers::default();
        let (owner, functions) = (Text::from("acme"), [Text::from("charge"), Text::from("refund")]);
        drop(offers.wait(&owner, &claim(&functions)));
        let first = offers.wait(&owner, &claim(&functions));
        let second = offers.wait(&owner, &claim(&functions[..1]));
        assert_eq!(offers.offer(&Text::from("others"), &functions), [&functions[0], &functions[1]]);
        assert!(!is_told(&first) && !is_told(&second));
        let twice = [functions[0].clone(), functions[0].clone()];
        assert!(offers.offer(&owner, &twice).is_empty());
        assert!(is_told(&first) && is_told(&second));
        assert_eq!(offers.offer(&owner, &functions[..1]), [&functions[0]]);
        assert!(!is_told(&first) && !is_told(&second), "they were told once");
        offers.offer_to_all(&owner, &functions[1]);
        assert!(is_told(&first) && !is_told(&second));
    }

    #[test]
    fn a_task_is_given_to_one_until_that_is_done_with_it() {
        let offers = Offers::default();
        let first = offers.take([id(1), id(2), id(3)].into_iter(), 2);
        assert_eq!(first.ids, [id(1), id(2)].into());
        assert_eq!(offers.take([id(1), id(3)].into_iter(), 2).ids, [id(3)].into());
        assert_eq!(offers.in_hand(), 2);
        drop(first);
        assert_eq!(offers.in_hand(), 0);
    }

    #[test]
    fn somebody_who_waits_takes_tasks_as_they_are_stored() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        assert!(offers.seat(&owner, &function).is_none(), "they are looking themselves");
        waiting.open(2);
        assert!(offers.seat(&Text::from("others"), &function).is_none());
        let (first, second) = (offers.seat(&owner, &function).unwrap(), offers.seat(&owner, &function).unwrap());
        assert!(offers.seat(&owner, &function).is_none(), "there is room for two");
        first.give(held(1)).unwrap();
        let mut closing = Box::pin(waiting.close());
        assert_eq!((&mut closing).now_or_never(), None, "another is on its way");
        drop(second);
        assert_eq!(closing.now_or_never(), Some(vec![held(1)]));
    }

    #[test]
    fn who_is_done_with_a_task_comes_before_those_who_wait() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let wanted = claim(std::slice::from_ref(&function));
        let (idle, busy) = (offers.wait(&owner, &wanted), offers.wait_first(&owner, &wanted));
        idle.open(1);
        busy.open(1);
        offers.seat(&owner, &function).unwrap().give(held(1)).unwrap();
        assert_eq!((idle.take(), busy.take()), (vec![], vec![held(1)]));
    }

    #[test]
    fn who_has_something_is_given_no_more_before_they_ask_again() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        waiting.open(2);
        offers.seat(&owner, &function).unwrap().give(held(1)).unwrap();
        assert!(is_told(&waiting) && offers.seat(&owner, &function).is_none());
    }

    #[test]
    fn a_task_of_somebody_who_has_gone_comes_back() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        waiting.open(1);
        let seat = offers.seat(&owner, &function).unwrap();
        drop(waiting);
        assert_eq!(seat.give(held(1)), Err(held(1)));
    }
}
