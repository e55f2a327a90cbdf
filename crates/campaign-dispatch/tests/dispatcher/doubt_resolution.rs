//! Resolution of items in doubt: one by one, in bulk, and with another send.

use std::collections::BTreeMap;

use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{CampaignError, Resolution};

use crate::world::{Counting, TERMS, World, accepted, expect};

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

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
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
