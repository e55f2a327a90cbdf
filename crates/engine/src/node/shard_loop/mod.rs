//! One shard of a node: takes it over, feeds its core, and performs what the core wants done.

mod loader;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_base::SharedText;
use onward_journal::{ExecutionId, InvokeKind, InvokeResult};
use onward_store::shard_lease::{self, HeldLease};
use onward_store::{ColumnValue, Commit, Error, ShardId, StoreErrorKind, TableScan};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::membership::duration_millis;
use super::store_time::StoreTime;
use super::{Node, Notification, ShardHint, attempt_runner, log_guest_line, node_metrics};
use crate::PendingAlert;
use crate::client;
use crate::shard::{
    AttemptEnd, AttemptId, AttemptReporter, ResolvedFunction, ShardAction, ShardCore, ShardInput,
    TaskAttempt,
};
use crate::task_queue;

/// How long to wait before something is read again.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(100);

/// What is dealt with at a time before others have their turn.
const INPUT_BURST_MAX: usize = 16;

/// How far the clocks of two nodes may be apart before one has to look twice, in milliseconds.
const CLOCK_SKEW_MS: u64 = 50;

/// Ends of attempts that are recorded together.
const ATTEMPT_ENDS_BATCH_MAX: usize = 256;

/// Whether a shard is to be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardDirective {
    /// No.
    Keep,
    /// Another node should have it: when what is under way has ended, or later.
    HandOver,
    /// The node stops: soon, whatever is under way.
    Stop,
}

/// How long a shard is kept that could not be handed over, because something in it takes long.
const HANDOVER_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Takes a shard over if it can be had, and works on it until it is to be given up, or another takes it.
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
        Ok(Some(lease)) => match ShardOwner::new(node, shard, lease).run_loop(leave).await {
            Ok(Some(lease)) => shard_lease::release_lease(&*node.store, &lease).await,
            Ok(None) => {
                tracing::warn!(%shard, "another node has taken the shard over");
                Ok(())
            }
            Err(error) => Err(error),
        },
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    match ended {
        Err(error) if error.kind() != StoreErrorKind::Fatal => {
            tracing::warn!(%shard, %error, "the shard could not be taken or given up in order");
            Ok(())
        }
        ended => ended,
    }
}

/// A shard that this node owns.
struct ShardOwner<'a> {
    node: &'a Arc<Node>,
    shard: ShardId,
    lease: HeldLease,
    time: StoreTime,
    core: ShardCore,
    /// Reads and commits under way.
    pending_inputs: FuturesUnordered<BoxFuture<'static, Result<ShardInput, Error>>>,
    /// Executions that are being read: what was read before the last commit is of no use.
    loading: BTreeSet<ExecutionId>,
    /// Which performance of an attempt, and how to stop it.
    running_attempts: BTreeMap<AttemptId, (u64, AbortHandle)>,
    /// What was over as soon as it had begun.
    ready_inputs: VecDeque<Result<ShardInput, Error>>,
    attempt_end_sender: mpsc::UnboundedSender<AttemptEnd>,
    attempt_ends: mpsc::UnboundedReceiver<AttemptEnd>,
    hints: mpsc::UnboundedReceiver<ShardHint>,
    /// Who waits for the start of which execution.
    start_waiters: BTreeMap<ExecutionId, oneshot::Sender<Option<Result<(), Error>>>>,
    /// Who waits for the end of which task to be recorded.
    completion_waiters: BTreeMap<AttemptId, oneshot::Sender<bool>>,
    needs_inbox_read: bool,
    /// Where to go on reading the inbox.
    inbox_cursor: Option<Vec<ColumnValue>>,
    /// Where to go on reading executions that were busy when the shard was taken over.
    takeover_scan: Option<TableScan>,
    /// Whether another process has left something that may be due.
    has_remote_hint: bool,
    /// Whether the store could not be read. It is left alone for a while.
    is_store_failing: bool,
    /// When the shard is given up at the latest, if it is to be.
    drain_deadline: Option<Instant>,
    /// Why it is to be given up.
    directive: ShardDirective,
    /// When to try again to hand it over.
    handover_retry_at: Option<Instant>,
    is_lost: bool,
    /// How many executions were in memory when that was last told.
    counted_executions: usize,
}

