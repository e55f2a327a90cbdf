//! Verifies the stored run logs: every idempotency key is correct, every sequence is in place,
//! every snapshot is what its log reduces to. The store enforces all of this; this module checks it
//! again, from outside.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use onward_base::{Scope, SharedText, Timestamp};
use onward_engine::projector::MissingRanges;
use onward_runs::{
    AcceptedKeyForms, IdempotencyKey, RunEventId, RunEventRecord, RunId, RunSeq, RunSnapshot,
    reduce_event, verify_idempotency_key,
};
use onward_store::tables::RunSnapshotRow;
use onward_store::{
    ColumnCodec as _, Error, InvalidRequest, RecordReader as _, RowKey, RunEventQuery, RunHead,
    Store,
};
use serde::Serialize;

/// Number of runs and events that were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyTally {
    /// Number of runs that were checked.
    pub runs: u64,
    /// Number of events that were checked.
    pub events: u64,
}

/// Kind of an issue that verification found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VerifyIssueKind {
    /// The idempotency key of an event is not the one derived from it.
    IdempotencyKey,
    /// Two events of a run have the same key.
    DuplicateKey,
    /// Two events of a run have the same id.
    DuplicateEventId,
    /// An event is inconsistent in itself.
    Event,
    /// Stored data cannot be read.
    Unreadable,
    /// Event sequences do not increase.
    Order,
    /// Event sequences are missing.
    Gap,
    /// An event has an earlier store timestamp than the event before it.
    Stamp,
    /// The run head does not match the log or the scope of the run.
    Head,
    /// The snapshot is missing, unreadable, at the wrong position, or not what the log reduces to.
    Snapshot,
    /// The database itself is damaged: orphaned rows, unreadable pages or missing guards.
    Store,
}

/// One issue that verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyIssue {
    /// The affected run; absent if the issue concerns the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The affected event; absent if the issue concerns the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_seq: Option<RunSeq>,
    /// Kind of the issue.
    pub kind: VerifyIssueKind,
    /// Human-readable details.
    #[serde(serialize_with = "as_text")]
    pub message: SharedText,
}

fn as_text<S: serde::Serializer>(text: &SharedText, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl fmt::Display for VerifyIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.run_id, self.run_seq) {
            (None, _) => write!(f, "store: {}", self.message),
            (Some(run), None) => write!(f, "run {run}: {}", self.message),
            (Some(run), Some(seq)) => write!(f, "run {run}, event {seq}: {}", self.message),
        }
    }
}

/// Reason why verification stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum StoreCheckError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] Error),
    /// The issues could not be reported.
    #[error(transparent)]
    Report(io::Error),
}

/// Verifies one run and reports each issue; `accept` defines which forms of idempotency key are
/// valid. Fails if the run does not exist.
pub async fn verify_run(
    store: &dyn Store,
    run: &RunId,
    accept: AcceptedKeyForms,
    report: &mut impl FnMut(&VerifyIssue) -> io::Result<()>,
) -> Result<VerifyTally, StoreCheckError> {
    let Some(head) = store.read_run_head(run).await? else {
        return Err(Error::from(InvalidRequest::NoSuchRun(run.clone())).into());
    };
    Ok(VerifyTally {
        runs: 1,
        events: verify_run_log(store, &head, accept, report).await?,
    })
}

/// Verifies every run, or with `scope` every run of that scope, and calls `progress` after each;
/// `accept` defines which forms of idempotency key are valid. Without `scope` the integrity of the
/// database is checked as well.
pub async fn verify_all_runs(
    store: &dyn Store,
    scope: Option<&Scope>,
    accept: AcceptedKeyForms,
    report: &mut impl FnMut(&VerifyIssue) -> io::Result<()>,
    mut progress: impl FnMut(VerifyTally),
) -> Result<VerifyTally, StoreCheckError> {
    // A corrupt database is reported as an issue and does not stop the verification of the runs.
    let inspected = match scope {
        // The database as a whole belongs to no scope.
        Some(_) => Vec::new(),
        None => match store.check_integrity().await {
            Err(Error::Corrupt(what)) => vec![what],
            other => other?,
        },
    };
    for message in inspected {
        report(&VerifyIssue {
            run_id: None,
            run_seq: None,
            kind: VerifyIssueKind::Store,
            message: message.into(),
        })
        .map_err(StoreCheckError::Report)?;
    }
    let mut tally = VerifyTally::default();
    let mut after: Option<RunId> = None;
    loop {
        let heads = store.list_run_heads(None, after.as_ref(), 1_000).await?;
        let Some(last) = heads.last() else {
            return Ok(tally);
        };
        after = Some(last.run_id.clone());
        let is_meant = |head: &&RunHead| {
            scope.is_none_or(|scope| {
                scope.matches_ids(&head.tenant_id, &head.project_id, &head.environment_id)
            })
        };
        for head in heads.iter().filter(is_meant) {
            tally.events += verify_run_log(store, head, accept, report).await?;
            tally.runs += 1;
            progress(tally);
        }
    }
}

