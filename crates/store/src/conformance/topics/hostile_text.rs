//! Checks with malicious text in every place that accepts text. The store must treat it as plain
//! text.

use futures_util::future::BoxFuture;
use onward_runs::RunId;

use super::prelude::*;
use crate::conformance::fixtures::{gap_alert_row, queued_job_row, running_execution_row};
use crate::tables::{AlertRow, ExecutionRow, JobRow};
use crate::{ColumnType, PurgeTarget, RowChange, TableRow, tables};

const HOSTILE_TEXTS: [(&str, &str); 18] = [
    ("a_statement", "'; DROP TABLE run_events; --"),
    (
        "a_second_statement",
        "x'); DELETE FROM job_queue WHERE ('a'='a",
    ),
    ("a_condition", "' OR '1'='1"),
    ("quotes", "'\"`´‘’“”''\"\""),
    ("backslashes", "\\ \\\\ \\' \\n \\0 \\x00 \\u0000"),
    ("wildcards", "%_*?[a-z]"),
    ("parameters", "$1 ?1 :name @name {} {0} %s"),
    ("comments", "-- /* */ # //"),
    ("dollar_quotes", "$$ $tag$ $body$"),
    ("the_word_null", "NULL"),
    ("numbers", "007"),
    ("json", "{\"a\":[1,\"2\"]}"),
    ("emoji", "👩‍👩‍👧 🏳️‍🌈 😀"),
    ("right_to_left", "\u{202e}txt.exe\u{202c} שלום"),
    ("combining_letters", "e\u{301} Z\u{351}\u{36b} ﷽"),
    (
        "letters_outside_of_the_first_plane",
        "𝒳 \u{10ffff} \u{ffff} \u{fffe}",
    ),
    ("blanks", " \u{a0}\u{200b}\u{feff}\u{3000} "),
    ("a_path", "../../../etc/passwd"),
];

/// Texts that some databases treat as equal, or as numbers.
const LOOKALIKE_TEXTS: [&str; 20] = [
    "a", "A", "a ", " a", "á", "a\u{301}", "ａ", "ß", "ss", "7", "07", "7.0", "7e0", "+7", "true",
    "TRUE", "1", "null", "", " ",
];

super::checks!(fn written_checks, Hostile:
    lookalike_texts_are_different_keys,
    lookalike_texts_are_different_unique_values,
    lookalike_run_ids_are_different_runs,
    u_0000_is_rejected_in_every_text_column_of_every_table,
    u_0000_is_rejected_in_the_key_of_a_delete,
    reading_a_key_with_u_0000_finds_nothing,
    control_characters_other_than_u_0000_are_stored_unchanged,
);

pub(super) fn checks() -> Vec<ConformanceCheck> {
    let mut checks = written_checks();
    for (name, text) in HOSTILE_TEXTS {
        checks.extend(TEXT_CHECKS.map(|(place, question)| {
            let name = format!("{name}_{place}_is_treated_as_text");
            ConformanceCheck::new(Topic::Hostile, name, move |world| question(world, text))
        }));
    }
    checks
}

/// A check that runs with one text.
type TextCheck = for<'a> fn(&'a CheckContext<'a>, &'static str) -> BoxFuture<'a, CheckResult>;

const TEXT_CHECKS: [(&str, TextCheck); 3] = [
    ("in_rows", |world, text| {
        Box::pin(expect_plain_text_in_rows(world, text))
    }),
    ("in_run_ids", |world, text| {
        Box::pin(expect_plain_text_in_names(world, text))
    }),
    ("in_payloads", |world, text| {
        Box::pin(expect_plain_text_in_payloads(world, text))
    }),
];

