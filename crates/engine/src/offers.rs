//! Tasks for workers that ask this process: who waits for which, and which are being given to somebody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onward_journal::{ExecutionId, Text};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shard::AttemptId;
use crate::work::{Claim, Held};

/// When there are more lines than this, those are removed that nobody stands in.
const LINES_MAX: usize = 1_000;

/// How long tasks that are on their way are waited for.
const MOMENT: Duration = Duration::from_millis(100);

/// Those who wait for the same, in turn.
type Line = VecDeque<Weak<Waiter>>;

/// Who waits for tasks here. All of it is a hint: whoever misses it finds the task in the store a little later.
#[derive(Default)]
pub struct Offers {
    /// By owner and function.
    lines: Mutex<BTreeMap<(Text, Text), Line>>,
    /// Those who are done with a task of an execution, and would go on with what follows.
    followers: Mutex<BTreeMap<ExecutionId, Vec<Follower>>>,
    /// What nobody waited for when it was offered, by owner and function: there may be tasks that wait.
    backlog: Mutex<BTreeSet<(Text, Text)>>,
    taking: Mutex<BTreeSet<AttemptId>>,
}

/// Somebody who would perform these functions of this owner.
struct Follower {
    owner: Text,
    functions: Vec<Text>,
    waiter: Weak<Waiter>,
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

impl Waiter {
    fn new(wanted: &Claim) -> Arc<Self> {
        Arc::new(Self {
            worker: wanted.worker.clone(),
            lease_ms: wanted.lease_ms,
            told: Notify::new(),
            hands: Mutex::default(),
        })
    }
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
        let waiter = Waiter::new(wanted);
        let mut lines = lock(&self.lines);
        if lines.len() > LINES_MAX {
            lines.retain(|_, line| line.iter().any(|waiting| waiting.strong_count() > 0));
        }
        for function in &wanted.functions {
            let line = lines.entry((owner.clone(), function.clone())).or_default();
            line.retain(|waiting| waiting.strong_count() > 0);
            line.push_back(Arc::downgrade(&waiter));
        }
        Waiting(waiter)
    }

    /// Takes the task that follows in this execution, if it is one of these functions. Not while others wait for a worker.
    pub(crate) fn follow(&self, execution: ExecutionId, owner: &Text, wanted: &Claim) -> Waiting {
        let waiter = Waiter::new(wanted);
        let waiting = Waiting(Arc::clone(&waiter));
        if self.is_behind(owner, &wanted.functions) {
            return waiting;
        }
        waiting.open(1);
        let (owner, functions, waiter) = (owner.clone(), wanted.functions.clone(), Arc::downgrade(&waiter));
        let mut followers = lock(&self.followers);
        followers.retain(|_, its| its.iter().any(|it| it.waiter.strong_count() > 0));
        followers.entry(execution).or_default().push(Follower { owner, functions, waiter });
        waiting
    }

    /// Whether tasks of these functions may wait for a worker.
    fn is_behind(&self, owner: &Text, functions: &[Text]) -> bool {
        let backlog = lock(&self.backlog);
        !backlog.is_empty() && functions.iter().any(|function| backlog.contains(&(owner.clone(), function.clone())))
    }

    /// No task of these functions waits for a worker, as far as anybody can tell.
    pub(crate) fn caught_up(&self, owner: &Text, functions: &[Text]) {
        let mut backlog = lock(&self.backlog);
        for function in functions.iter().filter(|_| !backlog.is_empty()).collect::<Vec<_>>() {
            backlog.remove(&(owner.clone(), function.clone()));
        }
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
        drop(lines);
        let mut backlog = lock(&self.backlog);
        if backlog.len() > LINES_MAX {
            backlog.clear();
        }
        backlog.extend(unwanted.iter().map(|&function| (owner.clone(), function.clone())));
        unwanted
    }

