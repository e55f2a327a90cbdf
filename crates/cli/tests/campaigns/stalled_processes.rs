//! Processes that are suspended for longer than their lease and continue without noticing: their
//! late writes are rejected, and they send nothing more. A late answer settles an item in doubt.

use onward_api::campaign::{CampaignApi as _, CampaignStatus};
use onward_api::outbox::{ItemResolution, OutboxItemState, SettleItemRequest};

use crate::database_proxy::{BlockPoint, DatabaseProxy};
use crate::harness::{
    CampaignHarness, audit, counts, outbox, recipients, wait_until, wait_until_ended,
    wait_until_settled,
};
use crate::recording_provider::ProviderReply;

/// One item at a time, with a timeout that no suspension of these tests reaches.
const ONE_AT_A_TIME: &str = "timeout_ms = 120000\npolicy = { window = 1 }";

#[tokio::test(flavor = "multi_thread")]
async fn the_late_answer_of_a_suspended_process_settles_its_item() {
    let harness = CampaignHarness::postgres(ONE_AT_A_TIME).await;
    harness.provider.set_reply(|request| {
        if request.calls[0].to.starts_with("p00000@") {
            ProviderReply::Held
        } else {
            ProviderReply::Accepted
        }
    });
    let stalled = harness.start_node(&["--campaign-max-jobs", "1", "--node-name", "stalled"]);
    let run = stalled.deploy(&harness.campaign("spring", &recipients(5), ""), &[]);
    harness.provider.wait_until_called(1).await;
    let shown = stalled.client().get_campaign_run(&run).await.unwrap();
    assert_eq!(
        (shown.active_jobs.unwrap().jobs, shown.counts.waiting),
        (1, 5),
        "the lease has not expired yet"
    );
    stalled.signal("STOP");
    let other = harness.start_node(&["--node-name", "other"]);
    let client = other.client();
    wait_until_settled(&client, &run).await;
    let counts = counts(&client, &run).await;
    assert_eq!((counts.sent, counts.in_doubt), (4, 1));
    other.stop();
    harness.provider.release_held(1);
    stalled.signal("CONT");
    let client = stalled.client();
    assert_eq!(
        wait_until_ended(&client, &run).await,
        CampaignStatus::Completed
    );
    let items = outbox(&client, &run).await;
    assert!(items.iter().all(|item| item.state == OutboxItemState::Sent));
    let times = harness.provider.calls_by_key();
    assert!(items.iter().all(|item| times[&item.key] == 1), "{times:?}");
    let settled = audit(&client, &run)
        .await
        .into_iter()
        .find(|entry| entry.event == "item.settled")
        .unwrap();
    assert!(
        settled.detail.as_str().contains("\"by\":\"stalled\""),
        "{}",
        settled.detail.as_str()
    );
    let recovered = audit(&client, &run)
        .await
        .into_iter()
        .filter(|entry| entry.event == "job.recovered");
    assert!(
        recovered
            .map(|entry| entry.detail.as_str().to_owned())
            .all(|detail| detail.contains("\"other\""))
    );
}

/// The process has reserved an item but not received the result of the commit. Meanwhile another
/// process finds the item in doubt, an operator settles it as not sent, and the other process sends
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_learns_too_late_of_its_reservation_does_not_send() {
    let harness = CampaignHarness::postgres(ONE_AT_A_TIME).await;
    let port = harness.cluster.as_ref().unwrap().port();
    let proxy = DatabaseProxy::in_front_of(port);
    let mut command = harness.command(
        &proxy.url(&harness.url, port),
        &["--campaign-max-jobs", "1"],
    );
    let stalled = harness.start_node_with(&mut command);
    stalled.client();
    proxy.block_at(&[".000000.0000", "COMMIT\0"], BlockPoint::After);
    let run = stalled.deploy(&harness.campaign("spring", &recipients(3), ""), &[]);
    proxy.wait_until_blocked().await;
    let other = harness.start_node(&[]);
    let client = other.client();
    wait_until("the item is not reserved", async || {
        !outbox(&client, &run).await.is_empty()
    })
    .await;
    wait_until_settled(&client, &run).await;
    let in_doubt = outbox(&client, &run)
        .await
        .into_iter()
        .find(|item| item.state == OutboxItemState::InDoubt)
        .unwrap();
    assert_eq!(
        harness.provider.calls_by_key().get(&in_doubt.key),
        None,
        "the item was not sent"
    );
    let settle = SettleItemRequest {
        resolution: ItemResolution::Resend,
        reason: "not in the provider log".to_owned(),
        message_id: None,
        by: None,
    };
    client.settle_item(&in_doubt.item, settle).await.unwrap();
    assert_eq!(
        wait_until_ended(&client, &run).await,
        CampaignStatus::Completed
    );
    other.stop();
    proxy.unblock();
    let next = stalled.deploy(
        &harness.campaign("summer", &["another".to_owned()], ""),
        &[],
    );
    assert_eq!(
        wait_until_ended(&stalled.client(), &next).await,
        CampaignStatus::Completed
    );
    harness.provider.assert_called_once();
    assert_eq!(harness.provider.call_count(), 4);
}
