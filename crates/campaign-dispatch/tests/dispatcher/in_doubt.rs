//! Items stay in doubt until their outcome is known: the rejection of a second call proves nothing
//! about the first.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{
    AttemptDirective, AttemptOutcome, AttemptStep, CampaignRunStatus, DeliveryChannel,
    DispatchPolicy, ItemProgress, ItemState, JobAttempt, LookupOutcome, SendOutcome,
};
use onward_campaign_dispatch::{
    CampaignDelivery, CampaignDeployment, DeliveryError, DeliveryResolver, Dispatcher,
    EntropySource, Options, ProviderCapabilities, Resolution,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{POLICY, RecordingProvider, World, accepted, deployment};

/// The outcome of the first call is unknown; `next_outcome` returns those of the later calls.
fn unknown_once(next_outcome: fn(u32) -> SendOutcome) -> RecordingProvider {
    RecordingProvider::new(move |_, count| {
        if count == 1 {
            SendOutcome::Unknown("connection lost".into())
        } else {
            next_outcome(count)
        }
    })
}

const IDEMPOTENT_POLICY: DispatchPolicy = DispatchPolicy {
    resend_in_doubt: true,
    ..POLICY
};

#[tokio::test(start_paused = true)]
async fn a_rejected_second_call_leaves_the_item_in_doubt() {
    let outcomes: [fn(u32) -> SendOutcome; 3] = [
        |_| SendOutcome::Deferred("503".into()),
        |_| SendOutcome::InvalidMessage("the recipient has no name".into()),
        |_| SendOutcome::Refused("409: idempotency key already used".into()),
    ];
    for outcome in outcomes {
        let world = World::new(unknown_once(outcome), IDEMPOTENT_POLICY);
        world.deploy(&["a"]).await.unwrap();
        // Ten minutes: the policy's longest backoff is 8 s.
        world.work_for(Duration::from_secs(600)).await;
        assert_eq!(world.statuses().await["a"], "in doubt");
        assert_eq!(
            world.provider.calls()["a"],
            POLICY.max_sends,
            "the number of sends is limited"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_in_doubt_is_not_retried_by_another_run_after_a_throttled_call() {
    let world = World::new(
        unknown_once(|_| SendOutcome::Throttled("429".into(), Some(600_000))),
        IDEMPOTENT_POLICY,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.provider.calls().get("a") == Some(&2))
        .await;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_for(Duration::from_secs(60)).await;
    assert_eq!(world.statuses().await["a"], "in doubt");
    assert!(
        world
            .campaigns
            .retry_run(&run, "ada", &EntropySource::default())
            .await
            .is_err()
    );
}

fn progress(state: ItemState, sends: u32) -> ItemProgress {
    ItemProgress {
        state,
        sends,
        in_doubt_ms: 1_000_000,
        age_ms: 1_000_000,
        reason: None,
    }
}

#[test]
fn a_job_whose_workers_keep_crashing_is_exhausted() {
    let items = vec![
        progress(ItemState::Reserved, 1),
        progress(ItemState::Deferred, 1),
        ItemProgress::NEW,
    ];
    let mut attempt = JobAttempt::new(
        items.clone(),
        POLICY.max_attempts,
        POLICY,
        AttemptDirective::Continue,
    );
    assert!(
        matches!(attempt.next_step(0), AttemptStep::Admit(..)),
        "the last attempt"
    );
    let mut attempt = JobAttempt::new(
        items,
        POLICY.max_attempts + 1,
        POLICY,
        AttemptDirective::Continue,
    );
    let AttemptStep::Persist {
        counts,
        outcome: None,
        ..
    } = attempt.next_step(0)
    else {
        panic!("the attempt starts new sends")
    };
    assert_eq!(
        (counts.in_doubt, counts.failed, counts.open_items()),
        (1, 2, 0)
    );
    attempt.record_persisted(&[]);
    let AttemptStep::Persist { outcome, .. } = attempt.next_step(0) else {
        panic!("the attempt continues")
    };
    assert_eq!(
        outcome,
        Some(AttemptOutcome::AwaitResolution),
        "an operator has to resolve the item that was sent"
    );
    // Idempotent providers are not called again either: the call may be the cause of the crashes.
    let items = vec![progress(ItemState::Reserved, 1), ItemProgress::NEW];
    let mut attempt = JobAttempt::new(
        items,
        POLICY.max_attempts + 1,
        IDEMPOTENT_POLICY,
        AttemptDirective::Continue,
    );
    assert!(matches!(
        attempt.next_step(0),
        AttemptStep::Persist { outcome: None, .. }
    ));
    attempt.record_persisted(&[]);
    assert!(matches!(
        attempt.next_step(0),
        AttemptStep::Persist {
            outcome: Some(AttemptOutcome::AwaitResolution),
            ..
        }
    ));
}

#[test]
fn an_item_with_the_maximum_number_of_sends_is_not_sent_after_a_lookup_without_a_record() {
    let policy = DispatchPolicy {
        lookup_after_ms: Some(1),
        ..POLICY
    };
    for (sends, is_sent) in [(POLICY.max_sends - 1, true), (POLICY.max_sends, false)] {
        let mut attempt = JobAttempt::new(
            vec![progress(ItemState::InDoubt, sends)],
            1,
            policy,
            AttemptDirective::Continue,
        );
        assert_eq!(attempt.next_step(0), AttemptStep::LookUp(vec![0]));
        attempt.record_lookups(vec![(0, LookupOutcome::NotFound)]);
        assert_eq!(
            matches!(attempt.next_step(0), AttemptStep::Admit(..)),
            is_sent,
            "{sends}"
        );
    }
}

#[test]
fn lookups_do_not_count_as_attempts_and_cover_one_window_at_a_time() {
    let policy = DispatchPolicy {
        lookup_after_ms: Some(1),
        window: 2,
        ..POLICY
    };
    let mut attempt = JobAttempt::new(
        vec![progress(ItemState::InDoubt, 1); 3],
        9,
        policy,
        AttemptDirective::Continue,
    );
    for positions in [vec![0, 1], vec![2]] {
        assert_eq!(attempt.next_step(0), AttemptStep::LookUp(positions.clone()));
        attempt.record_lookups(
            positions
                .into_iter()
                .map(|position| (position, LookupOutcome::Unknown))
                .collect(),
        );
    }
    let AttemptStep::Persist {
        attempts, outcome, ..
    } = attempt.next_step(0)
    else {
        panic!("the attempt continues")
    };
    assert!(
        attempts == 8 && matches!(outcome, Some(AttemptOutcome::LookUpAfter(_))),
        "{attempts} {outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retried_item_gets_the_full_number_of_sends_again() {
    let world = World::new(
        unknown_once(|count| {
            if count < 4 {
                SendOutcome::Deferred("busy".into())
            } else {
                accepted()
            }
        }),
        POLICY,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| {
            world
                .statuses()
                .await
                .get("a")
                .is_some_and(|status| status == "in doubt")
        })
        .await;
    let item = world.items().await.remove(0).id;
    world
        .campaigns
        .resolve_item(&item, &Resolution::Retry, "ada", "not in the provider log")
        .await
        .unwrap();
    world.work_until_ended(&run).await;
    assert_eq!(
        (world.provider.calls()["a"], &*world.statuses().await["a"]),
        (4, "sent")
    );
}

#[tokio::test(start_paused = true)]
async fn the_audit_trail_contains_the_results_of_status_lookups() {
    let mut provider = unknown_once(|_| accepted());
    provider.capabilities = ProviderCapabilities {
        status_lookup: true,
        ..provider.capabilities
    };
    let world = World::new(
        provider,
        DispatchPolicy {
            lookup_after_ms: Some(60_000),
            ..POLICY
        },
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    let entries = world
        .campaigns
        .list_audit_entries(&run, 0, 100)
        .await
        .unwrap();
    let lookup = entries
        .iter()
        .find(|entry| &*entry.event == "items.looked_up")
        .unwrap();
    let item = world.items().await.remove(0).id;
    assert!(
        lookup
            .detail
            .as_ref()
            .unwrap()
            .contains(&format!("\"{item}\":\"not found\"")),
        "{lookup:?}"
    );
    assert_eq!(
        world.jobs().await.remove(0).error,
        None,
        "a completed job keeps no error of earlier attempts"
    );
}

/// The deliveries of a node that does not have the provider.
struct NoProvider;

impl DeliveryResolver for NoProvider {
    fn resolve_delivery(
        &self,
        _run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError> {
        Err(DeliveryError::new("no provider `mailer`"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_excludes_reached_recipients_after_a_node_without_the_provider_ended_the_run() {
    // A job has four items: the first job sends to `a`; the second contains `a` again and is
    // deferred.
    let script = |recipient: &str, count| match (recipient, count) {
        ("x", 1) => SendOutcome::Throttled("429".into(), Some(6_000_000)),
        _ => accepted(),
    };
    let world = World::new(
        RecordingProvider::new(script),
        DispatchPolicy {
            window: 1,
            ..POLICY
        },
    );
    let run = world
        .deploy(&["a", "b", "c", "d", "x", "a", "e"])
        .await
        .unwrap()
        .run_id;
    world
        .work_until(async |world| world.provider.calls().len() == 5)
        .await;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let other_node = Dispatcher::new(
        Arc::clone(&world.store),
        Arc::new(NoProvider),
        Options::default(),
    );
    let other_node = tokio::spawn(other_node.run(stopped));
    sleep(Duration::from_secs(60)).await;
    stop.send_replace(true);
    other_node.await.unwrap().unwrap();
    assert!(world.has_ended(&run).await);
    let again = world
        .campaigns
        .retry_run(&run, "ada", &EntropySource::default())
        .await
        .unwrap()
        .run_id;
    world.work_until_ended(&again).await;
    let calls = world.provider.calls();
    assert_eq!((calls["a"], calls["e"], calls["x"]), (1, 1, 2), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_completed_if_no_item_was_skipped_because_of_the_cancellation() {
    let script = |recipient: &str, _| {
        if recipient == "b" {
            SendOutcome::Unknown("connection lost".into())
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    world
        .campaigns
        .add_suppression(DeliveryChannel::Email, "c@example.org", "unsubscribed")
        .await
        .unwrap();
    let run = world.deploy(&["a", "b", "c", "a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.jobs().await[0].in_doubt == 1)
        .await;
    let other = world
        .deploy_as(
            CampaignDeployment {
                campaign_id: "other".into(),
                ..deployment(None)
            },
            &["b", "d"],
        )
        .await;
    let other = other.unwrap().run_id;
    for run in [&run, &other] {
        world.campaigns.cancel_run(run, "ada").await.unwrap();
    }
    let item = world
        .items()
        .await
        .into_iter()
        .find(|item| item.in_doubt_since.is_some())
        .unwrap()
        .id;
    world
        .campaigns
        .resolve_item(&item, &Resolution::Sent(None), "ada", "provider log")
        .await
        .unwrap();
    world.work_until_ended(&run).await;
    world.work_until_ended(&other).await;
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
    assert_eq!(
        world.run_status(&other).await,
        CampaignRunStatus::Failed,
        "it reached no recipient"
    );
}

#[tokio::test(start_paused = true)]
async fn a_recipient_of_two_exhausted_jobs_is_counted_once() {
    let world = World::new(
        RecordingProvider::new(|_, _| SendOutcome::Throttled("not today".into(), None)),
        DispatchPolicy {
            window: 1,
            ..POLICY
        },
    );
    let run = world
        .deploy(&["a", "b", "c", "d", "x", "d"])
        .await
        .unwrap()
        .run_id;
    world.work_until_ended(&run).await;
    let counts = world.item_counts(&run).await;
    assert_eq!(
        (counts.failed, counts.skipped, world.items().await.len()),
        (5, 1, 5)
    );
}
