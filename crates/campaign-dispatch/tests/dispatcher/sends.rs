//! Sending: which recipients the dispatcher sends to, how often, and the counts that a run reports.

use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::CampaignError;

use crate::world::{Counting, TERMS, World, accepted, expect};

#[tokio::test(start_paused = true)]
async fn everybody_is_reached_once_and_the_run_says_so() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world
        .deploy(&["a", "b", "c", "d", "e", "f"])
        .await
        .unwrap()
        .run_id;
    world.work_until_over(&run).await;
    assert!(world.provider.calls().values().all(|count| *count == 1));
    assert_eq!(world.provider.calls().len(), 6);
    assert!(
        world
            .statuses()
            .await
            .values()
            .all(|status| status == "sent")
    );
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "completed"
    );
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
async fn somebody_who_is_named_twice_is_reached_once() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world
        .deploy(&["a", "a", "b", "c", "d", "a"])
        .await
        .unwrap()
        .run_id;
    world.work_until_over(&run).await;
    assert_eq!(world.provider.calls()["a"], 1);
    let tally = world.campaigns.count_run_items(&run).await.unwrap();
    assert_eq!((tally.served, tally.skipped, tally.items), (4, 2, 6));
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "completed"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_fails_and_what_cannot_be_made_is_not_sent() {
    let refuse_b = |who: &str, _| {
        if who == "b" {
            SendOutcome::Refused("550".into())
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(refuse_b), TERMS);
    let run = world.deploy(&["a", "b", "unfit"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    let expected = [
        ("a", "sent"),
        ("b", "failed refused"),
        ("unfit", "failed unfit"),
    ];
    assert_eq!(world.statuses().await, expect(&expected));
    assert!(!world.provider.calls().contains_key("unfit"));
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "partial"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_job_is_redriven_for_those_who_were_not_reached() {
    let script = |who: &str, count| {
        if who == "b" && count <= 3 {
            SendOutcome::Deferred("busy".into())
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    let job = world.jobs().await[0].id.clone();
    world.campaigns.redrive_job(&job, "ada").await.unwrap();
    world.work_until_over(&run).await;
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "sent"), ("b", "sent")])
    );
    assert_eq!(world.provider.calls()["a"], 1);
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "completed"
    );
    assert_eq!(
        world.campaigns.redrive_job(&job, "ada").await,
        Err(CampaignError::JobNotRedrivable(job.to_string()))
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_nothing_more_is_skipped() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    world
        .campaigns
        .add_suppression("email", "B@example.org", "unsubscribed")
        .await
        .unwrap();
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "sent"), ("b", "skipped suppressed")])
    );
    assert!(!world.provider.calls().contains_key("b"));
}
