//! Retention takes the whole of something and nothing else, and then it is as if that had never been.

use super::prelude::*;
use crate::Purge;
use crate::conformance::Dump;
use crate::conformance::sample::{alert, execution, job, message, snapshot, started, step, task, timer};
use crate::tables::{Message, Snapshot, Task, Timer};

super::checks!(Purge:
    purging_a_run_removes_its_events_its_head_and_its_snapshot,
    purging_a_run_leaves_all_else_as_it_is,
    purging_a_run_leaves_runs_with_similar_names,
    purging_a_run_that_is_not_there_says_so,
    purging_a_run_twice_says_so,
    a_purged_run_begins_again_at_1,
    a_purged_run_begins_again_without_positions,
    a_purged_run_begins_again_with_the_stamps_of_its_time,
    an_event_of_a_purged_run_is_new_again,
    a_snapshot_without_a_run_is_purged_by_its_name,
    an_alert_of_a_purged_run_can_be_raised_again,
    purging_an_execution_removes_all_that_is_its_own,
    purging_an_execution_leaves_all_else_as_it_is,
    purging_an_execution_that_is_not_there_says_so,
    purging_an_execution_twice_says_so,
    a_purged_execution_begins_again_with_event_0,
    a_start_key_is_free_again_when_its_execution_is_purged,
    a_dedup_key_is_free_again_when_its_execution_is_purged,
    serials_are_not_repeated_after_a_purge,
    an_execution_without_a_journal_is_purged,
    a_journal_without_an_execution_is_purged,
    timers_and_messages_without_an_execution_are_purged,
    the_other_handle_sees_nothing_of_what_is_purged,
);

/// Two runs with snapshots, two executions with all that can be theirs, and things that belong to neither.
async fn filled(world: &World<'_>) -> Verdict {
    let mut commit = Commit::new().events(events("r", 1, 3)).events(events("s", 1, 2)).insert(&job("r"));
    for run in ["r", "s"] {
        commit = commit.insert(&snapshot(run, 1, "{}"));
    }
    for number in [1, 2] {
        commit = commit
            .journal(append(number, 0, 2))
            .insert(&started(number, Some(&format!("order-{number}"))))
            .insert(&timer(number, 1))
            .insert(&timer(number, 2))
            .insert(&task(number, 3))
            .insert(&message(number, Some("key")))
            .insert(&message(number, None));
    }
    world.commit(commit.insert(&alert("once"))).await?;
    world.commit(Commit::new().advance(step("r", Reader::EventBus, 0, 2))).await?;
    Ok(())
}

async fn purge_run(world: &World<'_>, run: &str) -> Result<bool, Failure> {
    Ok(world.purge(Purge::Run(id(run))).await?)
}

async fn purge_execution(world: &World<'_>, number: u8) -> Result<bool, Failure> {
    Ok(world.purge(Purge::Execution(execution(number))).await?)
}

/// What is left of a dump without the run `r`.
fn without_run(mut dump: Dump) -> Dump {
    dump.heads.retain(|head| head.run_id != id("r"));
    dump.events.retain(|record| record.event.run_id != id("r"));
    for table in [Snapshot::TABLE, crate::tables::Alert::TABLE] {
        retain(&mut dump, table, |values| !values.contains(&Value::Text("r".into())));
    }
    dump
}

/// What is left of a dump without execution 1.
fn without_execution(mut dump: Dump) -> Dump {
    dump.journals.retain(|(of, _)| *of != execution(1));
    for table in [crate::tables::Execution::TABLE, Timer::TABLE, Message::TABLE, Task::TABLE] {
        retain(&mut dump, table, |values| !values.contains(&execution(1).to_value()));
    }
    dump
}

fn retain(dump: &mut Dump, table: &'static Table, wanted: impl Fn(&[Value]) -> bool) {
    if let Some(rows) = dump.rows.get_mut(table.name) {
        rows.retain(|stored| wanted(&stored.row.0));
    }
}

