//! Whether what is stored can have happened: every key is right, every sequence has its place, every snapshot is what its
//! log reduces to. The store enforces all of this; here it is looked at again, from outside.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use onward_journal::Text;
use onward_runs::{Accept, EventId, IdempotencyKey, RunEventRecord, RunId, RunSeq, RunSnapshot, reduce, verify};
use onward_store::tables::Snapshot;
use onward_store::{Error, Field as _, Invalid, Key, Page, Records as _, RunHead, Store};
use serde::Serialize;

use crate::client::Scope;
use crate::projector::Holes;

/// How much was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Wrong {
    /// An idempotency key is not the one its event gives.
    IdempotencyKey,
    /// Two events of a run have the same key.
    DuplicateKey,
    /// Two events of a run have the same id.
    DuplicateEventId,
    /// An event contradicts itself.
    Event,
    /// Something cannot be read at all.
    Unreadable,
    /// Sequences do not increase.
    Order,
    /// Sequences are missing.
    Gap,
    /// Events were stored before those that precede them.
    Stamp,
    /// The head of the run does not say what its log says.
    Head,
    /// The snapshot is not what the log reduces to.
    Snapshot,
    /// The database itself: rows that belong to nothing, pages that cannot be read, guards that are gone.
    Store,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// In which run; absent when it is about the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// At which event; absent when it is about the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_seq: Option<RunSeq>,
    /// What.
    pub wrong: Wrong,
    /// The particulars, for people.
    #[serde(serialize_with = "as_text")]
    pub message: Text,
}

fn as_text<S: serde::Serializer>(text: &Text, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.run_id, self.run_seq) {
            (None, _) => write!(f, "store: {}", self.message),
            (Some(run), None) => write!(f, "run {run}: {}", self.message),
            (Some(run), Some(seq)) => write!(f, "run {run}, event {seq}: {}", self.message),
        }
    }
}

/// Why looking did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] Error),
    /// The findings could not be reported.
    #[error(transparent)]
    Report(io::Error),
}

/// Looks at one run; `accept` says which keys are right.
pub async fn run(
    store: &dyn Store,
    run: &RunId,
    accept: Accept,
    report: &mut impl FnMut(&Found) -> io::Result<()>,
) -> Result<Tally, Stopped> {
    let Some(head) = store.run(run).await? else {
        return Err(Error::from(Invalid::NoSuchRun(run.clone())).into());
    };
    Ok(Tally { runs: 1, events: one(store, &head, accept, report).await? })
}

/// Looks at every run; `accept` says which keys are right.
pub async fn all(
    store: &dyn Store,
    scope: Option<&Scope>,
    accept: Accept,
    report: &mut impl FnMut(&Found) -> io::Result<()>,
    mut progress: impl FnMut(Tally),
) -> Result<Tally, Stopped> {
    // What cannot even be looked at is a finding as well, and no reason not to look at the rest.
    let inspected = match scope {
        // The database as such is nobody's in particular.
        Some(_) => Vec::new(),
        None => match store.inspect().await {
            Err(Error::Corrupt(what)) => vec![what],
            other => other?,
        },
    };
    for message in inspected {
        report(&Found { run_id: None, run_seq: None, wrong: Wrong::Store, message: message.into() })
            .map_err(Stopped::Report)?;
    }
    let mut tally = Tally::default();
    let mut after: Option<RunId> = None;
    loop {
        let heads = store.runs(None, after.as_ref(), 1_000).await?;
        let Some(last) = heads.last() else { return Ok(tally) };
        after = Some(last.run_id.clone());
        let is_meant = |head: &&RunHead| {
            scope.is_none_or(|scope| scope.has(&head.tenant_id, &head.project_id, &head.environment_id))
        };
        for head in heads.iter().filter(is_meant) {
            tally.events += one(store, head, accept, report).await?;
            tally.runs += 1;
            progress(tally);
        }
    }
}

async fn one(
    store: &dyn Store,
    head: &RunHead,
    accept: Accept,
    report: &mut impl FnMut(&Found) -> io::Result<()>,
) -> Result<u64, Stopped> {
    let kept: Option<(Snapshot, u64)> = store.get(Key(vec![head.run_id.to_value()])).await?;
    let mut look = Look::new(head, kept.map(|(row, _)| row), accept);
    let mut after = RunSeq::ZERO;
    loop {
        let events = match store.run_events(&head.run_id, Page::after(after)).await {
            Err(Error::Corrupt(what)) => {
                look.wrong(None, Wrong::Unreadable, what);
                look.found.drain(..).try_for_each(|found| report(&found)).map_err(Stopped::Report)?;
                return Ok(look.events);
            }
            other => other?,
        };
        let Some(last) = events.last() else { break };
        if last.run_seq <= after {
            break;
        }
        after = last.run_seq;
        events.iter().for_each(|event| look.at(event));
        look.found.drain(..).try_for_each(|found| report(&found)).map_err(Stopped::Report)?;
    }
    // Events may have been appended since the head was read, and the projector may have gone on.
    if let Some(head) = store.run(&head.run_id).await? {
        look.finish(&head);
    }
    look.found.drain(..).try_for_each(|found| report(&found)).map_err(Stopped::Report)?;
    Ok(look.events)
}

