//! The one thread that writes. Whatever waits goes into one transaction: one sync for all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

use onward_store::{Admitted, Care, Clock, Error, Invalid, Kind, Purge, Receipt, decide};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot};

use crate::before::Asked;
use crate::{error, write};

/// Commits that may wait; whoever comes then waits for a place.
const QUEUE: usize = 4_096;

/// Run events after which a transaction takes in no further commit.
const GROUP_EVENTS: usize = 65_536;

/// Pages in the write-ahead log after which they are moved into the file, when nobody waits.
const CHECKPOINT_PAGES: i32 = 4_096;

/// Pages after which they are moved whoever waits. Commits that follow each other closely change the same pages again and
/// again, so moving them late moves fewer.
const CHECKPOINT_PAGES_BUSY: i32 = 16_384;

/// The calling side.
pub(crate) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Job {
    task: Task,
    reply: oneshot::Sender<Result<Done, Error>>,
}

enum Task {
    Commit(Admitted),
    Purge(Purge),
}

/// What a job came to; a purge has an empty receipt, a commit removes nothing.
#[derive(Default)]
struct Done {
    receipt: Receipt,
    removed: bool,
}

impl Writer {
    pub(crate) fn start(mut connection: Connection, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let log_pages = Arc::new(AtomicI32::new(0));
        let counter = Arc::clone(&log_pages);
        connection
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                counter.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(error::from)?;
        let (sender, jobs) = mpsc::channel(QUEUE);
        let thread = Thread { connection, clock, log_pages, poisoned: None };
        let thread = std::thread::Builder::new()
            .name("onward-sqlite-writer".to_owned())
            .spawn(move || thread.run(jobs))
            .map_err(|cause| Error::Unusable(format!("cannot start a thread: {cause}")))?;
        Ok(Self { jobs: Some(sender), thread: Some(thread) })
    }

    pub(crate) async fn commit(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.ask(Task::Commit(commit)).await.map(|done| done.receipt)
    }

    pub(crate) async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.ask(Task::Purge(purge)).await.map(|done| done.removed)
    }

    async fn ask(&self, task: Task) -> Result<Done, Error> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(Error::Closed)?;
        jobs.send(Job { task, reply }).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}

impl Drop for Writer {
    /// Finishes what waits, then closes the file.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported by its callers' `Closed`.
            drop(thread.join());
        }
    }
}

/// The writing side.
struct Thread {
    connection: Connection,
    clock: Arc<dyn Clock>,
    log_pages: Arc<AtomicI32>,
    poisoned: Option<Error>,
}

/// What a job comes to once its transaction is durable.
type Answer = Result<Done, Error>;

/// How a group is performed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Nothing is expected to go wrong after the guards: no savepoints, no looking for duplicates.
    Quick,
    /// The database objected to something: every job is set apart from the others.
    Isolated,
}

/// Something failed inside a group that is no answer to a single job.
enum Objection {
    /// A statement that writes.
    Write(rusqlite::Error),
    /// A read, or the transaction itself.
    Other(Error),
}

impl Objection {
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Write(cause) if error::is_refused(cause))
    }

    fn into_error(self) -> Error {
        match self {
            Self::Write(cause) => error::from(cause),
            Self::Other(error) => error,
        }
    }
}