async fn purging_a_run_removes_its_events_its_head_and_its_snapshot(world: &World<'_>) -> Verdict {
    filled(world).await?;
    same("whether there was anything", purge_run(world, "r").await?, true)?;
    same("the events", world.places("r", 0, 9).await?, Vec::new())?;
    same("the head", world.run(&id("r")).await?, None)?;
    same("the snapshot", world.row(Snapshot::TABLE, sample::key_of(&snapshot("r", 1, "{}"))).await?, None)?;
    let listed: Vec<_> = world.runs(None, None, 9).await?.into_iter().map(|head| head.run_id).collect();
    same("the runs", listed, vec![id("s")])
}

async fn purging_a_run_leaves_all_else_as_it_is(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let before = world.dump().await?;
    purge_run(world, "r").await?;
    same("what is stored", world.dump().await?, without_run(before))
}

async fn purging_a_run_leaves_runs_with_similar_names(world: &World<'_>) -> Verdict {
    let similar = ["R", "r1", "r ", " r", "r%", "%", "_", "r_", "r'", "é"];
    for name in similar {
        world.append_event(event(name, 1)).await?;
    }
    for absent in ["r", "e\u{301}", "r__", "%%"] {
        same("whether there was anything", purge_run(world, absent).await?, false)?;
    }
    same("whether there was anything", purge_run(world, "%").await?, true)?;
    same("how many runs are left", world.runs(None, None, 99).await?.len(), similar.len() - 1)
}

async fn purging_a_run_that_is_not_there_says_so(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let before = world.dump().await?;
    same("whether there was anything", purge_run(world, "unknown").await?, false)?;
    same("what is stored", world.dump().await?, before)
}

async fn purging_a_run_twice_says_so(world: &World<'_>) -> Verdict {
    filled(world).await?;
    same("the first time", purge_run(world, "r").await?, true)?;
    same("the second time", purge_run(world, "r").await?, false)
}

async fn a_purged_run_begins_again_at_1(world: &World<'_>) -> Verdict {
    filled(world).await?;
    purge_run(world, "r").await?;
    let answers = world.append_events(events("r", 7, 8)).await?;
    same("the places", answers.iter().map(|it| it.result.run_seq).collect(), vec![seq(1), seq(2)])?;
    same("the log", world.places("r", 0, 9).await?, vec![1, 2])
}

async fn a_purged_run_begins_again_without_positions(world: &World<'_>) -> Verdict {
    filled(world).await?;
    purge_run(world, "r").await?;
    world.append_event(event("r", 1)).await?;
    same("the position", world.head("r").await?.delivered_seq, RunSeq::ZERO)
}

async fn a_purged_run_begins_again_with_the_stamps_of_its_time(world: &World<'_>) -> Verdict {
    world.clock().set(at(50_000));
    filled(world).await?;
    purge_run(world, "r").await?;
    world.clock().set(at(10));
    same("the stamp", world.append_event(event("r", 1)).await?.result.persisted_at, at(10))
}

async fn an_event_of_a_purged_run_is_new_again(world: &World<'_>) -> Verdict {
    filled(world).await?;
    purge_run(world, "r").await?;
    let answer = world.append_event(event("r", 2)).await?.result;
    same("place and persisted", (answer.run_seq, answer.persisted), (seq(1), true))
}

async fn a_snapshot_without_a_run_is_purged_by_its_name(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&snapshot("r", 1, "{}"))).await?;
    same("whether there was anything", purge_run(world, "r").await?, true)?;
    same("the snapshots", world.rows(Scan::all::<Snapshot>()).await?, Vec::new())
}

async fn an_alert_of_a_purged_run_can_be_raised_again(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let again = || Commit::new().insert_or_keep(&alert("once"));
    let kept = world.commit(again()).await?;
    same("whether it is raised twice", kept.changes == [Outcome::Made], false)?;
    purge_run(world, "r").await?;
    same("whether it is raised for the new run", world.commit(again()).await?.changes, vec![Outcome::Made])
}

