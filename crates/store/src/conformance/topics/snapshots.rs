//! What events amount to: as the projector keeps it, and as the log gives it now.

use onward_runs::{RunSnapshot, project};

use super::prelude::*;
use crate::conformance::sample::{snapshot, step};
use crate::tables::Snapshot;
use crate::{Limits, Purge};

super::checks!(Snapshots:
    a_run_that_nobody_projected_has_no_snapshot,
    the_snapshot_that_was_kept_is_the_one_that_is_got,
    a_snapshot_survives_the_way_through_the_store,
    a_projection_is_the_fold_of_the_log_at_every_length,
    a_projection_reads_beyond_the_first_page,
    a_projection_of_an_unknown_run_is_refused,
    an_event_of_an_unknown_type_advances_the_projection,
    snapshot_and_position_move_together,
    a_snapshot_is_not_overwritten_by_one_who_did_not_read_it,
    a_stale_position_keeps_the_snapshot_out,
    text_that_is_no_snapshot_is_damage,
    a_snapshot_goes_with_its_run,
    a_projection_is_made_of_the_log_and_not_of_the_snapshot,
);

/// A run from start to end, with a step that fails, is tried again and succeeds.
fn story() -> Vec<RunEventWrite> {
    let of = |number: u32, kind: &str, step: Option<&str>| {
        sample::keyed(RunEventWrite { event_type: id(kind), step_id: step.map(id), ..event("r", number) })
    };
    vec![
        of(1, "RunQueued", None),
        of(2, "RunStarted", None),
        of(3, "StepStarted", Some("load")),
        of(4, "SomethingNew", None),
        of(5, "StepCompleted", Some("load")),
        of(6, "StepStarted", Some("send")),
        of(7, "StepFailed", Some("send")),
        of(8, "RunFailed", None),
    ]
}

async fn told(world: &World<'_>) -> Result<RunSnapshot, Failure> {
    world.append_events(story()).await?;
    Ok(project(id("r"), &world.log("r").await?))
}

fn kept(snapshot: &RunSnapshot) -> Snapshot {
    let text = serde_json::to_string(snapshot).unwrap_or_default();
    sample::snapshot("r", snapshot.last_event_seq.get(), &text)
}

async fn a_run_that_nobody_projected_has_no_snapshot(world: &World<'_>) -> Verdict {
    told(world).await?;
    same("the snapshot", world.get_snapshot(&id("r")).await?, None)
}

async fn the_snapshot_that_was_kept_is_the_one_that_is_got(world: &World<'_>) -> Verdict {
    let whole = told(world).await?;
    let early = project(id("r"), &world.log("r").await?[..5]);
    world.commit(Commit::new().insert(&kept(&early))).await?;
    same("the first", world.get_snapshot(&id("r")).await?, Some(early))?;
    world.commit(Commit::new().update(&kept(&whole), 1)).await?;
    same("the second", world.get_snapshot(&id("r")).await?, Some(whole))?;
    same("of another run", world.get_snapshot(&id("s")).await?, None)
}

async fn a_snapshot_survives_the_way_through_the_store(world: &World<'_>) -> Verdict {
    let row = Snapshot { holes: Some("[3, 17]".into()), condition: "STALE".into(), ..kept(&told(world).await?) };
    world.commit(Commit::new().insert(&row)).await?;
    same("the row", world.get(sample::key_of(&row)).await?, Some((row, 1)))
}

async fn a_projection_is_the_fold_of_the_log_at_every_length(world: &World<'_>) -> Verdict {
    for event in story() {
        world.append_event(event).await?;
        let fold = project(id("r"), &world.log("r").await?);
        same("the projection", world.project_snapshot(&id("r")).await?, fold)?;
    }
    same("the last place in it", world.project_snapshot(&id("r")).await?.last_event_seq, seq(8))
}

async fn a_projection_reads_beyond_the_first_page(world: &World<'_>) -> Verdict {
    let limits = Limits { page_max: 3, ..Limits::default() };
    let world = world.fresh(Policy { limits, ..Policy::default() }).await?;
    let fold = told(&world).await?;
    same("the projection", world.project_snapshot(&id("r")).await?, fold)
}

