//! A provider that cannot be reached: its campaigns wait, and the calls do not count as sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward_campaign_core::{CampaignRunStatus, DispatchPolicy, JobStatus, SendOutcome};
use onward_campaign_dispatch::RunActivity;

use crate::world::{POLICY, RecordingProvider, World, accepted, expect};

/// A provider that cannot be reached until the switch is set.
fn switched_provider() -> (RecordingProvider, Arc<AtomicBool>) {
    let is_reachable = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_reachable);
    let script = move |_: &str, _| match is_reachable.load(Ordering::SeqCst) {
        false => SendOutcome::Unreachable("connection refused".into()),
        true => accepted(),
    };
    (RecordingProvider::new(script), switch)
}

#[tokio::test(start_paused = true)]
async fn a_campaign_waits_for_a_provider_that_is_away_for_half_an_hour() {
    let (provider, is_reachable) = switched_provider();
    let world = World::new(provider, POLICY);
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_for(Duration::from_secs(1_800)).await;
    let job = world.jobs().await.remove(0);
    assert_eq!((job.status, job.attempts), (JobStatus::Queued, 0));
    let row = world.campaigns.read_run(&run).await.unwrap();
    let waiting = RunActivity::WaitingUntil(job.run_after, Some("connection refused".into()));
    assert_eq!(world.campaigns.run_activity(&row).await, Ok(Some(waiting)));
    let tries = world.provider.calls()["a"];
    assert!(
        (1_800 / 8..=1_800 / 4 + 20).contains(&tries),
        "the delay grows to the maximum backoff of 8 s: {tries}"
    );
    is_reachable.store(true, Ordering::SeqCst);
    world.work_until_ended(&run).await;
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
    assert!(
        world.items().await.iter().all(|item| item.sends == 1),
        "only the calls that reached the provider count"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_stays_away_is_given_up_after_the_maximum_time() {
    let (provider, _) = switched_provider();
    let policy = DispatchPolicy {
        max_unreachable_ms: 600_000,
        ..POLICY
    };
    let world = World::new(provider, policy);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    let started_at = world.store.now().await.unwrap();
    world.work_until_ended(&run).await;
    assert_eq!(world.statuses().await, expect(&[("a", "failed exhausted")]));
    let ended_at = world.campaigns.read_run(&run).await.unwrap().ended_at;
    let waited = ended_at.unwrap().as_micros() - started_at.as_micros();
    assert!((600_000_000..660_000_000).contains(&waited), "{waited}");
    assert_eq!(world.items().await[0].sends, POLICY.max_sends);
}

#[tokio::test(start_paused = true)]
async fn an_item_in_doubt_stays_in_doubt_while_its_provider_cannot_be_reached() {
    let script = |_: &str, count| match count {
        1 => SendOutcome::Unknown("connection lost".into()),
        2..=40 => SendOutcome::Unreachable("connection refused".into()),
        _ => accepted(),
    };
    let policy = DispatchPolicy {
        resend_in_doubt: true,
        ..POLICY
    };
    let world = World::new(RecordingProvider::new(script), policy);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| {
            world
                .provider
                .calls()
                .get("a")
                .is_some_and(|count| *count > 20)
        })
        .await;
    assert_eq!(world.statuses().await, expect(&[("a", "in doubt")]));
    world.work_until_ended(&run).await;
    assert_eq!(world.statuses().await, expect(&[("a", "sent")]));
    assert_eq!(world.items().await[0].sends, 2);
}
