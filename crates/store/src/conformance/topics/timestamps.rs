//! Checks of timestamps: the producer's timestamp is stored verbatim, and the store's timestamps
//! never decrease within a run.

use onward_base::Timestamp;
use onward_runs::EmittedAt;

use super::prelude::*;

super::checks!(Stamps:
    the_store_reports_the_time_of_its_clock,
    an_event_is_timestamped_by_the_clock_of_the_store,
    a_timestamp_is_exact_to_the_microsecond,
    the_timestamp_in_a_receipt_equals_the_one_in_the_log,
    all_events_of_a_commit_have_the_same_timestamp,
    timestamps_follow_the_clock,
    timestamps_do_not_go_backwards_when_the_clock_does,
    timestamps_advance_when_the_clock_has_caught_up,
    a_run_ahead_of_the_clock_does_not_affect_other_runs,
    the_head_has_the_last_timestamp,
    the_smallest_and_the_largest_timestamp_can_be_assigned,
    emitted_at_is_stored_as_the_producer_wrote_it,
    emitted_at_may_be_far_from_the_clock,
    emitted_at_does_not_affect_persisted_at,
);

async fn append_and_read_stamp(
    world: &CheckContext<'_>,
    run: &str,
    number: u32,
) -> Result<Timestamp, ConformanceFailure> {
    Ok(world
        .append_event(step_event(run, number))
        .await?
        .result
        .persisted_at)
}

async fn read_stamps(
    world: &CheckContext<'_>,
    run: &str,
) -> Result<Vec<Timestamp>, ConformanceFailure> {
    Ok(world
        .read_log(run)
        .await?
        .iter()
        .map(|record| record.persisted_at)
        .collect())
}

async fn the_store_reports_the_time_of_its_clock(world: &CheckContext<'_>) -> CheckResult {
    for time in [
        timestamp_after_ms(0),
        timestamp_after_ms(1),
        Timestamp::EPOCH,
        Timestamp::MIN,
        Timestamp::MAX,
    ] {
        world.manual_clock().set(time);
        expect_same("the time", world.now().await?, time)?;
    }
    Ok(())
}

async fn an_event_is_timestamped_by_the_clock_of_the_store(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.manual_clock().set(timestamp_after_ms(77));
    expect_same(
        "the timestamp",
        append_and_read_stamp(world, "r", 1).await?,
        timestamp_after_ms(77),
    )
}

async fn a_timestamp_is_exact_to_the_microsecond(world: &CheckContext<'_>) -> CheckResult {
    let odd = Timestamp::from_micros(1_767_225_600_999_999).unwrap_or(timestamp_after_ms(0));
    world.manual_clock().set(odd);
    expect_same(
        "the timestamp",
        append_and_read_stamp(world, "r", 1).await?,
        odd,
    )?;
    expect_same(
        "the timestamps in the log",
        read_stamps(world, "r").await?,
        vec![odd],
    )
}

async fn the_timestamp_in_a_receipt_equals_the_one_in_the_log(
    world: &CheckContext<'_>,
) -> CheckResult {
    let mut said = Vec::new();
    for number in 1..=3 {
        said.push(append_and_read_stamp(world, "r", number).await?);
        world.manual_clock().advance_ms(13);
    }
    expect_same(
        "the timestamps in the log",
        read_stamps(world, "r").await?,
        said,
    )
}

async fn all_events_of_a_commit_have_the_same_timestamp(world: &CheckContext<'_>) -> CheckResult {
    let batch = step_events("r", 1, 3)
        .into_iter()
        .chain(step_events("s", 1, 2))
        .collect();
    world.append_events(batch).await?;
    expect_same(
        "the sequences in the first run",
        read_stamps(world, "r").await?,
        vec![timestamp_after_ms(0); 3],
    )?;
    expect_same(
        "the sequences in the second run",
        read_stamps(world, "s").await?,
        vec![timestamp_after_ms(0); 2],
    )
}

async fn timestamps_follow_the_clock(world: &CheckContext<'_>) -> CheckResult {
    for (number, ms) in [(1, 0), (2, 5), (3, 5), (4, 60_000)] {
        world.manual_clock().set(timestamp_after_ms(ms));
        expect_same(
            "the timestamp",
            append_and_read_stamp(world, "r", number).await?,
            timestamp_after_ms(ms),
        )?;
    }
    Ok(())
}

async fn timestamps_do_not_go_backwards_when_the_clock_does(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.manual_clock().set(timestamp_after_ms(5_000));
    append_and_read_stamp(world, "r", 1).await?;
    world.manual_clock().set(timestamp_after_ms(1_000));
    expect_same(
        "the next timestamp",
        append_and_read_stamp(world, "r", 2).await?,
        timestamp_after_ms(5_000),
    )?;
    world.manual_clock().set(Timestamp::EPOCH);
    expect_same(
        "the next timestamp",
        append_and_read_stamp(world, "r", 3).await?,
        timestamp_after_ms(5_000),
    )?;
    expect_same(
        "the timestamps in the log",
        read_stamps(world, "r").await?,
        vec![timestamp_after_ms(5_000); 3],
    )
}

