//! Checks of snapshots: as the projector stores them, and as computed from the current log.

use onward_runs::{RunSnapshot, project_run};

use super::prelude::*;
use crate::conformance::fixtures::{current_snapshot_row, reader_advance};
use crate::tables::{RunSnapshotRow, SnapshotCondition};
use crate::{PurgeTarget, StoreLimits};

super::checks!(Snapshots:
    an_unprojected_run_has_no_snapshot,
    get_snapshot_returns_the_stored_snapshot,
    a_snapshot_is_stored_unchanged,
    a_projection_equals_the_reduced_log_at_every_length,
    a_projection_reads_beyond_the_first_page,
    a_projection_of_an_unknown_run_is_rejected,
    an_event_of_an_unknown_type_advances_the_projection,
    a_snapshot_and_its_reader_position_are_stored_atomically,
    a_snapshot_write_with_an_old_version_is_rejected,
    a_stale_reader_position_rejects_the_snapshot,
    an_unreadable_snapshot_is_corrupt,
    a_snapshot_is_purged_with_its_run,
    a_projection_reads_the_log_and_not_the_snapshot,
);

/// A run from start to end, with a step that fails, is retried and succeeds.
fn sample_run_events() -> Vec<RunEventWrite> {
    let of = |number: u32, kind: &str, step: Option<&str>| {
        fixtures::with_computed_key(RunEventWrite {
            event_type: parse_id(kind),
            step_id: step.map(parse_id),
            ..step_event("r", number)
        })
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

async fn append_and_project(world: &CheckContext<'_>) -> Result<RunSnapshot, ConformanceFailure> {
    world.append_events(sample_run_events()).await?;
    Ok(project_run(parse_id("r"), &world.read_log("r").await?))
}

fn to_snapshot_row(snapshot: &RunSnapshot) -> RunSnapshotRow {
    let text = serde_json::to_string(snapshot).unwrap_or_default();
    fixtures::current_snapshot_row("r", snapshot.last_event_seq.as_u64(), &text)
}

async fn an_unprojected_run_has_no_snapshot(world: &CheckContext<'_>) -> CheckResult {
    append_and_project(world).await?;
    expect_same(
        "the snapshot",
        world.get_snapshot(&parse_id("r")).await?,
        None,
    )
}

async fn get_snapshot_returns_the_stored_snapshot(world: &CheckContext<'_>) -> CheckResult {
    let whole = append_and_project(world).await?;
    let early = project_run(parse_id("r"), &world.read_log("r").await?[..5]);
    world
        .commit(Commit::new().insert(&to_snapshot_row(&early)))
        .await?;
    expect_same(
        "the first result",
        world.get_snapshot(&parse_id("r")).await?,
        Some(early),
    )?;
    world
        .commit(Commit::new().update(&to_snapshot_row(&whole), 1))
        .await?;
    expect_same(
        "the second result",
        world.get_snapshot(&parse_id("r")).await?,
        Some(whole),
    )?;
    expect_same(
        "the snapshot of another run",
        world.get_snapshot(&parse_id("s")).await?,
        None,
    )
}

async fn a_snapshot_is_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let row = RunSnapshotRow {
        holes: Some("[3, 17]".into()),
        condition: SnapshotCondition::Stale,
        ..to_snapshot_row(&append_and_project(world).await?)
    };
    world.commit(Commit::new().insert(&row)).await?;
    expect_same(
        "the row",
        world.read_record(fixtures::record_key(&row)).await?,
        Some((row, 1)),
    )
}

async fn a_projection_equals_the_reduced_log_at_every_length(
    world: &CheckContext<'_>,
) -> CheckResult {
    for event in sample_run_events() {
        world.append_event(event).await?;
        let fold = project_run(parse_id("r"), &world.read_log("r").await?);
        expect_same(
            "the projection",
            world.project_snapshot(&parse_id("r")).await?,
            fold,
        )?;
    }
    expect_same(
        "its last sequence",
        world.project_snapshot(&parse_id("r")).await?.last_event_seq,
        run_sequence(8),
    )
}

async fn a_projection_reads_beyond_the_first_page(world: &CheckContext<'_>) -> CheckResult {
    let limits = StoreLimits {
        page_max: 3,
        ..StoreLimits::default()
    };
    let world = world
        .open_another(StorePolicy {
            limits,
            ..StorePolicy::default()
        })
        .await?;
    let fold = append_and_project(&world).await?;
    expect_same(
        "the projection",
        world.project_snapshot(&parse_id("r")).await?,
        fold,
    )
}

async fn a_projection_of_an_unknown_run_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    append_and_project(world).await?;
    expect_refused(
        world.project_snapshot(&parse_id("unknown")).await,
        InvalidRequest::NoSuchRun(parse_id("unknown")),
    )
}

