//! RecordingProvider responses: throttling, rate limits, lost responses, idempotent retries and
//! partly failed batches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward_api::campaign::{CampaignItemCounts, CampaignStatus};
use onward_api::outbox::{OutboxItemState, OutboxItemView};
use onward_store::{StoreClock as _, SystemClock};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    CampaignHarness, counts, outbox, recipients, wait_until_ended, wait_until_settled,
};
use crate::recording_provider::{ProviderCall, ProviderReply, ProviderRequest};

/// Calls by idempotency key, in order of arrival.
fn by_key(calls: Vec<ProviderCall>) -> BTreeMap<String, Vec<ProviderCall>> {
    let mut found: BTreeMap<String, Vec<ProviderCall>> = BTreeMap::new();
    for call in calls {
        found.entry(call.key.clone()).or_default().push(call);
    }
    found
}

fn is_for(request: &ProviderRequest, recipient: &str) -> bool {
    request.calls[0].to.starts_with(recipient)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttling_provider_is_not_called_before_retry_after() {
    const AFTER_S: u64 = 2;
    let harness = CampaignHarness::sqlite("policy = { window = 10 }").await;
    harness.provider.set_reply(|request| match request.nth {
        1..=3 => ProviderReply::Throttled {
            retry_after_s: AFTER_S,
        },
        _ => ProviderReply::Accepted,
    });
    let node = harness.start_node(&[]);
    // Fewer sends and attempts than throttled responses: a throttled call counts as neither.
    let more = "job_size: 10\nretries:\n  max_sends: 1\n  max_attempts: 2\n  initial_backoff_ms: 1\n  max_backoff_ms: 10";
    let run = node.deploy(&harness.campaign("spring", &recipients(20), more), &[]);
    assert_eq!(
        wait_until_ended(&node.client(), &run).await,
        CampaignStatus::Completed
    );
    for calls in by_key(harness.provider.calls()).values() {
        assert_eq!(
            calls.len(),
            4,
            "three throttled calls and one accepted call"
        );
        for pair in calls.windows(2) {
            let waited = pair[1].at - pair[0].responded_at.unwrap();
            assert!(waited >= Duration::from_secs(AFTER_S), "{waited:?}");
        }
    }
    let items = outbox(&node.client(), &run).await;
    assert!(
        items
            .iter()
            .all(|item| item.state == OutboxItemState::Sent && item.sends == 1),
        "{items:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_of_one_campaign_pauses_all_campaigns_of_the_provider() {
    const AFTER: Duration = Duration::from_secs(2);
    let harness = CampaignHarness::sqlite("policy = { window = 1 }").await;
    let is_first = AtomicBool::new(true);
    harness
        .provider
        .set_reply(move |_| match is_first.swap(false, Ordering::Relaxed) {
            true => ProviderReply::Throttled {
                retry_after_s: AFTER.as_secs(),
            },
            false => ProviderReply::Accepted,
        });
    let node = harness.start_node(&["--campaign-max-jobs", "1"]);
    let runs = ["spring", "summer"]
        .map(|name| node.deploy(&harness.campaign(name, &recipients(3), "job_size: 1"), &[]));
    for run in &runs {
        assert_eq!(
            wait_until_ended(&node.client(), run).await,
            CampaignStatus::Completed
        );
    }
    let calls = harness.provider.calls();
    assert_eq!(
        calls.len(),
        7,
        "only the throttled one of six items is called twice"
    );
    let throttled_until = calls[0].responded_at.unwrap() + AFTER;
    assert!(
        calls[1..].iter().all(|call| call.at >= throttled_until),
        "{calls:?}"
    );
}

/// The rate limit applies to all nodes together. A node refreshes the number of live nodes every
/// few seconds, so the campaign starts after that.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_rate_limit_of_a_provider() {
    const PER_SECOND: usize = 40;
    let harness =
        CampaignHarness::postgres(&format!("rate_limits = {{ per_second = {PER_SECOND} }}")).await;
    let nodes = [
        harness.start_node(&["--node-name", "one"]),
        harness.start_node(&["--node-name", "two"]),
    ];
    let client = nodes
        .each_ref()
        .map(|node| node.client())
        .into_iter()
        .next()
        .unwrap();
    let at = SystemClock.now().plus_ms(6_500);
    let more = format!("job_size: 20\nschedule:\n  at: {at}");
    let run = nodes[0].deploy(&harness.campaign("spring", &recipients(240), &more), &[]);
    assert_eq!(
        wait_until_ended(&client, &run).await,
        CampaignStatus::Completed
    );
    harness.provider.assert_called_once();
    let times: Vec<Instant> = harness
        .provider
        .calls()
        .iter()
        .map(|call| call.at)
        .collect();
    let within = |from: &Instant| {
        times
            .iter()
            .filter(|at| **at >= *from && **at < *from + Duration::from_secs(1))
            .count()
    };
    let most = times.iter().map(within).max().unwrap();
    let took = *times.last().unwrap() - times[0];
    println!(
        "240 calls in {took:?}, at most {most} in any second with a limit of {PER_SECOND} per second"
    );
    // Each node may start with a burst of one, and calls that were admitted in time may arrive
    // late and together.
    assert!(most <= PER_SECOND + PER_SECOND / 4, "{most} in a second");
    assert!(
        took >= Duration::from_millis(240 * 1_000 / PER_SECOND as u64 * 9 / 10),
        "{took:?}"
    );
    assert!(
        took <= Duration::from_secs(20),
        "both nodes use their share of the limit: {took:?}"
    );
    drop(nodes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_without_a_known_response_is_in_doubt_and_not_resent() {
    let harness = CampaignHarness::sqlite("timeout_ms = 400").await;
    harness.provider.set_reply(|request| match request {
        _ if is_for(request, "p00000") => ProviderReply::Unanswered,
        _ if is_for(request, "p00001") => ProviderReply::Dropped,
        _ if is_for(request, "p00002") => ProviderReply::Status(500),
        _ if is_for(request, "p00003") => ProviderReply::Status(422),
        _ if is_for(request, "p00004") => ProviderReply::Delayed(Duration::from_millis(100)),
        _ => ProviderReply::Accepted,
    });
    let node = harness.start_node(&[]);
    let run = node.deploy(&harness.campaign("spring", &recipients(12), ""), &[]);
    let client = node.client();
    wait_until_settled(&client, &run).await;
    node.stop();
    // Another process does not resend them either.
    let node = harness.start_node(&[]);
    let next = node.deploy(
        &harness.campaign("summer", &["another".to_owned()], ""),
        &[],
    );
    assert_eq!(
        wait_until_ended(&node.client(), &next).await,
        CampaignStatus::Completed
    );
    harness.provider.assert_called_once();
    let items = outbox(&node.client(), &run).await;
    let state = |item: &OutboxItemView| item.state;
    let mut expected = vec![OutboxItemState::InDoubt; 3];
    expected.push(OutboxItemState::Failed);
    expected.resize(12, OutboxItemState::Sent);
    assert_eq!(items.iter().map(state).collect::<Vec<_>>(), expected);
    let expected = CampaignItemCounts {
        sent: 8,
        failed: 1,
        in_doubt: 3,
        ..CampaignItemCounts::default()
    };
    assert_eq!(counts(&node.client(), &run).await, expected);
    assert_eq!(
        node.run_ok(&["outbox", "in-doubt", "--limit", "2", "--json"])
            .lines()
            .count(),
        2,
        "--limit applies"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_provider_is_called_again_with_the_same_key() {
    let harness = CampaignHarness::sqlite("timeout_ms = 400\nidempotent = true").await;
    harness.provider.set_reply(|request| match request.nth {
        1 if is_for(request, "p00000") => ProviderReply::Unanswered,
        1 if is_for(request, "p00001") => ProviderReply::Dropped,
        _ => ProviderReply::Accepted,
    });
    let node = harness.start_node(&[]);
    let more = "retries:\n  initial_backoff_ms: 10\n  max_backoff_ms: 20";
    let run = node.deploy(&harness.campaign("spring", &recipients(6), more), &[]);
    assert_eq!(
        wait_until_ended(&node.client(), &run).await,
        CampaignStatus::Completed
    );
    let items = outbox(&node.client(), &run).await;
    let calls = by_key(harness.provider.calls());
    assert_eq!(calls.len(), 6, "each recipient has one key");
    for (place, item) in items.iter().enumerate() {
        assert_eq!(
            calls[&item.key].len(),
            if place < 2 { 2 } else { 1 },
            "{item:?}"
        );
    }
}

const BATCH: &str = "[providers.counting.http.batch]\nmax_items = 10\nitems = \"/results\"\nid = \"/id\"\nstatus = \"/status\"\n\
                     accepted = [\"ok\"]\nrejected = [\"no\"]\ndeferred = [\"later\"]";

/// Response to a batch: results out of order, and none for some of the items.
fn partial_results(request: &ProviderRequest) -> Value {
    let result = |call: &ProviderCall| match &call.to[..6] {
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
async fn each_item_of_a_partly_failed_batch_gets_its_own_result() {
    let harness = CampaignHarness::sqlite(BATCH).await;
    harness
        .provider
        .set_reply(|request| ProviderReply::Body(partial_results(request)));
    let node = harness.start_node(&[]);
    let run = node.deploy(
        &harness.campaign(
            "spring",
            &recipients(30),
            "retries:\n  initial_backoff_ms: 10\n  max_backoff_ms: 20",
        ),
        &[],
    );
    let client = node.client();
    wait_until_settled(&client, &run).await;
    let expected = |recipient: &str| match recipient {
        "p00001" | "p00011" => (OutboxItemState::InDoubt, 1),
        "p00002" => (OutboxItemState::Failed, 1),
        "p00003" => (OutboxItemState::Sent, 2),
        _ => (OutboxItemState::Sent, 1),
    };
    let times = harness.provider.calls_by_key();
    let items = outbox(&client, &run).await;
    assert_eq!(items.len(), 30);
    for item in items {
        assert_eq!(
            (item.state, times[&item.key]),
            expected(&item.recipient),
            "{item:?}"
        );
    }
}
