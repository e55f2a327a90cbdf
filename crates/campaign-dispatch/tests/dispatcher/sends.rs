//! Sending: who is called, how often, and what is said of it.

use std::collections::BTreeMap;

use onward_campaign_core::{DispatchPolicy, SendOutcome};
use onward_campaign_dispatch::{CampaignDeployment, CampaignError, Resolution, RunActivity};

use crate::world::{Counting, TERMS, World, accepted, deployment, expect};

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
async fn a_verdict_on_one_does_not_hurry_the_others() {
    let script = |who: &str, count| match (who, count) {
        ("lost", _) => SendOutcome::Unknown("cut off".into()),
        (_, 1) => SendOutcome::Throttled("too many".into(), Some(600_000)),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world.deploy(&["lost", "later"]).await.unwrap().run_id;
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
    let due = world.jobs().await[0].run_after;
    assert!(due > world.store.now().await.unwrap().plus_ms(500_000));
    let lost = world.campaigns.list_in_doubt(None, 1).await.unwrap().0[0]
        .id
        .clone();
    world
        .campaigns
        .resolve_item(&lost, &Resolution::Sent(None), "ada", "their log")
        .await
        .unwrap();
    assert_eq!(world.jobs().await[0].run_after, due);
    world.work_until_over(&run).await;
    assert!(world.store.now().await.unwrap() >= due);
    assert_eq!(
        world.statuses().await,
        expect(&[("later", "sent"), ("lost", "sent")])
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
async fn what_nobody_knows_is_in_doubt_until_somebody_says() {
    let script = |who: &str, _| {
        if who == "b" {
            SendOutcome::Unknown("cut off".into())
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(script), TERMS);
    let run = world.deploy(&["a", "b", "c"]).await.unwrap().run_id;
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
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "running",
        "it is not complete"
    );
    let doubts = world.campaigns.list_in_doubt(None, 10).await.unwrap().0;
    assert_eq!(doubts.len(), 1);
    let item = &doubts[0].id;
    world
        .campaigns
        .resolve_item(
            item,
            &Resolution::Sent(Some("m-9".to_owned())),
            "ada",
            "it is in their log",
        )
        .await
        .unwrap();
    assert_eq!(world.statuses().await["b"], "sent");
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "completed"
    );
    assert_eq!(world.provider.calls()["b"], 1);
    let again = world
        .campaigns
        .resolve_item(item, &Resolution::Failed, "ada", "no")
        .await;
    assert_eq!(again, Err(CampaignError::ItemNotInDoubt(item.to_string())));
    let events = world.events(&run).await;
    assert_eq!(
        events[events.len() - 3..],
        ["item.settled", "job.completed", "run.ended"],
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn many_are_settled_together_and_whatever_cannot_be_is_told() {
    let script = |who: &str, count| match (who, count) {
        ("fine", _) => accepted(),
        (_, 1) => SendOutcome::Unknown("cut off".into()),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    let people = ["a", "b", "c", "d", "e", "fine"];
    let run = world.deploy(&people).await.unwrap().run_id;
    world
        .work_until(async |world| {
            world
                .campaigns
                .count_run_items(&run)
                .await
                .unwrap()
                .in_doubt
                == 5
        })
        .await;
    let items = world.items().await.into_iter();
    let ids: BTreeMap<String, String> = items
        .map(|item| (item.recipient_id.to_string(), item.id.to_string()))
        .collect();
    let of = |names: &[&str]| {
        names
            .iter()
            .map(|name| ids[*name].clone())
            .collect::<Vec<String>>()
    };
    let said = [
        of(&["a", "b", "b", "fine"]),
        vec!["nothing.0001".to_owned()],
    ]
    .concat();
    let outcomes = world
        .campaigns
        .resolve_items(&said, &Resolution::Retry, "ada", "their log")
        .await
        .unwrap();
    let told: BTreeMap<String, Result<&str, CampaignError>> = outcomes
        .iter()
        .map(|(item, outcome)| {
            (
                item.clone(),
                outcome
                    .as_ref()
                    .map(|row| &*row.status)
                    .map_err(Clone::clone),
            )
        })
        .collect();
    let expected = BTreeMap::from([
        (ids["a"].clone(), Ok("queued")),
        (ids["b"].clone(), Ok("queued")),
        (
            ids["fine"].clone(),
            Err(CampaignError::ItemNotInDoubt(ids["fine"].clone())),
        ),
        (
            "nothing.0001".to_owned(),
            Err(CampaignError::ItemNotFound("nothing.0001".to_owned())),
        ),
    ]);
    assert_eq!(
        (told, outcomes.len()),
        (expected, 4),
        "whatever is named twice is settled once"
    );
    world
        .work_until(async |world| world.provider.calls()["b"] == 2)
        .await;
    world
        .work_until(async |world| {
            world
                .jobs()
                .await
                .iter()
                .all(|job| &*job.status != "locked")
        })
        .await;
    let rest = world
        .campaigns
        .resolve_items(
            &of(&["c", "d", "e"]),
            &Resolution::Failed,
            "ada",
            "their log",
        )
        .await
        .unwrap();
    assert!(rest.iter().all(|(_, outcome)| outcome.is_ok()), "{rest:?}");
    let (failed, sent) = ("failed verdict", "sent");
    let expected = [
        ("a", sent),
        ("b", sent),
        ("c", failed),
        ("d", failed),
        ("e", failed),
        ("fine", sent),
    ];
    assert_eq!(world.statuses().await, expect(&expected));
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "partial"
    );
    let events = world.events(&run).await;
    assert_eq!(
        events
            .iter()
            .filter(|event| *event == "item.settled")
            .count(),
        5,
        "each is on record: {events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_verdict_can_have_it_sent_again() {
    let script = |_: &str, count| {
        if count == 1 {
            SendOutcome::Unknown("cut off".into())
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(script), TERMS);
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
    let item = world.campaigns.list_in_doubt(None, 1).await.unwrap().0[0]
        .id
        .clone();
    world
        .campaigns
        .resolve_item(&item, &Resolution::Retry, "ada", "their log has nothing")
        .await
        .unwrap();
    world.work_until_over(&run).await;
    assert_eq!(world.statuses().await, expect(&[("a", "sent")]));
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
