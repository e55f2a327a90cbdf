//! Matches queued tasks with the workers that wait in this process: which worker waits for which
//! functions, and which tasks are being claimed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onward_base::SharedText;
use onward_journal::ExecutionId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shard::AttemptId;
use crate::task_queue::{ClaimRequest, LeasedTask};

/// Above this number of waiter queues, queues without a live waiter are removed.
const WAITER_QUEUES_MAX: usize = 1_000;

/// How long a closing waiter waits for tasks whose claim is being stored.
const DELIVERY_GRACE: Duration = Duration::from_millis(100);

/// Waiters for the same function of the same owner, in order of registration.
type WaiterQueue = VecDeque<Weak<TaskWaiter>>;

/// The workers that wait for tasks in this process. All of it is a hint: a worker that misses a
/// notification finds the task in the store a little later.
#[derive(Default)]
pub struct TaskMatcher {
    /// Waiter queues by owner and function.
    waiter_queues: Mutex<BTreeMap<(SharedText, SharedText), WaiterQueue>>,
    /// By execution, the workers that completed a task of it and would take the next one.
    sticky_waiters: Mutex<BTreeMap<ExecutionId, Vec<StickyWaiter>>>,
    /// Owners and functions of tasks that had no waiter when they were announced: the store may
    /// hold queued tasks of them.
    backlog: Mutex<BTreeSet<(SharedText, SharedText)>>,
    claims_in_progress: Mutex<BTreeSet<AttemptId>>,
}

/// A waiter that would take the next task of an execution, if it is one of these functions of this
/// owner.
struct StickyWaiter {
    owner: SharedText,
    functions: Vec<SharedText>,
    waiter: Weak<TaskWaiter>,
}

/// A worker that waits for tasks.
struct TaskWaiter {
    worker: SharedText,
    lease_ms: u32,
    notify: Notify,
    state: Mutex<WaiterState>,
}

/// Tasks that a waiter has received and tasks that it can still take.
#[derive(Default)]
struct WaiterState {
    /// Number of tasks the waiter accepts directly when they are stored, without scanning the
    /// store.
    capacity: usize,
    /// Number of tasks whose claim for this waiter is being stored.
    reserved: usize,
    /// Tasks that are stored as claimed by this waiter.
    delivered: Vec<LeasedTask>,
    is_closed: bool,
}

impl TaskWaiter {
    fn new(request: &ClaimRequest) -> Arc<Self> {
        Arc::new(Self {
            worker: request.worker.clone(),
            lease_ms: request.lease_ms,
            notify: Notify::new(),
            state: Mutex::default(),
        })
    }
}

impl WaiterState {
    /// Whether the waiter is open and has no delivered or reserved task. A waiter with a task needs
    /// no notification of more.
    fn is_idle(&self) -> bool {
        !self.is_closed && self.reserved == 0 && self.delivered.is_empty()
    }
}

impl TaskMatcher {
    /// Adds a waiter to the queues of the requested functions. Each announced task notifies one
    /// waiter, the first idle one in its queue.
    pub fn register_waiter(&self, owner: &SharedText, request: &ClaimRequest) -> TaskWait {
        let waiter = TaskWaiter::new(request);
        let mut lines = lock_unpoisoned(&self.waiter_queues);
        if lines.len() > WAITER_QUEUES_MAX {
            lines.retain(|_, line| line.iter().any(|waiting| waiting.strong_count() > 0));
        }
        for function in &request.functions {
            let line = lines.entry((owner.clone(), function.clone())).or_default();
            line.retain(|waiting| waiting.strong_count() > 0);
            line.push_back(Arc::downgrade(&waiter));
        }
        TaskWait(waiter)
    }

