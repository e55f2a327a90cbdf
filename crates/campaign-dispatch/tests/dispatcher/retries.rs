//! Trying a campaign again: another run, and nobody is reached by both.

use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{CampaignError, EntropySource};

use crate::world::{Counting, TERMS, World, accepted};

#[tokio::test(start_paused = true)]
async fn a_retried_campaign_reaches_those_who_were_not_reached_and_is_linked() {
    let script = |who: &str, count| match (who, count) {
        ("b", 1) => SendOutcome::Refused("mailbox full".into()),
        ("g", 1..=3) => SendOutcome::Deferred("busy".into()),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world
        .deploy(&["a", "b", "c", "d", "a", "f", "g"])
        .await
        .unwrap()
        .run_id;
    let entropy = EntropySource::default();
    assert_eq!(
        world.campaigns.retry_run(&run, "ada", &entropy).await,
        Err(CampaignError::RunNotFinished(run.to_string()))
    );
    world.work_until_over(&run).await;
    let again = world
        .campaigns
        .retry_run(&run, "ada", &entropy)
        .await
        .unwrap();
    assert_eq!((again.items, again.already_existed), (2, false));
    world.work_until_over(&again.run_id).await;
    let calls = world.provider.calls();
    assert_eq!(
        (calls["a"], calls["b"], calls["f"], calls["g"]),
        (1, 2, 1, 4)
    );
    let linked = world.campaigns.read_run(&again.run_id).await.unwrap();
    assert_eq!(
        (linked.retry_of.as_ref(), &*linked.status),
        (Some(&run), "completed")
    );
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "partial",
        "it is what it came to"
    );
}

#[tokio::test(start_paused = true)]
async fn a_campaign_is_retried_once_and_what_is_retried_is_not_redriven() {
    let world = World::new(
        Counting::new(|_, count| {
            if count <= 3 {
                SendOutcome::Deferred("busy".into())
            } else {
                accepted()
            }
        }),
        TERMS,
    );
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    let entropy = EntropySource::default();
    let again = world
        .campaigns
        .retry_run(&run, "ada", &entropy)
        .await
        .unwrap();
    let twice = world
        .campaigns
        .retry_run(&run, "bob", &entropy)
        .await
        .unwrap();
    assert_eq!(
        (&twice.run_id, twice.already_existed),
        (&again.run_id, true)
    );
    let job = world
        .jobs()
        .await
        .into_iter()
        .find(|job| job.run_id == run)
        .unwrap();
    let refused = Err(CampaignError::AlreadyRetried(
        run.to_string(),
        again.run_id.to_string(),
    ));
    assert_eq!(world.campaigns.redrive_job(&job.id, "ada").await, refused);
    world.work_until_over(&again.run_id).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 4),
        "three of the first run, one of the second"
    );
    let nobody = world
        .campaigns
        .retry_run(&again.run_id, "ada", &entropy)
        .await;
    assert_eq!(
        nobody,
        Err(CampaignError::NothingToRetry),
        "everybody has it by now"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_a_cancelled_run_left_out_is_reached_by_its_retry() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world.deploy(&["a", "b", "c"]).await.unwrap().run_id;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_over(&run).await;
    assert!(world.provider.calls().is_empty());
    let again = world
        .campaigns
        .retry_run(&run, "ada", &EntropySource::default())
        .await
        .unwrap();
    world.work_until_over(&again.run_id).await;
    assert_eq!(world.provider.calls().len(), 3);
}
