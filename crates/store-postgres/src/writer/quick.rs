//! The short way for a group that only appends run events: one statement, without a look before. It is written for what
//! is believed of the runs, and stores nothing at all if that is not true or if an event is there already.

use std::collections::BTreeMap;

use deadpool_postgres::{ClientWrapper, Object};
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{EventId, IdempotencyKey, RunId, RunSeq};
use onward_store::{
    Admitted, Before, Care, Error, Key, Known, Planned, Receipt, RunHead, Stored, Table, Value, decide,
};
use tokio::time::timeout;
use tokio_postgres::Row;

use crate::connect;
use crate::error::Trouble;
use crate::event;
use crate::pipeline::Step;
use crate::value::{Time, signed};
use crate::writer::heads::Heads;
use crate::writer::{Writer, is_idempotent};

/// What a group may weigh to go in one statement.
const BYTES_MAX: usize = 16 << 20;

/// Appends one event to a run that was left so.
const APPEND: &str = include_str!("../../statements/append_event.sql");

/// Appends the first event of a run.
const BEGIN: &str = include_str!("../../statements/begin_run.sql");

/// Appends any number of events to any number of runs.
const APPEND_ALL: &str = include_str!("../../statements/append_events.sql");

/// What a quick try came to.
pub(super) enum Attempt {
    /// Everything is stored.
    Done(Vec<Receipt>),
    /// The group cannot go this way.
    Untried,
    /// Nothing is stored.
    Undone,
    /// Nobody knows, for this reason.
    Unknown(String),
}

/// What the rules make of a group, if what is believed of its runs is true. The stamps are the earliest possible.
struct Guess<'a> {
    receipts: Vec<Receipt>,
    events: Vec<Planned<'a>>,
    /// Each run as it is believed to be, if it is believed to be there at all, and as it will be.
    runs: Vec<(Option<RunHead>, RunHead)>,
}

impl Writer {
    /// Tries the short way, if there is one.
    pub(super) async fn quickly(&mut self, commits: &[&Admitted], bytes: usize) -> Attempt {
        let is_short = bytes <= BYTES_MAX && commits.iter().all(|commit| is_idempotent(commit.commit()));
        let guess = if is_short { guess(commits, &self.heads) } else { None };
        let Some(guess) = guess else {
            return Attempt::Untried;
        };
        let Ok(client) = connect::take(&self.pool).await else {
            return Attempt::Untried;
        };
        let now = self.clock.as_ref().map(|clock| clock.now());
        match timeout(self.deadline, store(&client, &guess, now)).await {
            Ok(Ok(Some(stamp))) => Attempt::Done(self.remember(guess, stamp)),
            Ok(Err(Trouble::Lost(why))) => {
                drop(Object::take(client));
                Attempt::Unknown(why.to_string())
            }
            Ok(undone) => {
                tracing::debug!(?undone, "what was believed of the runs is not true, or an event is there already");
                guess.runs.iter().for_each(|(_, head)| self.heads.forget(&head.run_id));
                Attempt::Undone
            }
            Err(_) => {
                drop(Object::take(client));
                Attempt::Unknown("the database did not answer in time".to_owned())
            }
        }
    }

    /// Sets the stamps that the database has given, and remembers where the runs end.
    fn remember(&mut self, guess: Guess<'_>, stamp: Timestamp) -> Vec<Receipt> {
        for (_, mut head) in guess.runs {
            head.last_persisted_at = head.last_persisted_at.max(stamp);
            self.heads.put(head);
        }
        let mut receipts = guess.receipts;
        for appended in receipts.iter_mut().flat_map(|receipt| &mut receipt.events) {
            appended.result.persisted_at = appended.result.persisted_at.max(stamp);
        }
        receipts
    }
}

