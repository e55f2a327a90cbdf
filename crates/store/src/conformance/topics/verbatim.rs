//! Checks that reads return exactly what was written, to the last bit.

use std::sync::Arc;

use onward_base::{Payload, Timestamp};
use onward_campaign_core::ItemStatus;
use onward_runs::{AttemptNumber, EmittedAt, ExtraFields};

use super::prelude::*;
use crate::conformance::fixtures::{
    gap_alert_row, numbered_execution, queued_job_row, queued_task_row, reserved_item_row,
    running_execution_row, shard_lease_row, signal_message_row,
};
use crate::tables::{AlertRow, ExecutionRow, InboxMessageRow, JobRow, ShardLeaseRow, TaskRow};
use crate::{RowChange, SerialId, ShardEpoch, ShardId, TableRow};

/// Payloads that a store is likely to alter.
const PAYLOADS: [(&str, &str); 15] = [
    ("an_empty_object", "{}"),
    (
        "an_integer_beyond_64_bits",
        r#"{"a":123456789012345678901234567890}"#,
    ),
    ("a_number_beyond_floats", r#"{"a":1e400,"b":-1E-400}"#),
    (
        "a_fraction_with_zeros",
        r#"{"a":1.0,"b":1.10,"c":-0,"d":-0.0,"e":1E+2}"#,
    ),
    (
        "a_fraction_with_many_digits",
        r#"{"a":0.1000000000000000055511151231257827}"#,
    ),
    (
        "members_in_their_own_order",
        r#"{"z":1,"a":2,"m":{"y":1,"b":2}}"#,
    ),
    ("a_member_twice", r#"{"a":1,"a":2}"#),
    ("an_empty_name", r#"{"":{"":[]}}"#),
    ("escapes", r#"{"a":"\u0061\/\b\f\n\r\t\"\\"}"#),
    ("an_escaped_u_0000", r#"{"a":"\u0000","\u0000":1}"#),
    ("escaped_surrogates", r#"{"a":"\ud83d\ude00 \uD83D\uDE00"}"#),
    (
        "unicode",
        "{\"é\":\"中 😀 \u{202e}abc e\u{301} \u{10ffff}\"}",
    ),
    (
        "controls_that_json_allows",
        "{\"a\":\"\u{7f}\u{80}\u{2028}\u{feff}\"}",
    ),
    (
        "text_that_looks_like_a_time",
        r#"{"a":"2026-03-01T12:00:00+01:00"}"#,
    ),
    ("blanks_within_text", r#"{" a ":"  \t b  "}"#),
];

super::checks!(fn written_checks, Verbatim:
    a_missing_payload_differs_from_an_empty_one,
    a_payload_of_the_largest_nesting_depth_is_stored_unchanged,
    unknown_members_are_stored_unchanged,
    the_longest_ids_are_stored_unchanged,
    the_longest_multibyte_ids_are_stored_unchanged,
    the_largest_attempt_numbers_are_stored_unchanged,
    the_longest_emitted_at_is_stored_unchanged,
    an_event_of_any_type_is_stored_unchanged,
    every_field_of_an_event_is_stored_unchanged,
    the_smallest_and_the_largest_timestamp_are_stored_unchanged_in_rows,
    the_smallest_and_the_largest_integer_are_stored_unchanged_in_rows,
    the_largest_counters_are_stored_unchanged_in_rows,
    empty_text_differs_from_null,
    empty_bytes_are_stored_unchanged,
    every_byte_value_is_stored_unchanged,
    true_and_false_are_stored_unchanged,
    a_long_text_is_stored_unchanged,
    json_in_a_text_column_is_stored_unchanged,
    key_columns_of_every_type_are_stored_unchanged,
);

pub(super) fn checks() -> Vec<ConformanceCheck> {
    let mut checks = written_checks();
    checks.extend(PAYLOADS.map(|(name, payload)| {
        let name = format!("{name}_is_stored_unchanged_in_a_payload");
        ConformanceCheck::new(Topic::Verbatim, name, move |world| {
            Box::pin(expect_payload_kept(world, payload))
        })
    }));
    checks
}

/// Expects reads to return the event as written, also through the second handle.
async fn expect_event_kept(world: &CheckContext<'_>, event: RunEventWrite) -> CheckResult {
    world.append_event(event.clone()).await?;
    let stored = world
        .open_handle_pair()
        .await?
        .second_handle()
        .read_run_events(&event.run_id, RunEventQuery::default())
        .await?;
    expect_same(
        "the log",
        stored.into_iter().map(|record| record.event).collect(),
        vec![event],
    )
}

/// Expects reads to return the record as written, by its key and in a scan.
async fn expect_row_kept<R: TableRecord + PartialEq + std::fmt::Debug + Clone + Send>(
    world: &CheckContext<'_>,
    record: &R,
) -> CheckResult {
    world.commit(Commit::new().insert(record)).await?;
    let stored = StoredRow {
        row: record.to_row(),
        version: 1,
    };
    expect_same(
        "the row",
        world
            .read_row(R::TABLE, fixtures::record_key(record))
            .await?,
        Some(stored.clone()),
    )?;
    expect_holds(
        "the scanned row",
        world
            .scan_rows(TableScan::all_rows::<R>())
            .await?
            .contains(&stored),
    )
}

async fn expect_payload_kept(world: &CheckContext<'_>, payload: &str) -> CheckResult {
    expect_event_kept(
        world,
        RunEventWrite {
            payload: Some(fixtures::json_payload(payload)),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn a_missing_payload_differs_from_an_empty_one(world: &CheckContext<'_>) -> CheckResult {
    expect_event_kept(world, step_event("r", 1)).await?;
    expect_payload_kept(&world.open_another(StorePolicy::default()).await?, "{}").await
}

async fn a_payload_of_the_largest_nesting_depth_is_stored_unchanged(
    world: &CheckContext<'_>,
) -> CheckResult {
    let depth = Payload::NESTING_MAX - 1;
    expect_payload_kept(
        world,
        &format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth)),
    )
    .await
}

async fn unknown_members_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let text =
        r#"{"z":1.0,"adapterVersion":"1.4","cost":1e400,"é":{"b":[null,{"":"\u0000"}]},"":0}"#;
    let extra =
        ExtraFields::parse(text).map_err(|error| ConformanceFailure::new(error.to_string()))?;
    expect_same("the unknown members before", extra.as_json(), Some(text))?;
    expect_event_kept(
        world,
        RunEventWrite {
            extra,
            ..step_event("r", 1)
        },
    )
    .await
}

/// Returns an event whose ids are all `text`, cut to their maximum lengths.
fn event_with_long_ids(text: &str) -> RunEventWrite {
    let cut = |bytes: usize| {
        text.char_indices()
            .take_while(move |(at, c)| at + c.len_utf8() <= bytes)
            .map(|(_, c)| c)
    };
    let (long, short): (String, String) = (cut(255).collect(), cut(64).collect());
    fixtures::with_computed_key(RunEventWrite {
        event_type: parse_id(&short),
        tenant_id: parse_id(&long),
        project_id: parse_id(&long),
        environment_id: parse_id(&long),
        plan_id: parse_id(&long),
        plan_version: parse_id(&long),
        step_id: Some(parse_id(&long)),
        ..step_event(&long, 1)
    })
}

async fn the_longest_ids_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    expect_event_kept(world, event_with_long_ids(&"x".repeat(255))).await?;
    expect_same(
        "the run in the head",
        world.expect_head(&"x".repeat(255)).await?.tenant_id,
        parse_id(&"x".repeat(255)),
    )
}

async fn the_longest_multibyte_ids_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    for letter in ["é", "中", "😀"] {
        expect_event_kept(
            world,
            RunEventWrite {
                event_id: fixtures::event_id(letter, 1),
                ..event_with_long_ids(&letter.repeat(200))
            },
        )
        .await?;
    }
    Ok(())
}

async fn the_largest_attempt_numbers_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let (engine_attempt_id, logical_attempt_id) = (AttemptNumber::MAX, AttemptNumber::MAX);
    expect_event_kept(
        world,
        fixtures::with_computed_key(RunEventWrite {
            engine_attempt_id,
            logical_attempt_id,
            ..step_event("r", 1)
        }),
    )
    .await
}

async fn the_longest_emitted_at_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let text = format!(
        "2026-03-01T12:00:00.{}+00:00",
        "1".repeat(EmittedAt::BYTES_MAX - 26)
    );
    expect_event_kept(
        world,
        RunEventWrite {
            emitted_at: parse_id(&text),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn an_event_of_any_type_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    for (number, kind) in (1..).zip([
        "SomethingNew",
        "x",
        "run started",
        "ÉVÉNEMENT",
        "RunStarted",
    ]) {
        let run = format!("r{number}");
        let event = RunEventWrite {
            event_type: parse_id(kind),
            step_id: None,
            ..step_event(&run, number)
        };
        expect_event_kept(world, fixtures::with_computed_key(event)).await?;
    }
    Ok(())
}

async fn every_field_of_an_event_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let mut whole = step_event("r", 1);
    whole.event_type = parse_id("StepCompleted");
    whole.emitted_at = parse_id("2026-03-01T12:00:00.123456789Z");
    (whole.tenant_id, whole.project_id, whole.environment_id) =
        (parse_id("t"), parse_id("p"), parse_id("e"));
    (whole.plan_id, whole.plan_version, whole.step_id) =
        (parse_id("plan"), parse_id("v 1"), Some(parse_id("step é")));
    whole.engine_attempt_id = AttemptNumber::new(7).unwrap_or(AttemptNumber::FIRST);
    whole.logical_attempt_id = AttemptNumber::new(3).unwrap_or(AttemptNumber::FIRST);
    whole.payload = Some(fixtures::json_payload(r#"{"a":[1,null,true]}"#));
    whole.extra = ExtraFields::parse(r#"{"x":1}"#).unwrap_or_default();
    expect_event_kept(world, fixtures::with_computed_key(whole)).await
}

async fn the_smallest_and_the_largest_timestamp_are_stored_unchanged_in_rows(
    world: &CheckContext<'_>,
) -> CheckResult {
    let instants = [-1, 0, 1].map(|us| Timestamp::from_micros(us).unwrap_or(Timestamp::EPOCH));
    for (promise, queued_at) in
        (1..).zip(instants.into_iter().chain([Timestamp::MIN, Timestamp::MAX]))
    {
        expect_row_kept(
            world,
            &TaskRow {
                queued_at,
                ..queued_task_row(1, promise)
            },
        )
        .await?;
    }
    Ok(())
}

async fn the_smallest_and_the_largest_integer_are_stored_unchanged_in_rows(
    world: &CheckContext<'_>,
) -> CheckResult {
    let numbers = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
    let row = |number: i64| {
        let TableRow(mut values) = queued_task_row(1, 0).to_row();
        values[1] = ColumnValue::Int(number);
        TableRow(values)
    };
    let mut commit = Commit::new();
    commit.changes = numbers
        .map(|number| RowChange::Insert {
            table: TaskRow::TABLE,
            row: row(number),
        })
        .to_vec();
    world.commit(commit).await?;
    let rows = world.scan_rows(TableScan::all_rows::<TaskRow>()).await?;
    expect_same(
        "the rows, in their order",
        rows,
        numbers
            .map(|number| StoredRow {
                row: row(number),
                version: 1,
            })
            .to_vec(),
    )
}

async fn the_largest_counters_are_stored_unchanged_in_rows(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_row_kept(
        world,
        &ShardLeaseRow {
            epoch: ShardEpoch(i64::MAX.cast_unsigned()),
            ..shard_lease_row(u32::MAX, 1)
        },
    )
    .await?;
    expect_row_kept(
        world,
        &TaskRow {
            shard: ShardId(u32::MAX),
            ..queued_task_row(1, u32::MAX)
        },
    )
    .await?;
    expect_row_kept(
        world,
        &JobRow {
            attempts: u32::MAX,
            ..queued_job_row("j")
        },
    )
    .await
}

async fn empty_text_differs_from_null(world: &CheckContext<'_>) -> CheckResult {
    let (empty, nothing) = (
        running_execution_row(1, Some("")),
        running_execution_row(2, None),
    );
    expect_row_kept(world, &empty).await?;
    expect_row_kept(world, &nothing).await?;
    let columns = ExecutionRow::TABLE.unique[0];
    let again = world
        .commit(Commit::new().insert(&running_execution_row(3, Some(""))))
        .await;
    expect_refused(
        again,
        CommitConflict::NotUnique {
            table: ExecutionRow::TABLE.name,
            columns,
            key: fixtures::record_key(&empty),
        },
    )
}

async fn empty_bytes_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    expect_row_kept(
        world,
        &ExecutionRow {
            body: Arc::from([].as_slice()),
            ..running_execution_row(1, None)
        },
    )
    .await
}

async fn every_byte_value_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let body: Arc<[u8]> = (0..=u8::MAX).collect();
    expect_row_kept(
        world,
        &ExecutionRow {
            body,
            ..running_execution_row(1, None)
        },
    )
    .await
}

async fn true_and_false_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let mut skipped = reserved_item_row("skipped", "two");
    (skipped.status, skipped.skipped) = (ItemStatus::Skipped, true);
    expect_row_kept(world, &reserved_item_row("queued", "one")).await?;
    expect_row_kept(world, &skipped).await
}

async fn a_long_text_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let long: String = (0..50_000_u32)
        .filter_map(|number| char::from_u32(0x20 + number % 0x2000))
        .collect();
    let alert = AlertRow {
        message: long.as_str().into(),
        ..gap_alert_row("once")
    };
    world.commit(Commit::new().insert(&alert)).await?;
    let kept: Vec<(AlertRow, u64)> = world
        .list_records(TableScan::all_rows::<AlertRow>())
        .await?;
    expect_holds(
        "the text is stored",
        kept.iter().any(|(kept, _)| &*kept.message == long.as_str()),
    )
}

async fn json_in_a_text_column_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let text = "{ \"b\": 1.0,\n \"a\": 123456789012345678901234567890, \"a\": \"\\u0000\" }";
    let mut item = reserved_item_row("a", "one");
    item.payload = Some(text.into());
    expect_row_kept(world, &item).await
}

async fn key_columns_of_every_type_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    expect_row_kept(world, &queued_task_row(1, 7)).await?;
    expect_row_kept(world, &queued_job_row("né 中 😀")).await?;
    world
        .commit(Commit::new().insert(&signal_message_row(3, Some("key"))))
        .await?;
    let kept: Vec<(InboxMessageRow, u64)> = world
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await?;
    let (found, _) = expect_some("the message", kept.into_iter().next())?;
    expect_holds(
        "the store assigned a serial",
        found.message_id != SerialId(None),
    )?;
    expect_same("the execution", found.execution_id, numbered_execution(3))
}
