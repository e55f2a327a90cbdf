//! The second half of a careful transaction: everything that was decided, written and committed in one go.

use deadpool_postgres::ClientWrapper;
use onward_store::{Key, Planned, Stored, Value};

use crate::error::Trouble;
use crate::event;
use crate::head;
use crate::pipeline::{self, Frame, Step};
use crate::sql;
use crate::value::{Cell, signed};
use crate::writer::decided::{Decided, Rows};
use crate::writer::mark::Mark;

/// A statement carries at most so much. The protocol ends at a gigabyte, and both sides hold it in memory.
const STATEMENT_BYTES: usize = 16 << 20;

/// Writes and commits. After a failure nothing is stored, unless the connection was lost: then nobody knows.
pub(super) async fn flush(client: &ClientWrapper, decided: &Decided<'_>, mark: Mark) -> Result<(), Trouble> {
    let mut steps = Vec::new();
    journals(decided, &mut steps);
    decided.tables.values().for_each(|rows| absences(rows, &mut steps));
    decided.tables.values().for_each(|rows| deletes(rows, &mut steps));
    decided.tables.values().for_each(|rows| updates(rows, &mut steps));
    decided.tables.values().for_each(|rows| amendments(rows, &mut steps));
    decided.tables.values().for_each(|rows| inserts(rows, &mut steps));
    heads(decided, &mut steps);
    events(decided, &mut steps);
    steps.push(mark.leave());
    pipeline::send(client, &steps, Frame::Commit).await?;
    Ok(())
}

fn journals<'a>(decided: &'a Decided<'_>, steps: &mut Vec<Step<'a>>) {
    for appends in split(&decided.journals, |append| append.records.len()) {
        let ids: Vec<&[u8]> = appends.iter().map(|append| append.execution.as_bytes().as_slice()).collect();
        let first: Vec<i64> = appends.iter().map(|append| signed(append.expected)).collect();
        let counts: Vec<i64> = appends.iter().map(|append| i64::from(append.count)).collect();
        let records: Vec<&[u8]> = appends.iter().map(|append| &*append.records).collect();
        let sql = include_str!("../../statements/insert_chunks.sql");
        steps.push(Step::new(sql).with(ids).with(first).with(counts).with(records));
    }
}

/// Where there is no row, there is nothing to lock: another transaction may have inserted one while this one waited for
/// its locks. Then this one comes after it, and has to look again.
fn absences<'a>(rows: &'a Rows<'_>, steps: &mut Vec<Step<'a>>) {
    for keys in split(&rows.absent, |key: &Key| size(&key.0)) {
        steps.push(keyed(sql::absent(rows.table), rows, keys));
    }
}

fn deletes<'a>(rows: &'a Rows<'_>, steps: &mut Vec<Step<'a>>) {
    for keys in split(&rows.delete, |key: &Key| size(&key.0)) {
        steps.push(keyed(sql::delete(rows.table), rows, keys));
    }
}

fn updates<'a>(rows: &'a Rows<'_>, steps: &mut Vec<Step<'a>>) {
    for changed in split(&rows.update, |stored: &Stored| size(&stored.row.0)) {
        steps.push(whole(sql::update(rows.table), rows, changed));
    }
}

/// Objects where a row is not at the version that it should be at.
fn amendments<'a>(rows: &'a Rows<'_>, steps: &mut Vec<Step<'a>>) {
    for (&changed, amended) in &rows.amend {
        for part in split(amended, |(row, _)| size(&row.0)) {
            let places = (0..rows.table.key).chain(changed.places());
            let columns = places.map(|place| part.iter().map(|(row, _)| Cell(&row.0[place])).collect::<Vec<_>>());
            let versions: Vec<i64> = part.iter().map(|(_, version)| signed(*version)).collect();
            let step = Step::new(sql::amend(rows.table, changed)).with_all(columns.collect::<Vec<_>>());
            steps.push(step.with(versions).with(signed(part.len() as u64)));
        }
    }
}

fn inserts<'a>(rows: &'a Rows<'_>, steps: &mut Vec<Step<'a>>) {
    for new in split(&rows.insert, |stored: &Stored| size(&stored.row.0)) {
        steps.push(whole(sql::insert(rows.table), rows, new));
    }
}

/// A step with the columns of these keys.
fn keyed<'a>(sql: String, rows: &Rows<'_>, keys: &'a [Key]) -> Step<'a> {
    let columns = (0..rows.table.key).map(|place| keys.iter().map(|key| Cell(&key.0[place])).collect::<Vec<_>>());
    Step::new(sql).with_all(columns.collect::<Vec<_>>())
}

/// A step with all columns of these rows, and their versions.
fn whole<'a>(sql: String, rows: &Rows<'_>, stored: &'a [Stored]) -> Step<'a> {
    let width = rows.table.columns.len();
    let columns = (0..width).map(|place| stored.iter().map(|stored| Cell(&stored.row.0[place])).collect::<Vec<_>>());
    let versions: Vec<i64> = stored.iter().map(|stored| signed(stored.version)).collect();
    Step::new(sql).with_all(columns.collect::<Vec<_>>()).with(versions)
}

/// Heads before events: of two transactions that begin the same run, one fails here before it has written more.
fn heads<'a>(decided: &'a Decided<'_>, steps: &mut Vec<Step<'a>>) {
    let (new, changed): (Vec<_>, Vec<_>) =
        decided.heads.values().partition(|head| decided.new_runs.contains(&head.run_id));
    for (sql, heads) in [(head::INSERT, new), (head::UPDATE, changed)] {
        if !heads.is_empty() {
            steps.push(head::arrays(Step::new(sql), &heads));
        }
    }
}

fn events<'a>(decided: &'a Decided<'_>, steps: &mut Vec<Step<'a>>) {
    for planned in split(&decided.events, |planned: &Planned<'_>| event::bytes(planned.event)) {
        steps.push(event::arrays(Step::new(event::INSERT), planned));
    }
}

fn size(values: &[Value]) -> usize {
    values.iter().map(Value::bytes).sum()
}

/// Parts that each fit into one statement.
fn split<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (place, item) in items.iter().enumerate() {
        let more = bytes(item);
        if sum + more > STATEMENT_BYTES && place > start {
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
    use super::{STATEMENT_BYTES, split};

    #[test]
    fn a_statement_stays_small_unless_one_item_is_large() {
        let half = STATEMENT_BYTES / 2;
        let sizes = [half, half, 1, 2 * STATEMENT_BYTES, 1, 1];
        let parts: Vec<&[usize]> = split(&sizes, |size| *size);
        assert_eq!(parts, [&[half, half][..], &[1][..], &[2 * STATEMENT_BYTES][..], &[1, 1][..]]);
        assert!(split(&[] as &[usize], |size| *size).is_empty());
    }
}