impl Drop for ShardOwner<'_> {
    /// However it ends, nobody goes on with what another is about to take over.
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
    fn new(node: &'a Arc<Node>, shard: ShardId, lease: HeldLease) -> Self {
        let functions = Arc::clone(&node.functions) as Arc<dyn crate::shard::FunctionResolver>;
        let core = ShardCore::new(
            shard,
            lease.epoch,
            functions,
            Box::new(client::fill_os_entropy),
            node.options.shard,
        );
        let core = core.with_task_matcher(Arc::clone(&node.hub.task_matcher));
        let (ended, ends) = mpsc::unbounded_channel();
        let waiting = FuturesUnordered::new();
        Self {
            node,
            shard,
            lease,
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

    /// Returns the lease when the shard is to be given up, nothing when another has taken over.
    async fn run_loop(
        mut self,
        mut leave: watch::Receiver<ShardDirective>,
    ) -> Result<Option<HeldLease>, Error> {
        self.takeover_scan = Some(self.due_scan());
        let mut poll = interval(self.node.options.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renew = interval(self.node.options.lease_duration / 3);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            // In no fixed order: whatever there is much of must not keep the lease from being renewed.
            tokio::select! {
                why = next_directive(&mut leave, self.directive) => self.begin_drain(why),
                () = tokio::time::sleep_until(kept_until) => self.begin_drain(self.directive),
                () = tokio::time::sleep_until(leaves) => {}
                Some(input) = self.pending_inputs.next() => self.feed_core(input?),
                Some(end) = self.attempt_ends.recv() => self.feed_attempt_ends(end),
                () = std::future::ready(()), if !self.ready_inputs.is_empty() => {}
                _ = renew.tick() => if let Err(error) = self.renew_lease().await {
                    self.tolerate_store_error(error)?;
                    renew.reset_after(self.node.options.poll_interval);
                },
                () = tokio::time::sleep_until(due) => self.feed_core(ShardInput::Tick),
                Some(note) = self.hints.recv() => {
                    self.handle_hint(note);
                    // What is said many times is looked at once.
                    while let Ok(note) = self.hints.try_recv() {
                        self.handle_hint(note);
                    }
                }
                _ = poll.tick() => if let Err(error) = self.poll_store().await {
                    self.tolerate_store_error(error)?;
                },
            }
        }
        Ok((!self.is_lost).then(|| self.lease.clone()))
    }

    /// Begins nothing more.
    fn begin_drain(&mut self, why: ShardDirective) {
        self.directive = why;
        self.handover_retry_at = None;
        self.core.drain();
        self.drain_deadline = Some(Instant::now() + self.node.options.drain_timeout);
    }

    /// Whether the shard can be given up, or has to be. One that others could have goes on if something in it takes long: what
    /// is under way would have to be repeated, or be in doubt.
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
        tracing::info!(shard = %self.shard, "the shard is kept for now: something in it takes long");
        self.drain_deadline = None;
        self.handover_retry_at = Some(Instant::now() + HANDOVER_RETRY_DELAY);
        self.needs_inbox_read = true;
        self.takeover_scan = Some(self.due_scan());
        let actions = self.core.resume_after_drain(self.time.now());
        self.perform_actions(actions);
    }

    /// A store that cannot be reached may be later. What is under way goes on: as long as nobody takes over, it can be recorded.
    fn tolerate_store_error(&mut self, error: Error) -> Result<(), Error> {
        if error.kind() == StoreErrorKind::Fatal {
            return Err(error);
        }
        tracing::warn!(shard = %self.shard, %error, "the store could not be read; it will be tried again");
        self.is_store_failing = true;
        Ok(())
    }

    /// Reads what is known to be there.
    async fn read_known_work(&mut self) -> Result<(), Error> {
        if self.is_store_failing || self.drain_deadline.is_some() {
            return Ok(());
        }
        if self.needs_inbox_read {
            self.read_inbox_page().await?;
        }
        if std::mem::take(&mut self.has_remote_hint) {
            // The clocks of two nodes are not quite the same.
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

    /// Goes on with whatever has happened already, without looking at the clock each time: what takes no time at all takes
    /// less than that.
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

    /// An attempt has ended, and perhaps others that can be recorded with it.
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
            // A millisecond more than a clock that counts in them may be short of.
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
            ShardHint::StartRequested(row, execution, told) => {
                if !self.loading.contains(&row.execution_id)
                    && !self.start_waiters.contains_key(&row.execution_id)
                {
                    self.start_waiters.insert(row.execution_id, told);
                    self.feed_core(ShardInput::StartRequested { row, execution });
                }
            }
            ShardHint::TaskCompleted(attempt, result, told) => {
                self.accept_completion(attempt, result, told)
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

    /// A worker has ended a task. Whoever is not answered goes through the store.
    fn accept_completion(
        &mut self,
        attempt: AttemptId,
        result: InvokeResult,
        told: oneshot::Sender<bool>,
    ) {
        if self.drain_deadline.is_some() {
            return;
        }
        // One that was told before and is not recorded yet may never be.
        if let Entry::Vacant(vacant) = self.completion_waiters.entry(attempt) {
            vacant.insert(told);
            // With others that have ended meanwhile.
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

    async fn renew_lease(&mut self) -> Result<(), Error> {
        match shard_lease::renew_lease(
            &*self.node.store,
            &self.lease,
            duration_millis(self.node.options.lease_duration),
        )
        .await?
        {
            Some(lease) => self.lease = lease,
            None => self.is_lost = true,
        }
        Ok(())
    }

    /// Hands something to the core, and performs what it wants done.
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

    /// A performance that has ended need not be stopped.
    fn forget_attempt(&mut self, end: &AttemptEnd) {
        if self
            .running_attempts
            .get(&end.attempt)
            .is_some_and(|(its, _)| AttemptReporter::Owner(*its) == end.reported_by)
        {
            self.running_attempts.remove(&end.attempt);
        }
    }

    /// Performs what the core wants done.
    fn perform_actions(&mut self, actions: Vec<ShardAction>) {
        self.update_memory_count();
        let is_alone = actions
            .iter()
            .filter(|action| matches!(action, ShardAction::Perform(_)))
            .count()
            == 1;
        let is_busy = actions
            .iter()
            .filter(|action| matches!(action, ShardAction::Commit { .. }))
            .count()
            > 1;
        for action in actions {
            match action {
                ShardAction::Commit { ticket, mut commit } => {
                    // Several are made together rather than one after the other.
                    commit.is_background |= is_busy;
                    self.begin_commit(ticket, *commit);
                }
                ShardAction::Load(execution) => self.begin_load(execution, Duration::ZERO),
                ShardAction::LoadLater(execution) => self.begin_load(execution, RETRY_DELAY),
                ShardAction::ReadInbox => self.needs_inbox_read = true,
                ShardAction::Perform(attempt) => self.perform_attempt(*attempt, is_alone),
                ShardAction::AbortAttempt(id) => {
                    if let Some((_, task)) = self.running_attempts.remove(&id) {
                        task.abort();
                    }
                }
                ShardAction::AnnounceTasks {
                    owner,
                    functions,
                    repeated,
                } => {
                    node_metrics::count_retries(repeated);
                    self.node.announce_tasks(&owner, &functions);
                }
                ShardAction::DeliverTask {
                    slot: seat,
                    task: held,
                } => {
                    if let Err(held) = seat.deliver_task(*held) {
                        self.reclaim_tasks(vec![(held.id, held.claim_token)]);
                    }
                }
                ShardAction::ReclaimTasks(claims) => self.reclaim_tasks(claims),
                ShardAction::WorkerResultSettled {
                    attempt,
                    is_recorded: is_taken,
                } => {
                    if let Some(told) = self.completion_waiters.remove(&attempt) {
                        let _is_heard = told.send(is_taken);
                    }
                }
                ShardAction::ExportSpans(spans) => {
                    if let Some(traces) = &self.node.span_exporter {
                        traces.export_spans(spans);
                    }
                }
                ShardAction::InDoubt(attempt) => node_metrics::count_in_doubt(attempt),
                ShardAction::Log {
                    execution,
                    level,
                    message,
                } => log_guest_line(execution, level, &message),
                ShardAction::StartSettled { execution, result } => {
                    if let Some(told) = self.start_waiters.remove(&execution) {
                        drop(told.send(result));
                    }
                }
                ShardAction::ExecutionOver { execution, ending } => {
                    if self.node.hub.notify_ending(execution, &ending) {
                        self.node
                            .store
                            .notify(Notification::ExecutionOver(execution).to_string());
                    }
                }
                ShardAction::ExecutionStuck { execution, reason } => {
                    self.raise_stuck_alert(execution, &reason)
                }
                ShardAction::ShardLost => self.is_lost = true,
            }
        }
    }

    /// Begins at once: the core may have tasks performed meanwhile.
    fn begin_commit(&mut self, ticket: u64, commit: Commit) {
        let store = Arc::clone(&self.node.store);
        let mut committing: BoxFuture<'static, Result<ShardInput, Error>> = Box::pin(async move {
            match store.commit(commit).await {
                Err(error) if error.kind() == StoreErrorKind::Fatal => Err(error),
                result => {
                    match &result {
                        // Somebody else was first: with the same start, for example.
                        Err(error @ Error::Conflict(_)) => {
                            tracing::debug!(%error, "a step does not fit any more")
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a step could not be stored; it is taken again")
                        }
                        Ok(_) => {}
                    }
                    Ok(ShardInput::Committed { ticket, result })
                }
            }
        });
        match (&mut committing).now_or_never() {
            Some(committed) => self.ready_inputs.push_back(committed),
            None => self.pending_inputs.push(committing),
        }
    }

    fn update_memory_count(&mut self) {
        let before = std::mem::replace(&mut self.counted_executions, self.core.len());
        if self.counted_executions > before {
            self.node
                .in_memory
                .fetch_add(self.counted_executions - before, Ordering::Relaxed);
        } else if self.counted_executions < before {
            self.node
                .in_memory
                .fetch_sub(before - self.counted_executions, Ordering::Relaxed);
        }
    }

    /// Takes tasks back that workers will not hear of.
    fn reclaim_tasks(&self, claims: Vec<(AttemptId, SharedText)>) {
        let (store, offers) = (
            Arc::clone(&self.node.store),
            Arc::clone(&self.node.hub.task_matcher),
        );
        tokio::spawn(async move {
            for (id, claim) in claims {
                task_queue::reclaim_task(&*store, &offers, id, &claim).await;
            }
        });
    }

    /// Tells people of an execution that cannot go on.
    fn raise_stuck_alert(&self, execution: ExecutionId, reason: &str) {
        let (store, now) = (Arc::clone(&self.node.store), self.time.now());
        let alarm = PendingAlert::execution_stuck(execution, reason);
        tokio::spawn(async move {
            if let Err(error) = alarm.raise_once(&*store, now).await {
                tracing::error!(%execution, %error, "an execution cannot go on, and the alert could not be stored");
            }
        });
    }

    /// A component's task begins here: most are over in less time than it takes to hand one to another thread. It gives
    /// control back soon in any case, and goes on elsewhere then. Where there are several, each is for whoever has time.
    fn perform_attempt(&mut self, attempt: TaskAttempt, is_alone: bool) {
        let (node, ended) = (Arc::clone(self.node), self.attempt_end_sender.clone());
        let (id, performance) = (attempt.id, attempt.dispatch_id);
        node_metrics::count_retries(u64::from(id.attempt > 1));
        let is_code = matches!(
            (attempt.kind, attempt.resolved),
            (InvokeKind::Function, ResolvedFunction::Task(_))
        );
        let mut work = Box::pin(async move { attempt_runner::run_attempt(&node, &attempt).await });
        if is_alone
            && is_code
            && let Some(result) = (&mut work).now_or_never()
        {
            let end = AttemptEnd {
                attempt: id,
                reported_by: AttemptReporter::Owner(performance),
                result,
            };
            return self
                .ready_inputs
                .push_back(Ok(ShardInput::AttemptsEnded(vec![end])));
        }
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(ended.send(AttemptEnd {
                attempt: id,
                reported_by: AttemptReporter::Owner(performance),
                result,
            }));
        });
        self.running_attempts
            .insert(id, (performance, task.abort_handle()));
    }
}

/// Waits until something else is said about giving the shard up. Whoever could say so being gone means that the node stops.
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

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}
