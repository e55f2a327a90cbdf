//! Tasks for workers that ask this process: who waits for which, and which are being given to somebody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onward_base::SharedText;
use onward_journal::ExecutionId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shard::AttemptId;
use crate::task_queue::{ClaimRequest, LeasedTask};

/// When there are more lines than this, those are removed that nobody stands in.
const WAITER_QUEUES_MAX: usize = 1_000;

/// How long tasks that are on their way are waited for.
const DELIVERY_GRACE: Duration = Duration::from_millis(100);

/// Those who wait for the same, in turn.
type WaiterQueue = VecDeque<Weak<TaskWaiter>>;

/// Who waits for tasks here. All of it is a hint: whoever misses it finds the task in the store a little later.
#[derive(Default)]
pub struct TaskMatcher {
    /// By owner and function.
    waiter_queues: Mutex<BTreeMap<(SharedText, SharedText), WaiterQueue>>,
    /// Those who are done with a task of an execution, and would go on with what follows.
    sticky_waiters: Mutex<BTreeMap<ExecutionId, Vec<StickyWaiter>>>,
    /// What nobody waited for when it was offered, by owner and function: there may be tasks that wait.
    backlog: Mutex<BTreeSet<(SharedText, SharedText)>>,
    claims_in_progress: Mutex<BTreeSet<AttemptId>>,
}

/// Somebody who would perform these functions of this owner.
struct StickyWaiter {
    owner: SharedText,
    functions: Vec<SharedText>,
    waiter: Weak<TaskWaiter>,
}

/// Somebody who waits.
struct TaskWaiter {
    worker: SharedText,
    lease_ms: u32,
    notify: Notify,
    state: Mutex<WaiterState>,
}

/// What somebody who waits has, and can take.
#[derive(Default)]
struct WaiterState {
    /// Tasks that they would take as they are stored, rather than look for them.
    capacity: usize,
    /// Tasks that are being stored as theirs.
    reserved: usize,
    /// Tasks that are theirs.
    delivered: Vec<LeasedTask>,
    is_closed: bool,
}

impl TaskWaiter {
    fn new(wanted: &ClaimRequest) -> Arc<Self> {
        Arc::new(Self {
            worker: wanted.worker.clone(),
            lease_ms: wanted.lease_ms,
            notify: Notify::new(),
            state: Mutex::default(),
        })
    }
}

impl WaiterState {
    /// Whether nothing is theirs, or about to be: who has something need not be told of more.
    fn is_idle(&self) -> bool {
        !self.is_closed && self.reserved == 0 && self.delivered.is_empty()
    }
}

impl TaskMatcher {
    /// Is told of the next task of one of these functions that nobody else is told of.
    pub fn register_waiter(&self, owner: &SharedText, wanted: &ClaimRequest) -> TaskWait {
        let waiter = TaskWaiter::new(wanted);
        let mut lines = lock_unpoisoned(&self.waiter_queues);
        if lines.len() > WAITER_QUEUES_MAX {
            lines.retain(|_, line| line.iter().any(|waiting| waiting.strong_count() > 0));
        }
        for function in &wanted.functions {
            let line = lines.entry((owner.clone(), function.clone())).or_default();
            line.retain(|waiting| waiting.strong_count() > 0);
            line.push_back(Arc::downgrade(&waiter));
        }
        TaskWait(waiter)
    }

    /// Takes the task that follows in this execution, if it is one of these functions. Not while others wait for a worker.
    pub(crate) fn register_sticky_waiter(
        &self,
        execution: ExecutionId,
        owner: &SharedText,
        wanted: &ClaimRequest,
    ) -> TaskWait {
        let waiter = TaskWaiter::new(wanted);
        let waiting = TaskWait(Arc::clone(&waiter));
        if self.has_backlog(owner, &wanted.functions) {
            return waiting;
        }
        waiting.set_capacity(1);
        let (owner, functions, waiter) = (
            owner.clone(),
            wanted.functions.clone(),
            Arc::downgrade(&waiter),
        );
        let mut followers = lock_unpoisoned(&self.sticky_waiters);
        followers.retain(|_, its| its.iter().any(|it| it.waiter.strong_count() > 0));
        followers.entry(execution).or_default().push(StickyWaiter {
            owner,
            functions,
            waiter,
        });
        waiting
    }

    /// Whether tasks of these functions may wait for a worker.
    fn has_backlog(&self, owner: &SharedText, functions: &[SharedText]) -> bool {
        let backlog = lock_unpoisoned(&self.backlog);
        !backlog.is_empty()
            && functions
                .iter()
                .any(|function| backlog.contains(&(owner.clone(), function.clone())))
    }

