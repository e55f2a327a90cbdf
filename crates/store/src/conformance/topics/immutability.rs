//! Checks of immutability: no call of the store changes a stored event, and the database rejects
//! such changes.

use super::prelude::*;
use crate::conformance::TamperAttempt;
use crate::conformance::fixtures::{
    numbered_execution, queued_job_row, reader_advance, running_execution_row, with_payload,
};

super::checks!(Immutability:
    a_direct_update_of_an_event_is_rejected,
    a_direct_delete_of_an_event_is_rejected,
    a_direct_delete_of_the_last_event_is_rejected,
    a_direct_truncate_of_the_event_table_is_rejected,
    a_direct_update_of_a_journal_is_rejected,
    a_direct_delete_of_a_journal_is_rejected,
    an_append_does_not_change_earlier_events,
    a_differing_duplicate_changes_nothing,
    rejected_commits_do_not_change_events,
    advancing_a_reader_does_not_change_events,
    reading_changes_nothing,
    an_append_does_not_change_earlier_chunks,
);

/// Stores three events, an execution and two chunks of its journal.
async fn prepare_store(
    world: &CheckContext<'_>,
) -> Result<crate::conformance::StoreDump, ConformanceFailure> {
    let events = (1..=3)
        .map(|number| with_payload(step_event("r", number), "{\"a\":1}"))
        .collect();
    world
        .commit(
            Commit::new()
                .insert(&running_execution_row(1, None))
                .append_journal(numbered_append(1, 0, 2))
                .append_events(events),
        )
        .await?;
    world
        .commit(Commit::new().append_journal(numbered_append(1, 2, 1)))
        .await?;
    world.dump_store().await
}

async fn expect_tampering_refused(
    world: &CheckContext<'_>,
    tampering: TamperAttempt,
) -> CheckResult {
    let before = prepare_store(world).await?;
    expect_same(
        "whether the database accepts the statement",
        world.try_tamper(&tampering).await?,
        false,
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_direct_update_of_an_event_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_tampering_refused(
        world,
        TamperAttempt::UpdateEvent {
            run: parse_id("r"),
            seq: run_sequence(2),
        },
    )
    .await
}

async fn a_direct_delete_of_an_event_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_tampering_refused(
        world,
        TamperAttempt::DeleteEvent {
            run: parse_id("r"),
            seq: run_sequence(2),
        },
    )
    .await
}

async fn a_direct_delete_of_the_last_event_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_tampering_refused(
        world,
        TamperAttempt::DeleteEvent {
            run: parse_id("r"),
            seq: run_sequence(3),
        },
    )
    .await
}

async fn a_direct_truncate_of_the_event_table_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_tampering_refused(world, TamperAttempt::EmptyEvents).await
}

async fn a_direct_update_of_a_journal_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_tampering_refused(
        world,
        TamperAttempt::UpdateJournal {
            execution: numbered_execution(1),
        },
    )
    .await
}

async fn a_direct_delete_of_a_journal_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_tampering_refused(
        world,
        TamperAttempt::DeleteJournal {
            execution: numbered_execution(1),
        },
    )
    .await
}

async fn an_append_does_not_change_earlier_events(world: &CheckContext<'_>) -> CheckResult {
    let before = prepare_store(world).await?.events;
    world.manual_clock().advance_ms(1_000);
    world.append_events(step_events("r", 4, 9)).await?;
    expect_same(
        "the first events",
        world.read_log("r").await?[..3].to_vec(),
        before,
    )
}

async fn a_differing_duplicate_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let before = prepare_store(world).await?;
    world.manual_clock().advance_ms(1_000);
    expect_holds(
        "whether it differs",
        world
            .append_event(with_payload(step_event("r", 2), "{\"a\":2}"))
            .await?
            .differs,
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn rejected_commits_do_not_change_events(world: &CheckContext<'_>) -> CheckResult {
    let before = prepare_store(world).await?;
    let absent = Commit::new()
        .update(&queued_job_row("absent"), 1)
        .append_events(step_events("r", 4, 4));
    expect_holds("it is rejected", world.commit(absent).await.is_err())?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn advancing_a_reader_does_not_change_events(world: &CheckContext<'_>) -> CheckResult {
    let before = prepare_store(world).await?;
    world
        .commit(Commit::new().advance_reader(reader_advance("r", RunEventReader::EventBus, 0, 3)))
        .await?;
    expect_same(
        "the events",
        world.dump_store().await?.events,
        before.events,
    )
}

async fn reading_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let before = prepare_store(world).await?;
    world.project_snapshot(&parse_id("r")).await?;
    world
        .list_run_heads(Some(RunEventReader::Projector), None, 9)
        .await?;
    world.now().await?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn an_append_does_not_change_earlier_chunks(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let before = world.read_journal(numbered_execution(1), 0, 9).await?;
    world
        .commit(Commit::new().append_journal(numbered_append(1, 3, 4)))
        .await?;
    expect_same(
        "the first chunks",
        world.read_journal(numbered_execution(1), 0, 2).await?,
        before,
    )
}
