//! What is read is what was written, to the last bit.

use std::sync::Arc;

use onward_journal::{Payload, Timestamp};
use onward_runs::{Attempt, EmittedAt, Extra};

use super::prelude::*;
use crate::conformance::sample::{alert, execution, item, job, lease, message, started, timer};
use crate::tables::{Alert, Execution, Job, Message, ShardLease, Timer};
use crate::{Change, Epoch, Row, Serial, Shard};

/// Payloads that are easily changed on the way.
const PAYLOADS: [(&str, &str); 15] = [
    ("an_empty_object", "{}"),
    ("an_integer_beyond_64_bits", r#"{"a":123456789012345678901234567890}"#),
    ("a_number_beyond_floats", r#"{"a":1e400,"b":-1E-400}"#),
    ("a_fraction_with_zeros", r#"{"a":1.0,"b":1.10,"c":-0,"d":-0.0,"e":1E+2}"#),
    ("a_fraction_with_many_digits", r#"{"a":0.1000000000000000055511151231257827}"#),
    ("members_in_their_own_order", r#"{"z":1,"a":2,"m":{"y":1,"b":2}}"#),
    ("a_member_twice", r#"{"a":1,"a":2}"#),
    ("an_empty_name", r#"{"":{"":[]}}"#),
    ("escapes", r#"{"a":"\u0061\/\b\f\n\r\t\"\\"}"#),
    ("an_escaped_u_0000", r#"{"a":"\u0000","\u0000":1}"#),
    ("escaped_surrogates", r#"{"a":"\ud83d\ude00 \uD83D\uDE00"}"#),
    ("unicode", "{\"é\":\"中 😀 \u{202e}abc e\u{301} \u{10ffff}\"}"),
    ("controls_that_json_allows", "{\"a\":\"\u{7f}\u{80}\u{2028}\u{feff}\"}"),
    ("text_that_looks_like_a_time", r#"{"a":"2026-03-01T12:00:00+01:00"}"#),
    ("blanks_within_text", r#"{" a ":"  \t b  "}"#),
];

super::checks!(fn written, Verbatim:
    no_payload_is_not_an_empty_one,
    a_payload_nested_as_deep_as_it_may_be_is_kept,
    unknown_members_are_kept,
    the_longest_ids_are_kept,
    the_longest_ids_of_many_bytes_a_letter_are_kept,
    the_largest_attempts_are_kept,
    the_longest_instant_is_kept,
    an_event_of_any_type_is_kept,
    every_field_of_an_event_is_kept,
    the_first_and_the_last_instant_are_kept_in_rows,
    the_smallest_and_the_largest_integer_are_kept_in_rows,
    the_largest_counters_are_kept_in_rows,
    empty_text_is_not_nothing,
    empty_bytes_are_kept,
    every_byte_is_kept,
    true_and_false_are_kept,
    a_long_text_is_kept,
    text_that_is_json_is_kept_as_text,
    a_key_is_kept_in_every_type,
);

pub(super) fn checks() -> Vec<Check> {
    let mut checks = written();
    checks.extend(PAYLOADS.map(|(name, payload)| {
        let name = format!("{name}_is_kept_in_a_payload");
        Check::new(Topic::Verbatim, name, move |world| Box::pin(keeps_payload(world, payload)))
    }));
    checks
}

/// The event is read as it was written, also by the other handle.
async fn keeps(world: &World<'_>, event: RunEventWrite) -> Verdict {
    world.append_event(event.clone()).await?;
    let stored = world.pair().await?.other().run_events(&event.run_id, Page::default()).await?;
    same("the log", stored.into_iter().map(|record| record.event).collect(), vec![event])
}

/// The record is read as it was written, by its key and in a scan.
async fn keeps_row<R: Record + PartialEq + std::fmt::Debug + Clone + Send>(world: &World<'_>, record: &R) -> Verdict {
    world.commit(Commit::new().insert(record)).await?;
    let stored = Stored { row: record.to_row(), version: 1 };
    same("the row", world.row(R::TABLE, sample::key_of(record)).await?, Some(stored.clone()))?;
    holds("a scan gives it too", world.rows(Scan::all::<R>()).await?.contains(&stored))
}

async fn keeps_payload(world: &World<'_>, payload: &str) -> Verdict {
    keeps(world, RunEventWrite { payload: Some(sample::json(payload)), ..event("r", 1) }).await
}

async fn no_payload_is_not_an_empty_one(world: &World<'_>) -> Verdict {
    keeps(world, event("r", 1)).await?;
    keeps_payload(&world.fresh(Policy::default()).await?, "{}").await
}

async fn a_payload_nested_as_deep_as_it_may_be_is_kept(world: &World<'_>) -> Verdict {
    let depth = Payload::DEPTH_MAX - 1;
    keeps_payload(world, &format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth))).await
}

async fn unknown_members_are_kept(world: &World<'_>) -> Verdict {
    let text = r#"{"z":1.0,"adapterVersion":"1.4","cost":1e400,"é":{"b":[null,{"":"\u0000"}]},"":0}"#;
    let extra = Extra::parse(text).map_err(|error| Failure::new(error.to_string()))?;
    same("the members before", extra.as_json(), Some(text))?;
    keeps(world, RunEventWrite { extra, ..event("r", 1) }).await
}

/// An event whose ids all are `text`, cut to what they may be.
fn named(text: &str) -> RunEventWrite {
    let cut = |bytes: usize| text.char_indices().take_while(move |(at, c)| at + c.len_utf8() <= bytes).map(|(_, c)| c);
    let (long, short): (String, String) = (cut(255).collect(), cut(64).collect());
    sample::keyed(RunEventWrite {
        event_type: id(&short),
        tenant_id: id(&long),
        project_id: id(&long),
        environment_id: id(&long),
        plan_id: id(&long),
        plan_version: id(&long),
        step_id: Some(id(&long)),
        ..event(&long, 1)
    })
}

async fn the_longest_ids_are_kept(world: &World<'_>) -> Verdict {
    keeps(world, named(&"x".repeat(255))).await?;
    same("the run in the head", world.head(&"x".repeat(255)).await?.tenant_id, id(&"x".repeat(255)))
}

async fn the_longest_ids_of_many_bytes_a_letter_are_kept(world: &World<'_>) -> Verdict {
    for letter in ["é", "中", "😀"] {
        keeps(world, RunEventWrite { event_id: sample::event_id(letter, 1), ..named(&letter.repeat(200)) }).await?;
    }
    Ok(())
}

async fn the_largest_attempts_are_kept(world: &World<'_>) -> Verdict {
    let (engine_attempt_id, logical_attempt_id) = (Attempt::MAX, Attempt::MAX);
    keeps(world, sample::keyed(RunEventWrite { engine_attempt_id, logical_attempt_id, ..event("r", 1) })).await
}

async fn the_longest_instant_is_kept(world: &World<'_>) -> Verdict {
    let text = format!("2026-03-01T12:00:00.{}+00:00", "1".repeat(EmittedAt::BYTES_MAX - 26));
    keeps(world, RunEventWrite { emitted_at: id(&text), ..event("r", 1) }).await
}

async fn an_event_of_any_type_is_kept(world: &World<'_>) -> Verdict {
    for (number, kind) in (1..).zip(["SomethingNew", "x", "run started", "ÉVÉNEMENT", "RunStarted"]) {
        let run = format!("r{number}");
        let event = RunEventWrite { event_type: id(kind), step_id: None, ..event(&run, number) };
        keeps(world, sample::keyed(event)).await?;
    }
    Ok(())
}

async fn every_field_of_an_event_is_kept(world: &World<'_>) -> Verdict {
    let mut whole = event("r", 1);
    whole.event_type = id("StepCompleted");
    whole.emitted_at = id("2026-03-01T12:00:00.123456789Z");
    (whole.tenant_id, whole.project_id, whole.environment_id) = (id("t"), id("p"), id("e"));
    (whole.plan_id, whole.plan_version, whole.step_id) = (id("plan"), id("v 1"), Some(id("step é")));
    whole.engine_attempt_id = Attempt::new(7).unwrap_or(Attempt::FIRST);
    whole.logical_attempt_id = Attempt::new(3).unwrap_or(Attempt::FIRST);
    whole.payload = Some(sample::json(r#"{"a":[1,null,true]}"#));
    whole.extra = Extra::parse(r#"{"x":1}"#).unwrap_or_default();
    keeps(world, sample::keyed(whole)).await
}

async fn the_first_and_the_last_instant_are_kept_in_rows(world: &World<'_>) -> Verdict {
    let instants = [-1, 0, 1].map(|us| Timestamp::from_micros(us).unwrap_or(Timestamp::EPOCH));
    for (promise, fire_at) in (1..).zip(instants.into_iter().chain([Timestamp::MIN, Timestamp::MAX])) {
        keeps_row(world, &Timer { fire_at, ..timer(1, promise) }).await?;
    }
    Ok(())
}

async fn the_smallest_and_the_largest_integer_are_kept_in_rows(world: &World<'_>) -> Verdict {
    let numbers = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
    let row = |number: i64| {
        let Row(mut values) = timer(1, 0).to_row();
        values[1] = Value::Int(number);
        Row(values)
    };
    let mut commit = Commit::new();
    commit.changes = numbers.map(|number| Change::Insert { table: Timer::TABLE, row: row(number) }).to_vec();
    world.commit(commit).await?;
    let rows = world.rows(Scan::all::<Timer>()).await?;
    same("the rows, in their order", rows, numbers.map(|number| Stored { row: row(number), version: 1 }).to_vec())
}

async fn the_largest_counters_are_kept_in_rows(world: &World<'_>) -> Verdict {
    keeps_row(world, &ShardLease { epoch: Epoch(i64::MAX.cast_unsigned()), ..lease(u32::MAX, 1) }).await?;
    keeps_row(world, &Timer { shard: Shard(u32::MAX), ..timer(1, u32::MAX) }).await?;
    keeps_row(world, &Job { attempts: u32::MAX, ..job("j") }).await
}

async fn empty_text_is_not_nothing(world: &World<'_>) -> Verdict {
    let (empty, nothing) = (started(1, Some("")), started(2, None));
    keeps_row(world, &empty).await?;
    keeps_row(world, &nothing).await?;
    let columns = Execution::TABLE.unique[0];
    let again = world.commit(Commit::new().insert(&started(3, Some("")))).await;
    refused(again, Conflict::NotUnique { table: Execution::TABLE.name, columns, key: sample::key_of(&empty) })
}

async fn empty_bytes_are_kept(world: &World<'_>) -> Verdict {
    keeps_row(world, &Execution { body: Arc::from([].as_slice()), ..started(1, None) }).await
}

async fn every_byte_is_kept(world: &World<'_>) -> Verdict {
    let body: Arc<[u8]> = (0..=u8::MAX).collect();
    keeps_row(world, &Execution { body, ..started(1, None) }).await
}

async fn true_and_false_are_kept(world: &World<'_>) -> Verdict {
    let mut skipped = item("skipped", "two");
    (skipped.status, skipped.skipped) = ("skipped".into(), true);
    keeps_row(world, &item("queued", "one")).await?;
    keeps_row(world, &skipped).await
}

async fn a_long_text_is_kept(world: &World<'_>) -> Verdict {
    let long: String = (0..50_000_u32).filter_map(|number| char::from_u32(0x20 + number % 0x2000)).collect();
    let alert = Alert { message: long.as_str().into(), ..alert("once") };
    world.commit(Commit::new().insert(&alert)).await?;
    let kept: Vec<(Alert, u64)> = world.list(Scan::all::<Alert>()).await?;
    holds("the text is kept", kept.iter().any(|(kept, _)| &*kept.message == long.as_str()))
}

async fn text_that_is_json_is_kept_as_text(world: &World<'_>) -> Verdict {
    let text = "{ \"b\": 1.0,\n \"a\": 123456789012345678901234567890, \"a\": \"\\u0000\" }";
    let mut item = item("a", "one");
    item.payload = Some(text.into());
    keeps_row(world, &item).await
}

async fn a_key_is_kept_in_every_type(world: &World<'_>) -> Verdict {
    keeps_row(world, &timer(1, 7)).await?;
    keeps_row(world, &job("né 中 😀")).await?;
    world.commit(Commit::new().insert(&message(3, Some("key")))).await?;
    let kept: Vec<(Message, u64)> = world.list(Scan::all::<Message>()).await?;
    let (found, _) = some("the message", kept.into_iter().next())?;
    holds("the store gave it a number", found.message_id != Serial(None))?;
    same("the execution", found.execution_id, execution(3))
}