/// A walk along the log of one run.
struct Look {
    run: RunId,
    accept: Accept,
    head: RunHead,
    last: Option<RunEventRecord>,
    keys: BTreeSet<IdempotencyKey>,
    ids: BTreeSet<EventId>,
    holes: Holes,
    kept: Option<Snapshot>,
    projected: RunSnapshot,
    events: u64,
    found: Vec<Found>,
}

impl Look {
    fn new(head: &RunHead, kept: Option<Snapshot>, accept: Accept) -> Self {
        Self {
            run: head.run_id.clone(),
            accept,
            head: head.clone(),
            last: None,
            keys: BTreeSet::new(),
            ids: BTreeSet::new(),
            holes: kept.as_ref().map(|row| Holes::parse(row.holes.as_ref())).unwrap_or_default(),
            projected: RunSnapshot::new(head.run_id.clone()),
            kept,
            events: 0,
            found: Vec::new(),
        }
    }

    fn wrong(&mut self, run_seq: Option<RunSeq>, wrong: Wrong, message: impl Into<Text>) {
        self.found.push(Found { run_id: Some(self.run.clone()), run_seq, wrong, message: message.into() });
    }

    fn at(&mut self, record: &RunEventRecord) {
        let seq = Some(record.run_seq);
        let event = &record.event;
        if let Err(error) = event.check_shape() {
            self.wrong(seq, Wrong::Event, error.to_string());
        } else if let Err(mismatch) = verify(event, self.accept) {
            self.wrong(seq, Wrong::IdempotencyKey, mismatch.to_string());
        }
        if !self.keys.insert(event.idempotency_key) {
            self.wrong(seq, Wrong::DuplicateKey, format!("key {} is there twice", event.idempotency_key));
        }
        if !self.ids.insert(event.event_id) {
            self.wrong(seq, Wrong::DuplicateEventId, format!("event id {} is there twice", event.event_id));
        }
        if !self.head.is_of(event) {
            self.wrong(seq, Wrong::Head, "it belongs to another tenant, project or environment than its run");
        }
        self.place(record);
        if self.kept.as_ref().is_some_and(|kept| record.run_seq <= kept.last_event_seq) {
            self.projected = reduce(std::mem::replace(&mut self.projected, RunSnapshot::new(self.run.clone())), record);
        }
        self.events += 1;
        self.last = Some(record.clone());
    }

    /// Whether the event stands where it should, after the one before.
    fn place(&mut self, record: &RunEventRecord) {
        let before = self.last.as_ref().map_or(RunSeq::ZERO, |last| last.run_seq);
        let is_earlier = self.last.as_ref().is_some_and(|last| record.persisted_at < last.persisted_at);
        if record.run_seq <= before {
            self.wrong(Some(record.run_seq), Wrong::Order, format!("it stands behind event {before}"));
        } else if record.run_seq > before.next() {
            let missing = (before.next(), RunSeq::new(record.run_seq.get() - 1).unwrap_or_default());
            let known =
                if self.holes.ranges().any(|range| range == missing) { " (accepted by the projector)" } else { "" };
            let message = format!("events {} to {} are missing{known}", missing.0, missing.1);
            self.wrong(Some(record.run_seq), Wrong::Gap, message);
        }
        if is_earlier {
            self.wrong(Some(record.run_seq), Wrong::Stamp, "it was stored before the event that precedes it");
        }
    }

    /// `head` was read after the events.
    fn finish(&mut self, head: &RunHead) {
        let last = self.last.as_ref().map_or(RunSeq::ZERO, |last| last.run_seq);
        if last < self.head.last_seq || head.last_seq < last {
            self.wrong(
                None,
                Wrong::Head,
                format!("its head says it ends at event {}, its log ends at {last}", head.last_seq),
            );
        }
        let Some(kept) = self.kept.take() else {
            if self.head.projected_seq > RunSeq::ZERO {
                let message = format!("its snapshot at event {} is gone", self.head.projected_seq);
                self.wrong(None, Wrong::Snapshot, message);
            }
            return;
        };
        let stored = match kept.decode() {
            Ok(snapshot) => snapshot,
            Err(error) => return self.wrong(None, Wrong::Snapshot, error.to_string()),
        };
        if !(self.head.projected_seq..=head.projected_seq).contains(&kept.last_event_seq) {
            let at = kept.last_event_seq;
            let message = format!("its snapshot stands at {at}, the projector at {}", head.projected_seq);
            self.wrong(None, Wrong::Snapshot, message);
        }
        if stored != self.projected {
            let message = format!("its snapshot at event {} is not what the log reduces to", kept.last_event_seq);
            self.wrong(Some(kept.last_event_seq), Wrong::Snapshot, message);
        }
    }
}