async fn verify_run_log(
    store: &dyn Store,
    head: &RunHead,
    accept: AcceptedKeyForms,
    report: &mut impl FnMut(&VerifyIssue) -> io::Result<()>,
) -> Result<u64, StoreCheckError> {
    let kept: Option<(RunSnapshotRow, u64)> = store
        .read_record(RowKey(vec![head.run_id.to_value()]))
        .await?;
    let mut check = RunLogCheck::new(head, kept.map(|(row, _)| row), accept);
    let mut after = RunSeq::ZERO;
    loop {
        let page = RunEventQuery::starting_after(after);
        let read = match onward_store::read_readable_events(store, &head.run_id, page).await {
            Err(Error::Corrupt(what)) => {
                check.add_issue(None, VerifyIssueKind::Unreadable, what);
                check
                    .issues
                    .drain(..)
                    .try_for_each(|found| report(&found))
                    .map_err(StoreCheckError::Report)?;
                return Ok(check.events);
            }
            other => other?,
        };
        let last = match (&read.unreadable, read.events.last()) {
            (Some((unreadable, _)), _) => *unreadable,
            (None, Some(last)) => last.run_seq,
            (None, None) => break,
        };
        if last <= after {
            break;
        }
        after = last;
        read.events
            .iter()
            .for_each(|event| check.check_event(event));
        if let Some((run_seq, reason)) = read.unreadable {
            check.skip_unreadable(run_seq, reason);
        }
        check
            .issues
            .drain(..)
            .try_for_each(|found| report(&found))
            .map_err(StoreCheckError::Report)?;
    }
    // Events may have been appended since the head was read, and the projector may have advanced.
    if let Some(head) = store.read_run_head(&head.run_id).await? {
        check.check_head_and_snapshot(&head);
    }
    check
        .issues
        .drain(..)
        .try_for_each(|found| report(&found))
        .map_err(StoreCheckError::Report)?;
    Ok(check.events)
}

/// State of the check along the log of one run.
struct RunLogCheck {
    run: RunId,
    accept: AcceptedKeyForms,
    head: RunHead,
    /// Sequence of the last event, and the store timestamp of the last one that can be read.
    last: (RunSeq, Option<Timestamp>),
    /// Whether an event could not be read, so that the log cannot be reduced.
    has_unreadable: bool,
    keys: BTreeSet<IdempotencyKey>,
    ids: BTreeSet<RunEventId>,
    accepted_gaps: MissingRanges,
    stored_snapshot: Option<RunSnapshotRow>,
    projected: RunSnapshot,
    events: u64,
    issues: Vec<VerifyIssue>,
}

impl RunLogCheck {
    fn new(head: &RunHead, kept: Option<RunSnapshotRow>, accept: AcceptedKeyForms) -> Self {
        Self {
            run: head.run_id.clone(),
            accept,
            head: head.clone(),
            last: (RunSeq::ZERO, None),
            has_unreadable: false,
            keys: BTreeSet::new(),
            ids: BTreeSet::new(),
            accepted_gaps: kept
                .as_ref()
                .and_then(|row| MissingRanges::parse(row.holes.as_ref()).ok())
                .unwrap_or_default(),
            projected: RunSnapshot::new(head.run_id.clone()),
            stored_snapshot: kept,
            events: 0,
            issues: Vec::new(),
        }
    }

    fn add_issue(
        &mut self,
        run_seq: Option<RunSeq>,
        wrong: VerifyIssueKind,
        message: impl Into<SharedText>,
    ) {
        self.issues.push(VerifyIssue {
            run_id: Some(self.run.clone()),
            run_seq,
            kind: wrong,
            message: message.into(),
        });
    }

