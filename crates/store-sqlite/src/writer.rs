//! The one thread that writes. Whatever waits goes into one transaction: one sync for all of it.
//!
//! A commit that finds nobody writing and nobody waiting is written by whoever wants it: handing it to a thread and back takes as
//! long as writing it does. Where the disk is slow, or another process writes, the thread does it.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use onward_store::{
    AdmittedCommit, CommitReceipt, Duplicates, Error, InvalidRequest, PurgeTarget, StoreClock,
    StoreErrorKind, plan_commit, store_metrics,
};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot};

use crate::latency::LatencyAverage;
use crate::stored_state::SqliteStoredState;
use crate::writer_cache::WriterCache;
use crate::{connection, error, write};

const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Commits that may wait; whoever comes then waits for a place.
const QUEUE_CAPACITY: usize = 4_096;

/// Run events after which a transaction takes in no further commit.
const GROUP_EVENTS_MAX: usize = 65_536;

/// Pages in the write-ahead log after which they are moved into the file, when nobody waits.
const CHECKPOINT_PAGES: i32 = 4_096;

/// Pages after which they are moved whoever waits. Commits that follow each other closely change the same pages again and
/// again, so moving them late moves fewer.
const CHECKPOINT_PAGES_BUSY: i32 = 16_384;

/// A commit that changes more than this is not made on the caller's time.
const INLINE_CHANGES_MAX: usize = 32;

/// The calling side.
pub(crate) struct SqliteWriter {
    requests: Option<mpsc::Sender<WriteRequest>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<WriterState>>,
}

struct WriteRequest {
    operation: WriteOperation,
    reply: oneshot::Sender<Result<WriteOutcome, Error>>,
}

enum WriteOperation {
    Commit(AdmittedCommit),
    Purge(PurgeTarget),
    /// Moves the log into the file if it has grown.
    Checkpoint,
}

/// What a job came to; a purge has an empty receipt, a commit removes nothing.
#[derive(Default)]
struct WriteOutcome {
    receipt: CommitReceipt,
    removed: bool,
}

impl SqliteWriter {
    pub(crate) fn spawn_thread(
        mut connection: Connection,
        clock: Arc<dyn StoreClock>,
    ) -> Result<Self, Error> {
        let log_pages = Arc::new(AtomicI32::new(0));
        let counter = Arc::clone(&log_pages);
        connection
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                counter.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(error::from_sqlite_error)?;
        let (sender, jobs) = mpsc::channel(QUEUE_CAPACITY);
        let writing = WriterState {
            connection,
            cache: WriterCache::default(),
            clock,
            wal_pages: log_pages,
            poisoned: None,
            commit_latency: LatencyAverage::default(),
            last_group_size: 1,
        };
        let writing = Arc::new(Mutex::new(writing));
        let its = Arc::clone(&writing);
        let thread = std::thread::Builder::new()
            .name("onward-sqlite-writer".to_owned())
            .spawn(move || run_writer_loop(&its, jobs))
            .map_err(|cause| Error::Unusable(format!("cannot start a thread: {cause}")))?;
        Ok(Self {
            requests: Some(sender),
            thread: Some(thread),
            state: writing,
        })
    }

    pub(crate) async fn commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.submit_request(WriteOperation::Commit(commit))
            .await
            .map(|done| done.receipt)
    }

    pub(crate) async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.submit_request(WriteOperation::Purge(purge))
            .await
            .map(|done| done.removed)
    }

    async fn submit_request(&self, task: WriteOperation) -> Result<WriteOutcome, Error> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.requests.as_ref().ok_or(Error::Closed)?;
        let job = WriteRequest {
            operation: task,
            reply,
        };
        if let Some(answer) = self.try_inline(jobs, &job) {
            return answer;
        }
        jobs.send(job).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Makes a commit here and now, if nobody is in the way.
    fn try_inline(
        &self,
        jobs: &mpsc::Sender<WriteRequest>,
        job: &WriteRequest,
    ) -> Option<WriteResult> {
        if jobs.capacity() < jobs.max_capacity() {
            return None;
        }
        let mut writing = self.state.try_lock().ok()?;
        let answer = writing.try_commit_inline(job)?;
        if writing.is_wal_longer_than(CHECKPOINT_PAGES) {
            // Where there is no place in the queue, the thread has work, and looks at the log after it.
            let (reply, _) = oneshot::channel();
            drop(jobs.try_send(WriteRequest {
                operation: WriteOperation::Checkpoint,
                reply,
            }));
        }
        Some(answer)
    }
}

