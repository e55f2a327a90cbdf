//! Second half of a pessimistic transaction: writes all decisions and commits, in one round trip.

use deadpool_postgres::ClientWrapper;
use onward_store::{ColumnValue, PlannedEvent, RowKey, StoredRow};

use crate::error::StatementFailure;
use crate::pipeline::{self, PipelineStatement, TransactionBoundary};
use crate::run_event;
use crate::run_head;
use crate::sql;
use crate::value::{PostgresParameter, count_to_sql};
use crate::writer::decision::{GroupDecision, TableWrites};
use crate::writer::transaction_mark::TransactionMark;

/// Maximum size of one statement in bytes. The protocol's limit is one gigabyte, and client and
/// server hold the statement in memory.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// Writes and commits. After a failure nothing is stored, except if the connection was lost: then
/// the outcome is unknown.
pub(super) async fn flush_decision(
    client: &ClientWrapper,
    decided: &GroupDecision<'_>,
    mark: TransactionMark,
) -> Result<(), StatementFailure> {
    let mut steps = Vec::new();
    push_journal_appends(decided, &mut steps);
    decided
        .tables
        .values()
        .for_each(|rows| push_absence_checks(rows, &mut steps));
    decided
        .tables
        .values()
        .for_each(|rows| push_deletes(rows, &mut steps));
    decided
        .tables
        .values()
        .for_each(|rows| push_updates(rows, &mut steps));
    decided
        .tables
        .values()
        .for_each(|rows| push_column_updates(rows, &mut steps));
    decided
        .tables
        .values()
        .for_each(|rows| push_inserts(rows, &mut steps));
    push_head_writes(decided, &mut steps);
    push_event_inserts(decided, &mut steps);
    steps.push(mark.upsert_statement());
    pipeline::send_pipeline(client, &steps, TransactionBoundary::Commit).await?;
    Ok(())
}

fn push_journal_appends<'a>(
    decided: &'a GroupDecision<'_>,
    steps: &mut Vec<PipelineStatement<'a>>,
) {
    for appends in split_by_bytes(&decided.journals, |append| append.records.len()) {
        let ids: Vec<&[u8]> = appends
            .iter()
            .map(|append| append.execution.as_bytes().as_slice())
            .collect();
        let first: Vec<i64> = appends
            .iter()
            .map(|append| count_to_sql(append.expected_length))
            .collect();
        let counts: Vec<i64> = appends
            .iter()
            .map(|append| i64::from(append.count))
            .collect();
        let records: Vec<&[u8]> = appends.iter().map(|append| &*append.records).collect();
        let sql = include_str!("../../statements/insert_chunks.sql");
        steps.push(
            PipelineStatement::new(sql)
                .with_param(ids)
                .with_param(first)
                .with_param(counts)
                .with_param(records),
        );
    }
}

/// A missing row cannot be locked: another transaction may have inserted it while this one waited
/// for its locks. In that case the check fails, and this transaction must read again.
fn push_absence_checks<'a>(rows: &'a TableWrites<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    for keys in split_by_bytes(&rows.required_absent, |key: &RowKey| values_bytes(&key.0)) {
        steps.push(key_statement(
            sql::build_require_absent(rows.table),
            rows,
            keys,
        ));
    }
}

fn push_deletes<'a>(rows: &'a TableWrites<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    for keys in split_by_bytes(&rows.delete, |key: &RowKey| values_bytes(&key.0)) {
        steps.push(key_statement(sql::build_delete(rows.table), rows, keys));
    }
}

fn push_updates<'a>(rows: &'a TableWrites<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    for changed in split_by_bytes(&rows.update, |stored: &StoredRow| {
        values_bytes(&stored.row.0)
    }) {
        steps.push(row_statement(sql::build_update(rows.table), rows, changed));
    }
}

