//! Paused and cancelled runs: which items are skipped, and what is not sent again.

use onward_campaign_core::{DispatchPolicy, SendOutcome};
use onward_campaign_dispatch::{CampaignDeployment, CampaignError, Resolution};

use crate::world::{Counting, TERMS, World, accepted, deployment, expect};

#[tokio::test(start_paused = true)]
async fn whoever_is_in_doubt_in_a_cancelled_run_is_not_sent_again_by_it() {
    let world = World::new(
        Counting::new(|_, _| SendOutcome::Unknown("cut off".into())),
        TERMS,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| {
            world
                .campaigns
                .count_run_items(&run)
                .await
                .unwrap()
                .in_doubt
                == 1
        })
        .await;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    let item = world.campaigns.list_in_doubt(None, 1).await.unwrap().0[0]
        .id
        .clone();
    let again = world
        .campaigns
        .resolve_item(&item, &Resolution::Retry, "ada", "their log")
        .await;
    assert_eq!(again, Err(CampaignError::RunCancelled(run.to_string())));
    world
        .campaigns
        .resolve_item(&item, &Resolution::Failed, "ada", "their log")
        .await
        .unwrap();
    world.work_until_over(&run).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_begins_nothing_and_a_cancelled_one_skips_the_rest() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let working = tokio::spawn(world.dispatcher().run(stopped));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(world.provider.calls().is_empty());
    stop.send_replace(true);
    working.await.unwrap().unwrap();
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_over(&run).await;
    assert!(world.provider.calls().is_empty());
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "skipped cancelled"), ("b", "skipped cancelled")])
    );
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "failed"
    );
    assert_eq!(
        world.campaigns.resume_run(&run, "ada").await,
        Err(CampaignError::RunFinished(run.to_string()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_scheduled_for_later_can_be_cancelled_now() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
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
    world.work_until_over(&run).await;
    assert!(world.provider.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_cancelled_run_is_not_redriven() {
    let world = World::new(
        Counting::new(|_, _| SendOutcome::Deferred("busy".into())),
        TERMS,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| &*world.jobs().await[0].status == "dead")
        .await;
    let job = world.jobs().await[0].id.clone();
    let second = world
        .deploy(&["b", "c", "d", "e", "f"])
        .await
        .unwrap()
        .run_id;
    world.campaigns.cancel_run(&second, "ada").await.unwrap();
    world.work_until_over(&second).await;
    assert_eq!(
        world.campaigns.resume_run(&second, "ada").await,
        Err(CampaignError::RunFinished(second.to_string()))
    );
    world.campaigns.redrive_job(&job, "ada").await.unwrap();
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_over(&run).await;
    assert_eq!(
        world.provider.calls()["a"],
        3,
        "nobody was called after that"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_asks_what_became_of_things_and_calls_nobody_again() {
    for (can_look, repeats) in [(true, false), (true, true), (false, true)] {
        let mut provider = Counting::new(|_, _| SendOutcome::Unknown("cut off".into()));
        provider.nature.status_lookup = can_look;
        let terms = DispatchPolicy {
            resend_in_doubt: repeats,
            lookup_after_ms: can_look.then_some(60_000),
            max_sends: 50,
            ..TERMS
        };
        let world = World::new(provider, terms);
        let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
        world
            .work_until(async |world| {
                world
                    .campaigns
                    .count_run_items(&run)
                    .await
                    .unwrap()
                    .in_doubt
                    == 2
            })
            .await;
        world.campaigns.cancel_run(&run, "ada").await.unwrap();
        let calls: u32 = world.provider.calls().values().sum();
        if can_look {
            world.work_until_over(&run).await;
            assert_eq!(
                world.campaigns.count_run_items(&run).await.unwrap().skipped,
                2,
                "the provider knows nothing of them"
            );
        } else {
            let since = world.store.now().await.unwrap();
            world
                .work_until(async |world| world.store.now().await.unwrap() > since.plus_ms(600_000))
                .await;
            assert_eq!(
                world
                    .campaigns
                    .count_run_items(&run)
                    .await
                    .unwrap()
                    .in_doubt,
                2
            );
        }
        assert!(
            world.provider.calls().values().sum::<u32>() <= calls + 2,
            "what was under way, and no more"
        );
        assert!(
            world.events(&run).await.len() < 60,
            "{:?}",
            world.events(&run).await
        );
    }
}
