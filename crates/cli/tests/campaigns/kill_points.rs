//! A process that is killed at a chosen point: before and after it reserves an item, during a call,
//! and before and after it stores the response. At every point the provider's log is enough to
//! reach each recipient exactly once.

use std::process::Stdio;
use std::sync::Mutex;

use futures_util::future::join_all;
use onward_api::campaign::{CampaignApi as _, CampaignStatus};
use onward_api::client::ApiClient;
use onward_api::outbox::{ItemResolution, OutboxItemState, OutboxItemView, SettleItemRequest};
use onward_testing::DiskFault;

use crate::database_proxy::{BlockPoint, DatabaseProxy};
use crate::harness::{
    CampaignHarness, outbox, recipients, wait_until, wait_until_ended, wait_until_settled,
};
use crate::recording_provider::ProviderReply;
use crate::server_process::ServerProcess;

/// One item at a time, so that a fault affects only one.
const ONE_AT_A_TIME: &str = "policy = { window = 1 }";

/// Texts sent to the database when the first item of a run is reserved or changed: the end of its
/// id, and then the commit.
const WRITE_TEXTS: &[&str] = &[".000000.0000"];
const COMMIT_TEXTS: &[&str] = &[".000000.0000", "COMMIT\0"];

const fn texts_at(point: BlockPoint) -> &'static [&'static str] {
    match point {
        BlockPoint::Before => WRITE_TEXTS,
        BlockPoint::After => COMMIT_TEXTS,
    }
}

/// A campaign on Postgres whose process stops at a chosen point and is then killed or cut off.
struct InterruptedSend {
    harness: CampaignHarness,
    proxy: DatabaseProxy,
    node: ServerProcess,
    run: String,
}

impl InterruptedSend {
    /// Starts to send a campaign to `count` recipients, and stops at the given point.
    async fn start(count: usize, reply: ProviderReply, stop: Option<BlockPoint>) -> Self {
        Self::start_with(count, reply, stop, &[]).await
    }

    async fn start_with(
        count: usize,
        reply: ProviderReply,
        stop: Option<BlockPoint>,
        args: &[&str],
    ) -> Self {
        let harness = CampaignHarness::postgres(ONE_AT_A_TIME).await;
        harness.provider.set_reply(move |_| reply.clone());
        let port = harness.cluster.as_ref().unwrap().port();
        let proxy = DatabaseProxy::in_front_of(port);
        let mut command = harness.command(
            &proxy.url(&harness.url, port),
            &[&["--campaign-max-jobs", "1"], args].concat(),
        );
        let node = harness.start_node_with(&mut command);
        node.client();
        if let Some(point) = stop {
            proxy.block_at(texts_at(point), point);
        }
        let run = node.deploy(&harness.campaign("spring", &recipients(count), ""), &[]);
        Self {
            harness,
            proxy,
            node,
            run,
        }
    }

    /// Kills the process; data that it has not sent to the database yet is lost.
    fn kill(self) -> (CampaignHarness, String) {
        self.node.kill();
        self.proxy.cut();
        self.harness.provider.set_reply(|_| ProviderReply::Accepted);
        (self.harness, self.run)
    }
}

/// Settles the items in doubt by the provider's log and asserts that each item is sent once.
async fn assert_all_sent_once(
    harness: &CampaignHarness,
    client: &ApiClient,
    run: &str,
    in_doubt: &[OutboxItemView],
) {
    for item in in_doubt {
        let was_called = harness.provider.calls_by_key().contains_key(&item.key);
        let resolution = if was_called {
            ItemResolution::Sent
        } else {
            ItemResolution::Resend
        };
        let settle = SettleItemRequest {
            resolution,
            reason: "provider log".to_owned(),
            message_id: None,
            by: None,
        };
        client.settle_item(&item.item, settle).await.unwrap();
    }
    assert_eq!(
        wait_until_ended(client, run).await,
        CampaignStatus::Completed
    );
    harness.provider.assert_called_once();
    let items = outbox(client, run).await;
    assert_eq!(harness.provider.call_count(), items.len());
    assert!(items.iter().all(|item| item.state == OutboxItemState::Sent));
}