    /// Registers a waiter for the next task of this execution, if it is one of the requested
    /// functions. While these functions have a backlog, the waiter gets no task, so that queued
    /// tasks come first.
    pub(crate) fn register_sticky_waiter(
        &self,
        execution: ExecutionId,
        owner: &SharedText,
        request: &ClaimRequest,
    ) -> TaskWait {
        let waiter = TaskWaiter::new(request);
        let waiting = TaskWait(Arc::clone(&waiter));
        if self.has_backlog(owner, &request.functions) {
            return waiting;
        }
        waiting.set_capacity(1);
        let (owner, functions, waiter) = (
            owner.clone(),
            request.functions.clone(),
            Arc::downgrade(&waiter),
        );
        let mut sticky_waiters = lock_unpoisoned(&self.sticky_waiters);
        sticky_waiters.retain(|_, its| its.iter().any(|it| it.waiter.strong_count() > 0));
        sticky_waiters
            .entry(execution)
            .or_default()
            .push(StickyWaiter {
                owner,
                functions,
                waiter,
            });
        waiting
    }

    /// Whether the store may hold queued tasks of these functions.
    fn has_backlog(&self, owner: &SharedText, functions: &[SharedText]) -> bool {
        let backlog = lock_unpoisoned(&self.backlog);
        !backlog.is_empty()
            && functions
                .iter()
                .any(|function| backlog.contains(&(owner.clone(), function.clone())))
    }

    /// Records that, as far as this process knows, no task of these functions is queued.
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

    /// Announces one task of each of these functions: notifies one idle waiter per task. Returns
    /// the functions without a waiter.
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

    /// Reserves a waiter that takes a task of this function as it is stored: first a worker that
    /// has just completed a task of the same execution, then the waiter queue. Returns `None` if no
    /// waiter has capacity.
    pub(crate) fn reserve_slot(
        &self,
        execution: ExecutionId,
        owner: &SharedText,
        function: &SharedText,
    ) -> Option<ClaimSlot> {
        let sticky_waiters = lock_unpoisoned(&self.sticky_waiters);
        let its = sticky_waiters.get(&execution).into_iter().flatten();
        let fitting = its.filter(|it| it.owner == *owner && it.functions.contains(function));
        if let Some(slot) = fitting
            .filter_map(|it| it.waiter.upgrade())
            .find_map(ClaimSlot::try_reserve)
        {
            return Some(slot);
        }
        drop(sticky_waiters);
        let lines = lock_unpoisoned(&self.waiter_queues);
        let line = lines.get(&(owner.clone(), function.clone()))?;
        line.iter()
            .filter_map(Weak::upgrade)
            .find_map(ClaimSlot::try_reserve)
    }

    /// Reserves at most `most` of these tasks, skipping those that another claim of this process is
    /// in progress for.
    pub(crate) fn reserve_tasks(
        &self,
        tasks: impl Iterator<Item = AttemptId>,
        most: usize,
    ) -> ClaimGuard<'_> {
        let mut claims_in_progress = lock_unpoisoned(&self.claims_in_progress);
        let ids = tasks
            .filter(|id| claims_in_progress.insert(*id))
            .take(most)
            .collect();
        ClaimGuard { matcher: self, ids }
    }

    /// Number of tasks that are being claimed now: a scan may still see them as queued.
    pub(crate) fn claims_in_progress_count(&self) -> usize {
        lock_unpoisoned(&self.claims_in_progress).len()
    }
}

/// Registration of a waiter; dropping it closes the waiter.
pub struct TaskWait(Arc<TaskWaiter>);

impl TaskWait {
    /// Sets the number of tasks that the waiter accepts as they are stored.
    pub fn set_capacity(&self, room: usize) {
        lock_unpoisoned(&self.0.state).capacity = room;
    }

    /// Returns when a task may be available.
    pub(crate) async fn wait_notified(&self) {
        self.0.notify.notified().await;
    }

    /// Stops accepting tasks and returns those delivered. Waits at most 100 ms for tasks whose
    /// claim is being stored; those that arrive later are returned to the sender for another
    /// worker.
    pub(crate) async fn close(self) -> Vec<LeasedTask> {
        self.set_capacity(0);
        let all = async {
            while lock_unpoisoned(&self.0.state).reserved > 0 {
                self.wait_notified().await;
            }
        };
        let is_late = tokio::time::timeout(DELIVERY_GRACE, all).await.is_err();
        let mut state = lock_unpoisoned(&self.0.state);
        state.is_closed = is_late;
        std::mem::take(&mut state.delivered)
    }

