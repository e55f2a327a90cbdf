//! Checks that the sequence numbers of every run are 1, 2, 3 … without gaps, whatever else happens.

use super::prelude::*;
use crate::conformance::fixtures::queued_job_row;

super::checks!(Contiguity:
    the_first_event_has_place_1,
    a_batch_is_numbered_in_its_order,
    a_hundred_single_appends_are_numbered_in_their_order,
    a_thousand_events_in_one_commit_are_numbered_in_their_order,
    batches_go_on_where_the_last_one_ended,
    every_run_counts_for_itself,
    runs_that_alternate_in_a_batch_count_for_themselves,
    a_refused_commit_leaves_no_gap,
    a_refused_event_in_the_middle_of_a_batch_leaves_no_gap,
    a_repeat_leaves_no_gap,
    a_repeat_in_the_middle_of_a_batch_leaves_no_gap,
    racing_appends_leave_no_gap,
    racing_batches_stay_together,
    racing_batches_of_two_runs_leave_no_gap_in_either,
    racing_repeats_and_new_events_leave_no_gap,
    the_head_shows_the_last_place,
    answers_and_log_agree,
    the_other_handle_goes_on_where_this_one_ended,
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

async fn the_first_event_has_place_1(world: &CheckContext<'_>) -> CheckResult {
    expect_same(
        "the place",
        world.append_event(step_event("r", 7)).await?.result.run_seq,
        run_sequence(1),
    )
}

async fn a_batch_is_numbered_in_its_order(world: &CheckContext<'_>) -> CheckResult {
    let batch = [3, 1, 2].map(|number| step_event("r", number));
    expect_same(
        "the places",
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

async fn a_hundred_single_appends_are_numbered_in_their_order(
    world: &CheckContext<'_>,
) -> CheckResult {
    for number in 1..=100 {
        let answer = world.append_event(step_event("r", number)).await?;
        expect_same(
            "the place",
            answer.result.run_seq,
            run_sequence(u64::from(number)),
        )?;
    }
    expect_same(
        "the places in the log",
        world.read_sequences("r", 0, 200).await?,
        (1..=100).collect(),
    )
}

async fn a_thousand_events_in_one_commit_are_numbered_in_their_order(
    world: &CheckContext<'_>,
) -> CheckResult {
    let batch = step_events("r", 1, 1_000);
    expect_same(
        "the places",
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

async fn batches_go_on_where_the_last_one_ended(world: &CheckContext<'_>) -> CheckResult {
    expect_same(
        "the first",
        receipt_sequences(&world.append_events(step_events("r", 1, 2)).await?),
        vec![1, 2],
    )?;
    expect_same(
        "the second",
        receipt_sequences(&world.append_events(step_events("r", 3, 5)).await?),
        vec![3, 4, 5],
    )?;
    expect_same(
        "an empty one",
        receipt_sequences(&world.append_events(Vec::new()).await?),
        vec![],
    )?;
    expect_same(
        "the last",
        receipt_sequences(&world.append_events(step_events("r", 6, 6)).await?),
        vec![6],
    )
}

async fn every_run_counts_for_itself(world: &CheckContext<'_>) -> CheckResult {
    world.append_events(step_events("r", 1, 5)).await?;
    expect_same(
        "the place in the second run",
        world.append_event(step_event("s", 1)).await?.result.run_seq,
        run_sequence(1),
    )?;
    expect_same(
        "the place in the first run",
        world.append_event(step_event("r", 6)).await?.result.run_seq,
        run_sequence(6),
    )
}

async fn runs_that_alternate_in_a_batch_count_for_themselves(
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
        "the places",
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

async fn a_refused_commit_leaves_no_gap(world: &CheckContext<'_>) -> CheckResult {
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
    expect_holds("the second commit is refused", refusal.is_err())?;
    expect_same(
        "the place of the next event",
        world.append_event(step_event("r", 5)).await?.result.run_seq,
        run_sequence(3),
    )
}

async fn a_refused_event_in_the_middle_of_a_batch_leaves_no_gap(
    world: &CheckContext<'_>,
) -> CheckResult {
    let foreign = RunEventWrite {
        tenant_id: parse_id("other"),
        ..step_event("r", 2)
    };
    let refusal = world
        .append_events(vec![step_event("r", 1), foreign, step_event("r", 3)])
        .await;
    expect_holds("the batch is refused", refusal.is_err())?;
    expect_same(
        "the place of the next event",
        world.append_event(step_event("r", 4)).await?.result.run_seq,
        run_sequence(1),
    )
}

async fn a_repeat_leaves_no_gap(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    world.append_event(step_event("r", 1)).await?;
    expect_same(
        "the place of the next event",
        world.append_event(step_event("r", 2)).await?.result.run_seq,
        run_sequence(2),
    )
}

async fn a_repeat_in_the_middle_of_a_batch_leaves_no_gap(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let batch = vec![
        step_event("r", 2),
        step_event("r", 1),
        step_event("r", 3),
        step_event("r", 2),
        step_event("r", 4),
    ];
    expect_same(
        "the places",
        receipt_sequences(&world.append_events(batch).await?),
        vec![2, 1, 3, 2, 4],
    )?;
    expect_same(
        "the places in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2, 3, 4],
    )
}

async fn racing_appends_leave_no_gap(world: &CheckContext<'_>) -> CheckResult {
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
        "the places in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=64).collect(),
    )
}

async fn racing_batches_stay_together(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let batch = |nth: usize| step_events("r", to_u32(nth) * 10 + 1, to_u32(nth) * 10 + 5);
    for answer in pair
        .race_calls(12, |store, nth| store.append_events(batch(nth)))
        .await
    {
        let places = receipt_sequences(&answer?);
        let first = places.first().copied().unwrap_or_default();
        expect_same(
            "the places of a batch",
            places,
            (first..first + 5).collect(),
        )?;
    }
    expect_same(
        "the places in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=60).collect(),
    )
}

async fn racing_batches_of_two_runs_leave_no_gap_in_either(
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

async fn racing_repeats_and_new_events_leave_no_gap(world: &CheckContext<'_>) -> CheckResult {
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
        "the places in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=16).collect(),
    )
}

async fn the_head_shows_the_last_place(world: &CheckContext<'_>) -> CheckResult {
    expect_same(
        "the head before",
        world.read_run_head(&parse_id("r")).await?,
        None,
    )?;
    for last in 1..=3 {
        world.append_event(step_event("r", last)).await?;
        expect_same(
            "the last place",
            world.expect_head("r").await?.last_seq,
            run_sequence(u64::from(last)),
        )?;
    }
    Ok(())
}

async fn answers_and_log_agree(world: &CheckContext<'_>) -> CheckResult {
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
    expect_same("ids, places and stamps", said, kept)
}

async fn the_other_handle_goes_on_where_this_one_ended(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    world.append_event(step_event("r", 1)).await?;
    expect_same(
        "through the other",
        pair.second_handle()
            .append_event(step_event("r", 2))
            .await?
            .result
            .run_seq,
        run_sequence(2),
    )?;
    expect_same(
        "through this one",
        world.append_event(step_event("r", 3)).await?.result.run_seq,
        run_sequence(3),
    )?;
    expect_same(
        "a repeat through the other",
        pair.second_handle()
            .append_event(step_event("r", 1))
            .await?
            .result
            .run_seq,
        run_sequence(1),
    )
}
