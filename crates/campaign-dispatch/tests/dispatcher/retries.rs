//! Retries of campaign runs: a new run for the recipients that were not reached, and no recipient
//! is sent to by both.

use onward_campaign_core::{CampaignRunStatus, SendOutcome};
use onward_campaign_dispatch::{CampaignError, EntropySource};

use crate::world::{POLICY, RecordingProvider, World, accepted};

#[tokio::test(start_paused = true)]
async fn a_retry_run_sends_to_the_unreached_recipients_and_refers_to_the_retried_run() {
    let script = |recipient: &str, count| match (recipient, count) {
        ("b", 1) => SendOutcome::Refused("mailbox full".into()),
        ("g", 1..=3) => SendOutcome::Deferred("busy".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
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
    world.work_until_ended(&run).await;
    let again = world
        .campaigns
        .retry_run(&run, "ada", &entropy)
        .await
        .unwrap();
    assert_eq!((again.items, again.already_existed), (2, false));
    world.work_until_ended(&again.run_id).await;
    let calls = world.provider.calls();
    assert_eq!(
        (calls["a"], calls["b"], calls["f"], calls["g"]),
        (1, 2, 1, 4)
    );
    let retry_run = world.campaigns.read_run(&again.run_id).await.unwrap();
    assert_eq!(
        (retry_run.retry_of.as_ref(), retry_run.status),
        (Some(&run), CampaignRunStatus::Completed)
    );
    assert_eq!(
        world.run_status(&run).await,
        CampaignRunStatus::Partial,
        "the status of the retried run does not change"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_is_retried_once_and_its_jobs_are_not_redriven_afterwards() {
    let world = World::new(
        RecordingProvider::new(|_, count| {
            if count <= 3 {
                SendOutcome::Deferred("busy".into())
            } else {
                accepted()
            }
        }),
        POLICY,
    );
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
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
    let expected = Err(CampaignError::AlreadyRetried(
        run.to_string(),
        again.run_id.to_string(),
    ));
    assert_eq!(world.campaigns.redrive_job(&job.id, "ada").await, expected);
    world.work_until_ended(&again.run_id).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 4),
        "three sends of the first run, one of the second"
    );
    let result = world
        .campaigns
        .retry_run(&again.run_id, "ada", &entropy)
        .await;
    assert_eq!(
        result,
        Err(CampaignError::NothingToRetry),
        "all recipients were reached"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_sends_to_the_recipients_that_a_cancelled_run_skipped() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world.deploy(&["a", "b", "c"]).await.unwrap().run_id;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_ended(&run).await;
    assert!(world.provider.calls().is_empty());
    let again = world
        .campaigns
        .retry_run(&run, "ada", &EntropySource::default())
        .await
        .unwrap();
    world.work_until_ended(&again.run_id).await;
    assert_eq!(world.provider.calls().len(), 3);
}
