//! The loop of one shard of a node: claims the shard, feeds its core with inputs, and performs the
//! actions that the core returns.

mod actions;
mod loader;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_journal::{ExecutionId, InvokeResult};
use onward_store::shard_lease::{self, HeldLease};
use onward_store::{ColumnValue, Error, ShardId, StoreErrorKind, TableScan};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::membership::duration_millis;
use super::store_time::StoreTime;
use super::{Node, ShardHint};
use crate::client;
use crate::shard::{AttemptEnd, AttemptId, AttemptReporter, ShardCore, ShardInput};

/// Delay before a failed read is retried.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of ready inputs processed before the loop yields.
const INPUT_BURST_MAX: usize = 16;

/// Tolerated clock skew between two nodes, in milliseconds.
const CLOCK_SKEW_MS: u64 = 50;

/// Maximum number of further attempt ends that are recorded together with the first.
const ATTEMPT_ENDS_BATCH_MAX: usize = 256;

/// Instruction to a shard loop to keep or release its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardDirective {
    /// Keep the shard.
    Keep,
    /// Release the shard to another node once the work in flight has ended; retry later if it takes
    /// too long.
    HandOver,
    /// The node stops: release the shard within the drain timeout, even if work is still in flight.
    Stop,
}

/// How long a shard is kept after a handover that failed because work in it takes long.
const HANDOVER_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Claims a shard and, if that succeeds, runs it until it is to be released or another node takes
/// it over. Renews the lease meanwhile: the loop of the shard runs guests, on threads of its own if
/// the node has them, and must not be able to delay the renewal.
pub(super) async fn run_shard(
    node: &Arc<Node>,
    shard: ShardId,
    leave: watch::Receiver<ShardDirective>,
) -> Result<(), Error> {
    let claimed = shard_lease::claim_shard(
        &*node.store,
        shard,
        node.holder.clone(),
        duration_millis(node.options.lease_duration),
    )
    .await;
    let ended = match claimed {
        Ok(Some(lease)) => run_claimed_shard(node, lease, leave).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    match ended {
        Err(error) if error.kind() != StoreErrorKind::Fatal => {
            tracing::warn!(%shard, %error, "shard lease could not be acquired or released");
            Ok(())
        }
        ended => ended,
    }
}

/// Runs the loop of a shard in a task of its own, renews the lease until the loop ends, and then
/// releases it.
async fn run_claimed_shard(
    node: &Arc<Node>,
    mut lease: HeldLease,
    leave: watch::Receiver<ShardDirective>,
) -> Result<(), Error> {
    let (shard, lease_duration) = (lease.shard, node.options.lease_duration);
    let (lost, is_lost) = watch::channel(false);
    let (owner_node, held) = (Arc::clone(node), lease.clone());
    let mut running = ShardLoopTask(node.spawn_shard_loop(async move {
        ShardOwner::new(&owner_node, &held, is_lost)
            .run_loop(leave)
            .await
    }));
    let mut renew = interval(lease_duration / 3);
    renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            ended = &mut running.0 => break ended,
            _ = renew.tick() => {
                let renewed =
                    shard_lease::renew_lease(&*node.store, &lease, duration_millis(lease_duration));
                match renewed.await {
                    Ok(Some(renewed)) => lease = renewed,
                    Ok(None) => drop(lost.send_replace(true)),
                    Err(error) if error.kind() == StoreErrorKind::Fatal => return Err(error),
                    Err(error) => {
                        tracing::warn!(%shard, %error, "shard lease could not be renewed; retrying");
                        renew.reset_after(node.options.poll_interval);
                    }
                }
            }
        }
    };
    match ended {
        Ok(Ok(ShardLoopOutcome::Released)) => {
            shard_lease::release_lease(&*node.store, &lease).await
        }
        Ok(Ok(ShardLoopOutcome::Lost)) => {
            tracing::warn!(%shard, "another node has taken over the shard");
            Ok(())
        }
        Ok(Err(error)) => Err(error),
        Err(panic) => Err(Error::Unusable(format!(
            "the loop of a shard panicked: {panic}"
        ))),
    }
}

/// How the loop of a shard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardLoopOutcome {
    /// The shard is to be released.
    Released,
    /// Another node has taken over the shard.
    Lost,
}

/// The loop of a shard in a task of its own, which ends when this is dropped.
struct ShardLoopTask<T>(JoinHandle<T>);