    /// Somebody who takes a task of this function as it is stored: whoever has just ended one of the same execution, or whoever
    /// waits. Nothing if nobody would.
    pub(crate) fn seat(&self, execution: ExecutionId, owner: &Text, function: &Text) -> Option<Seat> {
        let followers = lock(&self.followers);
        let its = followers.get(&execution).into_iter().flatten();
        let fitting = its.filter(|it| it.owner == *owner && it.functions.contains(function));
        if let Some(seat) = fitting.filter_map(|it| it.waiter.upgrade()).find_map(Seat::new) {
            return Some(seat);
        }
        drop(followers);
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

    /// Takes no more. Returns the tasks that are theirs; those that are on their way have a moment to come, and go to others after
    /// that.
    pub(crate) async fn close(self) -> Vec<Held> {
        self.open(0);
        let all = async {
            while lock(&self.0.hands).expected > 0 {
                self.told().await;
            }
        };
        let is_late = tokio::time::timeout(MOMENT, all).await.is_err();
        let mut hands = lock(&self.0.hands);
        hands.is_gone = is_late;
        std::mem::take(&mut hands.given)
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
pub struct Seat {
    waiter: Arc<Waiter>,
    /// When its lease begins.
    since: Instant,
}

impl Seat {
    fn new(waiter: Arc<Waiter>) -> Option<Self> {
        let mut hands = lock(&waiter.hands);
        hands.room = hands.room.checked_sub(1)?;
        hands.expected += 1;
        drop(hands);
        Some(Self { waiter, since: Instant::now() })
    }

    /// Who it is, for people.
    pub(crate) fn worker(&self) -> &Text {
        &self.waiter.worker
    }

    /// How long they may go without a sign of life.
    pub(crate) fn lease_ms(&self) -> u32 {
        self.waiter.lease_ms
    }

    /// The task is stored as theirs. Returns it if they have gone, or if that took so long that somebody else should have it.
    pub fn give(self, held: Held) -> Result<(), Held> {
        let lease = Duration::from_millis(self.waiter.lease_ms.into());
        let mut hands = lock(&self.waiter.hands);
        if hands.is_gone || self.since.elapsed() > lease / 2 {
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
        lock(&self.waiter.hands).expected -= 1;
        self.waiter.told.notify_one();
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seat").field(&self.waiter.worker).finish()
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

    fn mine() -> ExecutionId {
        ExecutionId::default()
    }

    fn id(number: u32) -> AttemptId {
        AttemptId { execution: mine(), number, attempt: 1 }
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

    #[tokio::test]
    async fn somebody_who_waits_takes_tasks_as_they_are_stored() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        assert!(offers.seat(mine(), &owner, &function).is_none(), "they are looking themselves");
        waiting.open(2);
        assert!(offers.seat(mine(), &Text::from("others"), &function).is_none());
        let (first, second) =
            (offers.seat(mine(), &owner, &function).unwrap(), offers.seat(mine(), &owner, &function).unwrap());
        assert!(offers.seat(mine(), &owner, &function).is_none(), "there is room for two");
        first.give(held(1)).unwrap();
        let mut closing = Box::pin(waiting.close());
        assert_eq!((&mut closing).now_or_never(), None, "another is on its way");
        drop(second);
        assert_eq!(closing.now_or_never(), Some(vec![held(1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_to_be_stored_keeps_nobody_from_what_is() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        waiting.open(2);
        let (first, second) =
            (offers.seat(mine(), &owner, &function).unwrap(), offers.seat(mine(), &owner, &function).unwrap());
        first.give(held(1)).unwrap();
        assert_eq!(waiting.close().await, vec![held(1)]);
        assert_eq!(second.give(held(2)), Err(held(2)), "it is for somebody else");
    }

    #[test]
    fn who_is_done_with_a_task_gets_what_follows_and_nothing_else() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let wanted = claim(std::slice::from_ref(&function));
        let (idle, busy) = (offers.wait(&owner, &wanted), offers.follow(mine(), &owner, &wanted));
        idle.open(1);
        let other = ExecutionId::from_bytes([9; 32]);
        offers.seat(other, &owner, &function).unwrap().give(held(1)).unwrap();
        offers.seat(mine(), &owner, &function).unwrap().give(held(2)).unwrap();
        assert_eq!((idle.take(), busy.take()), (vec![held(1)], vec![held(2)]));
    }

    #[test]
    fn nobody_gets_what_follows_while_others_wait_for_a_worker() {
        let offers = Offers::default();
        let (owner, functions) = (Text::from("acme"), [Text::from("charge")]);
        offers.offer(&owner, &functions);
        let busy = offers.follow(mine(), &owner, &claim(&functions));
        assert!(offers.seat(mine(), &owner, &functions[0]).is_none());
        drop(busy);
        offers.caught_up(&owner, &functions);
        let _busy = offers.follow(mine(), &owner, &claim(&functions));
        assert!(offers.seat(mine(), &owner, &functions[0]).is_some());
    }

    #[test]
    fn who_has_something_is_given_no_more_before_they_ask_again() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        waiting.open(2);
        offers.seat(mine(), &owner, &function).unwrap().give(held(1)).unwrap();
        assert!(is_told(&waiting) && offers.seat(mine(), &owner, &function).is_none());
    }

    #[test]
    fn a_task_of_somebody_who_has_gone_comes_back() {
        let offers = Offers::default();
        let (owner, function) = (Text::from("acme"), Text::from("charge"));
        let waiting = offers.wait(&owner, &claim(std::slice::from_ref(&function)));
        waiting.open(1);
        let seat = offers.seat(mine(), &owner, &function).unwrap();
        drop(waiting);
        assert_eq!(seat.give(held(1)), Err(held(1)));
    }
}