    /// No task of these functions waits for a worker, as far as anybody can tell.
    pub(crate) fn clear_backlog(&self, owner: &SharedText, functions: &[SharedText]) {
        let mut backlog = lock_unpoisoned(&self.backlog);
        for function in functions
            .iter()
            .filter(|_| !backlog.is_empty())
            .collect::<Vec<_>>()
        {
            backlog.remove(&(owner.clone(), function.clone()));
        }
    }

    /// There is a task of each of these functions: each is told to somebody who waits. Returns those that nobody waits for.
    pub(crate) fn notify_waiters<'a>(
        &self,
        owner: &SharedText,
        functions: &'a [SharedText],
    ) -> Vec<&'a SharedText> {
        let mut lines = lock_unpoisoned(&self.waiter_queues);
        let mut unwanted = Vec::new();
        for function in functions {
            let Some(line) = lines.get_mut(&(owner.clone(), function.clone())) else {
                unwanted.push(function);
                continue;
            };
            let in_turn =
                std::iter::from_fn(|| line.pop_front()).filter_map(|waiting| waiting.upgrade());
            if let Some(waiter) = in_turn
                .into_iter()
                .find(|waiter| lock_unpoisoned(&waiter.state).is_idle())
            {
                waiter.notify.notify_one();
            } else {
                unwanted.push(function);
            }
            if line.is_empty() {
                lines.remove(&(owner.clone(), function.clone()));
            }
        }
        drop(lines);
        let mut backlog = lock_unpoisoned(&self.backlog);
        if backlog.len() > WAITER_QUEUES_MAX {
            backlog.clear();
        }
        backlog.extend(
            unwanted
                .iter()
                .map(|&function| (owner.clone(), function.clone())),
        );
        unwanted
    }

    /// Somebody who takes a task of this function as it is stored: whoever has just ended one of the same execution, or whoever
    /// waits. Nothing if nobody would.
    pub(crate) fn reserve_slot(
        &self,
        execution: ExecutionId,
        owner: &SharedText,
        function: &SharedText,
    ) -> Option<ClaimSlot> {
        let followers = lock_unpoisoned(&self.sticky_waiters);
        let its = followers.get(&execution).into_iter().flatten();
        let fitting = its.filter(|it| it.owner == *owner && it.functions.contains(function));
        if let Some(seat) = fitting
            .filter_map(|it| it.waiter.upgrade())
            .find_map(ClaimSlot::try_reserve)
        {
            return Some(seat);
        }
        drop(followers);
        let lines = lock_unpoisoned(&self.waiter_queues);
        let line = lines.get(&(owner.clone(), function.clone()))?;
        line.iter()
            .filter_map(Weak::upgrade)
            .find_map(ClaimSlot::try_reserve)
    }

    /// Takes some of these tasks that nobody else of this process is about to claim.
    pub(crate) fn reserve_tasks(
        &self,
        tasks: impl Iterator<Item = AttemptId>,
        most: usize,
    ) -> ClaimGuard<'_> {
        let mut taking = lock_unpoisoned(&self.claims_in_progress);
        let ids = tasks.filter(|id| taking.insert(*id)).take(most).collect();
        ClaimGuard { matcher: self, ids }
    }

    /// How many tasks are being claimed now: they may still look as if nobody had them.
    pub(crate) fn claims_in_progress_count(&self) -> usize {
        lock_unpoisoned(&self.claims_in_progress).len()
    }
}

/// A place in the line.
pub struct TaskWait(Arc<TaskWaiter>);

impl TaskWait {
    /// Takes so many tasks from here on as they are stored.
    pub fn set_capacity(&self, room: usize) {
        lock_unpoisoned(&self.0.state).capacity = room;
    }

    /// Returns when there may be something.
    pub(crate) async fn wait_notified(&self) {
        self.0.notify.notified().await;
    }

    /// Takes no more. Returns the tasks that are theirs; those that are on their way have a moment to come, and go to others after
    /// that.
    pub(crate) async fn close(self) -> Vec<LeasedTask> {
        self.set_capacity(0);
        let all = async {
            while lock_unpoisoned(&self.0.state).reserved > 0 {
                self.wait_notified().await;
            }
        };
        let is_late = tokio::time::timeout(DELIVERY_GRACE, all).await.is_err();
        let mut hands = lock_unpoisoned(&self.0.state);
        hands.is_closed = is_late;
        std::mem::take(&mut hands.delivered)
    }