impl Drop for SqliteWriter {
    /// Finishes what waits, then closes the file.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported by its callers' `Closed`.
            drop(thread.join());
        }
    }
}

/// The writing side.
struct WriterState {
    connection: Connection,
    cache: WriterCache,
    clock: Arc<dyn StoreClock>,
    wal_pages: Arc<AtomicI32>,
    poisoned: Option<Error>,
    /// Of transactions.
    commit_latency: LatencyAverage,
    /// How many jobs the thread found together last time. Where there are several, waiting for each other pays.
    last_group_size: usize,
}

/// The thread, until nobody is left who could send it anything.
fn run_writer_loop(writing: &Mutex<WriterState>, mut jobs: mpsc::Receiver<WriteRequest>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
        let group = collect_group(first, &mut jobs);
        writing.last_group_size = group.len();
        let answers = match &writing.poisoned {
            Some(error) => Err(error.clone()),
            None => writing.execute_group(&group),
        };
        send_replies(group, answers);
        writing.checkpoint_wal(if jobs.is_empty() {
            CHECKPOINT_PAGES
        } else {
            CHECKPOINT_PAGES_BUSY
        });
    }
}

/// What a job comes to once its transaction is durable.
type WriteResult = Result<WriteOutcome, Error>;

/// How a group is performed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupPass {
    /// Nothing is expected to go wrong after the guards: no savepoints, no looking for duplicates.
    Optimistic,
    /// The database objected to something: every job is set apart from the others.
    Isolated,
}

/// Something failed inside a group that is no answer to a single job.
enum WriteFailure {
    /// A statement that writes.
    Statement(rusqlite::Error),
    /// A read, or the transaction itself.
    Other(Error),
}

impl WriteFailure {
    fn is_rejection(&self) -> bool {
        matches!(self, Self::Statement(cause) if error::is_rejected_write(cause))
    }

    fn into_error(self) -> Error {
        match self {
            Self::Statement(cause) => error::from_sqlite_error(cause),
            Self::Other(error) => error,
        }
    }
}

impl WriterState {
    /// A commit on its caller's time. Nothing if that could take long: the caller has other things to do.
    fn try_commit_inline(&mut self, job: &WriteRequest) -> Option<WriteResult> {
        if let Some(error) = &self.poisoned {
            return Some(Err(error.clone()));
        }
        if !is_small_commit(&job.operation)
            || !self.commit_latency.is_quick()
            || self.last_group_size > 1
        {
            return None;
        }
        self.connection.busy_timeout(Duration::ZERO).ok()?;
        let begun = self.execute_sql(BEGIN_IMMEDIATE);
        self.connection
            .busy_timeout(connection::BUSY_TIMEOUT)
            .ok()?;
        match begun {
            // Another process writes.
            Err(WriteFailure::Statement(cause)) if error::is_busy(&cause) => return None,
            Err(objection) => return Some(Err(self.poison_on_lost_write(objection.into_error()))),
            Ok(()) => {}
        }
        let group = std::slice::from_ref(job);
        let quick = self.time_transaction(group.len(), |writing| {
            writing.finish_transaction(group, GroupPass::Optimistic)
        });
        Some(
            self.retry_isolated(group, quick)
                .and_then(|mut answers| answers.pop().unwrap_or(Err(Error::Closed))),
        )
    }

    /// One transaction for the group; the error is of all its jobs.
    fn execute_group(&mut self, group: &[WriteRequest]) -> Result<Vec<WriteResult>, Error> {
        let quick = self.time_transaction(group.len(), |writing| {
            writing.run_transaction(group, GroupPass::Optimistic)
        });
        self.retry_isolated(group, quick)
    }

    fn retry_isolated(
        &mut self,
        group: &[WriteRequest],
        quick: Result<Vec<WriteResult>, WriteFailure>,
    ) -> Result<Vec<WriteResult>, Error> {
        let outcome = match quick {
            Err(objection) if objection.is_rejection() => self
                .time_transaction(group.len(), |writing| {
                    writing.run_transaction(group, GroupPass::Isolated)
                }),
            other => other,
        };
        outcome.map_err(|objection| self.poison_on_lost_write(objection.into_error()))
    }