impl<T> Drop for ShardLoopTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// State of the loop of a shard that this node owns.
struct ShardOwner<'a> {
    node: &'a Arc<Node>,
    shard: ShardId,
    /// Whether another node has taken over, as the renewal of the lease found out.
    lease_lost: watch::Receiver<bool>,
    time: StoreTime,
    core: ShardCore,
    /// Reads and commits in progress.
    pending_inputs: FuturesUnordered<BoxFuture<'static, Result<ShardInput, Error>>>,
    /// Executions that are being loaded: data read before the last commit is stale.
    loading: BTreeSet<ExecutionId>,
    /// Dispatch id of each running attempt, and the handle to abort it.
    running_attempts: BTreeMap<AttemptId, (u64, AbortHandle)>,
    /// Inputs of operations that completed immediately.
    ready_inputs: VecDeque<Result<ShardInput, Error>>,
    attempt_end_sender: mpsc::UnboundedSender<AttemptEnd>,
    attempt_ends: mpsc::UnboundedReceiver<AttemptEnd>,
    hints: mpsc::UnboundedReceiver<ShardHint>,
    /// Clients that wait for the start of an execution.
    start_waiters: BTreeMap<ExecutionId, oneshot::Sender<Option<Result<(), Error>>>>,
    /// Workers that wait until the end of their task is recorded.
    completion_waiters: BTreeMap<AttemptId, oneshot::Sender<bool>>,
    needs_inbox_read: bool,
    /// Where to continue reading the inbox.
    inbox_cursor: Option<Vec<ColumnValue>>,
    /// Where to continue reading the executions that were due when the shard was taken over.
    takeover_scan: Option<TableScan>,
    /// Whether another process has notified this shard of work that may be due.
    has_remote_hint: bool,
    /// Whether the last access to the store failed. Reads pause until the next poll.
    is_store_failing: bool,
    /// Deadline of the drain; `None` if the shard is not being drained.
    drain_deadline: Option<Instant>,
    /// The last directive received: why the shard is to be released.
    directive: ShardDirective,
    /// When to retry a postponed handover.
    handover_retry_at: Option<Instant>,
    is_lost: bool,
    /// Number of executions in memory that this shard has added to the node's count.
    counted_executions: usize,
}

impl Drop for ShardOwner<'_> {
    /// However the loop ends, no attempt continues that the next owner is about to take over.
    fn drop(&mut self) {
        self.running_attempts
            .values()
            .for_each(|(_, task)| task.abort());
        let unheard = self.core.undelivered_claims();
        if !unheard.is_empty() && tokio::runtime::Handle::try_current().is_ok() {
            self.reclaim_tasks(unheard);
        }
        self.node
            .in_memory
            .fetch_sub(self.counted_executions, Ordering::Relaxed);
    }
}

impl<'a> ShardOwner<'a> {
    fn new(node: &'a Arc<Node>, lease: &HeldLease, lease_lost: watch::Receiver<bool>) -> Self {
        let shard = lease.shard;
        let functions = Arc::clone(&node.functions) as Arc<dyn crate::shard::FunctionResolver>;
        let core = ShardCore::new(
            shard,
            lease.epoch,
            functions,
            Box::new(client::fill_os_entropy),
            node.options.shard,
        );
        let core = core
            .with_task_matcher(Arc::clone(&node.hub.task_matcher))
            .after_takeover(lease.is_takeover);
        let (ended, ends) = mpsc::unbounded_channel();
        let waiting = FuturesUnordered::new();
        Self {
            node,
            shard,
            lease_lost,
            time: node.store_time(),
            core,
            pending_inputs: waiting,
            loading: BTreeSet::new(),
            running_attempts: BTreeMap::new(),
            ready_inputs: VecDeque::new(),
            attempt_end_sender: ended,
            attempt_ends: ends,
            hints: node.hub.register_shard(shard),
            start_waiters: BTreeMap::new(),
            completion_waiters: BTreeMap::new(),
            needs_inbox_read: true,
            inbox_cursor: None,
            takeover_scan: None,
            has_remote_hint: false,
            is_store_failing: false,
            drain_deadline: None,
            directive: ShardDirective::Keep,
            handover_retry_at: None,
            is_lost: false,
            counted_executions: 0,
        }
    }

