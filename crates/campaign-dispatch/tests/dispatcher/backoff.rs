//! Retries of deferred and throttled sends: backoff, the retry limit, and retries on request.

use onward_campaign_core::{CampaignRunStatus, ItemReason, JobStatus, SendOutcome};
use onward_campaign_dispatch::{CampaignError, RunActivity};

use crate::world::{POLICY, RecordingProvider, World, accepted, expect};

#[tokio::test(start_paused = true)]
async fn a_deferred_item_is_retried_until_the_maximum_number_of_sends() {
    let script = |recipient: &str, count| match (recipient, count) {
        ("later", 1 | 2) | ("never", _) => SendOutcome::Deferred("busy".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a", "later", "never"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    let expected = [
        ("a", "sent"),
        ("later", "sent"),
        ("never", "failed exhausted"),
    ];
    assert_eq!(world.statuses().await, expect(&expected));
    assert_eq!(world.provider.calls()["never"], 3);
    assert_eq!(world.jobs().await[0].status, JobStatus::Dead);
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Partial);
}

#[tokio::test(start_paused = true)]
async fn throttled_sends_with_a_delay_do_not_count_as_sends() {
    let script = |_: &str, count| {
        if count <= 8 {
            SendOutcome::Throttled("too many".into(), Some(60_000))
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "sent"), ("b", "sent")])
    );
    assert!(
        world.items().await.iter().all(|item| item.sends == 1),
        "throttled sends are not counted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_throttles_without_a_delay_exhausts_the_attempts() {
    let world = World::new(
        RecordingProvider::new(|_, _| SendOutcome::Throttled("too many".into(), None)),
        POLICY,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    assert_eq!(world.statuses().await, expect(&[("a", "failed exhausted")]));
    assert_eq!(world.provider.calls()["a"], POLICY.max_attempts);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_throttles_with_a_delay_of_zero_exhausts_the_attempts() {
    let world = World::new(
        RecordingProvider::new(|_, _| SendOutcome::Throttled("too many".into(), Some(0))),
        POLICY,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    assert_eq!(world.provider.calls()["a"], POLICY.max_attempts);
    let item = &world.items().await[0];
    assert_eq!(
        (item.reason, item.error.as_deref()),
        (Some(ItemReason::Exhausted), Some("too many"))
    );
    assert_eq!(
        world.jobs().await[0].attempts,
        POLICY.max_attempts,
        "a dead job keeps its number of attempts"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_reports_until_when_it_waits_and_a_waiting_job_can_be_redriven() {
    let day = 86_400_000;
    let script = move |_: &str, count| match count {
        1 => SendOutcome::Throttled("daily quota used up".into(), Some(day)),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.provider.calls().contains_key("a"))
        .await;
    let job = world.jobs().await.remove(0);
    assert_eq!((job.status, job.attempts), (JobStatus::Queued, 0));
    let row = world.campaigns.read_run(&run).await.unwrap();
    let waiting = RunActivity::WaitingUntil(job.run_after, Some("daily quota used up".into()));
    assert_eq!(world.campaigns.run_activity(&row).await, Ok(Some(waiting)));
    world.campaigns.redrive_job(&job.id, "ada").await.unwrap();
    assert_eq!(world.campaigns.run_activity(&row).await, Ok(None));
    world.work_until_ended(&run).await;
    assert!(world.store.now().await.unwrap() < job.run_after);
    assert_eq!(
        world.campaigns.redrive_job(&job.id, "ada").await,
        Err(CampaignError::JobNotRedrivable(job.id.to_string()))
    );
}
