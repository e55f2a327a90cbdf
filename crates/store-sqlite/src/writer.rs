//! The one thread that writes. Whatever waits goes into one transaction: one sync for all of it.
//!
//! A commit that finds nobody writing and nobody waiting is written by whoever wants it: handing it to a thread and back takes as
//! long as writing it does. Where the disk is slow, or another process writes, the thread does it.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use onward_store::{Admitted, Care, Clock, Error, Invalid, Kind, Purge, Receipt, decide, measure};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::{mpsc, oneshot};

use crate::before::Asked;
use crate::pace::Pace;
use crate::recent::Recent;
use crate::{error, open, write};

const BEGIN: &str = "BEGIN IMMEDIATE";

/// Commits that may wait; whoever comes then waits for a place.
const QUEUE: usize = 4_096;

/// Run events after which a transaction takes in no further commit.
const GROUP_EVENTS: usize = 65_536;

/// Pages in the write-ahead log after which they are moved into the file, when nobody waits.
const CHECKPOINT_PAGES: i32 = 4_096;

/// Pages after which they are moved whoever waits. Commits that follow each other closely change the same pages again and
/// again, so moving them late moves fewer.
const CHECKPOINT_PAGES_BUSY: i32 = 16_384;

/// A commit that changes more than this is not made on the caller's time.
const SMALL: usize = 32;

/// The calling side.
pub(crate) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    writing: Arc<Mutex<Writing>>,
}

struct Job {
    task: Task,
    reply: oneshot::Sender<Result<Done, Error>>,
}