async fn expect_plain_text_in_rows(world: &CheckContext<'_>, text: &str) -> CheckResult {
    let bystander = queued_job_row("bystander");
    let hostile = JobRow {
        run_id: text.into(),
        tenant_id: text.into(),
        ..queued_job_row(text)
    };
    world
        .commit(
            Commit::new()
                .insert(&bystander)
                .insert(&hostile)
                .insert(&running_execution_row(1, Some(text))),
        )
        .await?;
    world
        .commit(Commit::new().insert(&AlertRow {
            message: text.into(),
            ..gap_alert_row(text)
        }))
        .await?;
    expect_same(
        "by its key",
        world.read_record(fixtures::record_key(&hostile)).await?,
        Some((hostile.clone(), 1)),
    )?;
    let after: Vec<(JobRow, u64)> = world
        .list_records(TableScan::all_rows::<JobRow>().where_equal(&hostile.id))
        .await?;
    expect_same("by a scan", after, vec![(hostile.clone(), 1)])?;
    let subjects: Vec<(AlertRow, u64)> = world
        .list_records(
            TableScan::by_index::<AlertRow>(AlertRow::BY_SUBJECT)
                .where_equal(&gap_alert_row("").subject),
        )
        .await?;
    expect_same(
        "the message",
        subjects.iter().map(|(alert, _)| &*alert.message).collect(),
        vec![text],
    )?;
    let kept = world
        .commit(Commit::new().insert_or_keep(&running_execution_row(2, Some(text))))
        .await?;
    let stored = StoredRow {
        row: running_execution_row(1, Some(text)).to_row(),
        version: 1,
    };
    expect_same(
        "by its unique columns",
        kept.changes,
        vec![ChangeOutcome::Kept(stored)],
    )?;
    world.commit(Commit::new().update(&hostile, 1)).await?;
    world.commit(Commit::new().delete(&hostile, 2)).await?;
    let left: Vec<(JobRow, u64)> = world.list_records(TableScan::all_rows::<JobRow>()).await?;
    expect_same("the remaining data", left, vec![(bystander, 1)])
}

async fn expect_plain_text_in_names(world: &CheckContext<'_>, text: &str) -> CheckResult {
    let named = RunEventWrite {
        tenant_id: parse_id(text),
        project_id: parse_id(text),
        environment_id: parse_id(text),
        plan_id: parse_id(text),
        plan_version: parse_id(text),
        step_id: Some(parse_id(text)),
        ..step_event(text, 1)
    };
    let named = fixtures::with_computed_key(named);
    world.append_event(step_event("bystander", 1)).await?;
    world.append_event(named.clone()).await?;
    let found: Vec<_> = world
        .read_log(text)
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the log", found, vec![named.clone()])?;
    expect_same(
        "a duplicate",
        world.append_event(named).await?.result.run_seq,
        run_sequence(1),
    )?;
    expect_same(
        "the scope of the run",
        world.expect_head(text).await?.tenant_id,
        parse_id(text),
    )?;
    expect_same(
        "the result of the purge",
        world.purge(PurgeTarget::Run(parse_id(text))).await?,
        true,
    )?;
    let left: Vec<RunId> = world
        .list_run_heads(None, None, 9)
        .await?
        .into_iter()
        .map(|head| head.run_id)
        .collect();
    expect_same("the runs that are left", left, vec![parse_id("bystander")])
}

async fn expect_plain_text_in_payloads(world: &CheckContext<'_>, text: &str) -> CheckResult {
    let quoted = serde_json::Value::from(text).to_string();
    let hostile = fixtures::with_payload(step_event("r", 1), &format!("{{{quoted}:{quoted}}}"));
    world.append_event(hostile.clone()).await?;
    expect_holds(
        "a duplicate does not differ",
        !world.append_event(hostile.clone()).await?.differs,
    )?;
    let found: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the log", found, vec![hostile])
}

async fn lookalike_texts_are_different_keys(world: &CheckContext<'_>) -> CheckResult {
    for name in LOOKALIKE_TEXTS {
        world
            .commit(Commit::new().insert(&queued_job_row(name)))
            .await?;
    }
    for name in LOOKALIKE_TEXTS {
        expect_same(
            "the row",
            world
                .read_record(fixtures::record_key(&queued_job_row(name)))
                .await?,
            Some((queued_job_row(name), 1)),
        )?;
    }
    expect_same(
        "the number of rows",
        world
            .scan_rows(TableScan::all_rows::<JobRow>())
            .await?
            .len(),
        LOOKALIKE_TEXTS.len(),
    )
}

