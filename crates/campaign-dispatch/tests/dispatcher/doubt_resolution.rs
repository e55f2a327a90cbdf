//! Resolution of items in doubt: one by one, in bulk, and with another send.

use std::collections::BTreeMap;

use onward_campaign_core::{CampaignRunStatus, ItemStatus, JobStatus, SendOutcome};
use onward_campaign_dispatch::{CampaignError, Resolution};

use crate::world::{POLICY, RecordingProvider, World, accepted, expect};

#[tokio::test(start_paused = true)]
async fn resolving_one_item_does_not_make_the_others_due() {
    let script = |recipient: &str, count| match (recipient, count) {
        ("lost", _) => SendOutcome::Unknown("connection lost".into()),
        (_, 1) => SendOutcome::Throttled("too many".into(), Some(600_000)),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["lost", "later"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.item_counts(&run).await.in_doubt == 1)
        .await;
    let due = world.jobs().await[0].run_after;
    assert!(due > world.store.now().await.unwrap().plus_ms(500_000));
    let lost = world.campaigns.list_in_doubt(None, 1).await.unwrap().0[0]
        .id
        .clone();
    world
        .campaigns
        .resolve_item(&lost, &Resolution::Sent(None), "ada", "provider log")
        .await
        .unwrap();
    assert_eq!(world.jobs().await[0].run_after, due);
    world.work_until_ended(&run).await;
    assert!(world.store.now().await.unwrap() >= due);
    assert_eq!(
        world.statuses().await,
        expect(&[("later", "sent"), ("lost", "sent")])
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_with_an_unknown_outcome_is_in_doubt_until_it_is_resolved() {
    let script = |recipient: &str, _| {
        if recipient == "b" {
            SendOutcome::Unknown("connection lost".into())
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a", "b", "c"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.item_counts(&run).await.in_doubt == 1)
        .await;
    assert_eq!(
        world.run_status(&run).await,
        CampaignRunStatus::Running,
        "the run does not end with items in doubt"
    );
    let in_doubt = world.campaigns.list_in_doubt(None, 10).await.unwrap().0;
    assert_eq!(in_doubt.len(), 1);
    let item = &in_doubt[0].id;
    world
        .campaigns
        .resolve_item(
            item,
            &Resolution::Sent(Some("m-9".to_owned())),
            "ada",
            "found in the provider log",
        )
        .await
        .unwrap();
    assert_eq!(world.statuses().await["b"], "sent");
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
    assert_eq!(world.provider.calls()["b"], 1);
    let again = world
        .campaigns
        .resolve_item(item, &Resolution::Failed, "ada", "mistake")
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
    reason = "one scenario or one list of cases, read from top to bottom"
)]
#[tokio::test(start_paused = true)]
async fn many_items_are_settled_together_and_failures_are_reported_per_item() {
    let script = |recipient: &str, count| match (recipient, count) {
        ("fine", _) => accepted(),
        (_, 1) => SendOutcome::Unknown("connection lost".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let recipients = ["a", "b", "c", "d", "e", "fine"];
    let run = world.deploy(&recipients).await.unwrap().run_id;
    world
        .work_until(async |world| world.item_counts(&run).await.in_doubt == 5)
        .await;
    let items = world.items().await.into_iter();
    let ids: BTreeMap<String, String> = items
        .map(|item| (item.recipient_id.to_string(), item.id.to_string()))
        .collect();
    let ids_of = |names: &[&str]| {
        names
            .iter()
            .map(|name| ids[*name].clone())
            .collect::<Vec<String>>()
    };
    let requested = [
        ids_of(&["a", "b", "b", "fine"]),
        vec!["nothing.0001".to_owned()],
    ]
    .concat();
    let outcomes = world
        .campaigns
        .resolve_items(&requested, &Resolution::Retry, "ada", "provider log")
        .await
        .unwrap();
    let results: BTreeMap<String, Result<ItemStatus, CampaignError>> = outcomes
        .iter()
        .map(|(item, outcome)| {
            (
                item.clone(),
                outcome.as_ref().map(|row| row.status).map_err(Clone::clone),
            )
        })
        .collect();
    let expected = BTreeMap::from([
        (ids["a"].clone(), Ok(ItemStatus::Queued)),
        (ids["b"].clone(), Ok(ItemStatus::Queued)),
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
        (results, outcomes.len()),
        (expected, 4),
        "an item that is listed twice is settled once"
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
                .all(|job| job.status != JobStatus::Locked)
        })
        .await;
    let rest = world
        .campaigns
        .resolve_items(
            &ids_of(&["c", "d", "e"]),
            &Resolution::Failed,
            "ada",
            "provider log",
        )
        .await
        .unwrap();
    assert!(rest.iter().all(|(_, outcome)| outcome.is_ok()), "{rest:?}");
    let (failed, sent) = ("failed operator_resolution", "sent");
    let expected = [
        ("a", sent),
        ("b", sent),
        ("c", failed),
        ("d", failed),
        ("e", failed),
        ("fine", sent),
    ];
    assert_eq!(world.statuses().await, expect(&expected));
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Partial);
    let events = world.events(&run).await;
    assert_eq!(
        events
            .iter()
            .filter(|event| *event == "item.settled")
            .count(),
        5,
        "each resolution has an audit entry: {events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_in_doubt_can_be_retried() {
    let script = |_: &str, count| {
        if count == 1 {
            SendOutcome::Unknown("connection lost".into())
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.item_counts(&run).await.in_doubt == 1)
        .await;
    let item = world.campaigns.list_in_doubt(None, 1).await.unwrap().0[0]
        .id
        .clone();
    world
        .campaigns
        .resolve_item(&item, &Resolution::Retry, "ada", "not in the provider log")
        .await
        .unwrap();
    world.work_until_ended(&run).await;
    assert_eq!(world.statuses().await, expect(&[("a", "sent")]));
}
