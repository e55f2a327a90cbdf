//! Checks that the sequence numbers of every run are 1, 2, 3 … without gaps, whatever else happens.

use super::prelude::*;
use crate::conformance::fixtures::queued_job_row;

super::checks!(Contiguity:
    the_first_event_has_sequence_1,
    the_events_of_a_batch_are_numbered_in_order,
    a_hundred_single_appends_are_numbered_in_order,
    a_thousand_events_in_one_commit_are_numbered_in_order,
    a_batch_continues_the_sequence_of_the_previous_one,
    each_run_has_its_own_sequence,
    runs_that_alternate_in_a_batch_have_their_own_sequences,
    a_rejected_commit_leaves_no_gap,
    a_rejected_event_in_the_middle_of_a_batch_leaves_no_gap,
    a_duplicate_leaves_no_gap,
    a_duplicate_in_the_middle_of_a_batch_leaves_no_gap,
    concurrent_appends_leave_no_gap,
    the_events_of_concurrent_batches_are_not_interleaved,
    concurrent_batches_of_two_runs_leave_no_gap_in_either,
    concurrent_duplicates_and_new_events_leave_no_gap,
    the_head_has_the_last_sequence,
    receipts_agree_with_the_log,
    a_second_handle_continues_the_sequence,
);

fn receipt_sequences(appended: &[EventReceipt]) -> Vec<u64> {
    appended
        .iter()
        .map(|answer| answer.result.run_seq.as_u64())
        .collect()
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

async fn the_first_event_has_sequence_1(world: &CheckContext<'_>) -> CheckResult {
    expect_same(
        "the sequence",
        world.append_event(step_event("r", 7)).await?.result.run_seq,
        run_sequence(1),
    )
}

async fn the_events_of_a_batch_are_numbered_in_order(world: &CheckContext<'_>) -> CheckResult {
    let batch = [3, 1, 2].map(|number| step_event("r", number));
    expect_same(
        "the sequences",
        receipt_sequences(&world.append_events(batch.to_vec()).await?),
        vec![1, 2, 3],
    )?;
    let stored: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the log", stored, batch.to_vec())
}

async fn a_hundred_single_appends_are_numbered_in_order(world: &CheckContext<'_>) -> CheckResult {
    for number in 1..=100 {
        let answer = world.append_event(step_event("r", number)).await?;
        expect_same(
            "the sequence",
            answer.result.run_seq,
            run_sequence(u64::from(number)),
        )?;
    }
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 200).await?,
        (1..=100).collect(),
    )
}

async fn a_thousand_events_in_one_commit_are_numbered_in_order(
    world: &CheckContext<'_>,
) -> CheckResult {
    let batch = step_events("r", 1, 1_000);
    expect_same(
        "the sequences",
        receipt_sequences(&world.append_events(batch.clone()).await?),
        (1..=1_000).collect(),
    )?;
    let stored: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_holds("the log is the batch", stored == batch)
}

async fn a_batch_continues_the_sequence_of_the_previous_one(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_same(
        "the first result",
        receipt_sequences(&world.append_events(step_events("r", 1, 2)).await?),
        vec![1, 2],
    )?;
    expect_same(
        "the second result",
        receipt_sequences(&world.append_events(step_events("r", 3, 5)).await?),
        vec![3, 4, 5],
    )?;
    expect_same(
        "the result of an empty batch",
        receipt_sequences(&world.append_events(Vec::new()).await?),
        vec![],
    )?;
    expect_same(
        "the last",
        receipt_sequences(&world.append_events(step_events("r", 6, 6)).await?),
        vec![6],
    )
}

async fn each_run_has_its_own_sequence(world: &CheckContext<'_>) -> CheckResult {
    world.append_events(step_events("r", 1, 5)).await?;
    expect_same(
        "the sequence in the second run",
        world.append_event(step_event("s", 1)).await?.result.run_seq,
        run_sequence(1),
    )?;
    expect_same(
        "the sequence in the first run",
        world.append_event(step_event("r", 6)).await?.result.run_seq,
        run_sequence(6),
    )
}

async fn runs_that_alternate_in_a_batch_have_their_own_sequences(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_event(step_event("s", 9)).await?;
    let batch = vec![
        step_event("r", 1),
        step_event("s", 1),
        step_event("r", 2),
        step_event("s", 2),
        step_event("r", 3),
    ];
    expect_same(
        "the sequences",
        receipt_sequences(&world.append_events(batch).await?),
        vec![1, 2, 2, 3, 3],
    )?;
    expect_same(
        "the first log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2, 3],
    )?;
    expect_same(
        "the second log",
        world.read_sequences("s", 0, 9).await?,
        vec![1, 2, 3],
    )
}

async fn a_rejected_commit_leaves_no_gap(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&queued_job_row("j"))
                .append_events(step_events("r", 1, 2)),
        )
        .await?;
    let refusal = world
        .commit(
            Commit::new()
                .insert(&queued_job_row("j"))
                .append_events(step_events("r", 3, 4)),
        )
        .await;
    expect_holds("the second commit is rejected", refusal.is_err())?;
    expect_same(
        "the sequence of the next event",
        world.append_event(step_event("r", 5)).await?.result.run_seq,
        run_sequence(3),
    )
}