async fn purging_an_execution_removes_all_that_is_its_own(world: &World<'_>) -> Verdict {
    filled(world).await?;
    same("whether there was anything", purge_execution(world, 1).await?, true)?;
    same("the chunks", world.journal(execution(1), 0, 9).await?, Vec::new())?;
    let row = world.row(crate::tables::Execution::TABLE, sample::key_of(&started(1, None))).await?;
    same("the row", row, None)?;
    same("how many timers are left", world.rows(Scan::all::<Timer>()).await?.len(), 2)?;
    same("how many tasks are left", world.rows(Scan::all::<Task>()).await?.len(), 1)?;
    same("how many messages are left", world.rows(Scan::all::<Message>()).await?.len(), 2)
}

async fn purging_an_execution_leaves_all_else_as_it_is(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let before = world.dump().await?;
    purge_execution(world, 1).await?;
    same("what is stored", world.dump().await?, without_execution(before))
}

async fn purging_an_execution_that_is_not_there_says_so(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let before = world.dump().await?;
    same("whether there was anything", purge_execution(world, 9).await?, false)?;
    same("what is stored", world.dump().await?, before)
}

async fn purging_an_execution_twice_says_so(world: &World<'_>) -> Verdict {
    filled(world).await?;
    same("the first time", purge_execution(world, 1).await?, true)?;
    same("the second time", purge_execution(world, 1).await?, false)
}

async fn a_purged_execution_begins_again_with_event_0(world: &World<'_>) -> Verdict {
    filled(world).await?;
    purge_execution(world, 1).await?;
    let conflict = Conflict::JournalLength { execution: execution(1), expected: 2, found: 0 };
    refused(world.commit(Commit::new().journal(append(1, 2, 1))).await, conflict)?;
    world.commit(Commit::new().journal(append(1, 0, 1)).insert(&started(1, None))).await?;
    same("the chunks", world.journal(execution(1), 0, 9).await?.len(), 1)
}

async fn a_start_key_is_free_again_when_its_execution_is_purged(world: &World<'_>) -> Verdict {
    filled(world).await?;
    purge_execution(world, 1).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&started(3, Some("order-1")))).await?;
    same("the outcome", receipt.changes, vec![Outcome::Made])
}

async fn a_dedup_key_is_free_again_when_its_execution_is_purged(world: &World<'_>) -> Verdict {
    filled(world).await?;
    purge_execution(world, 1).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&message(1, Some("key")))).await?;
    same("the outcome", receipt.changes, vec![Outcome::Made])
}

async fn serials_are_not_repeated_after_a_purge(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let last = |rows: Vec<Stored>| rows.last().map(|stored| stored.row.0[0].clone());
    let before = last(world.rows(Scan::all::<Message>()).await?);
    purge_execution(world, 1).await?;
    purge_execution(world, 2).await?;
    world.commit(Commit::new().insert(&message(3, None))).await?;
    let after = last(world.rows(Scan::all::<Message>()).await?);
    holds(&format!("{after:?} comes after {before:?}"), after > before)
}

async fn an_execution_without_a_journal_is_purged(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&started(1, None))).await?;
    same("whether there was anything", purge_execution(world, 1).await?, true)
}

async fn a_journal_without_an_execution_is_purged(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().journal(append(1, 0, 1))).await?;
    same("whether there was anything", purge_execution(world, 1).await?, true)
}

async fn timers_and_messages_without_an_execution_are_purged(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&timer(1, 1)).insert(&message(2, None))).await?;
    same("whether there was a timer", purge_execution(world, 1).await?, true)?;
    same("whether there was a message", purge_execution(world, 2).await?, true)?;
    same("the timers", world.rows(Scan::all::<Timer>()).await?, Vec::new())?;
    same("the messages", world.rows(Scan::all::<Message>()).await?, Vec::new())
}

async fn the_other_handle_sees_nothing_of_what_is_purged(world: &World<'_>) -> Verdict {
    filled(world).await?;
    let pair = world.pair().await?;
    holds("the other sees the run", pair.other().run(&id("r")).await?.is_some())?;
    purge_run(world, "r").await?;
    same("the head", pair.other().run(&id("r")).await?, None)?;
    same("a place", pair.other().append_event(event("r", 1)).await?.result.run_seq, seq(1))
}