/// What the rules make of a group; nothing if they object or if there is nothing to append.
fn guess<'a>(commits: &[&'a Admitted], heads: &Heads) -> Option<Guess<'a>> {
    let mut believed = Believed { heads, changed: BTreeMap::new() };
    let (mut receipts, mut events) = (Vec::with_capacity(commits.len()), Vec::new());
    for commit in commits {
        let plan = decide(commit, &mut believed, Timestamp::MIN, Care::Trust).ok()?;
        events.extend(plan.events);
        believed.changed.extend(plan.heads.into_iter().map(|head| (head.run_id.clone(), head)));
        receipts.push(plan.receipt);
    }
    let runs = believed.changed.into_values().map(|head| (heads.get(&head.run_id).cloned(), head)).collect();
    if events.is_empty() { None } else { Some(Guess { receipts, events, runs }) }
}

/// The stamp of what was stored; `None` if nothing was, because a run is not as believed.
async fn store(
    client: &ClientWrapper,
    guess: &Guess<'_>,
    now: Option<Timestamp>,
) -> Result<Option<Timestamp>, Trouble> {
    let step = match guess.events[..] {
        [event] => {
            let sql = if event.run_seq == RunSeq::ZERO.next() { BEGIN } else { APPEND };
            event::values(Step::new(sql), event).with(now.map(Time))
        }
        _ => append_all(guess, now),
    };
    let statement = client.prepare_cached(&step.sql).await?;
    let rows: Vec<Row> = client.query(&statement, &step.borrowed()).await?;
    metrics::counter!("onward_store_transactions_total").increment(1);
    Ok(rows.first().map(|row| row.try_get::<_, Time>(0)).transpose()?.map(|stamp| stamp.0))
}

fn append_all<'a>(guess: &'a Guess<'_>, now: Option<Timestamp>) -> Step<'a> {
    let continued: Vec<(&RunHead, &RunHead)> =
        guess.runs.iter().filter_map(|(before, after)| before.as_ref().map(|before| (before, after))).collect();
    let begun: Vec<&RunHead> =
        guess.runs.iter().filter(|(before, _)| before.is_none()).map(|(_, after)| after).collect();
    let whose = |step: Step<'a>, heads: &[&'a RunHead]| {
        step.with(heads.iter().map(|head| &*head.run_id).collect::<Vec<&str>>())
            .with(heads.iter().map(|head| &*head.tenant_id).collect::<Vec<&str>>())
            .with(heads.iter().map(|head| &*head.project_id).collect::<Vec<&str>>())
            .with(heads.iter().map(|head| &*head.environment_id).collect::<Vec<&str>>())
    };
    let seq = |head: &RunHead| signed(head.last_seq.get());
    let step = event::arrays(Step::new(APPEND_ALL), &guess.events).with(now.map(Time));
    let step = whose(step, &continued.iter().map(|(before, _)| *before).collect::<Vec<_>>())
        .with(continued.iter().map(|(before, _)| seq(before)).collect::<Vec<i64>>())
        .with(continued.iter().map(|(before, _)| Time(before.last_persisted_at)).collect::<Vec<Time>>())
        .with(continued.iter().map(|(_, after)| seq(after)).collect::<Vec<i64>>());
    whose(step, &begun)
        .with(begun.iter().map(|head| seq(head)).collect::<Vec<i64>>())
        .with(signed(guess.runs.len() as u64))
}

/// The rules ask for the heads of runs only, when they append and are told to trust.
struct Believed<'a> {
    heads: &'a Heads,
    changed: BTreeMap<RunId, RunHead>,
}

impl Before for Believed<'_> {
    fn head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self.changed.get(run).or_else(|| self.heads.get(run)).cloned())
    }

    fn journal_length(&mut self, _: ExecutionId) -> Result<u64, Error> {
        Ok(0)
    }

    fn row(&mut self, _: &'static Table, _: &Key) -> Result<Option<Stored>, Error> {
        Ok(None)
    }

    fn row_by_unique(&mut self, _: &'static Table, _: usize, _: &[Value]) -> Result<Option<Stored>, Error> {
        Ok(None)
    }

    fn event_by_key(&mut self, _: &RunId, _: &IdempotencyKey) -> Result<Option<Known>, Error> {
        Ok(None)
    }

    fn has_event(&mut self, _: &EventId) -> Result<bool, Error> {
        Ok(false)
    }
}
