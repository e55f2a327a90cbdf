//! Checks of deduplication: a duplicate gets the result of the first event and changes nothing.

use onward_runs::{AttemptNumber, EmittedAt};

use super::prelude::*;
use crate::conformance::fixtures::{queued_job_row, reader_advance, with_payload};

super::checks!(Idempotency:
    a_new_event_is_reported_as_new,
    a_duplicate_returns_the_first_result,
    a_hundred_duplicates_return_the_first_result,
    a_duplicate_is_detected_after_many_other_events,
    a_duplicate_keeps_the_first_timestamp,
    a_repeated_batch_returns_the_first_results,
    an_overlapping_batch_adds_only_new_events,
    a_duplicate_within_a_batch_returns_the_result_of_the_first,
    an_event_from_another_engine_attempt_is_a_duplicate,
    an_event_emitted_later_is_a_duplicate,
    an_event_of_another_logical_attempt_is_new,
    an_event_of_another_signal_is_new,
    an_event_of_the_same_signal_is_a_duplicate,
    the_rest_of_a_commit_is_stored_despite_a_duplicate,
    a_duplicate_adds_nothing_to_the_outbox,
    a_duplicate_does_not_change_the_head,
    a_duplicate_with_a_stale_fence_is_rejected,
    an_event_of_a_rejected_commit_is_new_when_sent_again,
    concurrent_appends_of_one_key_store_it_once,
    concurrent_appends_with_different_payloads_agree_on_one,
    concurrent_batches_of_the_same_events_store_each_once,
);

async fn a_new_event_is_reported_as_new(world: &CheckContext<'_>) -> CheckResult {
    let answer = world.append_event(step_event("r", 1)).await?;
    let said = (
        answer.result.idempotent,
        answer.result.persisted,
        answer.differs,
        answer.result.event_id,
    );
    expect_same(
        "idempotent, persisted, differs, id",
        said,
        (false, true, false, step_event("r", 1).event_id),
    )
}

/// Repeats an event and expects the first result every time.
async fn expect_repeats_answered(world: &CheckContext<'_>, times: usize) -> CheckResult {
    let first = world.append_event(step_event("r", 1)).await?;
    for _ in 0..times {
        let again = world.append_event(step_event("r", 1)).await?;
        expect_same(
            "the receipt of the duplicate",
            again,
            repeated_receipt(&first),
        )?;
    }
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1],
    )
}

/// Returns the receipt of a duplicate, given the receipt of the first event.
fn repeated_receipt(first: &EventReceipt) -> EventReceipt {
    let result = onward_runs::AppendResult {
        idempotent: true,
        persisted: false,
        ..first.result
    };
    EventReceipt {
        result,
        differs: false,
    }
}

async fn a_duplicate_returns_the_first_result(world: &CheckContext<'_>) -> CheckResult {
    expect_repeats_answered(world, 1).await
}

async fn a_hundred_duplicates_return_the_first_result(world: &CheckContext<'_>) -> CheckResult {
    expect_repeats_answered(world, 100).await
}

async fn a_duplicate_is_detected_after_many_other_events(world: &CheckContext<'_>) -> CheckResult {
    let first = world.append_event(step_event("r", 1)).await?;
    world.append_events(step_events("r", 2, 1_500)).await?;
    expect_same(
        "the receipt of the duplicate",
        world.append_event(step_event("r", 1)).await?,
        repeated_receipt(&first),
    )
}

async fn a_duplicate_keeps_the_first_timestamp(world: &CheckContext<'_>) -> CheckResult {
    let first = world.append_event(step_event("r", 1)).await?;
    world.manual_clock().advance_ms(60_000);
    let again = world.append_event(step_event("r", 1)).await?;
    expect_same(
        "the timestamp in the receipt",
        again.result.persisted_at,
        first.result.persisted_at,
    )?;
    expect_same(
        "the timestamp in the log",
        world.read_log("r").await?[0].persisted_at,
        first.result.persisted_at,
    )
}

async fn a_repeated_batch_returns_the_first_results(world: &CheckContext<'_>) -> CheckResult {
    let first = world.append_events(step_events("r", 1, 5)).await?;
    let again = world.append_events(step_events("r", 1, 5)).await?;
    expect_same(
        "the results",
        again,
        first.iter().map(repeated_receipt).collect(),
    )?;
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2, 3, 4, 5],
    )
}