    fn check_event(&mut self, record: &RunEventRecord) {
        let seq = Some(record.run_seq);
        let event = &record.event;
        if let Err(error) = event.check_shape() {
            self.add_issue(seq, VerifyIssueKind::Event, error.to_string());
        } else if let Err(mismatch) = verify_idempotency_key(event, self.accept) {
            self.add_issue(seq, VerifyIssueKind::IdempotencyKey, mismatch.to_string());
        }
        if !self.keys.insert(event.idempotency_key) {
            self.add_issue(
                seq,
                VerifyIssueKind::DuplicateKey,
                format!("duplicate key {}", event.idempotency_key),
            );
        }
        if !self.ids.insert(event.event_id) {
            self.add_issue(
                seq,
                VerifyIssueKind::DuplicateEventId,
                format!("duplicate event id {}", event.event_id),
            );
        }
        if !self.head.has_scope_of(event) {
            self.add_issue(
                seq,
                VerifyIssueKind::Head,
                "it belongs to another tenant, project or environment than its run",
            );
        }
        self.check_position(record);
        if self
            .stored_snapshot
            .as_ref()
            .is_some_and(|kept| record.run_seq <= kept.last_event_seq)
        {
            self.projected = reduce_event(
                std::mem::replace(&mut self.projected, RunSnapshot::new(self.run.clone())),
                record,
            );
        }
        self.events += 1;
        self.last = (record.run_seq, Some(record.persisted_at));
    }

    /// Reports an event that cannot be read, and continues after it.
    fn skip_unreadable(&mut self, run_seq: RunSeq, reason: String) {
        self.add_issue(Some(run_seq), VerifyIssueKind::Unreadable, reason);
        self.last.0 = run_seq;
        self.has_unreadable = true;
    }

    /// Checks the sequence and the timestamp of an event against the event before it.
    fn check_position(&mut self, record: &RunEventRecord) {
        let (before, stored_at) = self.last;
        let is_earlier = stored_at.is_some_and(|before| record.persisted_at < before);
        if record.run_seq <= before {
            self.add_issue(
                Some(record.run_seq),
                VerifyIssueKind::Order,
                format!("it follows event {before}, which has the same or a higher sequence"),
            );
        } else if record.run_seq > before.next_seq() {
            let missing = (
                before.next_seq(),
                RunSeq::new(record.run_seq.as_u64() - 1).unwrap_or_default(),
            );
            let known = if self.accepted_gaps.ranges().any(|range| range == missing) {
                " (accepted by the projector)"
            } else {
                ""
            };
            let message = format!("events {} to {} are missing{known}", missing.0, missing.1);
            self.add_issue(Some(record.run_seq), VerifyIssueKind::Gap, message);
        }
        if is_earlier {
            self.add_issue(
                Some(record.run_seq),
                VerifyIssueKind::Stamp,
                "it was stored before the event that precedes it",
            );
        }
    }

    /// Checks the end of the log against the heads read before and after the events, and the stored
    /// snapshot against the log. `head` was read after the events.
    fn check_head_and_snapshot(&mut self, head: &RunHead) {
        let (last, _) = self.last;
        if last < self.head.last_seq || head.last_seq < last {
            self.add_issue(
                None,
                VerifyIssueKind::Head,
                format!(
                    "its head ends at event {}, its log at event {last}",
                    head.last_seq
                ),
            );
        }
        let Some(kept) = self.stored_snapshot.take() else {
            if self.head.projected_seq > RunSeq::ZERO {
                let message = format!(
                    "its snapshot at event {} is missing",
                    self.head.projected_seq
                );
                self.add_issue(None, VerifyIssueKind::Snapshot, message);
            }
            return;
        };
        if let Err(error) = MissingRanges::parse(kept.holes.as_ref()) {
            self.add_issue(None, VerifyIssueKind::Snapshot, error.to_string());
        }
        let stored = match kept.decode_snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                return self.add_issue(None, VerifyIssueKind::Snapshot, error.to_string());
            }
        };
        if !(self.head.projected_seq..=head.projected_seq).contains(&kept.last_event_seq) {
            let at = kept.last_event_seq;
            let message = format!(
                "its snapshot is at event {at}, the projector at event {}",
                head.projected_seq
            );
            self.add_issue(None, VerifyIssueKind::Snapshot, message);
        }
        if stored != self.projected && !self.has_unreadable {
            let message = format!(
                "its snapshot at event {} differs from the one that the log reduces to",
                kept.last_event_seq
            );
            self.add_issue(
                Some(kept.last_event_seq),
                VerifyIssueKind::Snapshot,
                message,
            );
        }
    }
}
