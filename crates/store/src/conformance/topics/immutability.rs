//! What is stored stays as it is: no call of the store changes an event, and the database refuses to.

use super::prelude::*;
use crate::conformance::Tampering;
use crate::conformance::sample::{carrying, execution, job, started, step};

super::checks!(Immutability:
    a_stored_event_cannot_be_changed_by_hand,
    a_stored_event_cannot_be_deleted_by_hand,
    the_last_event_cannot_be_deleted_by_hand,
    the_table_of_events_cannot_be_emptied_by_hand,
    a_journal_cannot_be_changed_by_hand,
    a_journal_cannot_be_deleted_by_hand,
    appending_leaves_earlier_events_as_they_are,
    a_differing_repeat_leaves_everything_as_it_is,
    refused_commits_leave_events_as_they_are,
    readers_that_move_leave_events_as_they_are,
    reading_changes_nothing,
    appending_leaves_earlier_chunks_as_they_are,
);

/// Three events, an execution and two chunks of its journal.
async fn settle(world: &World<'_>) -> Result<crate::conformance::Dump, Failure> {
    let events = (1..=3).map(|number| carrying(event("r", number), "{\"a\":1}")).collect();
    world.commit(Commit::new().insert(&started(1, None)).journal(append(1, 0, 2)).events(events)).await?;
    world.commit(Commit::new().journal(append(1, 2, 1))).await?;
    world.dump().await
}

async fn withstand(world: &World<'_>, tampering: Tampering) -> Verdict {
    let before = settle(world).await?;
    same("whether the database let it happen", world.tamper(&tampering).await?, false)?;
    same("what is stored", world.dump().await?, before)
}

async fn a_stored_event_cannot_be_changed_by_hand(world: &World<'_>) -> Verdict {
    withstand(world, Tampering::UpdateEvent { run: id("r"), seq: seq(2) }).await
}

async fn a_stored_event_cannot_be_deleted_by_hand(world: &World<'_>) -> Verdict {
    withstand(world, Tampering::DeleteEvent { run: id("r"), seq: seq(2) }).await
}

async fn the_last_event_cannot_be_deleted_by_hand(world: &World<'_>) -> Verdict {
    withstand(world, Tampering::DeleteEvent { run: id("r"), seq: seq(3) }).await
}

async fn the_table_of_events_cannot_be_emptied_by_hand(world: &World<'_>) -> Verdict {
    withstand(world, Tampering::EmptyEvents).await
}

async fn a_journal_cannot_be_changed_by_hand(world: &World<'_>) -> Verdict {
    withstand(world, Tampering::UpdateJournal { execution: execution(1) }).await
}

async fn a_journal_cannot_be_deleted_by_hand(world: &World<'_>) -> Verdict {
    withstand(world, Tampering::DeleteJournal { execution: execution(1) }).await
}

async fn appending_leaves_earlier_events_as_they_are(world: &World<'_>) -> Verdict {
    let before = settle(world).await?.events;
    world.clock().advance_ms(1_000);
    world.append_events(events("r", 4, 9)).await?;
    same("the first events", world.log("r").await?[..3].to_vec(), before)
}

async fn a_differing_repeat_leaves_everything_as_it_is(world: &World<'_>) -> Verdict {
    let before = settle(world).await?;
    world.clock().advance_ms(1_000);
    holds("it differs", world.append_event(carrying(event("r", 2), "{\"a\":2}")).await?.differs)?;
    same("what is stored", world.dump().await?, before)
}

async fn refused_commits_leave_events_as_they_are(world: &World<'_>) -> Verdict {
    let before = settle(world).await?;
    let absent = Commit::new().update(&job("absent"), 1).events(events("r", 4, 4));
    holds("it is refused", world.commit(absent).await.is_err())?;
    same("what is stored", world.dump().await?, before)
}

async fn readers_that_move_leave_events_as_they_are(world: &World<'_>) -> Verdict {
    let before = settle(world).await?;
    world.commit(Commit::new().advance(step("r", Reader::EventBus, 0, 3))).await?;
    same("the events", world.dump().await?.events, before.events)
}

async fn reading_changes_nothing(world: &World<'_>) -> Verdict {
    let before = settle(world).await?;
    world.project_snapshot(&id("r")).await?;
    world.runs(Some(Reader::Projector), None, 9).await?;
    world.now().await?;
    same("what is stored", world.dump().await?, before)
}

async fn appending_leaves_earlier_chunks_as_they_are(world: &World<'_>) -> Verdict {
    settle(world).await?;
    let before = world.journal(execution(1), 0, 9).await?;
    world.commit(Commit::new().journal(append(1, 3, 4))).await?;
    same("the first chunks", world.journal(execution(1), 0, 2).await?, before)
}
