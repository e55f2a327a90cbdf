//! The path that works for every group: lock, read, decide, write, commit, and repeat after a race
//! or a lost connection.

use std::time::Duration;

use deadpool_postgres::{Client, Object};
use onward_store::{AdmittedCommit, Duplicates, Error, StoreErrorKind};
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection;
use crate::error::StatementFailure;
use crate::writer::commit_outcome::{CommitOutcome, resolve_commit_outcome};
use crate::writer::decision::{GroupDecision, decide_commit_group};
use crate::writer::flush::flush_decision;
use crate::writer::load::{LoadedState, load_read_set};
use crate::writer::read_set::ReadSet;
use crate::writer::{CommitResult, PostgresWriter, is_idempotent};

/// Number of races after which the commits of a group are performed one by one.
const RACES_MAX: u32 = 4;
/// Timeout of a rollback, after which the connection is discarded.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Failure of one attempt.
enum AttemptFailure {
    /// Nothing was stored.
    NotStored(StatementFailure),
    /// The connection was lost after COMMIT was sent.
    OutcomeUnknown {
        transaction: String,
        answers: Vec<CommitResult>,
        cause: Error,
    },
}

/// Failures of a group so far, and the options of its next attempt.
struct RetryState {
    deadline: Instant,
    /// Whether rows to insert are read first or assumed to be new; after a race they are always
    /// read.
    duplicates: Duplicates,
    races: u32,
    losses: u32,
    /// Set once an attempt without acknowledgement may have stored the commits.
    in_doubt_cause: Option<String>,
}

impl PostgresWriter {
    /// Performs commits in one transaction. If `doubt` is set, the commits are idempotent and may
    /// have been performed already.
    pub(super) async fn commit_pessimistically(
        &mut self,
        commits: &[&AdmittedCommit],
        care: Duplicates,
        doubt: Option<String>,
    ) -> Vec<CommitResult> {
        let until = Instant::now() + self.call_timeout;
        self.commit_with_retries(
            commits,
            RetryState {
                deadline: until,
                duplicates: care,
                races: 0,
                losses: 0,
                in_doubt_cause: doubt,
            },
        )
        .await
    }

    async fn commit_with_retries(
        &mut self,
        commits: &[&AdmittedCommit],
        mut course: RetryState,
    ) -> Vec<CommitResult> {
        loop {
            let until = course.deadline;
            let trouble = match self.attempt_commit(commits, &course).await {
                Ok(answers) => return answers,
                Err(AttemptFailure::NotStored(trouble)) => trouble,
                Err(AttemptFailure::OutcomeUnknown {
                    transaction,
                    answers,
                    cause: why,
                }) => {
                    match resolve_commit_outcome(&self.pool, &transaction, self.mark, until).await {
                        CommitOutcome::Committed => return answers,
                        CommitOutcome::Aborted => {}
                        CommitOutcome::Unknown
                            if commits.iter().all(|commit| is_idempotent(commit.commit())) =>
                        {
                            course.in_doubt_cause = Some(why.to_string());
                        }
                        CommitOutcome::Unknown => {
                            return answers
                                .into_iter()
                                .map(|answer| mark_outcome_unknown(answer, &why))
                                .collect();
                        }
                    }
                    StatementFailure::ConnectionLost(why)
                }
            };
            if !course.should_retry(&trouble).await {
                if commits.len() > 1 && !matches!(trouble, StatementFailure::ConnectionLost(_)) {
                    return self.commit_one_by_one(commits, &course).await;
                }
                let error = error_in_doubt(trouble.into_error(), course.in_doubt_cause);
                return commits.iter().map(|_| Err(error.clone())).collect();
            }
        }
    }

    async fn commit_one_by_one(
        &mut self,
        commits: &[&AdmittedCommit],
        course: &RetryState,
    ) -> Vec<CommitResult> {
        let mut answers = Vec::with_capacity(commits.len());
        for commit in commits {
            let course = RetryState {
                races: 0,
                losses: 0,
                in_doubt_cause: course.in_doubt_cause.clone(),
                ..*course
            };
            answers.extend(Box::pin(self.commit_with_retries(&[commit], course)).await);
        }
        answers
    }

