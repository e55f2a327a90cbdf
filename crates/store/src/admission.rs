//! Admission control of every store: rejects commits that are invalid in themselves before they
//! reach a database.
//!
//! Adapters accept only an [`AdmittedCommit`], so no adapter can omit a check or needs to repeat
//! one.

use std::collections::BTreeSet;

use onward_runs::{AcceptedKeyForms, RunEventWrite, verify_idempotency_key};

use crate::{
    ColumnValue, Commit, Error, IdempotencyKeyCheck, InvalidRequest, RowChange, RowKey,
    StoreLimits, StorePolicy, TableSchema,
};

/// A commit that has passed the checks that need no stored data. The store checks its guards when
/// it applies the commit.
#[derive(Debug, Clone)]
pub struct AdmittedCommit(Commit);

impl AdmittedCommit {
    /// Checks `commit` against `policy`. Fails with [`Error::Invalid`] on the first violation.
    pub fn new(commit: Commit, policy: &StorePolicy) -> Result<Self, Error> {
        check_commit_sizes(&commit, &policy.limits)?;
        check_no_repeats(&commit)?;
        commit
            .changes
            .iter()
            .try_for_each(|change| check_row_change(change, &policy.limits))?;
        commit
            .events
            .iter()
            .enumerate()
            .try_for_each(|(index, event)| policy.check_event(index, event))?;
        Ok(Self(commit))
    }

    /// Returns the checked commit.
    pub const fn commit(&self) -> &Commit {
        &self.0
    }
}

const fn check_limit(what: &'static str, found: usize, limit: usize) -> Result<(), InvalidRequest> {
    if found > limit {
        Err(InvalidRequest::Limit { what, found, limit })
    } else {
        Ok(())
    }
}

fn check_commit_sizes(commit: &Commit, limits: &StoreLimits) -> Result<(), InvalidRequest> {
    check_limit(
        "fences in a commit",
        commit.fences.len(),
        limits.changes_max,
    )?;
    check_limit(
        "journal appends in a commit",
        commit.journals.len(),
        limits.changes_max,
    )?;
    check_limit(
        "changes in a commit",
        commit.changes.len(),
        limits.changes_max,
    )?;
    check_limit(
        "reader advances in a commit",
        commit.reader_advances.len(),
        limits.changes_max,
    )?;
    check_limit(
        "run events in a commit",
        commit.events.len(),
        limits.changes_max,
    )?;
    let bytes = commit.journals.iter().map(|append| append.records.len());
    bytes.max().map_or(Ok(()), |most| {
        check_limit("bytes of a journal append", most, limits.record_bytes_max)
    })
}

/// Checks that the commit touches each shard fence, journal, row, set of unique values and reader
/// position at most once.
fn check_no_repeats(commit: &Commit) -> Result<(), InvalidRequest> {
    let mut seen = BTreeSet::new();
    for fence in &commit.fences {
        ensure_first_touch(seen.insert(fence.shard), || {
            format!("shard {}", fence.shard)
        })?;
    }
    let mut seen = BTreeSet::new();
    for append in &commit.journals {
        if append.count == 0
            || append
                .expected_length
                .checked_add(u64::from(append.count))
                .is_none()
        {
            return Err(InvalidRequest::EmptyAppend(append.execution));
        }
        ensure_first_touch(seen.insert(append.execution), || {
            format!("the journal of {}", append.execution)
        })?;
    }
    let mut seen = BTreeSet::new();
    for step in &commit.reader_advances {
        ensure_first_touch(seen.insert((&step.run, step.reader)), || {
            format!("the {} of run {}", step.reader, step.run)
        })?;
    }
    check_no_repeated_rows(&commit.changes)
}

fn check_no_repeated_rows(changes: &[RowChange]) -> Result<(), InvalidRequest> {
    let mut keys: BTreeSet<(&str, RowKey)> = BTreeSet::new();
    let mut unique: BTreeSet<(&str, usize, Vec<ColumnValue>)> = BTreeSet::new();
    for change in changes {
        let table = change.table();
        if !(table.has_serial_key()
            && matches!(
                change,
                RowChange::Insert { .. } | RowChange::InsertOrKeep { .. }
            ))
        {
            let key = change.key();
            ensure_first_touch(!keys.contains(&(table.name, key.clone())), || {
                format!("row {key} of {}", table.name)
            })?;
            keys.insert((table.name, key));
        }
        // A column update never writes unique columns, so it cannot introduce a duplicate.
        let written = change
            .row()
            .filter(|_| !matches!(change, RowChange::UpdateColumns { .. }));
        for (place, values) in written
            .map(|row| table.unique_values(row))
            .unwrap_or_default()
        {
            let fresh = unique.insert((table.name, place, values));
            ensure_first_touch(fresh, || {
                format!(
                    "the same {} of {}",
                    table.unique[place].join(", "),
                    table.name
                )
            })?;
        }
    }
    Ok(())
}

fn ensure_first_touch(
    first_time: bool,
    what: impl FnOnce() -> String,
) -> Result<(), InvalidRequest> {
    if first_time {
        Ok(())
    } else {
        Err(InvalidRequest::TouchedTwice(what()))
    }
}