    /// Keeps the pace up to date, and counts transactions that were made.
    fn time_transaction<T>(
        &mut self,
        commits: usize,
        work: impl FnOnce(&mut Self) -> Result<T, WriteFailure>,
    ) -> Result<T, WriteFailure> {
        let begun = self.clock.now();
        let done = work(self)?;
        let ended = self.clock.now();
        self.commit_latency.record_sample(begun, ended);
        let took = u64::try_from(ended.as_micros() - begun.as_micros()).unwrap_or(0);
        store_metrics::record_transaction(commits, Duration::from_micros(took));
        Ok(done)
    }

    fn run_transaction(
        &mut self,
        group: &[WriteRequest],
        pass: GroupPass,
    ) -> Result<Vec<WriteResult>, WriteFailure> {
        self.execute_sql(BEGIN_IMMEDIATE)?;
        self.finish_transaction(group, pass)
    }

    /// What follows the beginning of a transaction.
    fn finish_transaction(
        &mut self,
        group: &[WriteRequest],
        pass: GroupPass,
    ) -> Result<Vec<WriteResult>, WriteFailure> {
        let caught_up = self
            .cache
            .invalidate_if_stale(&self.connection)
            .map_err(WriteFailure::Other);
        let answers = caught_up.and_then(|()| {
            group
                .iter()
                .map(|job| self.apply_request(job, pass))
                .collect::<Result<Vec<WriteResult>, _>>()
        });
        let committed = answers.and_then(|answers| {
            self.ensure_in_transaction()?;
            self.execute_sql("COMMIT")?;
            Ok(answers)
        });
        if committed.is_err() {
            self.cache.invalidate_all();
            if !self.connection.is_autocommit() {
                // Whatever is wrong with the rollback is wrong with the next transaction as well, and is reported there.
                drop(self.execute_sql("ROLLBACK"));
            }
        }
        committed
    }

