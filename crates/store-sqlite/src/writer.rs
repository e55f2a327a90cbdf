//! The single writer thread. All waiting requests go into one transaction with one sync.
//!
//! A commit that arrives while no write is in progress and the queue is empty is written on the
//! caller's thread: handing it to the writer thread and back takes as long as writing it. If the
//! disk is slow or another process writes, the writer thread does it.

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

/// Maximum number of queued requests; further callers wait for a place.
const QUEUE_CAPACITY: usize = 4_096;

/// Number of run events after which a transaction takes no further commit.
const GROUP_EVENTS_MAX: usize = 65_536;

/// Number of pages in the write-ahead log that triggers a checkpoint when the queue is empty.
const CHECKPOINT_PAGES: i32 = 4_096;

/// Number of pages that triggers a checkpoint even if requests wait. Commits in quick succession
/// change the same pages again and again, so a later checkpoint copies fewer pages.
const CHECKPOINT_PAGES_BUSY: i32 = 16_384;

/// Maximum number of changes in a commit that is written on the caller's thread.
const INLINE_CHANGES_MAX: usize = 32;

/// The caller's side of the writer.
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
    /// Checkpoints the write-ahead log if it has grown.
    Checkpoint,
}

/// Result of a request; a purge has an empty receipt, and a commit removes nothing.
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

    /// Performs a commit on the caller's thread; `None` if the writer is busy or requests wait.
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
            // If the queue is full, the thread has work and checks the log after it.
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
    /// Finishes the queued requests, then closes the file.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already been reported to the callers as [`Error::Closed`].
            drop(thread.join());
        }
    }
}

/// The writing side, shared by the writer thread and callers that write inline.
struct WriterState {
    connection: Connection,
    cache: WriterCache,
    clock: Arc<dyn StoreClock>,
    wal_pages: Arc<AtomicI32>,
    poisoned: Option<Error>,
    /// Moving average of the duration of transactions.
    commit_latency: LatencyAverage,
    /// Number of requests that the thread found together last time. If there were several, grouping
    /// them is faster than writing inline.
    last_group_size: usize,
}

/// The loop of the writer thread; ends when all senders are dropped.
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

/// Result of a request once its transaction is durable.
type WriteResult = Result<WriteOutcome, Error>;

/// How the requests of a group are separated from each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupPass {
    /// No failure is expected after the guards: no savepoints, no check for duplicates.
    Optimistic,
    /// The database rejected a write of the group: every request gets its own savepoint.
    Isolated,
}

/// A failure inside a group that is not the result of a single request.
enum WriteFailure {
    /// A statement that writes failed.
    Statement(rusqlite::Error),
    /// A read or the transaction itself failed.
    Other(Error),
}

impl WriteFailure {
    fn is_rejection(&self) -> bool {
        matches!(self, Self::Statement(cause) if error::is_rejected_write(cause))
    }

    fn into_error(self) -> Error {
        match self {
            // The file is open, so this is a temporary file or the log: the process is out of file
            // descriptors.
            Self::Statement(cause) if error::is_not_opened(&cause) => {
                Error::Unavailable(format!("a file could not be opened: {cause}"))
            }
            Self::Statement(cause) => error::from_sqlite_error(cause),
            Self::Other(error) => error,
        }
    }
}

impl WriterState {
    /// Performs a commit on the caller's thread; `None` if that could block the caller for long.
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
            // Another process is writing.
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

    /// Performs the group in one transaction; an error applies to all its requests.
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

    /// Updates the moving average, and records metrics of successful transactions.
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

    /// Performs the requests and commits, after the transaction has begun.
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
                // A problem with the rollback also affects the next transaction and is reported
                // there.
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

    /// Some failures make SQLite roll back the transaction by itself. Statements after that would
    /// be committed one by one.
    fn ensure_in_transaction(&self) -> Result<(), WriteFailure> {
        if self.connection.is_autocommit() {
            return Err(WriteFailure::Other(Error::Unavailable(
                "the database rolled the transaction back".to_owned(),
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

    /// Performs a commit. The inner result is that of the commit, the outer one that of the
    /// transaction.
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
            // The other commits of the group do not concern the damaged event.
            Err(error @ Error::UnreadableEvent { .. }) => return Ok(Err(error)),
            Err(error)
                if !matches!(
                    error.kind(),
                    StoreErrorKind::Conflict | StoreErrorKind::Invalid
                ) =>
            {
                return Err(WriteFailure::Other(error));
            }
            // The optimistic check does not examine every event, so a different event may be the
            // first that conflicts.
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

    /// Rolls back only this request if the database rejects its writes.
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
            // The transaction is lost and may already be rolled back: there is no savepoint to
            // release.
            Err(objection) => return Err(objection),
        };
        self.execute_sql("RELEASE job")?;
        Ok(answer)
    }

    /// After a failed write the content of the disk is unknown: the writer acknowledges nothing any
    /// more.
    fn poison_on_lost_write(&mut self, error: Error) -> Error {
        if matches!(error, Error::Poisoned(_)) && self.poisoned.is_none() {
            tracing::error!(%error, "the store has stopped after a failed write: restart the process");
            // Closing must not touch the file either; SQLite recovers the log at the next start.
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

    /// Checkpoints the write-ahead log if it has at least `pages` pages. A concurrent reader only
    /// delays the checkpoint.
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
            tracing::warn!(%error, "the checkpoint of the write-ahead log failed");
        }
    }
}

fn rejection_error(cause: &rusqlite::Error) -> Error {
    if error::is_unique_violation(cause) {
        Error::corrupt(format_args!(
            "a unique key exists that an earlier read did not find: {cause}"
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

/// Returns `true` for a commit of ordinary size whose caller waits for it.
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

/// Sends the replies; a caller that no longer waits is ignored.
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