/// Writes the column updates. Fails if a row is not at its expected version.
fn push_column_updates<'a>(rows: &'a TableWrites<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    for (&changed, updates) in &rows.column_updates {
        for part in split_by_bytes(updates, |(row, _)| values_bytes(&row.0)) {
            let places = (0..rows.table.key_length).chain(changed.positions());
            let columns = places.map(|place| {
                part.iter()
                    .map(|(row, _)| PostgresParameter(&row.0[place]))
                    .collect::<Vec<_>>()
            });
            let versions: Vec<i64> = part
                .iter()
                .map(|(_, version)| count_to_sql(*version))
                .collect();
            let step = PipelineStatement::new(sql::build_column_update(rows.table, changed))
                .with_params(columns.collect::<Vec<_>>());
            steps.push(
                step.with_param(versions)
                    .with_param(count_to_sql(part.len() as u64)),
            );
        }
    }
}

fn push_inserts<'a>(rows: &'a TableWrites<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    for new in split_by_bytes(&rows.insert, |stored: &StoredRow| {
        values_bytes(&stored.row.0)
    }) {
        steps.push(row_statement(sql::build_insert(rows.table), rows, new));
    }
}

/// Builds a statement with the columns of these keys as parameters.
fn key_statement<'a>(
    sql: String,
    rows: &TableWrites<'_>,
    keys: &'a [RowKey],
) -> PipelineStatement<'a> {
    let columns = (0..rows.table.key_length).map(|place| {
        keys.iter()
            .map(|key| PostgresParameter(&key.0[place]))
            .collect::<Vec<_>>()
    });
    PipelineStatement::new(sql).with_params(columns.collect::<Vec<_>>())
}

/// Builds a statement with all columns of these rows and their versions as parameters.
fn row_statement<'a>(
    sql: String,
    rows: &TableWrites<'_>,
    stored: &'a [StoredRow],
) -> PipelineStatement<'a> {
    let width = rows.table.columns.len();
    let columns = (0..width).map(|place| {
        stored
            .iter()
            .map(|stored| PostgresParameter(&stored.row.0[place]))
            .collect::<Vec<_>>()
    });
    let versions: Vec<i64> = stored
        .iter()
        .map(|stored| count_to_sql(stored.version))
        .collect();
    PipelineStatement::new(sql)
        .with_params(columns.collect::<Vec<_>>())
        .with_param(versions)
}

/// Heads are written before events: if two transactions start the same run, one of them fails here,
/// before it has written more.
fn push_head_writes<'a>(decided: &'a GroupDecision<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    let (new, changed): (Vec<_>, Vec<_>) = decided
        .heads
        .values()
        .partition(|head| decided.new_runs.contains(&head.run_id));
    for (sql, heads) in [
        (run_head::INSERT_HEADS, new),
        (run_head::UPDATE_HEADS, changed),
    ] {
        if !heads.is_empty() {
            steps.push(run_head::with_head_arrays(
                PipelineStatement::new(sql),
                &heads,
            ));
        }
    }
}

fn push_event_inserts<'a>(decided: &'a GroupDecision<'_>, steps: &mut Vec<PipelineStatement<'a>>) {
    for planned in split_by_bytes(&decided.events, |planned: &PlannedEvent<'_>| {
        run_event::estimated_event_bytes(planned.event)
    }) {
        steps.push(run_event::with_event_arrays(
            PipelineStatement::new(run_event::INSERT_EVENTS),
            planned,
        ));
    }
}

fn values_bytes(values: &[ColumnValue]) -> usize {
    values.iter().map(ColumnValue::size_in_bytes).sum()
}

/// Splits the items into parts that each fit into one statement.
fn split_by_bytes<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (place, item) in items.iter().enumerate() {
        let more = bytes(item);
        if sum + more > STATEMENT_BYTES_MAX && place > start {
            parts.push(&items[start..place]);
            (start, sum) = (place, 0);
        }
        sum += more;
    }
    if start < items.len() {
        parts.push(&items[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{STATEMENT_BYTES_MAX, split_by_bytes};

    #[test]
    fn a_statement_stays_small_unless_one_item_is_large() {
        let half = STATEMENT_BYTES_MAX / 2;
        let sizes = [half, half, 1, 2 * STATEMENT_BYTES_MAX, 1, 1];
        let parts: Vec<&[usize]> = split_by_bytes(&sizes, |size| *size);
        assert_eq!(
            parts,
            [
                &[half, half][..],
                &[1][..],
                &[2 * STATEMENT_BYTES_MAX][..],
                &[1, 1][..]
            ]
        );
        assert!(split_by_bytes(&[] as &[usize], |size| *size).is_empty());
    }
}
