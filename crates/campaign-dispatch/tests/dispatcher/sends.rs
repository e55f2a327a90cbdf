//! Sending: which recipients the dispatcher sends to, how often, and the counts that a run reports.

use onward_campaign_core::{CampaignRunStatus, DeliveryChannel, JobStatus, SendOutcome};
use onward_campaign_dispatch::CampaignError;

use crate::world::{POLICY, RecordingProvider, World, accepted, expect};

#[tokio::test(start_paused = true)]
async fn every_recipient_is_sent_to_once_and_the_run_completes() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world
        .deploy(&["a", "b", "c", "d", "e", "f"])
        .await
        .unwrap()
        .run_id;
    world.work_until_ended(&run).await;
    assert!(world.provider.calls().values().all(|count| *count == 1));
    assert_eq!(world.provider.calls().len(), 6);
    assert!(
        world
            .statuses()
            .await
            .values()
            .all(|status| status == "sent")
    );
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
    assert_eq!(
        world.events(&run).await,
        [
            "run.deployed",
            "run.began",
            "job.completed",
            "job.completed",
            "run.ended"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_recipient_is_sent_to_once() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world
        .deploy(&["a", "a", "b", "c", "d", "a"])
        .await
        .unwrap()
        .run_id;
    world.work_until_ended(&run).await;
    assert_eq!(world.provider.calls()["a"], 1);
    let counts = world.item_counts(&run).await;
    assert_eq!((counts.sent, counts.skipped, counts.items), (4, 2, 6));
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_refused_item_fails_and_an_invalid_message_is_not_sent() {
    let refuse_b = |recipient: &str, _| {
        if recipient == "b" {
            SendOutcome::Refused("550".into())
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(refuse_b), POLICY);
    let run = world.deploy(&["a", "b", "invalid"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    let expected = [
        ("a", "sent"),
        ("b", "failed refused"),
        ("invalid", "failed invalid_message"),
    ];
    assert_eq!(world.statuses().await, expect(&expected));
    assert!(!world.provider.calls().contains_key("invalid"));
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Partial);
}

#[tokio::test(start_paused = true)]
async fn redriving_a_dead_job_retries_its_exhausted_items() {
    let script = |recipient: &str, count| {
        if recipient == "b" && count <= 3 {
            SendOutcome::Deferred("busy".into())
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    let job = world.jobs().await[0].id.clone();
    world.campaigns.redrive_job(&job, "ada").await.unwrap();
    world.work_until_ended(&run).await;
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "sent"), ("b", "sent")])
    );
    assert_eq!(world.provider.calls()["a"], 1);
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
    assert_eq!(
        world.campaigns.redrive_job(&job, "ada").await,
        Err(CampaignError::JobNotRedrivable(job.to_string()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_suppressed_recipient_is_skipped() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    world
        .campaigns
        .add_suppression(DeliveryChannel::Email, "B@example.org", "unsubscribed")
        .await
        .unwrap();
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "sent"), ("b", "skipped suppressed")])
    );
    assert!(!world.provider.calls().contains_key("b"));
}

#[tokio::test(start_paused = true)]
async fn a_completed_job_keeps_its_last_error_if_items_failed() {
    let refuse = |_: &str, _| SendOutcome::Refused("550 no such mailbox".into());
    let world = World::new(RecordingProvider::new(refuse), POLICY);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    let job = world.jobs().await.remove(0);
    assert_eq!(
        (job.status, job.failed, job.error.as_deref(), job.attempts),
        (JobStatus::Completed, 2, Some("550 no such mailbox"), 1)
    );
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Failed);
    // An error that was overcome is not kept.
    let later = |_: &str, count| match count {
        1 => SendOutcome::Deferred("busy".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(later), POLICY);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    let job = world.jobs().await.remove(0);
    assert_eq!((job.status, job.error), (JobStatus::Completed, None));
}
