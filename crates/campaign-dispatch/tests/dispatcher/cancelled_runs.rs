//! Paused and cancelled runs: which items are skipped, and what is not sent again.

use onward_campaign_core::{CampaignRunStatus, DispatchPolicy, JobStatus, SendOutcome};
use onward_campaign_dispatch::{CampaignDeployment, CampaignError, Resolution};

use crate::world::{POLICY, RecordingProvider, World, accepted, deployment, expect};

#[tokio::test(start_paused = true)]
async fn an_item_in_doubt_of_a_cancelled_run_cannot_be_retried() {
    let world = World::new(
        RecordingProvider::new(|_, _| SendOutcome::Unknown("connection lost".into())),
        POLICY,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.item_counts(&run).await.in_doubt == 1)
        .await;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    let item = world.campaigns.list_in_doubt(None, 1).await.unwrap().0[0]
        .id
        .clone();
    let again = world
        .campaigns
        .resolve_item(&item, &Resolution::Retry, "ada", "provider log")
        .await;
    assert_eq!(again, Err(CampaignError::RunCancelled(run.to_string())));
    world
        .campaigns
        .resolve_item(&item, &Resolution::Failed, "ada", "provider log")
        .await
        .unwrap();
    world.work_until_ended(&run).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_starts_no_sends_and_a_cancelled_run_skips_its_open_items() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let dispatching = tokio::spawn(world.dispatcher().run(stopped));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(world.provider.calls().is_empty());
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_ended(&run).await;
    assert!(world.provider.calls().is_empty());
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "skipped cancelled"), ("b", "skipped cancelled")])
    );
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Failed);
    assert_eq!(
        world.campaigns.resume_run(&run, "ada").await,
        Err(CampaignError::RunFinished(run.to_string()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_scheduled_for_later_can_be_cancelled_before() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let later = world
        .store
        .now()
        .await
        .unwrap()
        .plus_ms(10 * 365 * 86_400_000);
    let run = world
        .deploy_as(
            CampaignDeployment {
                scheduled_for: Some(later),
                ..deployment(None)
            },
            &["a"],
        )
        .await
        .unwrap()
        .run_id;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_ended(&run).await;
    assert!(world.provider.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_cancelled_run_is_not_redriven() {
    let world = World::new(
        RecordingProvider::new(|_, _| SendOutcome::Deferred("busy".into())),
        POLICY,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.jobs().await[0].status == JobStatus::Dead)
        .await;
    let job = world.jobs().await[0].id.clone();
    let second = world
        .deploy(&["b", "c", "d", "e", "f"])
        .await
        .unwrap()
        .run_id;
    world.campaigns.cancel_run(&second, "ada").await.unwrap();
    world.work_until_ended(&second).await;
    assert_eq!(
        world.campaigns.resume_run(&second, "ada").await,
        Err(CampaignError::RunFinished(second.to_string()))
    );
    world.campaigns.redrive_job(&job, "ada").await.unwrap();
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_ended(&run).await;
    assert_eq!(
        world.provider.calls()["a"],
        3,
        "the cancelled run sends nothing more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_looks_up_items_in_doubt_and_sends_nothing() {
    for (has_lookup, is_idempotent) in [(true, false), (true, true), (false, true)] {
        let mut provider =
            RecordingProvider::new(|_, _| SendOutcome::Unknown("connection lost".into()));
        provider.capabilities.status_lookup = has_lookup;
        let policy = DispatchPolicy {
            resend_in_doubt: is_idempotent,
            lookup_after_ms: has_lookup.then_some(60_000),
            max_sends: 50,
            ..POLICY
        };
        let world = World::new(provider, policy);
        let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
        world
            .work_until(async |world| world.item_counts(&run).await.in_doubt == 2)
            .await;
        world.campaigns.cancel_run(&run, "ada").await.unwrap();
        let calls: u32 = world.provider.calls().values().sum();
        if has_lookup {
            world.work_until_ended(&run).await;
            assert_eq!(
                world.item_counts(&run).await.skipped,
                2,
                "the provider has no record of them"
            );
        } else {
            let start = world.store.now().await.unwrap();
            world
                .work_until(async |world| world.store.now().await.unwrap() > start.plus_ms(600_000))
                .await;
            assert_eq!(world.item_counts(&run).await.in_doubt, 2);
        }
        assert!(
            world.provider.calls().values().sum::<u32>() <= calls + 2,
            "only the sends in progress are finished"
        );
        assert!(
            world.events(&run).await.len() < 60,
            "{:?}",
            world.events(&run).await
        );
    }
}