    /// Takes the tasks that were delivered so far.
    pub fn take_delivered(&self) -> Vec<LeasedTask> {
        std::mem::take(&mut lock_unpoisoned(&self.0.state).delivered)
    }
}

impl Drop for TaskWait {
    fn drop(&mut self) {
        let mut state = lock_unpoisoned(&self.0.state);
        state.capacity = 0;
        state.is_closed = true;
    }
}

/// Reservation of a waiter for one task whose claim is about to be stored.
pub struct ClaimSlot {
    waiter: Arc<TaskWaiter>,
    /// Time of the reservation, from which the age of the lease is measured.
    reserved_at: Instant,
}

impl ClaimSlot {
    fn try_reserve(waiter: Arc<TaskWaiter>) -> Option<Self> {
        let mut state = lock_unpoisoned(&waiter.state);
        state.capacity = state.capacity.checked_sub(1)?;
        state.reserved += 1;
        drop(state);
        Some(Self {
            waiter,
            reserved_at: Instant::now(),
        })
    }

    /// Name of the waiting worker, for display.
    pub(crate) fn worker_name(&self) -> &SharedText {
        &self.waiter.worker
    }

    /// Lease duration that the worker asked for, in milliseconds.
    pub(crate) fn lease_ms(&self) -> u32 {
        self.waiter.lease_ms
    }

    /// Delivers a task that is stored as claimed by the waiter. Returns the task as error if the
    /// waiter has closed, or if storing took more than half of the lease, so that another worker
    /// should have it.
    pub fn deliver_task(self, held: LeasedTask) -> Result<(), LeasedTask> {
        let lease = Duration::from_millis(self.waiter.lease_ms.into());
        let mut state = lock_unpoisoned(&self.waiter.state);
        if state.is_closed || self.reserved_at.elapsed() > lease / 2 {
            return Err(held);
        }
        state.delivered.push(held);
        // A waiter with a task returns it and claims again, rather than wait for more.
        state.capacity = 0;
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
        f.debug_tuple("ClaimSlot")
            .field(&self.waiter.worker)
            .finish()
    }
}

