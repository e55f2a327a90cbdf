//! Whatever a provider answers, or does not: who throttles is waited for, and nobody guesses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward_api::campaign::{CampaignStatus, CampaignTally};
use onward_api::outbox::{OutboxItemState, OutboxItemView};
use onward_store::{StoreClock as _, SystemClock};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::provider::{Call, Reply, Request};
use crate::world::{World, outbox, people, tally, until_done, until_over};

/// Calls by key, in their order.
fn by_key(calls: Vec<Call>) -> BTreeMap<String, Vec<Call>> {
    let mut found: BTreeMap<String, Vec<Call>> = BTreeMap::new();
    for call in calls {
        found.entry(call.key.clone()).or_default().push(call);
    }
    found
}

fn is_about(request: &Request, who: &str) -> bool {
    request.calls[0].to.starts_with(who)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_put_off_by_a_busy_provider_is_not_called_before_it_said() {
    const AFTER_S: u64 = 2;
    let world = World::sqlite("terms = { window = 10 }").await;
    world.provider.reply(|request| match request.nth {
        1..=3 => Reply::Busy { after_s: AFTER_S },
        _ => Reply::Taken,
    });
    let node = world.node(&[]);
    // Fewer tries than it is busy for: being put off is no try.
    let more = "job_items: 10\nretries:\n  calls: 1\n  attempts: 2\n  first_ms: 1\n  max_ms: 10";
    let run = node.deploy(&world.campaign("spring", &people(20), more), &[]);
    assert_eq!(
        until_over(&node.client(), &run).await,
        CampaignStatus::Completed
    );
    for calls in by_key(world.provider.calls()).values() {
        assert_eq!(calls.len(), 4, "three times it was not taken");
        for pair in calls.windows(2) {
            let waited = pair[1].at - pair[0].answered.unwrap();
            assert!(waited >= Duration::from_secs(AFTER_S), "{waited:?}");
        }
    }
    let items = outbox(&node.client(), &run).await;
    assert!(
        items
            .iter()
            .all(|item| item.standing == OutboxItemState::Served && item.calls == 1),
        "{items:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_busy_for_one_campaign_is_left_alone_by_all() {
    const AFTER: Duration = Duration::from_secs(2);
    let world = World::sqlite("terms = { window = 1 }").await;
    let is_first = AtomicBool::new(true);
    world
        .provider
        .reply(move |_| match is_first.swap(false, Ordering::Relaxed) {
            true => Reply::Busy {
                after_s: AFTER.as_secs(),
            },
            false => Reply::Taken,
        });
    let node = world.node(&["--campaign-lanes", "1"]);
    let runs = ["spring", "summer"]
        .map(|name| node.deploy(&world.campaign(name, &people(3), "job_items: 1"), &[]));
    for run in &runs {
        assert_eq!(
            until_over(&node.client(), run).await,
            CampaignStatus::Completed
        );
    }
    let calls = world.provider.calls();
    assert_eq!(calls.len(), 7, "one of six was called twice");
    let busy_until = calls[0].answered.unwrap() + AFTER;
    assert!(
        calls[1..].iter().all(|call| call.at >= busy_until),
        "{calls:?}"
    );
}

/// The limit is one for all nodes. They count each other every few seconds, so the campaign begins
/// after that.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_together_keep_to_the_rate_of_a_provider() {
    const PER_SECOND: usize = 40;
    let world = World::postgres(&format!("limits = {{ per_second = {PER_SECOND} }}")).await;
    let nodes = [
        world.node(&["--node-name", "one"]),
        world.node(&["--node-name", "two"]),
    ];
    let client = nodes
        .each_ref()
        .map(|node| node.client())
        .into_iter()
        .next()
        .unwrap();
    let at = SystemClock.now().plus_ms(6_500);
    let more = format!("job_items: 20\nschedule:\n  at: {at}");
    let run = nodes[0].deploy(&world.campaign("spring", &people(240), &more), &[]);
    assert_eq!(until_over(&client, &run).await, CampaignStatus::Completed);
    world.provider.expect_once();
    let times: Vec<Instant> = world.provider.calls().iter().map(|call| call.at).collect();
    let within = |from: &Instant| {
        times
            .iter()
            .filter(|at| **at >= *from && **at < *from + Duration::from_secs(1))
            .count()
    };
    let most = times.iter().map(within).max().unwrap();
    let took = *times.last().unwrap() - times[0];
    println!("240 calls in {took:?}, at most {most} in any second where {PER_SECOND} are allowed");
    // Each node may begin with one at once, and calls that were let pass in time may arrive a
    // little late together.
    assert!(most <= PER_SECOND + PER_SECOND / 4, "{most} in a second");
    assert!(
        took >= Duration::from_millis(240 * 1_000 / PER_SECOND as u64 * 9 / 10),
        "{took:?}"
    );
    assert!(
        took <= Duration::from_secs(20),
        "both have a part of it: {took:?}"
    );
    drop(nodes);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_did_not_hear_an_answer_does_not_call_again() {
    let world = World::sqlite("timeout_ms = 400").await;
    world.provider.reply(|request| match request {
        _ if is_about(request, "p00000") => Reply::Silence,
        _ if is_about(request, "p00001") => Reply::Lost,
        _ if is_about(request, "p00002") => Reply::Status(500),
        _ if is_about(request, "p00003") => Reply::Status(422),
        _ if is_about(request, "p00004") => Reply::Late(Duration::from_millis(100)),
        _ => Reply::Taken,
    });
    let node = world.node(&[]);
    let run = node.deploy(&world.campaign("spring", &people(12), ""), &[]);
    let client = node.client();
    until_done(&client, &run).await;
    node.stop();
    // Neither does another process.
    let node = world.node(&[]);
    let next = node.deploy(&world.campaign("summer", &["another".to_owned()], ""), &[]);
    assert_eq!(
        until_over(&node.client(), &next).await,
        CampaignStatus::Completed
    );
    world.provider.expect_once();
    let items = outbox(&node.client(), &run).await;
    let standing = |item: &OutboxItemView| item.standing;
    let mut expected = vec![OutboxItemState::InDoubt; 3];
    expected.push(OutboxItemState::Failed);
    expected.resize(12, OutboxItemState::Served);
    assert_eq!(items.iter().map(standing).collect::<Vec<_>>(), expected);
    let counts = CampaignTally {
        served: 8,
        failed: 1,
        in_doubt: 3,
        ..CampaignTally::default()
    };
    assert_eq!(tally(&node.client(), &run).await, counts);
    assert_eq!(
        node.say(&["outbox", "in-doubt", "--limit", "2", "--json"])
            .lines()
            .count(),
        2,
        "as many as one asked for"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_takes_each_key_once_is_called_again_with_the_same_key() {
    let world = World::sqlite("timeout_ms = 400\ntakes_keys_once = true").await;
    world.provider.reply(|request| match request.nth {
        1 if is_about(request, "p00000") => Reply::Silence,
        1 if is_about(request, "p00001") => Reply::Lost,
        _ => Reply::Taken,
    });
    let node = world.node(&[]);
    let more = "retries:\n  first_ms: 10\n  max_ms: 20";
    let run = node.deploy(&world.campaign("spring", &people(6), more), &[]);
    assert_eq!(
        until_over(&node.client(), &run).await,
        CampaignStatus::Completed
    );
    let items = outbox(&node.client(), &run).await;
    let calls = by_key(world.provider.calls());
    assert_eq!(calls.len(), 6, "nobody has two keys");
    for (place, item) in items.iter().enumerate() {
        assert_eq!(
            calls[&item.key].len(),
            if place < 2 { 2 } else { 1 },
            "{item:?}"
        );
    }
}

const BATCH: &str = "[providers.counting.http.batch]\nmax = 10\nitems = \"/results\"\nid = \"/id\"\nstatus = \"/status\"\n\
                     accepted = [\"ok\"]\nrefused = [\"no\"]\nlater = [\"later\"]";

/// What a provider says of a batch: not in the order of the items, and not of all of them.
fn half(request: &Request) -> Value {
    let result = |call: &Call| match &call.to[..6] {
        "p00001" | "p00011" => None,
        "p00002" => Some(json!({ "id": call.item, "status": "no" })),
        "p00003" if request.calls.len() > 1 => Some(json!({ "id": call.item, "status": "later" })),
        "p00004" => Some(json!({ "id": call.key, "status": "ok" })),
        _ => Some(json!({ "id": call.item, "status": "ok" })),
    };
    let results: Vec<Value> = request.calls.iter().rev().filter_map(result).collect();
    json!({ "results": results })
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_that_failed_in_part_each_item_is_what_was_said_of_it() {
    let world = World::sqlite(BATCH).await;
    world.provider.reply(|request| Reply::Said(half(request)));
    let node = world.node(&[]);
    let run = node.deploy(
        &world.campaign(
            "spring",
            &people(30),
            "retries:\n  first_ms: 10\n  max_ms: 20",
        ),
        &[],
    );
    let client = node.client();
    until_done(&client, &run).await;
    let expected = |who: &str| match who {
        "p00001" | "p00011" => (OutboxItemState::InDoubt, 1),
        "p00002" => (OutboxItemState::Failed, 1),
        "p00003" => (OutboxItemState::Served, 2),
        _ => (OutboxItemState::Served, 1),
    };
    let times = world.provider.times();
    let items = outbox(&client, &run).await;
    assert_eq!(items.len(), 30);
    for item in items {
        assert_eq!(
            (item.standing, times[&item.key]),
            expected(&item.recipient),
            "{item:?}"
        );
    }
}