impl Thread {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let group = gather(first, &mut jobs);
            let answers = match &self.poisoned {
                Some(error) => Err(error.clone()),
                None => self.perform(&group),
            };
            answer(group, answers);
            self.checkpoint(if jobs.is_empty() { CHECKPOINT_PAGES } else { CHECKPOINT_PAGES_BUSY });
        }
    }

    /// One transaction for the group; the error is of all its jobs.
    fn perform(&mut self, group: &[Job]) -> Result<Vec<Answer>, Error> {
        let quick = self.transaction(group, Pass::Quick);
        let outcome = match quick {
            Err(objection) if objection.is_refusal() => self.transaction(group, Pass::Isolated),
            other => other,
        };
        outcome.map_err(|objection| self.poison(objection.into_error()))
    }

    fn transaction(&mut self, group: &[Job], pass: Pass) -> Result<Vec<Answer>, Objection> {
        self.execute("BEGIN IMMEDIATE")?;
        let answers = group.iter().map(|job| self.job(job, pass)).collect::<Result<Vec<Answer>, Objection>>();
        let committed = answers.and_then(|answers| {
            self.expect_transaction()?;
            self.execute("COMMIT")?;
            Ok(answers)
        });
        if committed.is_err() && !self.connection.is_autocommit() {
            // Whatever is wrong with the rollback is wrong with the next transaction as well, and is reported there.
            drop(self.execute("ROLLBACK"));
        }
        committed
    }

    fn execute(&self, sql: &str) -> Result<(), Objection> {
        let executed = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        executed.map(drop).map_err(Objection::Write)
    }

    /// Some failures make SQLite give the transaction up by itself. What was written after that would be durable at once,
    /// statement by statement.
    fn expect_transaction(&self) -> Result<(), Objection> {
        if self.connection.is_autocommit() {
            return Err(Objection::Other(Error::Unavailable("the database gave the transaction up".to_owned())));
        }
        Ok(())
    }

    fn job(&self, job: &Job, pass: Pass) -> Result<Answer, Objection> {
        match (&job.task, pass) {
            (Task::Commit(commit), Pass::Quick) => self.commit(commit, Care::Trust),
            (Task::Commit(commit), Pass::Isolated) => self.set_apart(|| self.commit(commit, Care::Look)),
            (Task::Purge(purge), _) => {
                let removed = write::purge(&self.connection, purge).map_err(Objection::Write)?;
                Ok(Ok(Done { removed, ..Done::default() }))
            }
        }
    }

    /// The inner result is the commit's, the outer one the transaction's.
    fn commit(&self, commit: &Admitted, care: Care) -> Result<Answer, Objection> {
        let plan = match decide(commit, &mut Asked(&self.connection), self.clock.now(), care) {
            Ok(plan) => plan,
            Err(error) if !matches!(error.kind(), Kind::Conflict | Kind::Invalid) => {
                return Err(Objection::Other(error));
            }
            // Whoever trusts does not look at every event: another may be the first that does not fit.
            Err(_) if care == Care::Trust => return self.commit(commit, Care::Look),
            Err(refused) => return Ok(Err(refused)),
        };
        self.expect_transaction()?;
        write::plan(&self.connection, &plan).map_err(Objection::Write)?;
        Ok(Ok(Done { receipt: plan.receipt, ..Done::default() }))
    }

    /// Undoes only this job when the database objects to what it writes.
    fn set_apart(&self, job: impl FnOnce() -> Result<Answer, Objection>) -> Result<Answer, Objection> {
        self.execute("SAVEPOINT job")?;
        let answer = match job() {
            Ok(answer) => answer,
            Err(Objection::Write(cause)) if error::is_refused(&cause) => {
                self.execute("ROLLBACK TO job")?;
                Err(refusal(&cause))
            }
            // The transaction is lost, and may be gone already: there is nothing to release.
            Err(objection) => return Err(objection),
        };
        self.execute("RELEASE job")?;
        Ok(answer)
    }

    /// After a failed write nobody knows what the disk holds: nothing is acknowledged any more.
    fn poison(&mut self, error: Error) -> Error {
        if matches!(error, Error::Poisoned(_)) && self.poisoned.is_none() {
            tracing::error!(%error, "the store has stopped");
            // Closing must not touch the file either; the log is read again at the next start.
            drop(self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
            self.poisoned = Some(error.clone());
        }
        error
    }

    /// Moves the log into the file when it has grown. A reader that is in the way only delays it.
    fn checkpoint(&mut self, pages: i32) {
        if self.poisoned.is_some() || self.log_pages.load(Ordering::Relaxed) < pages {
            return;
        }
        self.log_pages.store(0, Ordering::Relaxed);
        let moved = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(cause) = moved {
            let error = self.poison(error::from(cause));
            tracing::warn!(%error, "the write-ahead log could not be moved into the file");
        }
    }
}

fn refusal(cause: &rusqlite::Error) -> Error {
    if error::is_taken(cause) {
        Error::corrupt(format_args!("a key is taken that was looked for and not found: {cause}"))
    } else {
        Invalid::Refused(cause.to_string()).into()
    }
}

fn gather(first: Job, jobs: &mut mpsc::Receiver<Job>) -> Vec<Job> {
    let mut events = events_of(&first);
    let mut group = vec![first];
    while events < GROUP_EVENTS && group.len() < QUEUE {
        let Ok(job) = jobs.try_recv() else { break };
        events += events_of(&job);
        group.push(job);
    }
    group
}

fn events_of(job: &Job) -> usize {
    if let Task::Commit(commit) = &job.task { commit.commit().events.len() } else { 0 }
}

/// Whoever no longer listens has no use for the answer.
fn answer(group: Vec<Job>, answers: Result<Vec<Answer>, Error>) {
    match answers {
        Ok(answers) => group.into_iter().zip(answers).for_each(|(job, answer)| drop(job.reply.send(answer))),
        Err(error) => group.into_iter().for_each(|job| drop(job.reply.send(Err(error.clone())))),
    }
}