/// Maximum bytes of a text in a key, unique set or index: five of them fit into one Postgres index
/// entry.
const KEY_TEXT_BYTES_MAX: usize = 512;

/// Columns of text that must not be empty: an empty idempotency key would make one item of all.
const NOT_EMPTY: [(&str, &str); 1] = [("channel_outbox", "idempotency_key")];

fn check_row_change(change: &RowChange, limits: &StoreLimits) -> Result<(), InvalidRequest> {
    let table = change.table();
    let is_insert = matches!(
        change,
        RowChange::Insert { .. } | RowChange::InsertOrKeep { .. }
    );
    let (values, columns) = match change {
        RowChange::Delete { key, .. } | RowChange::DeleteIfExists { key, .. } => {
            (&key.0, table.key_columns())
        }
        RowChange::Insert { row, .. }
        | RowChange::InsertOrKeep { row, .. }
        | RowChange::Update { row, .. }
        | RowChange::UpdateColumns { row, .. } => (&row.0, table.columns),
    };
    check_limit(
        "bytes of a row",
        values.iter().map(ColumnValue::size_in_bytes).sum(),
        limits.record_bytes_max,
    )?;
    for (place, column) in columns.iter().enumerate() {
        let refuse = |reason| {
            Err(InvalidRequest::Value {
                table: table.name,
                column: column.name,
                reason,
            })
        };
        let assigned = is_insert && place == 0 && table.has_serial_key();
        match values.get(place) {
            None => refuse("no value is given")?,
            Some(ColumnValue::Null) if assigned => {}
            Some(_) if assigned => refuse("the store assigns it")?,
            Some(ColumnValue::Null) if !column.nullable => refuse("a value is required")?,
            Some(value) if !value.fits_type(column.column_type) => {
                refuse("the value has the wrong type")?
            }
            Some(ColumnValue::Text(text)) if text.contains('\0') => {
                refuse("text must not contain U+0000")?
            }
            Some(ColumnValue::Text(text))
                if text.len() > KEY_TEXT_BYTES_MAX && table.is_lookup_column(column.name) =>
            {
                refuse("text of a key, unique or index column must have at most 512 bytes")?;
            }
            Some(ColumnValue::Text(text))
                if text.is_empty() && NOT_EMPTY.contains(&(table.name, column.name)) =>
            {
                refuse("the text must not be empty")?;
            }
            Some(_) => {}
        }
    }
    check_column_count(table, values.len(), columns.len())?;
    check_updated_columns(change)
}

/// Rejects a column update of a key or unique column: whether such a change is allowed depends on
/// other rows.
fn check_updated_columns(change: &RowChange) -> Result<(), InvalidRequest> {
    let RowChange::UpdateColumns { table, changed, .. } = change else {
        return Ok(());
    };
    let identifying = changed
        .positions()
        .find(|place| table.is_identifying_column(*place));
    identifying.map_or(Ok(()), |place| {
        let reason = "a column update must not change key or unique columns";
        Err(InvalidRequest::Value {
            table: table.name,
            column: table.columns[place].name,
            reason,
        })
    })
}

const fn check_column_count(
    table: &'static TableSchema,
    found: usize,
    expected: usize,
) -> Result<(), InvalidRequest> {
    if found == expected {
        return Ok(());
    }
    Err(InvalidRequest::Value {
        table: table.name,
        column: table.columns[0].name,
        reason: "the row has more values than the table has columns",
    })
}

impl StorePolicy {
    /// Checks whether a store with this policy accepts the event, as far as the event alone
    /// determines that. `index` is the position of the event in the call and is copied into the
    /// error.
    pub fn check_event(&self, index: usize, event: &RunEventWrite) -> Result<(), InvalidRequest> {
        event.check_shape().map_err(|error| InvalidRequest::Event {
            index,
            reason: error.to_string(),
        })?;
        // The path of a URL cannot name such a run: clients resolve the segment.
        if matches!(&*event.run_id, "." | "..") {
            let reason = format!("run id {} is not allowed", event.run_id);
            return Err(InvalidRequest::Event { index, reason });
        }
        let payload = event
            .payload
            .as_ref()
            .map_or(0, |payload| payload.as_str().len());
        let extra = event.extra.as_json().map_or(0, str::len);
        check_limit(
            "bytes of an event's payload",
            payload + extra,
            self.limits.event_bytes_max,
        )?;
        if self.key_check == IdempotencyKeyCheck::Off {
            return Ok(());
        }
        let accept = if self.accept_v1_keys {
            AcceptedKeyForms::V2OrV1
        } else {
            AcceptedKeyForms::V2Only
        };
        match verify_idempotency_key(event, accept) {
            Ok(_) => Ok(()),
            Err(mismatch) if self.key_check == IdempotencyKeyCheck::Warn => {
                let RunEventWrite {
                    run_id, event_id, ..
                } = event;
                tracing::warn!(%run_id, %event_id, %mismatch, "idempotency key does not match the event; accepted, because the key check only warns");
                Ok(())
            }
            Err(mismatch) => Err(InvalidRequest::IdempotencyKey { index, mismatch }),
        }
    }
}
