//! One shard of a node: takes it over, feeds its core, and performs what the core wants done.

mod reading;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_journal::{ExecutionId, InvokeKind, InvokeResult, Text};
use onward_store::lease::{self, Lease};
use onward_store::{Commit, Error, Kind, Scan, Shard, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::member::millis;
use super::time::StoreTime;
use super::{Node, Note, Word, log_line, measure, tasks};
use crate::Alarm;
use crate::client;
use crate::shard::{Action, Attempt, AttemptId, By, Core, End, Input, Resolved};
use crate::work;

/// How long to wait before something is read again.
pub(super) const LATER: Duration = Duration::from_millis(100);

/// What is dealt with at a time before others have their turn.
const BURST: usize = 16;

/// How far the clocks of two nodes may be apart before one has to look twice, in milliseconds.
const SKEW_MS: u64 = 50;

/// Ends of attempts that are recorded together.
const TOGETHER_MAX: usize = 256;

/// Whether a shard is to be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// No.
    Stay,
    /// Another node should have it: when what is under way has ended, or later.
    HandOver,
    /// The node stops: soon, whatever is under way.
    Stop,
}

/// How long a shard is kept that could not be handed over, because something in it takes long.
const KEPT: Duration = Duration::from_secs(30);

/// Takes a shard over if it can be had, and works on it until it is to be given up, or another takes it.
pub(super) async fn run(node: &Arc<Node>, shard: Shard, leave: watch::Receiver<Leave>) -> Result<(), Error> {
    let claimed = lease::claim(&*node.store, shard, node.holder.clone(), millis(node.options.lease)).await;
    let ended = match claimed {
        Ok(Some(lease)) => match Owner::new(node, shard, lease).work(leave).await {
            Ok(Some(lease)) => lease::release(&*node.store, &lease).await,
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
        Err(error) if error.kind() != Kind::Fatal => {
            tracing::warn!(%shard, %error, "the shard could not be taken or given up in order");
            Ok(())
        }
        ended => ended,
    }
}

/// A shard that this node owns.
struct Owner<'a> {
    node: &'a Arc<Node>,
    shard: Shard,
    lease: Lease,
    time: StoreTime,
    core: Core,
    /// Reads and commits under way.
    waiting: FuturesUnordered<BoxFuture<'static, Result<Input, Error>>>,
    /// Executions that are being read: what was read before the last commit is of no use.
    loading: BTreeSet<ExecutionId>,
    /// Which performance of an attempt, and how to stop it.
    tasks: BTreeMap<AttemptId, (u64, AbortHandle)>,
    /// What was over as soon as it had begun.
    at_hand: VecDeque<Result<Input, Error>>,
    ended: mpsc::UnboundedSender<End>,
    ends: mpsc::UnboundedReceiver<End>,
    notes: mpsc::UnboundedReceiver<Note>,
    /// Who waits for the start of which execution.
    beginning: BTreeMap<ExecutionId, oneshot::Sender<Option<Result<(), Error>>>>,
    /// Who waits for the end of which task to be recorded.
    reporting: BTreeMap<AttemptId, oneshot::Sender<bool>>,
    read_inbox: bool,
    /// Where to go on reading the inbox.
    inbox_place: Option<Vec<Value>>,
    /// Where to go on reading executions that were busy when the shard was taken over.
    left_behind: Option<Scan>,
    /// Whether another process has left something that may be due.
    is_called: bool,
    /// Whether the store could not be read. It is left alone for a while.
    is_troubled: bool,
    /// When the shard is given up at the latest, if it is to be.
    leaves: Option<Instant>,
    /// Why it is to be given up.
    why: Leave,
    /// When to try again to hand it over.
    kept_until: Option<Instant>,
    is_lost: bool,
    /// How many executions were in memory when that was last told.
    counted: usize,
}