async fn a_rejected_event_in_the_middle_of_a_batch_leaves_no_gap(
    world: &CheckContext<'_>,
) -> CheckResult {
    let foreign = RunEventWrite {
        tenant_id: parse_id("other"),
        ..step_event("r", 2)
    };
    let refusal = world
        .append_events(vec![step_event("r", 1), foreign, step_event("r", 3)])
        .await;
    expect_holds("the batch is rejected", refusal.is_err())?;
    expect_same(
        "the sequence of the next event",
        world.append_event(step_event("r", 4)).await?.result.run_seq,
        run_sequence(1),
    )
}

async fn a_duplicate_leaves_no_gap(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    world.append_event(step_event("r", 1)).await?;
    expect_same(
        "the sequence of the next event",
        world.append_event(step_event("r", 2)).await?.result.run_seq,
        run_sequence(2),
    )
}

async fn a_duplicate_in_the_middle_of_a_batch_leaves_no_gap(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let batch = vec![
        step_event("r", 2),
        step_event("r", 1),
        step_event("r", 3),
        step_event("r", 2),
        step_event("r", 4),
    ];
    expect_same(
        "the sequences",
        receipt_sequences(&world.append_events(batch).await?),
        vec![2, 1, 3, 2, 4],
    )?;
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2, 3, 4],
    )
}

async fn concurrent_appends_leave_no_gap(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for answer in pair
        .race_calls(64, |store, nth| {
            store.append_event(step_event("r", to_u32(nth)))
        })
        .await
    {
        answer?;
    }
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=64).collect(),
    )
}

async fn the_events_of_concurrent_batches_are_not_interleaved(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let batch = |nth: usize| step_events("r", to_u32(nth) * 10 + 1, to_u32(nth) * 10 + 5);
    for answer in pair
        .race_calls(12, |store, nth| store.append_events(batch(nth)))
        .await
    {
        let places = receipt_sequences(&answer?);
        let first = places.first().copied().unwrap_or_default();
        expect_same(
            "the sequences of a batch",
            places,
            (first..first + 5).collect(),
        )?;
    }
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=60).collect(),
    )
}

async fn concurrent_batches_of_two_runs_leave_no_gap_in_either(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let batch = |nth: usize| {
        let (one, other) = (step_event("r", to_u32(nth)), step_event("s", to_u32(nth)));
        if nth.is_multiple_of(4) {
            vec![one, other]
        } else {
            vec![other, one]
        }
    };
    for answer in pair
        .race_calls(16, |store, nth| store.append_events(batch(nth)))
        .await
    {
        answer?;
    }
    expect_same(
        "the first log",
        world.read_sequences("r", 0, 99).await?,
        (1..=16).collect(),
    )?;
    expect_same(
        "the second log",
        world.read_sequences("s", 0, 99).await?,
        (1..=16).collect(),
    )
}

async fn concurrent_duplicates_and_new_events_leave_no_gap(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for answer in pair
        .race_calls(48, |store, nth| {
            store.append_event(step_event("r", to_u32(nth / 3)))
        })
        .await
    {
        answer?;
    }
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=16).collect(),
    )
}

async fn the_head_has_the_last_sequence(world: &CheckContext<'_>) -> CheckResult {
    expect_same(
        "the head before",
        world.read_run_head(&parse_id("r")).await?,
        None,
    )?;
    for last in 1..=3 {
        world.append_event(step_event("r", last)).await?;
        expect_same(
            "the last sequence",
            world.expect_head("r").await?.last_seq,
            run_sequence(u64::from(last)),
        )?;
    }
    Ok(())
}

async fn receipts_agree_with_the_log(world: &CheckContext<'_>) -> CheckResult {
    let answers = world.append_events(step_events("r", 1, 5)).await?;
    let said: Vec<_> = answers
        .iter()
        .map(|it| {
            (
                it.result.event_id,
                it.result.run_seq,
                it.result.persisted_at,
            )
        })
        .collect();
    let log = world.read_log("r").await?;
    let kept: Vec<_> = log
        .iter()
        .map(|it| (it.event.event_id, it.run_seq, it.persisted_at))
        .collect();
    expect_same("ids, sequences and timestamps", said, kept)
}

async fn a_second_handle_continues_the_sequence(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    world.append_event(step_event("r", 1)).await?;
    expect_same(
        "through the second handle",
        pair.second_handle()
            .append_event(step_event("r", 2))
            .await?
            .result
            .run_seq,
        run_sequence(2),
    )?;
    expect_same(
        "through the first handle",
        world.append_event(step_event("r", 3)).await?.result.run_seq,
        run_sequence(3),
    )?;
    expect_same(
        "a duplicate through the second handle",
        pair.second_handle()
            .append_event(step_event("r", 1))
            .await?
            .result
            .run_seq,
        run_sequence(1),
    )
}