async fn lookalike_texts_are_different_unique_values(world: &CheckContext<'_>) -> CheckResult {
    for (number, key) in (1..).zip(LOOKALIKE_TEXTS) {
        let receipt = world
            .commit(Commit::new().insert_or_keep(&running_execution_row(number, Some(key))))
            .await?;
        expect_same(
            &format!("the outcome for {key:?}"),
            receipt.changes,
            vec![ChangeOutcome::Applied],
        )?;
    }
    expect_same(
        "the number of rows",
        world
            .scan_rows(TableScan::all_rows::<ExecutionRow>())
            .await?
            .len(),
        LOOKALIKE_TEXTS.len(),
    )
}

async fn lookalike_run_ids_are_different_runs(world: &CheckContext<'_>) -> CheckResult {
    let names: Vec<&str> = LOOKALIKE_TEXTS
        .into_iter()
        .filter(|name| name.parse::<RunId>().is_ok())
        .collect();
    for name in &names {
        expect_same(
            "the sequence",
            world
                .append_event(step_event(name, 1))
                .await?
                .result
                .run_seq,
            run_sequence(1),
        )?;
    }
    expect_same(
        "the number of runs",
        world.list_run_heads(None, None, 99).await?.len(),
        names.len(),
    )
}

async fn u_0000_is_rejected_in_every_text_column_of_every_table(
    world: &CheckContext<'_>,
) -> CheckResult {
    for table in tables::ALL_TABLES {
        let texts = table
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.column_type == ColumnType::Text);
        for (place, column) in texts {
            let TableRow(mut values) = fixtures::numbered_row(table, 1);
            values[place] = ColumnValue::Text("a\0b".into());
            let mut commit = Commit::new();
            commit.changes.push(RowChange::Insert {
                table,
                row: TableRow(values),
            });
            let (table, column) = (table.name, column.name);
            let error = InvalidRequest::Value {
                table,
                column,
                reason: "text must not contain U+0000",
            };
            expect_refused(world.commit(commit).await, error)?;
        }
    }
    expect_same(
        "the rows of all tables",
        world.dump_store().await?.rows.values().map(Vec::len).sum(),
        0_usize,
    )
}

async fn u_0000_is_rejected_in_the_key_of_a_delete(world: &CheckContext<'_>) -> CheckResult {
    let (table, column) = (JobRow::TABLE.name, "id");
    let error = InvalidRequest::Value {
        table,
        column,
        reason: "text must not contain U+0000",
    };
    expect_refused(
        world
            .commit(Commit::new().delete(&queued_job_row("\0"), 1))
            .await,
        error,
    )
}

async fn reading_a_key_with_u_0000_finds_nothing(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("a")))
        .await?;
    for name in ["\0", "a\0", "a\0b"] {
        match world
            .read_row(JobRow::TABLE, fixtures::record_key(&queued_job_row(name)))
            .await
        {
            Err(error) if error.kind() == StoreErrorKind::Invalid => {}
            answer => expect_same("the row", answer?, None)?,
        }
    }
    Ok(())
}

async fn control_characters_other_than_u_0000_are_stored_unchanged(
    world: &CheckContext<'_>,
) -> CheckResult {
    let controls: String = (1..0x20)
        .chain(0x7f..0xa0)
        .filter_map(char::from_u32)
        .collect();
    let hostile = JobRow {
        run_id: controls.as_str().into(),
        ..queued_job_row(&controls)
    };
    world.commit(Commit::new().insert(&hostile)).await?;
    expect_same(
        "the row",
        world.read_record(fixtures::record_key(&hostile)).await?,
        Some((hostile, 1)),
    )
}
