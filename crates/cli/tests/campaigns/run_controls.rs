//! Pausing, resuming, cancelling and retrying a campaign run while it is sent: the intended
//! recipients are reached exactly once.

use std::collections::BTreeSet;
use std::time::Duration;

use onward_api::campaign::{CampaignApi as _, CampaignStatus};
use onward_api::client::ApiClient;
use onward_api::outbox::OutboxItemState;
use tokio::time::sleep;

use crate::harness::{
    CampaignHarness, counts, jobs, outbox, recipients, run, wait_until, wait_until_ended,
};
use crate::recording_provider::ProviderReply;
use crate::server_process::ServerProcess;

/// Recipients of a campaign, and of each of its jobs.
const RECIPIENTS: usize = 400;
const JOB_SIZE: &str = "job_size: 10";

/// Concurrent jobs of a process, and concurrent sends of a job.
const MAX_JOBS: &str = "2";
const POLICY: &str = "policy = { window = 2 }";

/// Maximum number of calls in progress in two processes when a control is changed.
const CALLS_IN_PROGRESS: usize = 2 * 2 * 2;

/// Upper bound for a dispatcher to notice a control change; it polls every half second.
const CONTROL_DELAY: Duration = Duration::from_secs(2);

/// Two processes that send a campaign slowly, and a client of one of them.
struct SlowCampaign {
    harness: CampaignHarness,
    nodes: [ServerProcess; 2],
    client: ApiClient,
    run: String,
}

impl SlowCampaign {
    async fn start() -> Self {
        let harness = CampaignHarness::postgres(POLICY).await;
        harness
            .provider
            .set_reply(|_| ProviderReply::Delayed(Duration::from_millis(50)));
        let nodes = [(); 2].map(|()| harness.start_node(&["--campaign-max-jobs", MAX_JOBS]));
        let run = nodes[0].deploy(
            &harness.campaign("spring", &recipients(RECIPIENTS), JOB_SIZE),
            &[],
        );
        let client = nodes[0].client();
        harness.provider.wait_until_called(20).await;
        Self {
            harness,
            nodes,
            client,
            run,
        }
    }

    fn request_control(&self, control: &str) {
        self.nodes[1].run_json(&["campaign", control, &self.run, "--by", "ada"]);
    }

    /// Waits until no job is claimed.
    async fn wait_until_idle(&self) {
        let is_idle = async || {
            jobs(&self.client, &self.run)
                .await
                .iter()
                .all(|job| job.locked_until.is_none())
        };
        wait_until("a job stays claimed", is_idle).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_campaign_sends_nothing_until_it_is_resumed() {
    let campaign = SlowCampaign::start().await;
    campaign.request_control("pause");
    let paused = campaign.harness.provider.call_count();
    sleep(CONTROL_DELAY).await;
    campaign.wait_until_idle().await;
    let settled = campaign.harness.provider.call_count();
    // Eight calls at a time of fifty milliseconds each, until the dispatchers notice the pause.
    let late = CONTROL_DELAY.as_millis() as usize / 50 * CALLS_IN_PROGRESS;
    println!("{} calls after the pause", settled - paused);
    assert!(
        settled - paused <= late,
        "{} calls after the pause",
        settled - paused
    );
    assert!(
        settled < RECIPIENTS,
        "the campaign was paused while it was sent"
    );
    assert_eq!(
        counts(&campaign.client, &campaign.run).await.sent,
        settled as u64,
        "sends in progress are settled"
    );
    sleep(CONTROL_DELAY).await;
    assert_eq!(
        campaign.harness.provider.call_count(),
        settled,
        "no calls while the run is paused"
    );
    campaign.request_control("resume");
    assert_eq!(
        wait_until_ended(&campaign.client, &campaign.run).await,
        CampaignStatus::Completed
    );
    campaign.harness.provider.assert_called_once();
    assert_eq!(campaign.harness.provider.call_count(), RECIPIENTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_cancelled_campaign_reaches_only_the_remaining_recipients() {
    let SlowCampaign {
        harness,
        nodes,
        client,
        run: first,
    } = SlowCampaign::start().await;
    nodes[1].run_json(&["campaign", "cancel", &first, "--by", "ada"]);
    let cancelled = harness.provider.call_count();
    assert_eq!(
        wait_until_ended(&client, &first).await,
        CampaignStatus::Partial
    );
    let reached: BTreeSet<String> = harness.provider.calls_by_recipient().into_keys().collect();
    let late = CONTROL_DELAY.as_millis() as usize / 50 * CALLS_IN_PROGRESS;
    println!("{} calls after the cancellation", reached.len() - cancelled);
    assert!(
        reached.len() - cancelled <= late,
        "{} calls after the cancellation",
        reached.len() - cancelled
    );
    for item in outbox(&client, &first).await {
        let expected = if reached.contains(&item.to) {
            OutboxItemState::Sent
        } else {
            OutboxItemState::Skipped
        };
        assert_eq!(item.state, expected, "{item:?}");
    }
    let retries = [&nodes[0], &nodes[1]]
        .map(|node| node.run_json(&["campaign", "retry", &first, "--by", "ada"]));
    assert_eq!(
        retries[0]["run"], retries[1]["run"],
        "a run has at most one retry"
    );
    assert_eq!(retries[0]["items"], RECIPIENTS - reached.len());
    let second = retries[0]["run"].as_str().unwrap();
    assert_eq!(
        wait_until_ended(&client, second).await,
        CampaignStatus::Completed
    );
    harness.provider.assert_called_once();
    assert_eq!(harness.provider.call_count(), RECIPIENTS);
    assert_eq!(
        run(&client, second).await.summary.retry_of,
        Some(first.clone())
    );
    assert_eq!(
        client
            .get_campaign_run(&first)
            .await
            .unwrap()
            .retried_by
            .as_deref(),
        Some(second)
    );
}