impl Drop for Owner<'_> {
    /// However it ends, nobody goes on with what another is about to take over.
    fn drop(&mut self) {
        self.tasks.values().for_each(|(_, task)| task.abort());
        let unheard = self.core.unheard();
        if !unheard.is_empty() && tokio::runtime::Handle::try_current().is_ok() {
            self.take_back(unheard);
        }
        self.node.in_memory.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl<'a> Owner<'a> {
    fn new(node: &'a Arc<Node>, shard: Shard, lease: Lease) -> Self {
        let functions = Arc::clone(&node.library) as Arc<dyn crate::shard::Functions>;
        let core = Core::new(shard, lease.epoch, functions, Box::new(client::entropy), node.options.shard);
        let core = core.with_offers(Arc::clone(&node.nearby.offers));
        let (ended, ends) = mpsc::unbounded_channel();
        let waiting = FuturesUnordered::new();
        Self {
            node,
            shard,
            lease,
            time: node.time(),
            core,
            waiting,
            loading: BTreeSet::new(),
            tasks: BTreeMap::new(),
            at_hand: VecDeque::new(),
            ended,
            ends,
            notes: node.nearby.listen(shard),
            beginning: BTreeMap::new(),
            reporting: BTreeMap::new(),
            read_inbox: true,
            inbox_place: None,
            left_behind: None,
            is_called: false,
            is_troubled: false,
            leaves: None,
            why: Leave::Stay,
            kept_until: None,
            is_lost: false,
            counted: 0,
        }
    }

    /// Returns the lease when the shard is to be given up, nothing when another has taken over.
    async fn work(mut self, mut leave: watch::Receiver<Leave>) -> Result<Option<Lease>, Error> {
        self.left_behind = Some(self.due());
        let mut poll = interval(self.node.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renew = interval(self.node.options.lease / 3);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_lost && !self.has_left() {
            if let Err(error) = self.catch_up().await {
                self.forgive(error)?;
            }
            self.hurry().await?;
            let (due, leaves) = (self.until_due(), self.leaves.unwrap_or_else(far));
            let kept_until = self.kept_until.unwrap_or_else(far);
            // In no fixed order: whatever there is much of must not keep the lease from being renewed.
            tokio::select! {
                why = told_to(&mut leave, self.why) => self.begin_to_leave(why),
                () = tokio::time::sleep_until(kept_until) => self.begin_to_leave(self.why),
                () = tokio::time::sleep_until(leaves) => {}
                Some(input) = self.waiting.next() => self.tell(input?),
                Some(end) = self.ends.recv() => self.end(end),
                () = std::future::ready(()), if !self.at_hand.is_empty() => {}
                _ = renew.tick() => if let Err(error) = self.renew().await {
                    self.forgive(error)?;
                    renew.reset_after(self.node.options.poll);
                },
                () = tokio::time::sleep_until(due) => self.tell(Input::Time),
                Some(note) = self.notes.recv() => {
                    self.note(note);
                    // What is said many times is looked at once.
                    while let Ok(note) = self.notes.try_recv() {
                        self.note(note);
                    }
                }
                _ = poll.tick() => if let Err(error) = self.look_around().await {
                    self.forgive(error)?;
                },
            }
        }
        Ok((!self.is_lost).then(|| self.lease.clone()))
    }

    /// Begins nothing more.
    fn begin_to_leave(&mut self, why: Leave) {
        self.why = why;
        self.kept_until = None;
        self.core.drain();
        self.leaves = Some(Instant::now() + self.node.options.drain);
    }

    /// Whether the shard can be given up, or has to be. One that others could have goes on if something in it takes long: what
    /// is under way would have to be repeated, or be in doubt.
    fn has_left(&mut self) -> bool {
        let Some(leaves) = self.leaves else { return false };
        if self.core.is_drained() {
            return true;
        }
        let is_late = leaves <= Instant::now();
        if is_late && self.why == Leave::HandOver {
            self.go_on_for_now();
            return false;
        }
        is_late
    }

    fn go_on_for_now(&mut self) {
        tracing::info!(shard = %self.shard, "the shard is kept for now: something in it takes long");
        self.leaves = None;
        self.kept_until = Some(Instant::now() + KEPT);
        self.read_inbox = true;
        self.left_behind = Some(self.due());
        let actions = self.core.resume(self.time.now());
        self.act(actions);
    }

    /// A store that cannot be reached may be later. What is under way goes on: as long as nobody takes over, it can be recorded.
    fn forgive(&mut self, error: Error) -> Result<(), Error> {
        if error.kind() == Kind::Fatal {
            return Err(error);
        }
        tracing::warn!(shard = %self.shard, %error, "the store could not be read; it will be tried again");
        self.is_troubled = true;
        Ok(())
    }

    /// Reads what is known to be there.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.is_troubled || self.leaves.is_some() {
            return Ok(());
        }
        if self.read_inbox {
            self.inbox().await?;
        }
        if std::mem::take(&mut self.is_called) {
            // The clocks of two nodes are not quite the same.
            self.load_waking(self.time.now().plus_ms(SKEW_MS)).await?;
        }
        if self.loading.len() <= self.node.options.loading_max / 2
            && let Some(scan) = self.left_behind.clone()
        {
            self.left_behind = self.load_due(scan).await?;
        }
        Ok(())
    }

    /// Goes on with whatever has happened already, without looking at the clock each time: what takes no time at all takes
    /// less than that.
    async fn hurry(&mut self) -> Result<(), Error> {
        for _ in 0..BURST {
            if let Some(Some(input)) = self.waiting.next().now_or_never() {
                self.tell(input?);
            } else if let Some(input) = self.at_hand.pop_front() {
                self.tell(input?);
            } else if let Ok(end) = self.ends.try_recv() {
                self.end(end);
            } else {
                return Ok(());
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// An attempt has ended, and perhaps others that can be recorded with it.
    fn end(&mut self, first: End) {
        let more = std::iter::from_fn(|| self.ends.try_recv().ok()).take(TOGETHER_MAX);
        let ends = std::iter::once(first).chain(more).collect();
        self.tell(Input::Ended(ends));
    }

    fn until_due(&self) -> Instant {
        if self.core.has_paused() {
            return Instant::now();
        }
        let far = Duration::from_secs(3_600);
        let wait = self.core.deadline().map_or(far, |at| {
            let us = at.as_micros().saturating_sub(self.time.now().as_micros());
            // A millisecond more than a clock that counts in them may be short of.
            Duration::from_micros(u64::try_from(us).unwrap_or(0)).min(far) + Duration::from_millis(1)
        });
        Instant::now() + wait
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Message => self.read_inbox = true,
            Note::Look => {
                self.read_inbox = true;
                self.is_called = true;
            }
            Note::Begin(row, execution, told) => {
                if !self.loading.contains(&row.execution_id) && !self.beginning.contains_key(&row.execution_id) {
                    self.beginning.insert(row.execution_id, told);
                    self.tell(Input::Begin { row, execution });
                }
            }
            Note::Reported(attempt, result, told) => self.report(attempt, result, told),
            Note::Started(row, events) => {
                if !self.core.knows(&row.execution_id) && !self.loading.contains(&row.execution_id) {
                    self.tell(Input::Loaded { row, version: 1, events });
                }
            }
        }
    }

    /// A worker has ended a task. Whoever is not answered goes through the store.
    fn report(&mut self, attempt: AttemptId, result: InvokeResult, told: oneshot::Sender<bool>) {
        if self.leaves.is_some() {
            return;
        }
        // One that was told before and is not recorded yet may never be.
        if let Entry::Vacant(vacant) = self.reporting.entry(attempt) {
            vacant.insert(told);
            // With others that have ended meanwhile.
            drop(self.ended.send(End { attempt, by: By::Worker, result }));
        }
    }

    async fn look_around(&mut self) -> Result<(), Error> {
        self.time = self.node.time();
        self.is_troubled = false;
        self.tell(Input::Time);
        if self.leaves.is_some() {
            return Ok(());
        }
        self.load_waking(self.time.now()).await
    }

    async fn renew(&mut self) -> Result<(), Error> {
        match lease::renew(&*self.node.store, &self.lease, millis(self.node.options.lease)).await? {
            Some(lease) => self.lease = lease,
            None => self.is_lost = true,
        }
        Ok(())
    }

    /// Hands something to the core, and performs what it wants done.
    fn tell(&mut self, input: Input) {
        match &input {
            Input::Loaded { row, .. } => {
                self.loading.remove(&row.execution_id);
            }
            Input::Absent(id) | Input::NotLoaded { execution: id, .. } => {
                self.loading.remove(id);
            }
            Input::Ended(ends) => ends.iter().for_each(|end| self.forget(end)),
            _ => {}
        }
        let actions = self.core.handle(input, self.time.now());
        self.act(actions);
    }

    /// A performance that has ended need not be stopped.
    fn forget(&mut self, end: &End) {
        if self.tasks.get(&end.attempt).is_some_and(|(its, _)| By::Owner(*its) == end.by) {
            self.tasks.remove(&end.attempt);
        }
    }

    /// Performs what the core wants done.
    fn act(&mut self, actions: Vec<Action>) {
        self.count();
        let is_alone = actions.iter().filter(|action| matches!(action, Action::Perform(_))).count() == 1;
        let is_busy = actions.iter().filter(|action| matches!(action, Action::Commit { .. })).count() > 1;
        for action in actions {
            match action {
                Action::Commit { ticket, mut commit } => {
                    // Several are made together rather than one after the other.
                    commit.is_unhurried |= is_busy;
                    self.commit(ticket, *commit);
                }
                Action::Load(execution) => self.load(execution, Duration::ZERO),
                Action::LoadLater(execution) => self.load(execution, LATER),
                Action::ReadInbox => self.read_inbox = true,
                Action::Perform(attempt) => self.perform(*attempt, is_alone),
                Action::Abandon(id) => {
                    if let Some((_, task)) = self.tasks.remove(&id) {
                        task.abort();
                    }
                }
                Action::Offer { owner, functions, repeated } => {
                    measure::repeated(repeated);
                    self.node.offer(&owner, &functions);
                }
                Action::Give { seat, held } => {
                    if let Err(held) = seat.give(*held) {
                        self.take_back(vec![(held.id, held.claim)]);
                    }
                }
                Action::TakeBack(claims) => self.take_back(claims),
                Action::Reported { attempt, is_taken } => {
                    if let Some(told) = self.reporting.remove(&attempt) {
                        let _is_heard = told.send(is_taken);
                    }
                }
                Action::Spans(spans) => {
                    if let Some(traces) = &self.node.traces {
                        traces.ended(spans);
                    }
                }
                Action::InDoubt(attempt) => measure::in_doubt(attempt),
                Action::Log { execution, level, message } => log_line(execution, level, &message),
                Action::Begun { execution, result } => {
                    if let Some(told) = self.beginning.remove(&execution) {
                        drop(told.send(result));
                    }
                }
                Action::Over { execution, ending } => {
                    if self.node.nearby.over(execution, &ending) {
                        self.node.store.tell(Word::Over(execution).to_string());
                    }
                }
                Action::Stuck { execution, reason } => self.raise(execution, &reason),
                Action::Lost => self.is_lost = true,
            }
        }
    }

    /// Begins at once: the core may have tasks performed meanwhile.
    fn commit(&mut self, ticket: u64, commit: Commit) {
        let store = Arc::clone(&self.node.store);
        let mut committing: BoxFuture<'static, Result<Input, Error>> = Box::pin(async move {
            match store.commit(commit).await {
                Err(error) if error.kind() == Kind::Fatal => Err(error),
                result => {
                    match &result {
                        // Somebody else was first: with the same start, for example.
                        Err(error @ Error::Conflict(_)) => tracing::debug!(%error, "a step does not fit any more"),
                        Err(error) => tracing::warn!(%error, "a step could not be stored; it is taken again"),
                        Ok(_) => {}
                    }
                    Ok(Input::Committed { ticket, result })
                }
            }
        });
        match (&mut committing).now_or_never() {
            Some(committed) => self.at_hand.push_back(committed),
            None => self.waiting.push(committing),
        }
    }

    fn count(&mut self) {
        let before = std::mem::replace(&mut self.counted, self.core.len());
        if self.counted > before {
            self.node.in_memory.fetch_add(self.counted - before, Ordering::Relaxed);
        } else if self.counted < before {
            self.node.in_memory.fetch_sub(before - self.counted, Ordering::Relaxed);
        }
    }

    /// Takes tasks back that workers will not hear of.
    fn take_back(&self, claims: Vec<(AttemptId, Text)>) {
        let (store, offers) = (Arc::clone(&self.node.store), Arc::clone(&self.node.nearby.offers));
        tokio::spawn(async move {
            for (id, claim) in claims {
                work::take_back(&*store, &offers, id, &claim).await;
            }
        });
    }

    /// Tells people of an execution that cannot go on.
    fn raise(&self, execution: ExecutionId, reason: &str) {
        let (store, now) = (Arc::clone(&self.node.store), self.time.now());
        let alarm = Alarm::stuck(execution, reason);
        tokio::spawn(async move {
            if let Err(error) = alarm.raise(&*store, now).await {
                tracing::error!(%execution, %error, "an execution cannot go on, and the alert could not be stored");
            }
        });
    }

    /// A component's task begins here: most are over in less time than it takes to hand one to another thread. It gives
    /// control back soon in any case, and goes on elsewhere then. Where there are several, each is for whoever has time.
    fn perform(&mut self, attempt: Attempt, is_alone: bool) {
        let (node, ended) = (Arc::clone(self.node), self.ended.clone());
        let (id, performance) = (attempt.id, attempt.performance);
        measure::repeated(u64::from(id.attempt > 1));
        let is_code = matches!((attempt.kind, attempt.resolved), (InvokeKind::Function, Resolved::Task(_)));
        let mut work = Box::pin(async move { tasks::perform(&node, &attempt).await });
        if is_alone
            && is_code
            && let Some(result) = (&mut work).now_or_never()
        {
            let end = End { attempt: id, by: By::Owner(performance), result };
            return self.at_hand.push_back(Ok(Input::Ended(vec![end])));
        }
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(ended.send(End { attempt: id, by: By::Owner(performance), result }));
        });
        self.tasks.insert(id, (performance, task.abort_handle()));
    }
}

/// Waits until something else is said about giving the shard up. Whoever could say so being gone means that the node stops.
async fn told_to(leave: &mut watch::Receiver<Leave>, known: Leave) -> Leave {
    if known == Leave::Stop {
        return std::future::pending().await;
    }
    leave.wait_for(|leave| *leave != known).await.map_or(Leave::Stop, |leave| *leave)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}