    async fn attempt_commit(
        &mut self,
        commits: &[&AdmittedCommit],
        course: &RetryState,
    ) -> Result<Vec<CommitResult>, AttemptFailure> {
        let RetryState {
            deadline: until,
            duplicates: care,
            ..
        } = *course;
        let wish = ReadSet::from_commits(commits, care);
        let client = before_deadline(until, connection::acquire_connection(&self.pool))
            .await
            .map_err(AttemptFailure::NotStored)?;
        let mut loaded = match before_deadline(until, load_read_set(&client, &wish)).await {
            Ok(loaded) => loaded,
            Err(trouble @ StatementFailure::ConnectionLost(_)) => {
                drop(Object::take(client));
                return Err(AttemptFailure::NotStored(trouble));
            }
            Err(trouble) => {
                rollback_or_discard(client).await;
                return Err(AttemptFailure::NotStored(trouble));
            }
        };
        let decided = match self.decide_loaded(commits, &wish, &mut loaded) {
            Ok(decided) if !decided.is_empty() => decided,
            other => {
                rollback_or_discard(client).await;
                return other
                    .map(|decided| decided.answers)
                    .map_err(AttemptFailure::NotStored);
            }
        };
        self.mark = self.mark.next();
        match before_deadline(until, flush_decision(&client, &decided, self.mark)).await {
            Ok(()) => {
                decided
                    .heads
                    .into_values()
                    .for_each(|head| self.head_cache.insert(head));
                Ok(decided.answers)
            }
            Err(StatementFailure::ConnectionLost(why)) => {
                drop(Object::take(client));
                Err(AttemptFailure::OutcomeUnknown {
                    transaction: loaded.transaction,
                    answers: decided.answers,
                    cause: why,
                })
            }
            Err(trouble) => {
                // The failure has ended the transaction, unless a statement could not be prepared.
                rollback_or_discard(client).await;
                Err(AttemptFailure::NotStored(trouble))
            }
        }
    }

    fn decide_loaded<'a>(
        &self,
        commits: &[&'a AdmittedCommit],
        wish: &ReadSet<'_>,
        loaded: &mut LoadedState,
    ) -> Result<GroupDecision<'a>, StatementFailure> {
        let now = self.clock.as_ref().map(|clock| clock.now()).or(loaded.now);
        let now = now.ok_or_else(|| {
            StatementFailure::Permanent(Error::corrupt("the database returned no time"))
        })?;
        decide_commit_group(commits, wish, loaded, now)
    }
}

impl RetryState {
    /// Returns whether to retry, after the backoff that is due.
    async fn should_retry(&mut self, trouble: &StatementFailure) -> bool {
        match trouble {
            StatementFailure::Permanent(_) => return false,
            StatementFailure::Race(_) => {
                self.races += 1;
                self.duplicates = Duplicates::Checked;
            }
            StatementFailure::ConnectionLost(_) => {
                self.losses += 1;
                connection::sleep_backoff(self.losses).await;
            }
        }
        self.races < RACES_MAX
            && self.losses < connection::CONNECTION_ATTEMPTS_MAX
            && Instant::now() < self.deadline
    }
}

/// Runs a step with a deadline; a timeout counts as a lost connection.
async fn before_deadline<T>(
    until: Instant,
    step: impl Future<Output = Result<T, StatementFailure>>,
) -> Result<T, StatementFailure> {
    let too_late = || {
        StatementFailure::ConnectionLost(Error::Unavailable(
            "the database did not answer in time".to_owned(),
        ))
    };
    timeout_at(until, step)
        .await
        .unwrap_or_else(|_| Err(too_late()))
}

/// Rolls back a transaction in which nothing was written. If the rollback fails, the connection is
/// discarded and the server aborts the transaction.
async fn rollback_or_discard(client: Client) {
    let rolled_back = timeout(ROLLBACK_TIMEOUT, client.batch_execute("ROLLBACK")).await;
    if !matches!(rolled_back, Ok(Ok(()))) {
        drop(Object::take(client));
    }
}

/// A rejected commit stays rejected; the outcome of any other commit is unknown.
fn mark_outcome_unknown(answer: CommitResult, why: &Error) -> CommitResult {
    answer.and_then(|_| Err(Error::OutcomeUnknown(why.to_string())))
}

/// An error that means "nothing was stored" becomes [`Error::OutcomeUnknown`] if an earlier attempt
/// may have stored the commit.
fn error_in_doubt(error: Error, doubt: Option<String>) -> Error {
    match doubt {
        Some(why) if error.kind() == StoreErrorKind::Retry => Error::OutcomeUnknown(why),
        _ => error,
    }
}