async fn an_overlapping_batch_adds_only_new_events(world: &CheckContext<'_>) -> CheckResult {
    world.append_events(step_events("r", 1, 3)).await?;
    let answers = world.append_events(step_events("r", 2, 5)).await?;
    let said: Vec<_> = answers
        .iter()
        .map(|answer| (answer.result.run_seq.as_u64(), answer.result.persisted))
        .collect();
    expect_same(
        "sequences, and whether the events are new",
        said,
        vec![(2, false), (3, false), (4, true), (5, true)],
    )
}

async fn a_duplicate_within_a_batch_returns_the_result_of_the_first(
    world: &CheckContext<'_>,
) -> CheckResult {
    let answers = world
        .append_events(vec![
            step_event("r", 1),
            step_event("r", 1),
            step_event("r", 1),
        ])
        .await?;
    let first = expect_some("the first receipt", answers.first().cloned())?;
    expect_holds("the first is new", first.result.persisted)?;
    expect_same(
        "the other results",
        answers[1..].to_vec(),
        vec![repeated_receipt(&first), repeated_receipt(&first)],
    )?;
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1],
    )
}

async fn an_event_from_another_engine_attempt_is_a_duplicate(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let retry = RunEventWrite {
        engine_attempt_id: AttemptNumber::MAX,
        ..step_event("r", 1)
    };
    let answer = world.append_event(retry).await?;
    expect_same(
        "idempotent, differs",
        (answer.result.idempotent, answer.differs),
        (true, false),
    )?;
    expect_same(
        "the stored attempt",
        world.read_log("r").await?[0].event.engine_attempt_id,
        AttemptNumber::FIRST,
    )
}

async fn an_event_emitted_later_is_a_duplicate(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let retry = RunEventWrite {
        emitted_at: EmittedAt::from(timestamp_after_ms(9_000)),
        ..step_event("r", 1)
    };
    expect_same(
        "idempotent",
        world.append_event(retry).await?.result.idempotent,
        true,
    )?;
    expect_same(
        "the stored timestamp",
        world.read_log("r").await?[0]
            .event
            .emitted_at
            .to_timestamp(),
        timestamp_after_ms(0),
    )
}

async fn an_event_of_another_logical_attempt_is_new(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let next = AttemptNumber::FIRST
        .next_attempt()
        .unwrap_or(AttemptNumber::MAX);
    let retry = RunEventWrite {
        logical_attempt_id: next,
        event_id: step_event("r", 2).event_id,
        ..step_event("r", 1)
    };
    expect_same(
        "the sequence",
        world
            .append_event(fixtures::with_computed_key(retry))
            .await?
            .result
            .run_seq,
        run_sequence(2),
    )
}