    fn execute_sql(&self, sql: &str) -> Result<(), WriteFailure> {
        let executed = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]));
        executed.map(drop).map_err(WriteFailure::Statement)
    }

    /// Some failures make SQLite give the transaction up by itself. What was written after that would be durable at once,
    /// statement by statement.
    fn ensure_in_transaction(&self) -> Result<(), WriteFailure> {
        if self.connection.is_autocommit() {
            return Err(WriteFailure::Other(Error::Unavailable(
                "the database gave the transaction up".to_owned(),
            )));
        }
        Ok(())
    }

    fn apply_request(
        &mut self,
        job: &WriteRequest,
        pass: GroupPass,
    ) -> Result<WriteResult, WriteFailure> {
        match (&job.operation, pass) {
            (WriteOperation::Commit(commit), GroupPass::Optimistic) => {
                self.apply_commit(commit, Duplicates::Optimistic)
            }
            (WriteOperation::Commit(commit), GroupPass::Isolated) => {
                self.run_in_savepoint(|writing| writing.apply_commit(commit, Duplicates::Checked))
            }
            (WriteOperation::Checkpoint, _) => Ok(Ok(WriteOutcome::default())),
            (WriteOperation::Purge(purge), _) => {
                if matches!(purge, PurgeTarget::Execution(_)) {
                    self.cache.invalidate_all();
                }
                let removed = write::execute_purge(&self.connection, purge)
                    .map_err(WriteFailure::Statement)?;
                Ok(Ok(WriteOutcome {
                    removed,
                    ..WriteOutcome::default()
                }))
            }
        }
    }

    /// The inner result is the commit's, the outer one the transaction's.
    fn apply_commit(
        &mut self,
        commit: &AdmittedCommit,
        care: Duplicates,
    ) -> Result<WriteResult, WriteFailure> {
        let mut before = SqliteStoredState {
            db: &self.connection,
            cache: &mut self.cache,
            duplicates: care,
        };
        let plan = match plan_commit(commit, &mut before, self.clock.now(), care) {
            Ok(plan) => plan,
            Err(error)
                if !matches!(
                    error.kind(),
                    StoreErrorKind::Conflict | StoreErrorKind::Invalid
                ) =>
            {
                return Err(WriteFailure::Other(error));
            }
            // Whoever trusts does not look at every event: another may be the first that does not fit.
            Err(_) if care == Duplicates::Optimistic => {
                return self.apply_commit(commit, Duplicates::Checked);
            }
            Err(refused) => return Ok(Err(refused)),
        };
        self.ensure_in_transaction()?;
        write::write_plan(&self.connection, &mut self.cache, &plan)
            .map_err(WriteFailure::Statement)?;
        Ok(Ok(WriteOutcome {
            receipt: plan.receipt,
            ..WriteOutcome::default()
        }))
    }

    /// Undoes only this job when the database objects to what it writes.
    fn run_in_savepoint(
        &mut self,
        job: impl FnOnce(&mut Self) -> Result<WriteResult, WriteFailure>,
    ) -> Result<WriteResult, WriteFailure> {
        self.execute_sql("SAVEPOINT job")?;
        let answer = match job(self) {
            Ok(answer) => answer,
            Err(WriteFailure::Statement(cause)) if error::is_rejected_write(&cause) => {
                self.cache.invalidate_all();
                self.execute_sql("ROLLBACK TO job")?;
                Err(rejection_error(&cause))
            }
            // The transaction is lost, and may be gone already: there is nothing to release.
            Err(objection) => return Err(objection),
        };
        self.execute_sql("RELEASE job")?;
        Ok(answer)
    }

    /// After a failed write nobody knows what the disk holds: nothing is acknowledged any more.
    fn poison_on_lost_write(&mut self, error: Error) -> Error {
        if matches!(error, Error::Poisoned(_)) && self.poisoned.is_none() {
            tracing::error!(%error, "the store has stopped");
            // Closing must not touch the file either; the log is read again at the next start.
            drop(
                self.connection
                    .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
            );
            self.poisoned = Some(error.clone());
        }
        error
    }

    fn is_wal_longer_than(&self, pages: i32) -> bool {
        self.wal_pages.load(Ordering::Relaxed) >= pages
    }

    /// Moves the log into the file when it has grown. A reader that is in the way only delays it.
    fn checkpoint_wal(&mut self, pages: i32) {
        if self.poisoned.is_some() || !self.is_wal_longer_than(pages) {
            return;
        }
        self.wal_pages.store(0, Ordering::Relaxed);
        let moved = self
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(cause) = moved {
            let error = self.poison_on_lost_write(error::from_sqlite_error(cause));
            tracing::warn!(%error, "the write-ahead log could not be moved into the file");
        }
    }
}

fn rejection_error(cause: &rusqlite::Error) -> Error {
    if error::is_unique_violation(cause) {
        Error::corrupt(format_args!(
            "a key is taken that was looked for and not found: {cause}"
        ))
    } else {
        InvalidRequest::RefusedByDatabase(cause.to_string()).into()
    }
}

fn collect_group(
    first: WriteRequest,
    jobs: &mut mpsc::Receiver<WriteRequest>,
) -> Vec<WriteRequest> {
    let mut events = event_count(&first);
    let mut group = vec![first];
    while events < GROUP_EVENTS_MAX && group.len() < QUEUE_CAPACITY {
        let Ok(job) = jobs.try_recv() else { break };
        events += event_count(&job);
        group.push(job);
    }
    group
}

/// Whether it is a commit that takes about as long as any, and that its author waits for.
fn is_small_commit(task: &WriteOperation) -> bool {
    let WriteOperation::Commit(commit) = task else {
        return false;
    };
    let commit = commit.commit();
    !commit.is_background
        && commit.events.len() + commit.changes.len() + commit.journals.len() <= INLINE_CHANGES_MAX
}

fn event_count(job: &WriteRequest) -> usize {
    if let WriteOperation::Commit(commit) = &job.operation {
        commit.commit().events.len()
    } else {
        0
    }
}

/// Whoever no longer listens has no use for the answer.
fn send_replies(group: Vec<WriteRequest>, answers: Result<Vec<WriteResult>, Error>) {
    match answers {
        Ok(answers) => group
            .into_iter()
            .zip(answers)
            .for_each(|(job, answer)| drop(job.reply.send(answer))),
        Err(error) => group
            .into_iter()
            .for_each(|job| drop(job.reply.send(Err(error.clone())))),
    }
}
