//! The way that is always right: lock, read, decide, write, commit; and start again when somebody was faster or the
//! connection was lost.

use std::time::Duration;

use deadpool_postgres::{Client, Object};
use onward_store::{Admitted, Care, Error, Kind};
use tokio::time::{Instant, timeout, timeout_at};

use crate::connect;
use crate::error::Trouble;
use crate::writer::decided::{Decided, decided};
use crate::writer::fate::{Fate, fate};
use crate::writer::flush::flush;
use crate::writer::load::{Loaded, load};
use crate::writer::wish::Wish;
use crate::writer::{Answer, Writer, is_idempotent};

/// How often a group that others get in the way of is tried before its commits are performed one by one.
const RACES_MAX: u32 = 4;
/// How long a transaction may take to be rolled back before its connection is thrown away.
const ROLLBACK: Duration = Duration::from_secs(1);

/// Why an attempt did not come to its end.
enum Setback {
    /// Nothing was stored.
    Trouble(Trouble),
    /// The connection was lost after COMMIT was sent.
    Unheard { transaction: String, answers: Vec<Answer>, why: Error },
}

/// What went wrong with a group so far.
struct Course {
    until: Instant,
    /// Whether to look for what is taken for new; after a race, it has to be looked for.
    care: Care,
    races: u32,
    losses: u32,
    /// Set once the commits may have been stored by an attempt whose end was not heard.
    doubt: Option<String>,
}

impl Writer {
    /// Performs commits in one transaction. With `doubt`, they may have been performed already, and are idempotent.
    pub(super) async fn carefully(&mut self, commits: &[&Admitted], care: Care, doubt: Option<String>) -> Vec<Answer> {
        let until = Instant::now() + self.deadline;
        self.along(commits, Course { until, care, races: 0, losses: 0, doubt }).await
    }

    async fn along(&mut self, commits: &[&Admitted], mut course: Course) -> Vec<Answer> {
        loop {
            let until = course.until;
            let trouble = match self.attempt(commits, &course).await {
                Ok(answers) => return answers,
                Err(Setback::Trouble(trouble)) => trouble,
                Err(Setback::Unheard { transaction, answers, why }) => {
                    match fate(&self.pool, &transaction, self.mark, until).await {
                        Fate::Committed => return answers,
                        Fate::Aborted => {}
                        Fate::Unknown if commits.iter().all(|commit| is_idempotent(commit.commit())) => {
                            course.doubt = Some(why.to_string());
                        }
                        Fate::Unknown => return answers.into_iter().map(|answer| unknown(answer, &why)).collect(),
                    }
                    Trouble::Lost(why)
                }
            };
            if !course.may_go_on(&trouble).await {
                if commits.len() > 1 && !matches!(trouble, Trouble::Lost(_)) {
                    return self.one_by_one(commits, &course).await;
                }
                let error = in_doubt(trouble.into_error(), course.doubt);
                return commits.iter().map(|_| Err(error.clone())).collect();
            }
        }
    }

    async fn one_by_one(&mut self, commits: &[&Admitted], course: &Course) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(commits.len());
        for commit in commits {
            let course = Course { races: 0, losses: 0, doubt: course.doubt.clone(), ..*course };
            answers.extend(Box::pin(self.along(&[commit], course)).await);
        }
        answers
    }

    async fn attempt(&mut self, commits: &[&Admitted], course: &Course) -> Result<Vec<Answer>, Setback> {
        let Course { until, care, .. } = *course;
        let wish = Wish::of(commits, care);
        let client = within(until, connect::take(&self.pool)).await.map_err(Setback::Trouble)?;
        let mut loaded = match within(until, load(&client, &wish)).await {
            Ok(loaded) => loaded,
            Err(trouble @ Trouble::Lost(_)) => {
                drop(Object::take(client));
                return Err(Setback::Trouble(trouble));
            }
            Err(trouble) => {
                abandon(client).await;
                return Err(Setback::Trouble(trouble));
            }
        };
        let decided = match self.decide(commits, &wish, &mut loaded) {
            Ok(decided) if !decided.is_empty() => decided,
            other => {
                abandon(client).await;
                return other.map(|decided| decided.answers).map_err(Setback::Trouble);
            }
        };
        self.mark = self.mark.next();
        match within(until, flush(&client, &decided, self.mark)).await {
            Ok(()) => {
                decided.heads.into_values().for_each(|head| self.heads.put(head));
                Ok(decided.answers)
            }
            Err(Trouble::Lost(why)) => {
                drop(Object::take(client));
                Err(Setback::Unheard { transaction: loaded.transaction, answers: decided.answers, why })
            }
            Err(trouble) => {
                // The transaction has ended with the failure, unless a statement could not even be prepared.
                abandon(client).await;
                Err(Setback::Trouble(trouble))
            }
        }
    }

    fn decide<'a>(
        &self,
        commits: &[&'a Admitted],
        wish: &Wish<'_>,
        loaded: &mut Loaded,
    ) -> Result<Decided<'a>, Trouble> {
        let now = self.clock.as_ref().map(|clock| clock.now()).or(loaded.now);
        let now = now.ok_or_else(|| Trouble::Refused(Error::corrupt("the database has no clock")))?;
        decided(commits, wish, loaded, now)
    }
}

impl Course {
    /// Whether to try again, after the pause that is due.
    async fn may_go_on(&mut self, trouble: &Trouble) -> bool {
        match trouble {
            Trouble::Refused(_) => return false,
            Trouble::Race(_) => {
                self.races += 1;
                self.care = Care::Look;
            }
            Trouble::Lost(_) => {
                self.losses += 1;
                connect::pause(self.losses).await;
            }
        }
        self.races < RACES_MAX && self.losses < connect::LOSSES_MAX && Instant::now() < self.until
    }
}

/// What a step comes to; who does not answer in time counts as lost.
async fn within<T>(until: Instant, step: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let too_late = || Trouble::Lost(Error::Unavailable("the database did not answer in time".to_owned()));
    timeout_at(until, step).await.unwrap_or_else(|_| Err(too_late()))
}

/// Gives up a transaction in which nothing was written. A connection that cannot do even that is thrown away, and the
/// server gives the transaction up by itself.
async fn abandon(client: Client) {
    let rolled_back = timeout(ROLLBACK, client.batch_execute("ROLLBACK")).await;
    if !matches!(rolled_back, Ok(Ok(()))) {
        drop(Object::take(client));
    }
}

/// A commit that was refused is refused; of any other nobody knows.
fn unknown(answer: Answer, why: &Error) -> Answer {
    answer.and_then(|_| Err(Error::OutcomeUnknown(why.to_string())))
}

/// "Nothing was stored" cannot be said of a commit that an earlier attempt may have stored.
fn in_doubt(error: Error, doubt: Option<String>) -> Error {
    match doubt {
        Some(why) if error.kind() == Kind::Retry => Error::OutcomeUnknown(why),
        _ => error,
    }
}