/// Returns an event in which this signal pauses the run.
fn event_paused_by_signal(signal: &str, number: u32) -> RunEventWrite {
    let paused = RunEventWrite {
        event_type: parse_id("RunPaused"),
        step_id: None,
        ..step_event("r", number)
    };
    with_payload(
        paused,
        &format!(r#"{{"signalType":"PAUSE","signalId":"{signal}"}}"#),
    )
}

async fn an_event_of_another_signal_is_new(world: &CheckContext<'_>) -> CheckResult {
    world
        .append_event(event_paused_by_signal("first", 1))
        .await?;
    let second = world
        .append_event(event_paused_by_signal("second", 2))
        .await?
        .result;
    expect_same(
        "sequence and persisted",
        (second.run_seq, second.persisted),
        (run_sequence(2), true),
    )
}

async fn an_event_of_the_same_signal_is_a_duplicate(world: &CheckContext<'_>) -> CheckResult {
    world
        .append_event(event_paused_by_signal("first", 1))
        .await?;
    let again = world
        .append_event(event_paused_by_signal("first", 2))
        .await?
        .result;
    expect_same(
        "sequence and persisted",
        (again.run_seq, again.persisted),
        (run_sequence(1), false),
    )
}

async fn the_rest_of_a_commit_is_stored_despite_a_duplicate(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let commit = Commit::new()
        .insert(&queued_job_row("j"))
        .append_journal(numbered_append(1, 0, 2))
        .append_events(step_events("r", 1, 1));
    world.commit(commit).await?;
    expect_holds(
        "the row exists",
        world
            .read_row(
                crate::tables::JobRow::TABLE,
                fixtures::record_key(&queued_job_row("j")),
            )
            .await?
            .is_some(),
    )?;
    expect_same(
        "the chunks",
        world
            .read_journal(fixtures::numbered_execution(1), 0, 9)
            .await?
            .len(),
        1,
    )
}

async fn a_duplicate_adds_nothing_to_the_outbox(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    world
        .commit(Commit::new().advance_reader(reader_advance("r", RunEventReader::EventBus, 0, 1)))
        .await?;
    world.append_event(step_event("r", 1)).await?;
    expect_same(
        "runs with something to deliver",
        world
            .list_run_heads(Some(RunEventReader::EventBus), None, 9)
            .await?,
        Vec::new(),
    )
}

async fn a_duplicate_does_not_change_the_head(world: &CheckContext<'_>) -> CheckResult {
    world.append_events(step_events("r", 1, 2)).await?;
    let before = world.expect_head("r").await?;
    world.manual_clock().advance_ms(60_000);
    world.append_event(step_event("r", 1)).await?;
    expect_same("the head", world.expect_head("r").await?, before)
}

async fn a_duplicate_with_a_stale_fence_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let stale = Commit::new()
        .fence_shard(crate::ShardId(1), crate::ShardEpoch(1))
        .append_events(step_events("r", 1, 1));
    let given = crate::ShardEpoch(1);
    expect_refused(
        world.commit(stale).await,
        CommitConflict::Fenced {
            shard: crate::ShardId(1),
            held: crate::ShardEpoch::NONE,
            given,
        },
    )
}

async fn an_event_of_a_rejected_commit_is_new_when_sent_again(
    world: &CheckContext<'_>,
) -> CheckResult {
    let stale = Commit::new()
        .fence_shard(crate::ShardId(1), crate::ShardEpoch(1))
        .append_events(step_events("r", 1, 1));
    expect_holds("the commit is rejected", world.commit(stale).await.is_err())?;
    let answer = world.append_event(step_event("r", 1)).await?.result;
    expect_same(
        "sequence and persisted",
        (answer.run_seq, answer.persisted),
        (run_sequence(1), true),
    )
}

async fn concurrent_appends_of_one_key_store_it_once(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for number in 1..=4 {
        let answers = pair
            .race_calls(32, |store, _| store.append_event(step_event("r", number)))
            .await;
        let answers: Vec<EventReceipt> = answers.into_iter().collect::<Result<_, _>>()?;
        expect_same(
            "the number of stored events",
            answers
                .iter()
                .filter(|answer| answer.result.persisted)
                .count(),
            1,
        )?;
        let first = expect_some("a receipt", answers.first().cloned())?;
        for answer in answers {
            expect_same(
                "a receipt except for its flags",
                repeated_receipt(&answer),
                repeated_receipt(&first),
            )?;
        }
    }
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2, 3, 4],
    )
}

async fn concurrent_appends_with_different_payloads_agree_on_one(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let saying = |nth: usize| with_payload(step_event("r", 1), &format!("{{\"a\":{nth}}}"));
    let answers = pair
        .race_calls(32, |store, nth| store.append_event(saying(nth)))
        .await;
    let answers: Vec<EventReceipt> = answers.into_iter().collect::<Result<_, _>>()?;
    let winner = expect_some(
        "a successful call",
        answers.iter().position(|answer| answer.result.persisted),
    )?;
    expect_same(
        "the number of differing duplicates",
        answers.iter().filter(|answer| answer.differs).count(),
        31,
    )?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the stored events", kept, vec![saying(winner)])
}

async fn concurrent_batches_of_the_same_events_store_each_once(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let batch = |nth: usize| {
        let mut batch = step_events("r", 1, 4);
        batch.rotate_left(nth % 4);
        batch
    };
    let answers = pair
        .race_calls(16, |store, nth| store.append_events(batch(nth)))
        .await;
    let answers: Vec<Vec<EventReceipt>> = answers.into_iter().collect::<Result<_, _>>()?;
    expect_same(
        "the number of stored events",
        answers
            .iter()
            .flatten()
            .filter(|answer| answer.result.persisted)
            .count(),
        4,
    )?;
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2, 3, 4],
    )
}