async fn a_projection_of_an_unknown_run_is_refused(world: &World<'_>) -> Verdict {
    told(world).await?;
    refused(world.project_snapshot(&id("unknown")).await, Invalid::NoSuchRun(id("unknown")))
}

async fn an_event_of_an_unknown_type_advances_the_projection(world: &World<'_>) -> Verdict {
    world.append_events(story()[..3].to_vec()).await?;
    let before = world.project_snapshot(&id("r")).await?;
    world.append_event(story()[3].clone()).await?;
    let after = world.project_snapshot(&id("r")).await?;
    same("the projection", after, RunSnapshot { last_event_seq: seq(4), ..before })
}

async fn snapshot_and_position_move_together(world: &World<'_>) -> Verdict {
    let whole = told(world).await?;
    let advance = step("r", Reader::Projector, 0, 8);
    world.commit(Commit::new().insert(&kept(&whole)).advance(advance)).await?;
    same("the snapshot", world.get_snapshot(&id("r")).await?, Some(whole))?;
    same("the position", world.head("r").await?.projected_seq, seq(8))
}

async fn a_snapshot_is_not_overwritten_by_one_who_did_not_read_it(world: &World<'_>) -> Verdict {
    let whole = told(world).await?;
    let stale = kept(&RunSnapshot { last_event_seq: seq(2), ..whole.clone() });
    world.commit(Commit::new().insert(&stale)).await?;
    world.commit(Commit::new().update(&kept(&whole), 1)).await?;
    let late = Commit::new().update(&stale, 1).advance(step("r", Reader::Projector, 0, 2));
    let table = Snapshot::TABLE.name;
    let key = sample::key_of(&stale);
    refused(world.commit(late).await, Conflict::RowVersion { table, key, expected: 1, found: 2 })?;
    same("the snapshot", world.get_snapshot(&id("r")).await?, Some(whole))?;
    same("the position", world.head("r").await?.projected_seq, RunSeq::ZERO)
}

async fn a_stale_position_keeps_the_snapshot_out(world: &World<'_>) -> Verdict {
    let whole = told(world).await?;
    world.commit(Commit::new().advance(step("r", Reader::Projector, 0, 5))).await?;
    let late = Commit::new().insert(&kept(&whole)).advance(step("r", Reader::Projector, 0, 8));
    let reader = Reader::Projector;
    let conflict = Conflict::Position { run: id("r"), reader, expected: RunSeq::ZERO, found: seq(5) };
    refused(world.commit(late).await, conflict)?;
    same("the snapshot", world.get_snapshot(&id("r")).await?, None)
}

async fn text_that_is_no_snapshot_is_damage(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&snapshot("r", 1, "{}"))).await?;
    let kind = world.get_snapshot(&id("r")).await.map_err(|error| error.kind());
    same("the kind of the error", kind, Err(Kind::Corrupt))
}

async fn a_snapshot_goes_with_its_run(world: &World<'_>) -> Verdict {
    let whole = told(world).await?;
    world.commit(Commit::new().insert(&kept(&whole)).insert(&snapshot("s", 1, "{}"))).await?;
    world.purge(Purge::Run(id("r"))).await?;
    same("the snapshot", world.get_snapshot(&id("r")).await?, None)?;
    let left: Vec<(Snapshot, u64)> = world.list(Scan::all::<Snapshot>()).await?;
    same("what is left", left, vec![(snapshot("s", 1, "{}"), 1)])
}

async fn a_projection_is_made_of_the_log_and_not_of_the_snapshot(world: &World<'_>) -> Verdict {
    let whole = told(world).await?;
    let wrong = RunSnapshot { failed_steps: 99, ..whole.clone() };
    world.commit(Commit::new().insert(&kept(&wrong))).await?;
    same("the projection", world.project_snapshot(&id("r")).await?, whole)
}
