//! Retries of deferred and throttled sends: backoff, the retry limit, and retries on request.

use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{CampaignError, RunActivity};

use crate::world::{Counting, TERMS, World, accepted, expect};

#[tokio::test(start_paused = true)]
async fn what_is_put_off_is_tried_again_and_in_the_end_no_more() {
    let script = |who: &str, count| match (who, count) {
        ("later", 1 | 2) | ("never", _) => SendOutcome::Deferred("busy".into()),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world.deploy(&["a", "later", "never"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    let expected = [
        ("a", "sent"),
        ("later", "sent"),
        ("never", "failed exhausted"),
    ];
    assert_eq!(world.statuses().await, expect(&expected));
    assert_eq!(world.provider.calls()["never"], 3);
    assert_eq!(&*world.jobs().await[0].status, "dead");
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "partial"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_until_when_it_is_busy_is_waited_for_as_often_as_it_says() {
    let script = |_: &str, count| {
        if count <= 8 {
            SendOutcome::Throttled("too many".into(), Some(60_000))
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    assert_eq!(
        world.statuses().await,
        expect(&[("a", "sent"), ("b", "sent")])
    );
    assert!(
        world.items().await.iter().all(|item| item.calls == 1),
        "those times do not count"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_busy_and_does_not_say_until_when_is_given_up_in_the_end() {
    let world = World::new(
        Counting::new(|_, _| SendOutcome::Throttled("too many".into(), None)),
        TERMS,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    assert_eq!(world.statuses().await, expect(&[("a", "failed exhausted")]));
    assert_eq!(world.provider.calls()["a"], TERMS.max_attempts);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_wants_to_be_asked_again_at_once_is_given_up_in_the_end() {
    let world = World::new(
        Counting::new(|_, _| SendOutcome::Throttled("too many".into(), Some(0))),
        TERMS,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    assert_eq!(world.provider.calls()["a"], TERMS.max_attempts);
    let item = &world.items().await[0];
    assert_eq!(
        (item.reason.as_deref(), item.error.as_deref()),
        (Some("exhausted"), Some("too many"))
    );
    assert_eq!(
        world.jobs().await[0].attempts,
        TERMS.max_attempts,
        "how often it was tried is known"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_says_until_when_it_waits_and_a_job_that_waits_can_be_tried_now() {
    let day = 86_400_000;
    let script = move |_: &str, count| match count {
        1 => SendOutcome::Throttled("come back tomorrow".into(), Some(day)),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.provider.calls().contains_key("a"))
        .await;
    let job = world.jobs().await.remove(0);
    assert_eq!((&*job.status, job.attempts), ("queued", 0));
    let row = world.campaigns.read_run(&run).await.unwrap();
    let waits = RunActivity::WaitingUntil(job.run_after, Some("come back tomorrow".into()));
    assert_eq!(world.campaigns.run_activity(&row).await, Ok(Some(waits)));
    world.campaigns.redrive_job(&job.id, "ada").await.unwrap();
    assert_eq!(world.campaigns.run_activity(&row).await, Ok(None));
    world.work_until_over(&run).await;
    assert!(world.store.now().await.unwrap() < job.run_after);
    assert_eq!(
        world.campaigns.redrive_job(&job.id, "ada").await,
        Err(CampaignError::JobNotRedrivable(job.id.to_string()))
    );
}