    /// The tasks that have come so far.
    pub fn take_delivered(&self) -> Vec<LeasedTask> {
        std::mem::take(&mut lock_unpoisoned(&self.0.state).delivered)
    }
}

impl Drop for TaskWait {
    fn drop(&mut self) {
        let mut hands = lock_unpoisoned(&self.0.state);
        hands.capacity = 0;
        hands.is_closed = true;
    }
}

/// A task that somebody who waits will have, if it is stored.
pub struct ClaimSlot {
    waiter: Arc<TaskWaiter>,
    /// When its lease begins.
    reserved_at: Instant,
}

impl ClaimSlot {
    fn try_reserve(waiter: Arc<TaskWaiter>) -> Option<Self> {
        let mut hands = lock_unpoisoned(&waiter.state);
        hands.capacity = hands.capacity.checked_sub(1)?;
        hands.reserved += 1;
        drop(hands);
        Some(Self {
            waiter,
            reserved_at: Instant::now(),
        })
    }

    /// Who it is, for people.
    pub(crate) fn worker_name(&self) -> &SharedText {
        &self.waiter.worker
    }

    /// How long they may go without a sign of life.
    pub(crate) fn lease_ms(&self) -> u32 {
        self.waiter.lease_ms
    }

    /// The task is stored as theirs. Returns it if they have gone, or if that took so long that somebody else should have it.
    pub fn deliver_task(self, held: LeasedTask) -> Result<(), LeasedTask> {
        let lease = Duration::from_millis(self.waiter.lease_ms.into());
        let mut hands = lock_unpoisoned(&self.waiter.state);
        if hands.is_closed || self.reserved_at.elapsed() > lease / 2 {
            return Err(held);
        }
        hands.delivered.push(held);
        // Whoever has something asks again rather than to wait for more.
        hands.capacity = 0;
        Ok(())
    }
}

impl Drop for ClaimSlot {
    fn drop(&mut self) {
        lock_unpoisoned(&self.waiter.state).reserved -= 1;
        self.waiter.notify.notify_one();
    }
}

impl std::fmt::Debug for ClaimSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seat").field(&self.waiter.worker).finish()
    }
}

