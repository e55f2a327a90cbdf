//! A row of any table. Statuses and their like are ones that exist and that go together, because a database may refuse
//! others; all else is drawn from a few values, so that many rows have something in common.

use std::sync::Arc;

use onward_journal::{Text, Timestamp};

use super::at;
use crate::conformance::Draw;
use crate::{Column, Row, Table, Type, Value};

/// A row that differs from those with other numbers in its key and in what must be unique.
pub(in crate::conformance) fn row(table: &'static Table, number: u64) -> Row {
    drawn_row(table, &mut Draw::new(number), number, number)
}

/// A row with this key and these unique values, 0 for nothing where that may be; the rest is drawn.
pub(in crate::conformance) fn drawn_row(table: &'static Table, draw: &mut Draw, key: u64, unique: u64) -> Row {
    let value = |(place, column): (usize, &Column)| {
        let ends_unique = table.unique.iter().any(|columns| columns.last() == Some(&column.name));
        match column.of {
            Type::Serial => Value::Null,
            of if place + 1 == table.key => distinct(of, key),
            _ if ends_unique && unique == 0 && column.nullable => Value::Null,
            of if ends_unique => distinct(of, unique),
            _ if column.nullable && draw.percent(30) => Value::Null,
            _ => {
                let pool = pool(table, column);
                let usual = &pool[..if draw.percent(50) { 1 } else { pool.len() }];
                draw.pick(usual).clone()
            }
        }
    };
    let mut row = Row(table.columns.iter().enumerate().map(value).collect());
    settle(table, &mut row);
    row
}

/// A value that differs from those with other numbers; small numbers differ in how they sort as text and as numbers.
pub(in crate::conformance) fn distinct(of: Type, number: u64) -> Value {
    let prefix = ["a", "B", "é", "_", "Z"][usize::try_from(number % 5).unwrap_or(0)];
    match of {
        Type::Int | Type::Serial => Value::Int(number.cast_signed()),
        Type::Bool => Value::Bool(number.is_multiple_of(2)),
        Type::Text => Value::Text(Text::from(format!("{prefix}{number}"))),
        Type::Bytes => Value::Bytes(Arc::from([u8::try_from(number).unwrap_or(u8::MAX); 32].as_slice())),
        Type::Time => Value::Time(at(number)),
    }
}

/// Values that a column may hold.
fn pool(table: &Table, column: &Column) -> Vec<Value> {
    match (table.name, column.name) {
        (_, "channel") => texts(&["email", "voice", "social"]),
        ("campaign_runs", "status") => texts(&["queued", "running", "completed", "partial", "failed"]),
        ("job_queue", "status") => texts(&["queued", "locked", "completed", "failed", "dead"]),
        ("channel_outbox", "status") => texts(&["queued", "sent", "failed", "skipped"]),
        (_, "control") => texts(&["active", "paused", "cancelled"]),
        (_, "job_type") => texts(&["email_send_batch", "voice_call_batch", "social_post_batch"]),
        (_, "kind") if table.name == "functions" => texts(&["workflow", "task"]),
        (_, "severity") => texts(&["P1", "P2"]),
        (_, "role") => texts(&["viewer", "operator", "engineer", "admin", "worker"]),
        (_, "condition") => texts(&["CURRENT", "STALE", "INCONSISTENT"]),
        ("tasks", "state") => texts(&["queued", "claimed"]),
        (_, "delivery") => texts(&["at_least_once", "at_most_once"]),
        (_, "state") => texts(&["Running", "Blocked", "Completed"]),
        (_, "holes" | "snapshot" | "detail" | "payload") => texts(&["{}", "[1, 2]", r#"{"b":1,"a":"é"}"#]),
        (_, "execution_id" | "component_digest" | "token_hash") => {
            (1..=3).map(|number| distinct(Type::Bytes, number)).collect()
        }
        _ => pool_of(column.of),
    }
}

fn pool_of(of: Type) -> Vec<Value> {
    match of {
        Type::Int | Type::Serial => [0, 1, 10, i64::from(u32::MAX)].map(Value::Int).to_vec(),
        Type::Bool => [false, true].map(Value::Bool).to_vec(),
        Type::Text => texts(&["a", "B", "é", "a ", "Z"]),
        Type::Bytes => [&[][..], &[0], &[255, 0, 128]].map(|bytes| Value::Bytes(Arc::from(bytes))).to_vec(),
        Type::Time => [Timestamp::MIN, Timestamp::EPOCH, at(0), at(1), Timestamp::MAX].map(Value::Time).to_vec(),
    }
}

fn texts(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::Text(Text::from(*text))).collect()
}

/// Makes columns agree that say the same thing twice.
fn settle(table: &Table, row: &mut Row) {
    let text = |row: &Row, name: &str| match table.pick(&[name], row).pop() {
        Some(Value::Text(text)) => text,
        _ => Text::from(""),
    };
    let set = |row: &mut Row, name: &str, value: Value| {
        if let Some(place) = table.position(name) {
            row.0[place] = value;
        }
    };
    let status = text(row, "status");
    match table.name {
        "job_queue" => {
            let is_locked = &*status == "locked";
            set(row, "locked_until", if is_locked { Value::Time(at(300)) } else { Value::Null });
            set(row, "lock_token", if is_locked { Value::Text("token".into()) } else { Value::Null });
        }
        "tasks" => {
            let is_claimed = &*text(row, "state") == "claimed";
            set(row, "claim", if is_claimed { Value::Text("claim".into()) } else { Value::Null });
        }
        "channel_outbox" => {
            let only_if = |wanted: &str, value| if &*status == wanted { value } else { Value::Null };
            let doubt = table.pick(&["doubt_since"], row).pop().unwrap_or(Value::Null);
            set(row, "held_since", Value::Null);
            set(row, "doubt_since", only_if("queued", doubt));
            set(row, "provider_message_id", only_if("sent", Value::Text("m-1".into())));
            set(row, "error", only_if("failed", Value::Text("550".into())));
            set(row, "skipped", Value::Bool(&*status == "skipped"));
            set(row, "channel", Value::Text("email".into()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tables;

    #[test]
    fn rows_with_different_numbers_can_stand_beside_each_other() {
        for table in tables::ALL {
            let rows: Vec<Row> = (1..=60).map(|number| row(table, number)).collect();
            let keys: BTreeSet<_> = rows.iter().map(|row| table.key_of(row)).collect();
            assert_eq!(keys.len(), if table.is_serial() { 1 } else { 60 }, "{}", table.name);
            let unique: Vec<_> = rows.iter().flat_map(|row| table.unique_values(row)).collect();
            assert_eq!(unique.iter().collect::<BTreeSet<_>>().len(), unique.len(), "{}", table.name);
        }
    }

    #[test]
    fn a_number_always_makes_the_same_row() {
        assert!(tables::ALL.iter().all(|table| row(table, 7) == row(table, 7)));
    }
}