enum Task {
    Commit(Admitted),
    Purge(Purge),
    /// Moves the log into the file if it has grown.
    Checkpoint,
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
        let writing = Writing {
            connection,
            recent: Recent::default(),
            clock,
            log_pages,
            poisoned: None,
            pace: Pace::default(),
            together: 1,
        };
        let writing = Arc::new(Mutex::new(writing));
        let its = Arc::clone(&writing);
        let thread = std::thread::Builder::new()
            .name("onward-sqlite-writer".to_owned())
            .spawn(move || run(&its, jobs))
            .map_err(|cause| Error::Unusable(format!("cannot start a thread: {cause}")))?;
        Ok(Self { jobs: Some(sender), thread: Some(thread), writing })
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
        let job = Job { task, reply };
        if let Some(answer) = self.at_once(jobs, &job) {
            return answer;
        }
        jobs.send(job).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Makes a commit here and now, if nobody is in the way.
    fn at_once(&self, jobs: &mpsc::Sender<Job>, job: &Job) -> Option<Answer> {
        if jobs.capacity() < jobs.max_capacity() {
            return None;
        }
        let mut writing = self.writing.try_lock().ok()?;
        let answer = writing.at_once(job)?;
        if writing.is_log_long(CHECKPOINT_PAGES) {
            // Where there is no place in the queue, the thread has work, and looks at the log after it.
            let (reply, _) = oneshot::channel();
            drop(jobs.try_send(Job { task: Task::Checkpoint, reply }));
        }
        Some(answer)
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
struct Writing {
    connection: Connection,
    recent: Recent,
    clock: Arc<dyn Clock>,
    log_pages: Arc<AtomicI32>,
    poisoned: Option<Error>,
    /// Of transactions.
    pace: Pace,
    /// How many jobs the thread found together last time. Where there are several, waiting for each other pays.
    together: usize,
}

/// The thread, until nobody is left who could send it anything.
fn run(writing: &Mutex<Writing>, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
        let group = gather(first, &mut jobs);
        writing.together = group.len();
        let answers = match &writing.poisoned {
            Some(error) => Err(error.clone()),
            None => writing.perform(&group),
        };
        answer(group, answers);
        writing.checkpoint(if jobs.is_empty() { CHECKPOINT_PAGES } else { CHECKPOINT_PAGES_BUSY });
    }
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

impl Writing {
    /// A commit on its caller's time. Nothing if that could take long: the caller has other things to do.
    fn at_once(&mut self, job: &Job) -> Option<Answer> {
        if let Some(error) = &self.poisoned {
            return Some(Err(error.clone()));
        }
        if !is_small(&job.task) || !self.pace.is_quick() || self.together > 1 {
            return None;
        }
        self.connection.busy_timeout(Duration::ZERO).ok()?;
        let begun = self.execute(BEGIN);
        self.connection.busy_timeout(open::BUSY).ok()?;
        match begun {
            // Another process writes.
            Err(Objection::Write(cause)) if error::is_busy(&cause) => return None,
            Err(objection) => return Some(Err(self.poison(objection.into_error()))),
            Ok(()) => {}
        }
        let group = std::slice::from_ref(job);
        let quick = self.timed(group.len(), |writing| writing.finish(group, Pass::Quick));
        Some(self.or_isolated(group, quick).and_then(|mut answers| answers.pop().unwrap_or(Err(Error::Closed))))
    }

    /// One transaction for the group; the error is of all its jobs.
    fn perform(&mut self, group: &[Job]) -> Result<Vec<Answer>, Error> {
        let quick = self.timed(group.len(), |writing| writing.transaction(group, Pass::Quick));
        self.or_isolated(group, quick)
    }

    fn or_isolated(&mut self, group: &[Job], quick: Result<Vec<Answer>, Objection>) -> Result<Vec<Answer>, Error> {
        let outcome = match quick {
            Err(objection) if objection.is_refusal() => {
                self.timed(group.len(), |writing| writing.transaction(group, Pass::Isolated))
            }
            other => other,
        };
        outcome.map_err(|objection| self.poison(objection.into_error()))
    }

    /// Keeps the pace up to date, and counts transactions that were made.
    fn timed<T>(
        &mut self,
        commits: usize,
        work: impl FnOnce(&mut Self) -> Result<T, Objection>,
    ) -> Result<T, Objection> {
        let begun = self.clock.now();
        let done = work(self)?;
        let ended = self.clock.now();
        self.pace.note(begun, ended);
        let took = u64::try_from(ended.as_micros() - begun.as_micros()).unwrap_or(0);
        measure::transaction(commits, Duration::from_micros(took));
        Ok(done)
    }

    fn transaction(&mut self, group: &[Job], pass: Pass) -> Result<Vec<Answer>, Objection> {
        self.execute(BEGIN)?;
        self.finish(group, pass)
    }

    /// What follows the beginning of a transaction.
    fn finish(&mut self, group: &[Job], pass: Pass) -> Result<Vec<Answer>, Objection> {
        let caught_up = self.recent.catch_up(&self.connection).map_err(Objection::Other);
        let answers =
            caught_up.and_then(|()| group.iter().map(|job| self.job(job, pass)).collect::<Result<Vec<Answer>, _>>());
        let committed = answers.and_then(|answers| {
            self.expect_transaction()?;
            self.execute("COMMIT")?;
            Ok(answers)
        });
        if committed.is_err() {
            self.recent.forget();
            if !self.connection.is_autocommit() {
                // Whatever is wrong with the rollback is wrong with the next transaction as well, and is reported there.
                drop(self.execute("ROLLBACK"));
            }
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

    fn job(&mut self, job: &Job, pass: Pass) -> Result<Answer, Objection> {
        match (&job.task, pass) {
            (Task::Commit(commit), Pass::Quick) => self.commit(commit, Care::Trust),
            (Task::Commit(commit), Pass::Isolated) => self.set_apart(|writing| writing.commit(commit, Care::Look)),
            (Task::Checkpoint, _) => Ok(Ok(Done::default())),
            (Task::Purge(purge), _) => {
                if matches!(purge, Purge::Execution(_)) {
                    self.recent.forget();
                }
                let removed = write::purge(&self.connection, purge).map_err(Objection::Write)?;
                Ok(Ok(Done { removed, ..Done::default() }))
            }
        }
    }

    /// The inner result is the commit's, the outer one the transaction's.
    fn commit(&mut self, commit: &Admitted, care: Care) -> Result<Answer, Objection> {
        let mut before = Asked { db: &self.connection, recent: &mut self.recent, care };
        let plan = match decide(commit, &mut before, self.clock.now(), care) {
            Ok(plan) => plan,
            Err(error) if !matches!(error.kind(), Kind::Conflict | Kind::Invalid) => {
                return Err(Objection::Other(error));
            }
            // Whoever trusts does not look at every event: another may be the first that does not fit.
            Err(_) if care == Care::Trust => return self.commit(commit, Care::Look),
            Err(refused) => return Ok(Err(refused)),
        };
        self.expect_transaction()?;
        write::plan(&self.connection, &mut self.recent, &plan).map_err(Objection::Write)?;
        Ok(Ok(Done { receipt: plan.receipt, ..Done::default() }))
    }

    /// Undoes only this job when the database objects to what it writes.
    fn set_apart(&mut self, job: impl FnOnce(&mut Self) -> Result<Answer, Objection>) -> Result<Answer, Objection> {
        self.execute("SAVEPOINT job")?;
        let answer = match job(self) {
            Ok(answer) => answer,
            Err(Objection::Write(cause)) if error::is_refused(&cause) => {
                self.recent.forget();
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

    fn is_log_long(&self, pages: i32) -> bool {
        self.log_pages.load(Ordering::Relaxed) >= pages
    }

    /// Moves the log into the file when it has grown. A reader that is in the way only delays it.
    fn checkpoint(&mut self, pages: i32) {
        if self.poisoned.is_some() || !self.is_log_long(pages) {
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

/// Whether it is a commit that takes about as long as any, and that its author waits for.
fn is_small(task: &Task) -> bool {
    let Task::Commit(commit) = task else { return false };
    let commit = commit.commit();
    !commit.is_unhurried && commit.events.len() + commit.changes.len() + commit.journals.len() <= SMALL
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
