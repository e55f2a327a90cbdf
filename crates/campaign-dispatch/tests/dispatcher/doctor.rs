//! What a doctor finds in campaign runs: nothing in those that dispatchers made, and everything
//! that was broken by hand.

use std::time::Duration;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{CampaignFindingKind, CampaignScope, examine_runs};
use onward_store::tables::{AudiencePartRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, TableRecord, TableScan};
use tokio::time::sleep;

use crate::world::{Counting, TERMS, World, accepted, scope};

/// A run in which everything can be that a run can have, and which is not over: `d` is in doubt.
async fn mixed() -> (World, SharedText) {
    let script = |who: &str, _| match who {
        "b" => SendOutcome::Refused("no such mailbox".into()),
        "d" => SendOutcome::Unknown("it broke off".into()),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    world
        .campaigns
        .add_suppression("email", "c@example.org", "asked for")
        .await
        .unwrap();
    let run = world
        .deploy(&["a", "b", "c", "d", "a", "f", "g", "unfit"])
        .await
        .unwrap()
        .run_id;
    world
        .work_until(async |world| {
            world
                .items()
                .await
                .iter()
                .filter(|it| it.settled_at.is_some())
                .count()
                == 6
        })
        .await;
    (world, run)
}

/// A row that is changed by hand, behind the backs of those who keep the others in step with it.
async fn tamper<R: TableRecord + Send + Sync>(
    world: &World,
    is_it: impl Fn(&R) -> bool,
    change: impl Fn(&mut R),
) {
    let rows: Vec<(R, u64)> = world
        .store
        .list_records(TableScan::all_rows::<R>())
        .await
        .unwrap();
    let (mut row, version) = rows.into_iter().find(|(row, _)| is_it(row)).unwrap();
    change(&mut row);
    world
        .store
        .commit(Commit::new().update(&row, version))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_dispatchers_make_is_sound_and_what_is_in_doubt_needs_somebody() {
    let (world, run) = mixed().await;
    let found = world.found().await;
    assert_eq!(
        found.iter().map(|flaw| flaw.kind).collect::<Vec<_>>(),
        [CampaignFindingKind::InDoubt],
        "{found:?}"
    );
    assert!(
        found[0].run_id == run && found[0].message.starts_with("1 items are in doubt"),
        "{found:?}"
    );
    let looked = examine_runs(&*world.store, Some(&scope()), &mut |_| {})
        .await
        .unwrap();
    assert_eq!(
        (looked.runs, looked.items),
        (1, 7),
        "whoever is named twice has one row"
    );
    let others = CampaignScope {
        tenant: "other".into(),
        ..scope()
    };
    assert_eq!(
        examine_runs(&*world.store, Some(&others), &mut |_| {})
            .await
            .unwrap()
            .runs,
        0
    );
    let item = world
        .items()
        .await
        .into_iter()
        .find(|item| item.doubt_since.is_some())
        .unwrap();
    world
        .campaigns
        .resolve_item(
            &item.id,
            &onward_campaign_dispatch::Resolution::Failed,
            "ada",
            "its log",
        )
        .await
        .unwrap();
    world.work_until_over(&run).await;
    assert_eq!(world.found().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_works_on_is_late_and_one_that_is_paused_or_waits_is_not() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(world.found().await, []);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.ailments().await, [CampaignFindingKind::Overdue]);
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    assert_eq!(world.found().await, []);
    world.campaigns.resume_run(&run, "ada").await.unwrap();
    let later = world.store.now().await.unwrap().plus_ms(3_600_000);
    tamper(&world, |_: &JobRow| true, |job| job.run_after = later).await;
    assert_eq!(
        world.found().await,
        [],
        "the provider wants to be left alone, say"
    );
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(
        world.ailments().await,
        [CampaignFindingKind::Overdue],
        "one that is cancelled waits for nothing"
    );
    world.work_until_over(&run).await;
    assert_eq!(world.found().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_worker_is_gone_is_late_when_nobody_takes_it_over() {
    let (world, _) = mixed().await;
    let now = world.store.now().await.unwrap();
    let is_settled = |job: &JobRow| job.in_doubt == 0;
    let hold = |job: &mut JobRow| {
        (job.status, job.locked_until, job.run_after) = ("locked".into(), Some(now), now);
    };
    tamper(&world, is_settled, hold).await;
    assert_eq!(world.ailments().await, [CampaignFindingKind::InDoubt]);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(
        world.ailments().await,
        [CampaignFindingKind::Overdue, CampaignFindingKind::InDoubt]
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[tokio::test(start_paused = true)]
async fn what_was_broken_by_hand_is_found() {
    let is_in_doubt = |job: &JobRow| job.in_doubt > 0;
    let is_settled = |job: &JobRow| job.in_doubt == 0;

    let (world, _) = mixed().await;
    tamper(&world, is_settled, |job| job.served -= 1).await;
    assert_eq!(
        world.ailments().await,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::Stuck,
            CampaignFindingKind::InDoubt
        ],
        "a count"
    );

    let (world, _) = mixed().await;
    tamper(
        &world,
        |it: &OutboxItemRow| it.recipient_id.contains('f'),
        |item| item.status = "failed".into(),
    )
    .await;
    assert_eq!(
        world.ailments().await,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::InDoubt
        ],
        "an item"
    );

    let (world, _) = mixed().await;
    let since = world.store.now().await.unwrap();
    let hold = |item: &mut OutboxItemRow| (item.doubt_since, item.held_since) = (None, Some(since));
    tamper(&world, |it: &OutboxItemRow| it.doubt_since.is_some(), hold).await;
    assert!(
        world.ailments().await.starts_with(&[
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::Stuck
        ]),
        "a held item of no worker"
    );

    let (world, _) = mixed().await;
    tamper(&world, is_in_doubt, |job| {
        (job.in_doubt, job.failed) = (0, job.failed + 1)
    })
    .await;
    let ailments = world.ailments().await;
    assert_eq!(
        ailments,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::Stuck
        ],
        "a job that waits for a verdict on nothing"
    );

    let (world, _) = mixed().await;
    tamper(
        &world,
        |_: &CampaignRunRow| true,
        |run| run.wake_at = Timestamp::MAX,
    )
    .await;
    assert_eq!(
        world.ailments().await,
        [CampaignFindingKind::Stuck, CampaignFindingKind::InDoubt],
        "a run that nobody wakes"
    );
    tamper(
        &world,
        |_: &CampaignRunRow| true,
        |run| run.status = "completed".into(),
    )
    .await;
    assert_eq!(
        world.ailments().await,
        [
            CampaignFindingKind::Inconsistent,
            CampaignFindingKind::InDoubt
        ],
        "a run that is over with an open job"
    );

    let (world, run) = mixed().await;
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
        world.ailments().await,
        [CampaignFindingKind::Missing, CampaignFindingKind::InDoubt],
        "those whom a job is still to reach"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_without_one_of_its_jobs_is_found_and_so_is_one_that_says_something_else() {
    let (world, _) = mixed().await;
    let job = world.jobs().await.remove(1);
    world
        .store
        .commit(Commit::new().delete_if_exists::<JobRow>(RowKey(vec![job.id.to_value()])))
        .await
        .unwrap();
    assert_eq!(
        world.ailments().await,
        [CampaignFindingKind::Missing, CampaignFindingKind::InDoubt]
    );

    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let ended = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&ended).await;
    tamper(
        &world,
        |_: &CampaignRunRow| true,
        |run| run.status = "partial".into(),
    )
    .await;
    assert_eq!(world.ailments().await, [CampaignFindingKind::Inconsistent]);
}