/// Tasks that no other claim of this process takes until this guard is dropped.
pub(crate) struct ClaimGuard<'a> {
    matcher: &'a TaskMatcher,
    pub(crate) ids: BTreeSet<AttemptId>,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let mut claims_in_progress = lock_unpoisoned(&self.matcher.claims_in_progress);
        for id in &self.ids {
            claims_in_progress.remove(id);
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

    fn is_notified(waiting: &TaskWait) -> bool {
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
    fn each_task_notifies_one_registered_waiter() {
        let matcher = TaskMatcher::default();
        let (owner, functions) = (
            SharedText::from("acme"),
            [SharedText::from("charge"), SharedText::from("refund")],
        );
        drop(matcher.register_waiter(&owner, &claim(&functions)));
        let first = matcher.register_waiter(&owner, &claim(&functions));
        let second = matcher.register_waiter(&owner, &claim(&functions[..1]));
        assert_eq!(
            matcher.notify_waiters(&SharedText::from("others"), &functions),
            [&functions[0], &functions[1]]
        );
        assert!(!is_notified(&first) && !is_notified(&second));
        let twice = [functions[0].clone(), functions[0].clone()];
        assert!(matcher.notify_waiters(&owner, &twice).is_empty());
        assert!(is_notified(&first) && is_notified(&second));
        assert_eq!(
            matcher.notify_waiters(&owner, &functions[..1]),
            [&functions[0]]
        );
        assert!(
            !is_notified(&first) && !is_notified(&second),
            "each waiter is notified once"
        );
    }

    #[test]
    fn a_task_is_reserved_for_one_claim_at_a_time() {
        let matcher = TaskMatcher::default();
        let first = matcher.reserve_tasks([id(1), id(2), id(3)].into_iter(), 2);
        assert_eq!(first.ids, [id(1), id(2)].into());
        assert_eq!(
            matcher.reserve_tasks([id(1), id(3)].into_iter(), 2).ids,
            [id(3)].into()
        );
        assert_eq!(matcher.claims_in_progress_count(), 2);
        drop(first);
        assert_eq!(matcher.claims_in_progress_count(), 0);
    }

    #[tokio::test]
    async fn a_waiter_with_capacity_receives_tasks_as_they_are_stored() {
        let matcher = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = matcher.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        assert!(
            matcher.reserve_slot(mine(), &owner, &function).is_none(),
            "a waiter without capacity scans the store itself"
        );
        waiting.set_capacity(2);
        assert!(
            matcher
                .reserve_slot(mine(), &SharedText::from("others"), &function)
                .is_none()
        );
        let (first, second) = (
            matcher.reserve_slot(mine(), &owner, &function).unwrap(),
            matcher.reserve_slot(mine(), &owner, &function).unwrap(),
        );
        assert!(
            matcher.reserve_slot(mine(), &owner, &function).is_none(),
            "the capacity is two"
        );
        first.deliver_task(held(1)).unwrap();
        let mut closing = Box::pin(waiting.close());
        assert_eq!(
            (&mut closing).now_or_never(),
            None,
            "a reserved task is not delivered yet"
        );
        drop(second);
        assert_eq!(closing.now_or_never(), Some(vec![held(1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_a_waiter_does_not_wait_for_a_slow_commit() {
        let matcher = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = matcher.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        waiting.set_capacity(2);
        let (first, second) = (
            matcher.reserve_slot(mine(), &owner, &function).unwrap(),
            matcher.reserve_slot(mine(), &owner, &function).unwrap(),
        );
        first.deliver_task(held(1)).unwrap();
        assert_eq!(waiting.close().await, vec![held(1)]);
        assert_eq!(
            second.deliver_task(held(2)),
            Err(held(2)),
            "a closed waiter returns the task"
        );
    }

    #[test]
    fn a_sticky_waiter_gets_only_tasks_of_its_execution() {
        let matcher = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let request = claim(std::slice::from_ref(&function));
        let (idle, busy) = (
            matcher.register_waiter(&owner, &request),
            matcher.register_sticky_waiter(mine(), &owner, &request),
        );
        idle.set_capacity(1);
        let other = ExecutionId::from_bytes([9; 32]);
        matcher
            .reserve_slot(other, &owner, &function)
            .unwrap()
            .deliver_task(held(1))
            .unwrap();
        matcher
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
    fn a_sticky_waiter_gets_no_task_while_the_function_has_a_backlog() {
        let matcher = TaskMatcher::default();
        let (owner, functions) = (SharedText::from("acme"), [SharedText::from("charge")]);
        matcher.notify_waiters(&owner, &functions);
        let busy = matcher.register_sticky_waiter(mine(), &owner, &claim(&functions));
        assert!(
            matcher
                .reserve_slot(mine(), &owner, &functions[0])
                .is_none()
        );
        drop(busy);
        matcher.clear_backlog(&owner, &functions);
        let _busy = matcher.register_sticky_waiter(mine(), &owner, &claim(&functions));
        assert!(
            matcher
                .reserve_slot(mine(), &owner, &functions[0])
                .is_some()
        );
    }

    #[test]
    fn a_waiter_with_a_task_gets_no_more_before_its_next_claim() {
        let matcher = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = matcher.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        waiting.set_capacity(2);
        matcher
            .reserve_slot(mine(), &owner, &function)
            .unwrap()
            .deliver_task(held(1))
            .unwrap();
        assert!(is_notified(&waiting) && matcher.reserve_slot(mine(), &owner, &function).is_none());
    }

    #[test]
    fn a_task_for_a_closed_waiter_is_returned() {
        let matcher = TaskMatcher::default();
        let (owner, function) = (SharedText::from("acme"), SharedText::from("charge"));
        let waiting = matcher.register_waiter(&owner, &claim(std::slice::from_ref(&function)));
        waiting.set_capacity(1);
        let slot = matcher.reserve_slot(mine(), &owner, &function).unwrap();
        drop(waiting);
        assert_eq!(slot.deliver_task(held(1)), Err(held(1)));
    }
}
