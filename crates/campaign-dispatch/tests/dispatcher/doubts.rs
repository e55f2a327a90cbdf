//! What is in doubt stays so until somebody knows: whoever is sent away the second time was not
//! told of the first.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{
    AttemptDirective, AttemptOutcome, AttemptStep, DispatchPolicy, ItemProgress, ItemState,
    JobAttempt, LookupOutcome, SendOutcome,
};
use onward_campaign_dispatch::{
    CampaignDelivery, CampaignDeployment, DeliveryResolver, Dispatcher, EntropySource, Options,
    ProviderCapabilities, Resolution,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{Counting, TERMS, World, accepted, deployment};

/// The first call is not heard of; what follows is.
fn lost_once(then: fn(u32) -> SendOutcome) -> Counting {
    Counting::new(move |_, count| {
        if count == 1 {
            SendOutcome::Unknown("it broke off".into())
        } else {
            then(count)
        }
    })
}

const REPEATS: DispatchPolicy = DispatchPolicy {
    resend_in_doubt: true,
    ..TERMS
};

#[tokio::test(start_paused = true)]
async fn whoever_does_not_take_a_repetition_has_said_nothing_of_the_first_call() {
    let answers: [fn(u32) -> SendOutcome; 3] = [
        |_| SendOutcome::Deferred("503".into()),
        |_| SendOutcome::InvalidMessage("there is no name any more".into()),
        |_| SendOutcome::Refused("409: that key was used".into()),
    ];
    for answer in answers {
        let world = World::new(lost_once(answer), REPEATS);
        world.deploy(&["a"]).await.unwrap();
        world.work_for(Duration::from_secs(3_600)).await;
        assert_eq!(world.statuses().await["a"], "in doubt");
        assert_eq!(
            world.provider.calls()["a"],
            TERMS.max_sends,
            "it is not repeated without end"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_in_doubt_is_not_reached_by_another_run_because_the_provider_was_busy() {
    let world = World::new(
        lost_once(|_| SendOutcome::Throttled("429".into(), Some(600_000))),
        REPEATS,
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

fn slot(standing: ItemState, calls: u32) -> ItemProgress {
    ItemProgress {
        state: standing,
        sends: calls,
        in_doubt_ms: 1_000_000,
        reason: None,
    }
}

#[test]
fn a_job_whose_workers_keep_dying_is_given_up() {
    let slots = vec![
        slot(ItemState::Held, 1),
        slot(ItemState::Deferred, 1),
        ItemProgress::NEW,
    ];
    let mut attempt = JobAttempt::new(
        slots.clone(),
        TERMS.max_attempts,
        TERMS,
        AttemptDirective::Continue,
    );
    assert!(
        matches!(attempt.next_step(0), AttemptStep::Admit(..)),
        "the last try"
    );
    let mut attempt = JobAttempt::new(
        slots,
        TERMS.max_attempts + 1,
        TERMS,
        AttemptDirective::Continue,
    );
    let AttemptStep::Persist {
        counts: tally,
        outcome: None,
        ..
    } = attempt.next_step(0)
    else {
        panic!("nothing more is begun")
    };
    assert_eq!(
        (tally.in_doubt, tally.failed, tally.open_items()),
        (1, 2, 0)
    );
    attempt.record_persisted(&[]);
    let AttemptStep::Persist {
        outcome: conclusion,
        ..
    } = attempt.next_step(0)
    else {
        panic!("and it is over")
    };
    assert_eq!(
        conclusion,
        Some(AttemptOutcome::AwaitResolution),
        "somebody has to say what became of the one that was called for"
    );
    // Not even by a provider that could be called again: the call may be what they die of.
    let slots = vec![slot(ItemState::Held, 1), ItemProgress::NEW];
    let mut attempt = JobAttempt::new(
        slots,
        TERMS.max_attempts + 1,
        REPEATS,
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
fn whoever_was_called_for_often_enough_is_not_called_for_because_the_provider_knows_nothing() {
    let terms = DispatchPolicy {
        lookup_after_ms: Some(1),
        ..TERMS
    };
    for (calls, is_called) in [(TERMS.max_sends - 1, true), (TERMS.max_sends, false)] {
        let mut attempt = JobAttempt::new(
            vec![slot(ItemState::InDoubt, calls)],
            1,
            terms,
            AttemptDirective::Continue,
        );
        assert_eq!(attempt.next_step(0), AttemptStep::LookUp(vec![0]));
        attempt.record_lookups(vec![(0, LookupOutcome::NotFound)]);
        assert_eq!(
            matches!(attempt.next_step(0), AttemptStep::Admit(..)),
            is_called,
            "{calls}"
        );
    }
}

#[test]
fn asking_is_no_try_and_few_are_asked_about_at_a_time() {
    let terms = DispatchPolicy {
        lookup_after_ms: Some(1),
        window: 2,
        ..TERMS
    };
    let mut attempt = JobAttempt::new(
        vec![slot(ItemState::InDoubt, 1); 3],
        9,
        terms,
        AttemptDirective::Continue,
    );
    for asked in [vec![0, 1], vec![2]] {
        assert_eq!(attempt.next_step(0), AttemptStep::LookUp(asked.clone()));
        attempt.record_lookups(
            asked
                .into_iter()
                .map(|position| (position, LookupOutcome::Unknown))
                .collect(),
        );
    }
    let AttemptStep::Persist {
        attempts,
        outcome: conclusion,
        ..
    } = attempt.next_step(0)
    else {
        panic!("it is over")
    };
    assert!(
        attempts == 8 && matches!(conclusion, Some(AttemptOutcome::LookUpAfter(_))),
        "{attempts} {conclusion:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_something_tried_again_gets_as_many_tries_as_any_other() {
    let world = World::new(
        lost_once(|count| {
            if count < 4 {
                SendOutcome::Deferred("busy".into())
            } else {
                accepted()
            }
        }),
        TERMS,
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| {
            world
                .statuses()
                .await
                .get("a")
                .is_some_and(|it| it == "in doubt")
        })
        .await;
    let item = world.items().await.remove(0).id;
    world
        .campaigns
        .resolve_item(&item, &Resolution::Retry, "ada", "its log has nothing")
        .await
        .unwrap();
    world.work_until_over(&run).await;
    assert_eq!(
        (world.provider.calls()["a"], &*world.statuses().await["a"]),
        (4, "sent")
    );
}

#[tokio::test(start_paused = true)]
async fn the_audit_trail_says_what_the_provider_said_of_what_was_in_doubt() {
    let mut provider = lost_once(|_| accepted());
    provider.nature = ProviderCapabilities {
        status_lookup: true,
        ..provider.nature
    };
    let world = World::new(
        provider,
        DispatchPolicy {
            lookup_after_ms: Some(60_000),
            ..TERMS
        },
    );
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    let entries = world
        .campaigns
        .list_audit_entries(&run, 0, 100)
        .await
        .unwrap();
    let found = entries
        .iter()
        .find(|entry| &*entry.event == "items.looked_up")
        .unwrap();
    let item = world.items().await.remove(0).id;
    assert!(
        found
            .detail
            .as_ref()
            .unwrap()
            .contains(&format!("\"{item}\":\"unknown to it\"")),
        "{found:?}"
    );
    assert_eq!(
        world.jobs().await.remove(0).error,
        None,
        "what went wrong on the way is over"
    );
}

/// A node that does not have the provider.
struct Elsewhere;

impl DeliveryResolver for Elsewhere {
    fn resolve_delivery(&self, _run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        Err("there is no provider mailer".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_was_reached_is_not_reached_again_because_another_node_ended_the_cancelled_run() {
    // Four to a job: `a` is served by the first, and named again in the second, which is put off.
    let script = |who: &str, count| match (who, count) {
        ("x", 1) => SendOutcome::Throttled("429".into(), Some(6_000_000)),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), DispatchPolicy { window: 1, ..TERMS });
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
    let elsewhere = Dispatcher::new(
        Arc::clone(&world.store),
        Arc::new(Elsewhere),
        Options::default(),
    );
    let elsewhere = tokio::spawn(elsewhere.run(stopped));
    sleep(Duration::from_secs(60)).await;
    stop.send_replace(true);
    elsewhere.await.unwrap().unwrap();
    assert!(
        world
            .campaigns
            .read_run(&run)
            .await
            .unwrap()
            .ended_at
            .is_some()
    );
    let again = world
        .campaigns
        .retry_run(&run, "ada", &EntropySource::default())
        .await
        .unwrap()
        .run_id;
    world.work_until_over(&again).await;
    let calls = world.provider.calls();
    assert_eq!((calls["a"], calls["e"], calls["x"]), (1, 1, 2), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_cancelled_is_completed_if_nobody_was_left_out_because_of_that() {
    let script = |who: &str, _| {
        if who == "b" {
            SendOutcome::Unknown("it broke off".into())
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(script), TERMS);
    world
        .campaigns
        .add_suppression("email", "c@example.org", "asked for")
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
        .find(|item| item.doubt_since.is_some())
        .unwrap()
        .id;
    world
        .campaigns
        .resolve_item(&item, &Resolution::Sent(None), "ada", "its log")
        .await
        .unwrap();
    world.work_until_over(&run).await;
    world.work_until_over(&other).await;
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "completed"
    );
    assert_eq!(
        &*world.campaigns.read_run(&other).await.unwrap().status,
        "failed",
        "nobody was reached by it"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_is_named_in_two_jobs_is_counted_once_when_both_are_given_up() {
    let world = World::new(
        Counting::new(|_, _| SendOutcome::Throttled("not today".into(), None)),
        DispatchPolicy { window: 1, ..TERMS },
    );
    let run = world
        .deploy(&["a", "b", "c", "d", "x", "d"])
        .await
        .unwrap()
        .run_id;
    world.work_until_over(&run).await;
    let tally = world.campaigns.count_run_items(&run).await.unwrap();
    assert_eq!(
        (tally.failed, tally.skipped, world.items().await.len()),
        (5, 1, 5)
    );
}