async fn items_in_doubt(client: &ApiClient, run: &str) -> Vec<OutboxItemView> {
    wait_until_settled(client, run).await;
    let items = outbox(client, run).await.into_iter();
    items
        .filter(|item| item.state == OutboxItemState::InDoubt)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_before_the_reservation_leaves_nothing_in_doubt() {
    let interrupted =
        InterruptedSend::start(3, ProviderReply::Accepted, Some(BlockPoint::Before)).await;
    interrupted.proxy.wait_until_blocked().await;
    let (harness, run) = interrupted.kill();
    assert_eq!(
        harness.provider.call_count(),
        0,
        "no item is sent before it is reserved"
    );
    let node = harness.start_node(&[]);
    assert_eq!(items_in_doubt(&node.client(), &run).await, []);
    assert_all_sent_once(&harness, &node.client(), &run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_after_the_reservation_leaves_an_unsent_item_in_doubt() {
    let interrupted =
        InterruptedSend::start(3, ProviderReply::Accepted, Some(BlockPoint::After)).await;
    interrupted.proxy.wait_until_blocked().await;
    let node = interrupted.harness.start_node(&[]);
    let client = node.client();
    wait_until("the item is not reserved", async || {
        !outbox(&client, &interrupted.run).await.is_empty()
    })
    .await;
    let (harness, run) = interrupted.kill();
    assert_eq!(
        harness
            .provider
            .calls_by_key()
            .get(&outbox(&client, &run).await[0].key),
        None,
        "the item was not sent yet"
    );
    let in_doubt = items_in_doubt(&client, &run).await;
    assert_eq!(in_doubt.len(), 1);
    assert_eq!(
        harness.provider.calls_by_key().get(&in_doubt[0].key),
        None,
        "an item in doubt is not sent"
    );
    assert_all_sent_once(&harness, &client, &run, &in_doubt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_during_a_call_leaves_its_item_in_doubt() {
    let interrupted = InterruptedSend::start(3, ProviderReply::Held, None).await;
    interrupted.harness.provider.wait_until_called(1).await;
    let (harness, run) = interrupted.kill();
    let node = harness.start_node(&[]);
    let in_doubt = items_in_doubt(&node.client(), &run).await;
    assert_eq!(in_doubt.len(), 1);
    assert_eq!(
        harness.provider.calls_by_key()[&in_doubt[0].key],
        1,
        "the item was sent"
    );
    assert_all_sent_once(&harness, &node.client(), &run, &in_doubt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_before_it_stores_a_response_leaves_the_item_in_doubt() {
    let interrupted = InterruptedSend::start(3, ProviderReply::Held, None).await;
    interrupted.harness.provider.wait_until_called(1).await;
    interrupted.proxy.block_at(WRITE_TEXTS, BlockPoint::Before);
    interrupted.harness.provider.release_held(1);
    interrupted.proxy.wait_until_blocked().await;
    assert_eq!(
        (
            interrupted.harness.provider.response_count(),
            interrupted.harness.provider.call_count()
        ),
        (1, 1)
    );
    let (harness, run) = interrupted.kill();
    let node = harness.start_node(&[]);
    let in_doubt = items_in_doubt(&node.client(), &run).await;
    assert_eq!(in_doubt.len(), 1);
    assert_eq!(
        harness.provider.calls_by_key()[&in_doubt[0].key],
        1,
        "the item was sent"
    );
    assert_all_sent_once(&harness, &node.client(), &run, &in_doubt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_after_it_stored_a_response_leaves_nothing_in_doubt() {
    let interrupted = InterruptedSend::start(1, ProviderReply::Held, None).await;
    interrupted.harness.provider.wait_until_called(1).await;
    interrupted.proxy.block_at(COMMIT_TEXTS, BlockPoint::After);
    interrupted.harness.provider.release_held(1);
    interrupted.proxy.wait_until_blocked().await;
    let node = interrupted.harness.start_node(&[]);
    let client = node.client();
    let is_stored =
        async || outbox(&client, &interrupted.run).await[0].state == OutboxItemState::Sent;
    wait_until("the response is not stored", is_stored).await;
    let (harness, run) = interrupted.kill();
    // The killed process did not complete the run; another one does.
    assert_all_sent_once(&harness, &client, &run, &[]).await;
}

/// Number of writes and syncs from one kill point to the next.
const STRIDE: usize = 3;

/// Kill points that are tested concurrently.
const CONCURRENT_KILLS: usize = 4;

/// The process survives, but its database connections are cut while it stores something. It
/// determines by itself whether the commit took place.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_cut_off_from_its_database_sends_each_item_once_with_a_known_outcome() {
    for (point, is_response) in [
        (BlockPoint::Before, false),
        (BlockPoint::After, false),
        (BlockPoint::Before, true),
        (BlockPoint::After, true),
    ] {
        let (reply, stop) = if is_response {
            (ProviderReply::Held, None)
        } else {
            (ProviderReply::Accepted, Some(point))
        };
        let cut_off =
            InterruptedSend::start_with(3, reply, stop, &["--campaign-lease-ms", "60000"]).await;
        if is_response {
            cut_off.harness.provider.wait_until_called(1).await;
            cut_off.proxy.block_at(texts_at(point), point);
            cut_off.harness.provider.release_held(3);
        }
        cut_off.proxy.wait_until_blocked().await;
        cut_off.proxy.cut();
        cut_off.proxy.unblock();
        cut_off
            .harness
            .provider
            .set_reply(|_| ProviderReply::Accepted);
        let client = cut_off.node.client();
        assert_eq!(
            wait_until_ended(&client, &cut_off.run).await,
            CampaignStatus::Completed,
            "{point:?} {is_response}"
        );
        cut_off.harness.provider.assert_called_once();
        assert_eq!(cut_off.harness.provider.call_count(), 3);
    }
}

/// On SQLite the store is part of the process: it is killed before syncs and during writes, from
/// its start until the campaign has ended.
#[tokio::test(flavor = "multi_thread")]
async fn no_send_is_repeated_or_lost_whichever_write_is_interrupted() {
    let mut in_doubt_counts = Vec::new();
    for round in 0.. {
        let steps =
            (0..CONCURRENT_KILLS).map(|place| 1 + (round * CONCURRENT_KILLS + place) * STRIDE);
        let killed = join_all(steps.map(kill_at_step)).await;
        in_doubt_counts.extend(killed.iter().flatten());
        if killed.contains(&None) {
            break;
        }
    }
    let in_doubt: usize = in_doubt_counts.iter().sum();
    println!("{} kills, {in_doubt} in doubt", in_doubt_counts.len());
    assert!(
        in_doubt_counts.len() >= 20 && in_doubt > 0,
        "{in_doubt_counts:?}"
    );
}

/// Kills a process at a write or sync and lets another continue. Returns the number of items in
/// doubt, or `None` if the campaign completed with fewer writes and syncs.
async fn kill_at_step(step: usize) -> Option<usize> {
    let harness = CampaignHarness::sqlite(ONE_AT_A_TIME).await;
    let run = harness.deploy_into_store(&harness.campaign("spring", &recipients(2), ""));
    let settings = ["--campaign-max-jobs", "1", "--campaign-lease-ms", "300"];
    let mut command = harness.command(&harness.url, &settings);
    DiskFault::Kill.inject_at(step, &mut command);
    let interrupted = Mutex::new(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let is_over = || harness.show_from_store(&run)["status"] == "completed";
    wait_until(
        "the process neither ends nor completes the run",
        async || interrupted.lock().unwrap().try_wait().unwrap().is_some() || is_over(),
    )
    .await;
    if is_over() {
        let mut process = interrupted.into_inner().unwrap();
        drop(process.kill());
        process.wait().unwrap();
        return None;
    }
    harness.provider.wait_until_disconnected().await;
    let node = harness.start_node(&[]);
    let in_doubt = items_in_doubt(&node.client(), &run).await;
    assert!(in_doubt.len() <= 1, "one item at a time: {in_doubt:?}");
    assert_all_sent_once(&harness, &node.client(), &run, &in_doubt).await;
    Some(in_doubt.len())
}