/// Tasks that nobody else of this process claims meanwhile.
pub(crate) struct ClaimGuard<'a> {
    matcher: &'a TaskMatcher,
    pub(crate) ids: BTreeSet<AttemptId>,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let mut taking = lock_unpoisoned(&self.matcher.claims_in_progress);
        for id in &self.ids {
            taking.remove(id);
        }
    }
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use onward_base::{Payload, Timestamp};
    use onward_journal::DeliveryGuarantee;

    use super::*;

    fn is_told(waiting: &TaskWait) -> bool {
        waiting.wait_notified().now_or_never().is_some()
    }

    fn claim(functions: &[SharedText]) -> ClaimRequest {
        ClaimRequest {
            worker: "anna".into(),
            functions: functions.to_vec(),
            max_tasks: 2,
            lease_ms: 1_000,
        }
    }

    fn mine() -> ExecutionId {
        ExecutionId::default()
    }

    fn id(number: u32) -> AttemptId {
        AttemptId {
            execution: mine(),
            number,
            attempt: 1,
        }
    }

    fn held(number: u32) -> LeasedTask {
        LeasedTask {
            id: id(number),
            claim_token: "secret".into(),
            function: "charge".into(),
            input: Payload::null(),
            delivery: DeliveryGuarantee::AtLeastOnce,
            timeout_ms: None,
            leased_until: Timestamp::MAX,
        }
    }

    #[test]
    fn each_task_is_told_to_one_that_waits_and_is_still_there() {
        let offers = TaskMatcher::default();
        let (owner, functions) = (
            SharedText::from("acme"),
            [SharedText::from("charge"), SharedText::from("refund")],
        );
        drop(offers.register_waiter(&owner, &claim(&functions)));
        let first = offers.register_waiter(&owner, &claim(&functions));
        let second = offers.register_waiter(&owner, &claim(&functions[..1]));
        assert_eq!(
            offers.notify_waiters(&SharedText::from("others"), &functions),
            [&functions[0], &functions[1]]
        );
        assert!(!is_told(&first) && !is_told(&second));
        let twice = [functions[0].clone(), functions[0].clone()];
        assert!(offers.notify_waiters(&owner, &twice).is_empty());
        assert!(is_told(&first) && is_told(&second));
        assert_eq!(
            offers.notify_waiters(&owner, &functions[..1]),
            [&functions[0]]
        );
        assert!(!is_told(&first) && !is_told(&second), "they were told once");
    }

    #[test]
    fn a_task_is_given_to_one_until_that_is_done_with_it() {
        let offers = TaskMatcher::default();
        let first = offers.reserve_tasks([id(1), id(2), id(3)].into_iter(), 2);
        assert_eq!(first.ids, [id(1), id(2)].into());
        assert_eq!(
            offers.reserve_tasks([id(1), id(3)].into_iter(), 2).ids,
            [id(3)].into()
        );
        assert_eq!(offers.claims_in_progress_count(), 2);
        drop(first);
        assert_eq!(offers.claims_in_progress_count(), 0);
    }

    #[tokio::test]
    async fn somebody_who_waits_takes_tasks_as_they_are_stored() {
        let offers = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = offers.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        assert!(
            offers.reserve_slot(mine(), &owner, &function).is_none(),
            "they are looking themselves"
        );
        waiting.set_capacity(2);
        assert!(
            offers
                .reserve_slot(mine(), &SharedText::from("others"), &function)
                .is_none()
        );
        let (first, second) = (
            offers.reserve_slot(mine(), &owner, &function).unwrap(),
            offers.reserve_slot(mine(), &owner, &function).unwrap(),
        );
        assert!(
            offers.reserve_slot(mine(), &owner, &function).is_none(),
            "there is room for two"
        );
        first.deliver_task(held(1)).unwrap();
        let mut closing = Box::pin(waiting.close());
        assert_eq!((&mut closing).now_or_never(), None, "another is on its way");
        drop(second);
        assert_eq!(closing.now_or_never(), Some(vec![held(1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_to_be_stored_keeps_nobody_from_what_is() {
        let offers = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = offers.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        waiting.set_capacity(2);
        let (first, second) = (
            offers.reserve_slot(mine(), &owner, &function).unwrap(),
            offers.reserve_slot(mine(), &owner, &function).unwrap(),
        );
        first.deliver_task(held(1)).unwrap();
        assert_eq!(waiting.close().await, vec![held(1)]);
        assert_eq!(
            second.deliver_task(held(2)),
            Err(held(2)),
            "it is for somebody else"
        );
    }

    #[test]
    fn who_is_done_with_a_task_gets_what_follows_and_nothing_else() {
        let offers = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let wanted = claim(std::slice::from_ref(&function));
        let (idle, busy) = (
            offers.register_waiter(&owner, &wanted),
            offers.register_sticky_waiter(mine(), &owner, &wanted),
        );
        idle.set_capacity(1);
        let other = ExecutionId::from_bytes([9; 32]);
        offers
            .reserve_slot(other, &owner, &function)
            .unwrap()
            .deliver_task(held(1))
            .unwrap();
        offers
            .reserve_slot(mine(), &owner, &function)
            .unwrap()
            .deliver_task(held(2))
            .unwrap();
        assert_eq!(
            (idle.take_delivered(), busy.take_delivered()),
            (vec![held(1)], vec![held(2)])
        );
    }

    #[test]
    fn nobody_gets_what_follows_while_others_wait_for_a_worker() {
        let offers = TaskMatcher::default();
        let (owner, functions) = (SharedText::from("acme"), [SharedText::from("charge")]);
        offers.notify_waiters(&owner, &functions);
        let busy = offers.register_sticky_waiter(mine(), &owner, &claim(&functions));
        assert!(offers.reserve_slot(mine(), &owner, &functions[0]).is_none());
        drop(busy);
        offers.clear_backlog(&owner, &functions);
        let _busy = offers.register_sticky_waiter(mine(), &owner, &claim(&functions));
        assert!(offers.reserve_slot(mine(), &owner, &functions[0]).is_some());
    }

    #[test]
    fn who_has_something_is_given_no_more_before_they_ask_again() {
        let offers = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = offers.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        waiting.set_capacity(2);
        offers
            .reserve_slot(mine(), &owner, &function)
            .unwrap()
            .deliver_task(held(1))
            .unwrap();
        assert!(is_told(&waiting) && offers.reserve_slot(mine(), &owner, &function).is_none());
    }

    #[test]
    fn a_task_of_somebody_who_has_gone_comes_back() {
        let offers = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = offers.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        waiting.set_capacity(1);
        let seat = offers.reserve_slot(mine(), &owner, &function).unwrap();
        drop(waiting);
        assert_eq!(seat.deliver_task(held(1)), Err(held(1)));
    }
}
