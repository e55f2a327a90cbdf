//! The doctor finds no problem in the runs of dispatchers, and every inconsistency that a test
//! introduces.

use std::time::Duration;

use onward_base::{Scope, SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunStatus, DeliveryChannel, ItemStatus, JobStatus, SendOutcome,
};
use onward_campaign_dispatch::{CampaignFindingKind, Resolution, examine_runs};
use onward_store::tables::{AudiencePartRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, TableRecord, TableScan};
use tokio::time::sleep;

use crate::world::{POLICY, RecordingProvider, World, accepted, scope};

/// A run with items in every final state. It has not ended, because `d` is in doubt.
async fn mixed_run() -> (World, SharedText) {
    let script = |recipient: &str, _| match recipient {
        "b" => SendOutcome::Refused("no such mailbox".into()),
        "d" => SendOutcome::Unknown("connection lost".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    world
        .campaigns
        .add_suppression(DeliveryChannel::Email, "c@example.org", "unsubscribed")
        .await
        .unwrap();
    let run = world
        .deploy(&["a", "b", "c", "d", "a", "f", "g", "invalid"])
        .await
        .unwrap()
        .run_id;
    world
        .work_until(async |world| {
            world
                .items()
                .await
                .iter()
                .filter(|item| item.settled_at.is_some())
                .count()
                == 6
        })
        .await;
    (world, run)
}

/// Changes one row without the changes to other rows that keep the store consistent.
async fn change_row<R: TableRecord + Send + Sync>(
    world: &World,
    is_selected: impl Fn(&R) -> bool,
    change: impl Fn(&mut R),
) {
    let rows: Vec<(R, u64)> = world
        .store
        .list_records(TableScan::all_rows::<R>())
        .await
        .unwrap();
    let (mut row, version) = rows.into_iter().find(|(row, _)| is_selected(row)).unwrap();
    change(&mut row);
    world
        .store
        .commit(Commit::new().update(&row, version))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dispatched_run_is_consistent_and_its_items_in_doubt_are_reported() {
    let (world, run) = mixed_run().await;
    let findings = world.findings().await;
    assert_eq!(
        findings
            .iter()
            .map(|finding| finding.kind)
            .collect::<Vec<_>>(),
        [CampaignFindingKind::InDoubt],
        "{findings:?}"
    );
    assert!(
        findings[0].run_id == run && findings[0].message.starts_with("1 items are in doubt"),
        "{findings:?}"
    );
    let stats = examine_runs(&*world.store, Some(&scope()), &mut |_| {})
        .await
        .unwrap();
    assert_eq!(
        (stats.runs, stats.items),
        (1, 7),
        "a duplicate recipient has one row"
    );
    let other_tenant = Scope {
        tenant: "other".parse().unwrap(),
        ..scope()
    };
    assert_eq!(
        examine_runs(&*world.store, Some(&other_tenant), &mut |_| {})
            .await
            .unwrap()
            .runs,
        0
    );
    let item = world
        .items()
        .await
        .into_iter()
        .find(|item| item.in_doubt_since.is_some())
        .unwrap();
    world
        .campaigns
        .resolve_item(&item.id, &Resolution::Failed, "ada", "provider log")
        .await
        .unwrap();
    world.work_until_ended(&run).await;
    assert_eq!(world.findings().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_due_run_without_a_worker_is_overdue_and_a_paused_or_waiting_run_is_not() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(world.findings().await, []);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.finding_kinds().await, [CampaignFindingKind::Overdue]);
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    assert_eq!(world.findings().await, []);
    world.campaigns.resume_run(&run, "ada").await.unwrap();
    let later = world.store.now().await.unwrap().plus_ms(3_600_000);
    change_row(&world, |_: &JobRow| true, |job| job.run_after = later).await;
    assert_eq!(
        world.findings().await,
        [],
        "the job waits, for example because the provider throttles"
    );
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(
        world.finding_kinds().await,
        [CampaignFindingKind::Overdue],
        "a cancelled run does not wait for its jobs to become due"
    );
    world.work_until_ended(&run).await;
    assert_eq!(world.findings().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_job_with_an_expired_lease_is_overdue_if_no_worker_takes_it_over() {
    let (world, _) = mixed_run().await;
    let now = world.store.now().await.unwrap();
    let is_settled = |job: &JobRow| job.in_doubt == 0;
    let lock = |job: &mut JobRow| {
        (job.status, job.locked_until, job.run_after) = (JobStatus::Locked, Some(now), now);
    };
    change_row(&world, is_settled, lock).await;
    assert_eq!(world.finding_kinds().await, [CampaignFindingKind::InDoubt]);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(
        world.finding_kinds().await,
        [CampaignFindingKind::Overdue, CampaignFindingKind::InDoubt]
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario or one list of cases, read from top to bottom"
)]
#[tokio::test(start_paused = true)]
async fn inconsistent_rows_are_found() {
    let is_in_doubt = |job: &JobRow| job.in_doubt > 0;
    let is_settled = |job: &JobRow| job.in_doubt == 0;

    let (world, _) = mixed_run().await;
    change_row(&world, is_settled, |job| job.sent -= 1).await;
    assert_eq!(
        world.finding_kinds().await,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::Stuck,
            CampaignFindingKind::InDoubt
        ],
        "a wrong count"
    );

    let (world, _) = mixed_run().await;
    change_row(
        &world,
        |item: &OutboxItemRow| item.recipient_id.contains('f'),
        |item| item.status = ItemStatus::Failed,
    )
    .await;
    assert_eq!(
        world.finding_kinds().await,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::InDoubt
        ],
        "a wrong item status"
    );

    let (world, _) = mixed_run().await;
    let now = world.store.now().await.unwrap();
    let reserve =
        |item: &mut OutboxItemRow| (item.in_doubt_since, item.reserved_since) = (None, Some(now));
    change_row(
        &world,
        |item: &OutboxItemRow| item.in_doubt_since.is_some(),
        reserve,
    )
    .await;
    assert!(
        world.finding_kinds().await.starts_with(&[
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::Stuck
        ]),
        "a reserved item without a lease"
    );

    let (world, _) = mixed_run().await;
    change_row(&world, is_in_doubt, |job| {
        (job.in_doubt, job.failed) = (0, job.failed + 1)
    })
    .await;
    let kinds = world.finding_kinds().await;
    assert_eq!(
        kinds,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::Stuck
        ],
        "a job that waits for an operator without items in doubt"
    );

    let (world, _) = mixed_run().await;
    change_row(
        &world,
        |_: &CampaignRunRow| true,
        |run| run.wake_at = Timestamp::MAX,
    )
    .await;
    assert_eq!(
        world.finding_kinds().await,
        [CampaignFindingKind::Stuck, CampaignFindingKind::InDoubt],
        "a run without a wake-up time"
    );
    change_row(
        &world,
        |_: &CampaignRunRow| true,
        |run| run.status = CampaignRunStatus::Completed,
    )
    .await;
    assert_eq!(
        world.finding_kinds().await,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::InDoubt
        ],
        "an ended run with an open job"
    );

    let (world, run) = mixed_run().await;
    let audience = world.campaigns.read_run(&run).await.unwrap().audience_id;
    for number in 0..2_u32 {
        let part = RowKey(vec![audience.to_value(), number.to_value()]);
        world
            .store
            .commit(Commit::new().delete_if_exists::<AudiencePartRow>(part))
            .await
            .unwrap();
    }
    assert_eq!(
        world.finding_kinds().await,
        [CampaignFindingKind::Missing, CampaignFindingKind::InDoubt],
        "the audience part of an open job"
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_job_and_a_wrong_run_status_are_found() {
    let (world, _) = mixed_run().await;
    let job = world.jobs().await.remove(1);
    world
        .store
        .commit(Commit::new().delete_if_exists::<JobRow>(RowKey(vec![job.id.to_value()])))
        .await
        .unwrap();
    assert_eq!(
        world.finding_kinds().await,
        [CampaignFindingKind::Missing, CampaignFindingKind::InDoubt]
    );

    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let ended = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&ended).await;
    change_row(
        &world,
        |_: &CampaignRunRow| true,
        |run| run.status = CampaignRunStatus::Partial,
    )
    .await;
    assert_eq!(
        world.finding_kinds().await,
        [CampaignFindingKind::Inconsistent]
    );
}