async fn timestamps_advance_when_the_clock_has_caught_up(world: &CheckContext<'_>) -> CheckResult {
    world.manual_clock().set(timestamp_after_ms(5_000));
    append_and_read_stamp(world, "r", 1).await?;
    for (number, ms, expected) in [(2, 4_000, 5_000), (3, 5_001, 5_001)] {
        world.manual_clock().set(timestamp_after_ms(ms));
        expect_same(
            "the timestamp",
            append_and_read_stamp(world, "r", number).await?,
            timestamp_after_ms(expected),
        )?;
    }
    Ok(())
}

async fn a_run_ahead_of_the_clock_does_not_affect_other_runs(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.manual_clock().set(timestamp_after_ms(5_000));
    append_and_read_stamp(world, "r", 1).await?;
    append_and_read_stamp(world, "s", 1).await?;
    world.manual_clock().set(timestamp_after_ms(1_000));
    expect_same(
        "a new run",
        append_and_read_stamp(world, "t", 1).await?,
        timestamp_after_ms(1_000),
    )?;
    let answers = world
        .append_events(vec![step_event("u", 1), step_event("s", 2)])
        .await?;
    let said: Vec<_> = answers
        .iter()
        .map(|answer| answer.result.persisted_at)
        .collect();
    expect_same(
        "a new and an existing run in one commit",
        said,
        vec![timestamp_after_ms(1_000), timestamp_after_ms(5_000)],
    )
}

async fn the_head_has_the_last_timestamp(world: &CheckContext<'_>) -> CheckResult {
    for (number, ms, expected) in [(1, 10, 10), (2, 30, 30), (3, 20, 30)] {
        world.manual_clock().set(timestamp_after_ms(ms));
        append_and_read_stamp(world, "r", number).await?;
        expect_same(
            "the timestamp of the head",
            world.expect_head("r").await?.last_persisted_at,
            timestamp_after_ms(expected),
        )?;
    }
    Ok(())
}

async fn the_smallest_and_the_largest_timestamp_can_be_assigned(
    world: &CheckContext<'_>,
) -> CheckResult {
    for (run, time) in [("r", Timestamp::MIN), ("s", Timestamp::MAX)] {
        world.manual_clock().set(time);
        append_and_read_stamp(world, run, 1).await?;
        expect_same(
            "the timestamps in the log",
            read_stamps(world, run).await?,
            vec![time],
        )?;
        expect_same(
            "the timestamp of the head",
            world.expect_head(run).await?.last_persisted_at,
            time,
        )?;
    }
    Ok(())
}

/// Returns an event whose `emitted_at` is this text.
fn event_emitted_at(number: u32, text: &str) -> RunEventWrite {
    RunEventWrite {
        emitted_at: parse_id(text),
        ..step_event("r", number)
    }
}

async fn emitted_at_is_stored_as_the_producer_wrote_it(world: &CheckContext<'_>) -> CheckResult {
    let texts = [
        "2026-03-01T12:00:00Z",
        "2026-03-01t12:00:00z",
        "2026-03-01T12:00:00+00:00",
        "2026-03-01T12:00:00.0Z",
        "2026-03-01T12:00:00.100Z",
        "2026-03-01T12:00:00.123456789Z",
        "2026-03-01T12:00:00.000000001+00:00",
    ];
    world
        .append_events(
            (1..)
                .zip(texts)
                .map(|(number, text)| event_emitted_at(number, text))
                .collect(),
        )
        .await?;
    let log = world.read_log("r").await?;
    let kept: Vec<&str> = log
        .iter()
        .map(|record| record.event.emitted_at.as_str())
        .collect();
    expect_same("the texts in the log", kept, texts.to_vec())
}

async fn emitted_at_may_be_far_from_the_clock(world: &CheckContext<'_>) -> CheckResult {
    let instants = [Timestamp::MIN, Timestamp::EPOCH, Timestamp::MAX].map(EmittedAt::from);
    let events = (1..)
        .zip(&instants)
        .map(|(number, at)| event_emitted_at(number, at.as_str()));
    world.append_events(events.collect()).await?;
    let kept: Vec<EmittedAt> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event.emitted_at)
        .collect();
    expect_same("the timestamps in the log", kept, instants.to_vec())
}

async fn emitted_at_does_not_affect_persisted_at(world: &CheckContext<'_>) -> CheckResult {
    let answers = world
        .append_events(vec![
            event_emitted_at(1, "2999-01-01T00:00:00Z"),
            event_emitted_at(2, "1999-01-01T00:00:00Z"),
        ])
        .await?;
    let said: Vec<Timestamp> = answers
        .iter()
        .map(|answer| answer.result.persisted_at)
        .collect();
    expect_same(
        "the timestamps",
        said,
        vec![timestamp_after_ms(0), timestamp_after_ms(0)],
    )
}
