//! The door of every store: what is wrong by itself is refused here, before a database hears of it.
//!
//! Adapters take only an [`Admitted`] commit, so none of them can forget a check, and none has to repeat one.

use std::collections::BTreeSet;

use onward_runs::{Accept, RunEventWrite, verify};

use crate::{Change, Commit, Error, Invalid, Key, KeyCheck, Limits, Policy, Table, Value};

/// A commit that is sound in itself; whether its guards hold is for the store to see.
#[derive(Debug, Clone)]
pub struct Admitted(Commit);

impl Admitted {
    /// Checks `commit` against `policy`.
    pub fn new(commit: Commit, policy: &Policy) -> Result<Self, Error> {
        check_sizes(&commit, &policy.limits)?;
        check_once(&commit)?;
        commit.changes.iter().try_for_each(|change| check_change(change, &policy.limits))?;
        commit.events.iter().enumerate().try_for_each(|(index, event)| policy.check(index, event))?;
        Ok(Self(commit))
    }

    /// The commit.
    pub const fn commit(&self) -> &Commit {
        &self.0
    }
}

const fn at_most(what: &'static str, found: usize, limit: usize) -> Result<(), Invalid> {
    if found > limit { Err(Invalid::Limit { what, found, limit }) } else { Ok(()) }
}

fn check_sizes(commit: &Commit, limits: &Limits) -> Result<(), Invalid> {
    at_most("fences in a commit", commit.fences.len(), limits.changes_max)?;
    at_most("journal appends in a commit", commit.journals.len(), limits.changes_max)?;
    at_most("changes in a commit", commit.changes.len(), limits.changes_max)?;
    at_most("moves in a commit", commit.moves.len(), limits.changes_max)?;
    at_most("run events in a commit", commit.events.len(), limits.changes_max)?;
    let bytes = commit.journals.iter().map(|append| append.records.len());
    bytes.max().map_or(Ok(()), |most| at_most("bytes of a journal append", most, limits.record_bytes_max))
}

/// Each journal, row, set of unique values and position once.
fn check_once(commit: &Commit) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for fence in &commit.fences {
        once(seen.insert(fence.shard), || format!("shard {}", fence.shard))?;
    }
    let mut seen = BTreeSet::new();
    for append in &commit.journals {
        if append.count == 0 || append.expected.checked_add(u64::from(append.count)).is_none() {
            return Err(Invalid::Append(append.execution));
        }
        once(seen.insert(append.execution), || format!("the journal of {}", append.execution))?;
    }
    let mut seen = BTreeSet::new();
    for step in &commit.moves {
        once(seen.insert((&step.run, step.reader)), || format!("the {} of run {}", step.reader, step.run))?;
    }
    check_rows_once(&commit.changes)
}

fn check_rows_once(changes: &[Change]) -> Result<(), Invalid> {
    let mut keys: BTreeSet<(&str, Key)> = BTreeSet::new();
    let mut unique: BTreeSet<(&str, usize, Vec<Value>)> = BTreeSet::new();
    for change in changes {
        let table = change.table();
        if !(table.is_serial() && matches!(change, Change::Insert { .. } | Change::InsertOrKeep { .. })) {
            let key = change.key();
            once(!keys.contains(&(table.name, key.clone())), || format!("row {key} of {}", table.name))?;
            keys.insert((table.name, key));
        }
        // What an amendment leaves as it is is as unique as it was.
        let written = change.row().filter(|_| !matches!(change, Change::Amend { .. }));
        for (place, values) in written.map(|row| table.unique_values(row)).unwrap_or_default() {
            let fresh = unique.insert((table.name, place, values));
            once(fresh, || format!("the same {} of {}", table.unique[place].join(", "), table.name))?;
        }
    }
    Ok(())
}

fn once(first_time: bool, what: impl FnOnce() -> String) -> Result<(), Invalid> {
    if first_time { Ok(()) } else { Err(Invalid::Twice(what())) }
}

/// Bytes of a text in a key or an index: five of them fit into an entry of a Postgres index.
const KEY_TEXT_MAX: usize = 512;

fn check_change(change: &Change, limits: &Limits) -> Result<(), Invalid> {
    let table = change.table();
    let is_insert = matches!(change, Change::Insert { .. } | Change::InsertOrKeep { .. });
    let (values, columns) = match change {
        Change::Delete { key, .. } | Change::Remove { key, .. } => (&key.0, table.key_columns()),
        Change::Insert { row, .. }
        | Change::InsertOrKeep { row, .. }
        | Change::Update { row, .. }
        | Change::Amend { row, .. } => (&row.0, table.columns),
    };
    at_most("bytes of a row", values.iter().map(Value::bytes).sum(), limits.record_bytes_max)?;
    for (place, column) in columns.iter().enumerate() {
        let refuse = |reason| Err(Invalid::Value { table: table.name, column: column.name, reason });
        let assigned = is_insert && place == 0 && table.is_serial();
        match values.get(place) {
            None => refuse("no value is given")?,
            Some(Value::Null) if assigned => {}
            Some(_) if assigned => refuse("the store assigns it")?,
            Some(Value::Null) if !column.nullable => refuse("a value is required")?,
            Some(value) if !value.is_a(column.of) => refuse("the value is of another type")?,
            Some(Value::Text(text)) if text.contains('\0') => refuse("text cannot hold U+0000")?,
            Some(Value::Text(text)) if text.len() > KEY_TEXT_MAX && table.finds_by(column.name) => {
                refuse("text that rows are found by has at most 512 bytes")?;
            }
            Some(_) => {}
        }
    }
    check_width(table, values.len(), columns.len())?;
    check_amendment(change)
}

/// What identifies a row is not amended: whether it may be depends on other rows.
fn check_amendment(change: &Change) -> Result<(), Invalid> {
    let Change::Amend { table, changed, .. } = change else { return Ok(()) };
    let identifying = changed.places().find(|place| table.identifies(*place));
    identifying.map_or(Ok(()), |place| {
        let reason = "what identifies a row cannot be amended";
        Err(Invalid::Value { table: table.name, column: table.columns[place].name, reason })
    })
}

const fn check_width(table: &'static Table, found: usize, expected: usize) -> Result<(), Invalid> {
    if found == expected {
        return Ok(());
    }
    Err(Invalid::Value {
        table: table.name,
        column: table.columns[0].name,
        reason: "there are more values than columns",
    })
}

impl Policy {
    /// Whether a store with this policy takes the event, as far as the event alone can tell. `index` is its place in the
    /// call, for the answer.
    pub fn check(&self, index: usize, event: &RunEventWrite) -> Result<(), Invalid> {
        event.check_shape().map_err(|error| Invalid::Event { index, reason: error.to_string() })?;
        let payload = event.payload.as_ref().map_or(0, |payload| payload.as_str().len());
        let extra = event.extra.as_json().map_or(0, str::len);
        at_most("bytes of an event's payload", payload + extra, self.limits.event_bytes_max)?;
        if self.keys == KeyCheck::Off {
            return Ok(());
        }
        let accept = if self.accept_v1_keys { Accept::V2OrV1 } else { Accept::V2Only };
        match verify(event, accept) {
            Ok(_) => Ok(()),
            Err(mismatch) if self.keys == KeyCheck::Warn => {
                let RunEventWrite { run_id, event_id, .. } = event;
                tracing::warn!(%run_id, %event_id, %mismatch, "idempotency key accepted as it is");
                Ok(())
            }
            Err(mismatch) => Err(Invalid::IdempotencyKey { index, mismatch }),
        }
    }
}