    /// Runs the loop until the shard is to be released, or until another node has taken it over.
    async fn run_loop(
        mut self,
        mut leave: watch::Receiver<ShardDirective>,
    ) -> Result<ShardLoopOutcome, Error> {
        self.takeover_scan = Some(self.due_scan());
        let mut poll = interval(self.node.options.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lease_lost = self.lease_lost.clone();
        while !self.is_lost && !self.can_release_shard() {
            if let Err(error) = self.read_known_work().await {
                self.tolerate_store_error(error)?;
            }
            self.process_ready_inputs().await?;
            let (due, leaves) = (
                self.next_wake_instant(),
                self.drain_deadline.unwrap_or_else(far_future),
            );
            let kept_until = self.handover_retry_at.unwrap_or_else(far_future);
            // In random order: a flood of one kind of event must not delay the others.
            tokio::select! {
                why = next_directive(&mut leave, self.directive) => self.begin_drain(why),
                () = tokio::time::sleep_until(kept_until) => self.begin_drain(self.directive),
                () = tokio::time::sleep_until(leaves) => {}
                Some(input) = self.pending_inputs.next() => self.feed_core(input?),
                Some(end) = self.attempt_ends.recv() => self.feed_attempt_ends(end),
                () = std::future::ready(()), if !self.ready_inputs.is_empty() => {}
                () = lease_loss(&mut lease_lost) => self.is_lost = true,
                () = tokio::time::sleep_until(due) => {
                    self.feed_core(ShardInput::Tick);
                    if self.core.has_paused_guests() {
                        // Guests that compute for long share the thread with the other shards.
                        tokio::task::yield_now().await;
                    }
                }
                Some(note) = self.hints.recv() => {
                    self.handle_hint(note);
                    // Repeated hints are handled together and cause one read.
                    while let Ok(note) = self.hints.try_recv() {
                        self.handle_hint(note);
                    }
                }
                _ = poll.tick() => if let Err(error) = self.poll_store().await {
                    self.tolerate_store_error(error)?;
                },
            }
        }
        Ok(match self.is_lost {
            true => ShardLoopOutcome::Lost,
            false => ShardLoopOutcome::Released,
        })
    }

    /// Starts draining: the core begins no more work.
    fn begin_drain(&mut self, why: ShardDirective) {
        self.directive = why;
        self.handover_retry_at = None;
        self.core.drain();
        self.drain_deadline = Some(Instant::now() + self.node.options.drain_timeout);
    }

    /// Whether the shard can or must be released. A handover is postponed while work in the shard
    /// takes long: otherwise that work would have to be repeated, or be in doubt.
    fn can_release_shard(&mut self) -> bool {
        let Some(leaves) = self.drain_deadline else {
            return false;
        };
        if self.core.is_drained() {
            return true;
        }
        let is_late = leaves <= Instant::now();
        if is_late && self.directive == ShardDirective::HandOver {
            self.postpone_handover();
            return false;
        }
        is_late
    }

    fn postpone_handover(&mut self) {
        tracing::info!(shard = %self.shard, "shard is kept for now: it did not drain in time");
        self.drain_deadline = None;
        self.handover_retry_at = Some(Instant::now() + HANDOVER_RETRY_DELAY);
        self.needs_inbox_read = true;
        self.takeover_scan = Some(self.due_scan());
        let actions = self.core.resume_after_drain(self.time.now());
        self.perform_actions(actions);
    }

    /// Handles a store error that is not fatal: the store may be reachable later. Work in flight
    /// continues, because it can be recorded as long as no other node takes over.
    fn tolerate_store_error(&mut self, error: Error) -> Result<(), Error> {
        if error.kind() == StoreErrorKind::Fatal {
            return Err(error);
        }
        tracing::warn!(shard = %self.shard, %error, "store could not be read; retrying");
        self.is_store_failing = true;
        Ok(())
    }

    /// Reads the work that hints have announced, and the rest of the takeover scan.
    async fn read_known_work(&mut self) -> Result<(), Error> {
        if self.is_store_failing || self.drain_deadline.is_some() {
            return Ok(());
        }
        if self.needs_inbox_read {
            self.read_inbox_page().await?;
        }
        if std::mem::take(&mut self.has_remote_hint) {
            // The clocks of two nodes may differ slightly.
            self.load_due_timers(self.time.now().plus_ms(CLOCK_SKEW_MS))
                .await?;
        }
        if self.loading.len() <= self.node.options.loading_max / 2
            && let Some(scan) = self.takeover_scan.clone()
        {
            self.takeover_scan = self.load_due(scan).await?;
        }
        Ok(())
    }

    /// Processes inputs that are already available, without reading the clock each time: handling
    /// such an input takes less time than that.
    async fn process_ready_inputs(&mut self) -> Result<(), Error> {
        for _ in 0..INPUT_BURST_MAX {
            if let Some(Some(input)) = self.pending_inputs.next().now_or_never() {
                self.feed_core(input?);
            } else if let Some(input) = self.ready_inputs.pop_front() {
                self.feed_core(input?);
            } else if let Ok(end) = self.attempt_ends.try_recv() {
                self.feed_attempt_ends(end);
            } else {
                return Ok(());
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Feeds the end of an attempt to the core, together with others that can be recorded with it.
    fn feed_attempt_ends(&mut self, first: AttemptEnd) {
        let more =
            std::iter::from_fn(|| self.attempt_ends.try_recv().ok()).take(ATTEMPT_ENDS_BATCH_MAX);
        let ends = std::iter::once(first).chain(more).collect();
        self.feed_core(ShardInput::AttemptsEnded(ends));
    }

    fn next_wake_instant(&self) -> Instant {
        if self.core.has_paused_guests() {
            return Instant::now();
        }
        let far = Duration::from_secs(3_600);
        let wait = self.core.next_deadline().map_or(far, |at| {
            let us = at.as_micros().saturating_sub(self.time.now().as_micros());
            // One millisecond more, because a clock with millisecond resolution may be that much
            // behind.
            Duration::from_micros(u64::try_from(us).unwrap_or(0)).min(far)
                + Duration::from_millis(1)
        });
        Instant::now() + wait
    }

    fn handle_hint(&mut self, note: ShardHint) {
        match note {
            ShardHint::MessageArrived => self.needs_inbox_read = true,
            ShardHint::CheckStore => {
                self.needs_inbox_read = true;
                self.has_remote_hint = true;
            }
            ShardHint::StartRequested(row, execution, reply) => {
                if !self.loading.contains(&row.execution_id)
                    && !self.start_waiters.contains_key(&row.execution_id)
                {
                    self.start_waiters.insert(row.execution_id, reply);
                    self.feed_core(ShardInput::StartRequested { row, execution });
                }
            }
            ShardHint::TaskCompleted(attempt, result, reply) => {
                self.accept_completion(attempt, result, reply)
            }
            ShardHint::ExecutionStarted(row, events) => {
                if !self.core.is_tracking(&row.execution_id)
                    && !self.loading.contains(&row.execution_id)
                {
                    self.feed_core(ShardInput::Loaded {
                        row,
                        version: 1,
                        events,
                    });
                }
            }
        }
    }

    /// Accepts the result of a worker. A worker that gets no answer reports its result through the
    /// store.
    fn accept_completion(
        &mut self,
        attempt: AttemptId,
        result: InvokeResult,
        reply: oneshot::Sender<bool>,
    ) {
        if self.drain_deadline.is_some() {
            return;
        }
        // An earlier report of the same attempt that is not recorded yet may never be.
        if let Entry::Vacant(vacant) = self.completion_waiters.entry(attempt) {
            vacant.insert(reply);
            // Through the channel, so that it is recorded together with other ends.
            drop(self.attempt_end_sender.send(AttemptEnd {
                attempt,
                reported_by: AttemptReporter::Worker,
                result,
            }));
        }
    }

    async fn poll_store(&mut self) -> Result<(), Error> {
        self.time = self.node.store_time();
        self.is_store_failing = false;
        self.feed_core(ShardInput::Tick);
        if self.drain_deadline.is_some() {
            return Ok(());
        }
        self.load_due_timers(self.time.now()).await
    }

    /// Feeds an input to the core and performs the actions it returns.
    fn feed_core(&mut self, input: ShardInput) {
        match &input {
            ShardInput::Loaded { row, .. } => {
                self.loading.remove(&row.execution_id);
            }
            ShardInput::NotFound(id) | ShardInput::LoadFailed { execution: id, .. } => {
                self.loading.remove(id);
            }
            ShardInput::AttemptsEnded(ends) => ends.iter().for_each(|end| self.forget_attempt(end)),
            _ => {}
        }
        let actions = self.core.handle_input(input, self.time.now());
        self.perform_actions(actions);
    }

    /// Drops the abort handle of an attempt that has ended.
    fn forget_attempt(&mut self, end: &AttemptEnd) {
        if self
            .running_attempts
            .get(&end.attempt)
            .is_some_and(|(its, _)| AttemptReporter::Owner(*its) == end.reported_by)
        {
            self.running_attempts.remove(&end.attempt);
        }
    }
}

/// Waits for a directive other than `known`. If the sender was dropped, the node stops.
async fn next_directive(
    leave: &mut watch::Receiver<ShardDirective>,
    known: ShardDirective,
) -> ShardDirective {
    if known == ShardDirective::Stop {
        return std::future::pending().await;
    }
    leave
        .wait_for(|leave| *leave != known)
        .await
        .map_or(ShardDirective::Stop, |leave| *leave)
}

/// Waits until another node has taken over the shard.
async fn lease_loss(lost: &mut watch::Receiver<bool>) {
    if lost.wait_for(|is_lost| *is_lost).await.is_err() {
        std::future::pending().await
    }
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}