async fn an_event_of_an_unknown_type_advances_the_projection(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .append_events(sample_run_events()[..3].to_vec())
        .await?;
    let before = world.project_snapshot(&parse_id("r")).await?;
    world.append_event(sample_run_events()[3].clone()).await?;
    let after = world.project_snapshot(&parse_id("r")).await?;
    expect_same(
        "the projection",
        after,
        RunSnapshot {
            last_event_seq: run_sequence(4),
            ..before
        },
    )
}

async fn a_snapshot_and_its_reader_position_are_stored_atomically(
    world: &CheckContext<'_>,
) -> CheckResult {
    let whole = append_and_project(world).await?;
    let advance = reader_advance("r", RunEventReader::Projector, 0, 8);
    world
        .commit(
            Commit::new()
                .insert(&to_snapshot_row(&whole))
                .advance_reader(advance),
        )
        .await?;
    expect_same(
        "the snapshot",
        world.get_snapshot(&parse_id("r")).await?,
        Some(whole),
    )?;
    expect_same(
        "the position",
        world.expect_head("r").await?.projected_seq,
        run_sequence(8),
    )
}

async fn a_snapshot_write_with_an_old_version_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    let whole = append_and_project(world).await?;
    let stale = to_snapshot_row(&RunSnapshot {
        last_event_seq: run_sequence(2),
        ..whole.clone()
    });
    world.commit(Commit::new().insert(&stale)).await?;
    world
        .commit(Commit::new().update(&to_snapshot_row(&whole), 1))
        .await?;
    let late = Commit::new()
        .update(&stale, 1)
        .advance_reader(reader_advance("r", RunEventReader::Projector, 0, 2));
    let table = RunSnapshotRow::TABLE.name;
    let key = fixtures::record_key(&stale);
    expect_refused(
        world.commit(late).await,
        CommitConflict::RowVersion {
            table,
            key,
            expected: 1,
            found: 2,
        },
    )?;
    expect_same(
        "the snapshot",
        world.get_snapshot(&parse_id("r")).await?,
        Some(whole),
    )?;
    expect_same(
        "the position",
        world.expect_head("r").await?.projected_seq,
        RunSeq::ZERO,
    )
}

async fn a_stale_reader_position_rejects_the_snapshot(world: &CheckContext<'_>) -> CheckResult {
    let whole = append_and_project(world).await?;
    world
        .commit(Commit::new().advance_reader(reader_advance("r", RunEventReader::Projector, 0, 5)))
        .await?;
    let late = Commit::new()
        .insert(&to_snapshot_row(&whole))
        .advance_reader(reader_advance("r", RunEventReader::Projector, 0, 8));
    let reader = RunEventReader::Projector;
    let conflict = CommitConflict::ReaderPosition {
        run: parse_id("r"),
        reader,
        expected: RunSeq::ZERO,
        found: run_sequence(5),
    };
    expect_refused(world.commit(late).await, conflict)?;
    expect_same(
        "the snapshot",
        world.get_snapshot(&parse_id("r")).await?,
        None,
    )
}

async fn an_unreadable_snapshot_is_corrupt(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&current_snapshot_row("r", 1, "{}")))
        .await?;
    let kind = world
        .get_snapshot(&parse_id("r"))
        .await
        .map_err(|error| error.kind());
    expect_same("the kind of the error", kind, Err(StoreErrorKind::Corrupt))
}

async fn a_snapshot_is_purged_with_its_run(world: &CheckContext<'_>) -> CheckResult {
    let whole = append_and_project(world).await?;
    world
        .commit(
            Commit::new()
                .insert(&to_snapshot_row(&whole))
                .insert(&current_snapshot_row("s", 1, "{}")),
        )
        .await?;
    world.purge(PurgeTarget::Run(parse_id("r"))).await?;
    expect_same(
        "the snapshot",
        world.get_snapshot(&parse_id("r")).await?,
        None,
    )?;
    let left: Vec<(RunSnapshotRow, u64)> = world
        .list_records(TableScan::all_rows::<RunSnapshotRow>())
        .await?;
    expect_same(
        "the remaining data",
        left,
        vec![(current_snapshot_row("s", 1, "{}"), 1)],
    )
}

async fn a_projection_reads_the_log_and_not_the_snapshot(world: &CheckContext<'_>) -> CheckResult {
    let whole = append_and_project(world).await?;
    let wrong = RunSnapshot {
        failed_steps: 99,
        ..whole.clone()
    };
    world
        .commit(Commit::new().insert(&to_snapshot_row(&wrong)))
        .await?;
    expect_same(
        "the projection",
        world.project_snapshot(&parse_id("r")).await?,
        whole,
    )
}
