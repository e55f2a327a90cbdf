//! Repeated SIGKILL of the processes that send a campaign: no recipient is called twice, none is
//! lost, and items with an unknown outcome are in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_api::OnwardApi as _;
use onward_api::campaign::{CampaignApi as _, CampaignItemCounts, CampaignStatus};
use onward_api::client::ApiClient;
use onward_api::finding::{DoctorProgress, FindingCode};
use onward_api::outbox::{
    CampaignJobStatus, ItemResolution, OutboxItemState, OutboxItemView, SettleItemsRequest,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::harness::{
    CampaignHarness, audit, counts, jobs, outbox, recipients, run, wait_until_ended,
    wait_until_settled,
};
use crate::recording_provider::ProviderReply;
use crate::server_process::ServerProcess;

/// Default number of kills; `ONWARD_CAMPAIGN_KILLS` overrides it.
const KILLS: usize = 200;

/// Recipients per kill: more than are answered between two kills and left in doubt by one.
const RECIPIENTS: usize = 50;

/// Responses between two kills, and the number of responses after which a kill comes at the latest.
const RESPONSES: usize = 40;
const RESPONSES_BEFORE_KILL_MAX: usize = 32;

/// A kill follows within this many microseconds: before, during or after a write.
const KILL_SPREAD_US: usize = 12_000;

/// Concurrent jobs of a process, and concurrent sends of a job: a kill leaves at most that many
/// items in doubt.
const MAX_JOBS: usize = 4;
const WINDOW: usize = 2;

/// Lease while processes are killed.
const SHORT_LEASE_MS: &str = "1000";

/// Reasons recorded with a settled item.
const CALLED: &str = "in the provider's log";
const NOT_CALLED: &str = "not in the provider's log";

/// Items that are settled one by one; the others are settled together.
const SETTLED_SINGLY: usize = 3;

fn kills() -> usize {
    std::env::var("ONWARD_CAMPAIGN_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(KILLS)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_send_is_repeated_or_lost_when_two_processes_are_killed_on_sqlite() {
    send_through_kills(CampaignHarness::sqlite(&policy()).await, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_send_is_repeated_or_lost_when_three_processes_are_killed_on_postgres() {
    send_through_kills(CampaignHarness::postgres(&policy()).await, 3).await;
}

fn policy() -> String {
    format!("policy = {{ window = {WINDOW} }}")
}

/// Random numbers, equal in every run of the test.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

async fn send_through_kills(harness: CampaignHarness, processes: usize) {
    let (kills, since) = (kills(), Instant::now());
    let recipients = recipients(kills * RECIPIENTS);
    // The provider responds at the pace of the kills. It closes some connections just when they
    // may be reused.
    harness
        .provider
        .set_reply(|request| match request.calls[0].key.as_bytes()[0] {
            b'0' => ProviderReply::AcceptedThenClosed,
            _ => ProviderReply::Held,
        });
    // A job is retried however often its process is killed.
    let file = harness.campaign(
        "spring",
        &recipients,
        "job_size: 100\nretries: { max_attempts: 1000 }",
    );
    let max_jobs = MAX_JOBS.to_string();
    let start = |lease_ms| {
        harness.start_node(&[
            "--campaign-max-jobs",
            &max_jobs,
            "--campaign-lease-ms",
            lease_ms,
        ])
    };
    let mut nodes: Vec<ServerProcess> = (0..processes).map(|_| start(SHORT_LEASE_MS)).collect();
    let id = nodes[0].deploy(&file, &[]);
    let mut random = SeededNumbers(7);
    for _ in 0..kills {
        // At some point of the run, or when all remaining items have calls in progress.
        harness.provider.release_held(RESPONSES);
        let answered = harness.provider.response_count() + random.below(RESPONSES_BEFORE_KILL_MAX);
        harness.provider.wait_until_answered(answered).await;
        sleep(Duration::from_micros(random.below(KILL_SPREAD_US) as u64)).await;
        nodes.remove(0).kill();
        nodes.push(start(SHORT_LEASE_MS));
    }
    let called = harness.provider.call_count();
    assert!(
        called < recipients.len(),
        "the campaign was still being sent after the last kill: {called} calls"
    );
    harness.provider.release_held(recipients.len());
    wait_until_settled(&nodes[0].client(), &id).await;
    // The provider reads all requests of killed processes before any item is settled.
    nodes.into_iter().for_each(ServerProcess::stop);
    harness.provider.wait_until_disconnected().await;
    // A long lease: however slow the machine is, no further item gets in doubt.
    let node = start("60000");
    let checks = KillChecks {
        harness: &harness,
        node: &node,
        client: node.client(),
        run: id,
        recipients: &recipients,
    };
    let in_doubt_items = checks.assert_nothing_lost(kills).await;
    harness.provider.set_reply(|_| ProviderReply::Accepted);
    let missed = in_doubt_items
        .iter()
        .filter(|item| !checks.was_called(item))
        .count();
    assert!(
        missed > 0 && missed < in_doubt_items.len(),
        "some sends were interrupted before their call, and some after it: {missed}"
    );
    checks.settle_in_doubt(&in_doubt_items).await;
    checks.assert_all_sent(&in_doubt_items).await;
    println!(
        "{kills} kills of {processes} processes, {} items: {called} called before the last kill, {} in doubt, of which {missed} were not called; {:.1} s",
        recipients.len(),
        in_doubt_items.len(),
        since.elapsed().as_secs_f64()
    );
}

/// A campaign run after the kills, and what it is compared with.
struct KillChecks<'a> {
    harness: &'a CampaignHarness,
    node: &'a ServerProcess,
    client: ApiClient,
    run: String,
    recipients: &'a [String],
}

impl KillChecks<'_> {
    fn was_called(&self, item: &OutboxItemView) -> bool {
        self.harness.provider.calls_by_key().contains_key(&item.key)
    }

    /// Returns the findings of the doctor.
    async fn doctor_findings(&self) -> Vec<FindingCode> {
        let mut found = Vec::new();
        let mut on_progress = |update| {
            if let DoctorProgress::Finding(finding) = update {
                found.push(finding.code);
            }
        };
        let report = self.client.run_doctor(&mut on_progress).await.unwrap();
        assert_eq!(
            (report.campaign_runs, report.items),
            (1, self.recipients.len() as u64)
        );
        found
    }

    /// Asserts that no recipient was called twice and that each has one row with the right state.
    /// Returns the items in doubt.
    async fn assert_nothing_lost(&self, kills: usize) -> Vec<OutboxItemView> {
        self.harness.provider.assert_called_once();
        let items = outbox(&self.client, &self.run).await;
        let names: BTreeSet<&str> = items.iter().map(|item| item.recipient.as_str()).collect();
        assert_eq!(
            (names.len(), items.len()),
            (self.recipients.len(), self.recipients.len()),
            "each recipient has one row"
        );
        assert!(self.recipients.iter().all(|id| names.contains(id.as_str())));
        let times = self.harness.provider.calls_by_key();
        let known: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
        assert!(
            times.keys().all(|key| known.contains(key.as_str())),
            "only recipients of the campaign were called"
        );
        let mut in_doubt_items = Vec::new();
        for item in items {
            match item.state {
                OutboxItemState::Sent => assert_eq!(times.get(&item.key), Some(&1), "{item:?}"),
                OutboxItemState::InDoubt => in_doubt_items.push(item),
                _ => panic!("neither sent nor in doubt: {item:?}"),
            }
        }
        let in_doubt = in_doubt_items.len() as u64;
        let sent = self.recipients.len() as u64 - in_doubt;
        let expected = CampaignItemCounts {
            sent,
            in_doubt,
            ..CampaignItemCounts::default()
        };
        assert_eq!(
            counts(&self.client, &self.run).await,
            expected,
            "the counts add up"
        );
        assert!(!in_doubt_items.is_empty(), "the kills interrupted calls");
        assert_eq!(
            self.doctor_findings().await,
            [FindingCode::CampaignInDoubt],
            "no work is stuck after the kills"
        );
        assert!(
            in_doubt_items.len() <= kills * MAX_JOBS * WINDOW,
            "a kill leaves at most one window of each job in doubt"
        );
        in_doubt_items
    }

    /// Settles each item in doubt by the provider's log: first the items in the log, then all that
    /// are left.
    async fn settle_in_doubt(&self, in_doubt_items: &[OutboxItemView]) {
        let (called, missed): (Vec<&OutboxItemView>, Vec<_>) = in_doubt_items
            .iter()
            .partition(|item| self.was_called(item));
        for item in called.iter().take(SETTLED_SINGLY) {
            let settled = self.node.run_json(&[
                "outbox", "settle", &item.item, "sent", "--reason", CALLED, "--by", "ada",
            ]);
            assert_eq!(settled["state"], "sent");
        }
        let rest: Vec<String> = called
            .iter()
            .skip(SETTLED_SINGLY)
            .map(|item| item.item.clone())
            .collect();
        for items in rest.chunks(1_000).map(<[String]>::to_vec) {
            let (reason, by) = (CALLED.to_owned(), Some("ada".to_owned()));
            let settle = SettleItemsRequest {
                items,
                resolution: ItemResolution::Sent,
                reason,
                by,
            };
            let settlement = self.client.settle_items(settle).await.unwrap();
            assert!(settlement.rejected.is_empty(), "{:?}", settlement.rejected);
        }
        let settled = self.node.run_ok(&[
            "outbox", "settle", "--run", &self.run, "resend", "--reason", NOT_CALLED, "--by", "ada",
        ]);
        assert_eq!(settled.lines().count(), missed.len(), "{settled}");
    }

    /// Asserts that each item was called once and is sent, and that the audit trail is complete.
    async fn assert_all_sent(&self, in_doubt_items: &[OutboxItemView]) {
        assert_eq!(
            wait_until_ended(&self.client, &self.run).await,
            CampaignStatus::Completed
        );
        self.harness.provider.assert_called_once();
        let times = self.harness.provider.calls_by_key();
        assert_eq!(
            times.len(),
            self.recipients.len(),
            "each recipient was called"
        );
        let items = outbox(&self.client, &self.run).await;
        assert!(
            items
                .iter()
                .all(|item| item.state == OutboxItemState::Sent && times.contains_key(&item.key))
        );
        assert_eq!(
            run(&self.client, &self.run).await.counts.sent,
            self.recipients.len() as u64
        );
        let jobs = jobs(&self.client, &self.run).await;
        assert_eq!(jobs.len(), self.recipients.len().div_ceil(100));
        assert!(
            jobs.iter()
                .all(|job| job.status == CampaignJobStatus::Completed)
        );
        assert_eq!(self.doctor_findings().await, []);
        self.assert_audit(in_doubt_items, jobs.len()).await;
    }

    async fn assert_audit(&self, in_doubt_items: &[OutboxItemView], jobs: usize) {
        let entries = audit(&self.client, &self.run).await;
        let mut events: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for entry in &entries {
            let detail = serde_json::from_str(entry.detail.as_str()).unwrap();
            events.entry(&entry.event).or_default().push(detail);
        }
        let count = |event: &str| events.get(event).map_or(0, Vec::len);
        assert_eq!(
            (
                count("run.deployed"),
                count("run.began"),
                count("run.ended")
            ),
            (1, 1, 1)
        );
        assert_eq!(entries.first().unwrap().event, "run.deployed");
        assert_eq!(entries.last().unwrap().event, "run.ended");
        assert_eq!(events["run.deployed"][0]["by"], "ada (token admin)");
        let ended: BTreeSet<&str> = events["job.completed"]
            .iter()
            .map(|it| it["job"].as_str().unwrap())
            .collect();
        assert_eq!(
            (count("job.completed"), ended.len()),
            (jobs, jobs),
            "each job completes once"
        );
        assert!(count("job.recovered") > 0, "some jobs were taken over");
        let settled: BTreeSet<&str> = events["item.settled"]
            .iter()
            .map(|it| it["item"].as_str().unwrap())
            .collect();
        assert_eq!(
            (count("item.settled"), settled.len()),
            (in_doubt_items.len(), in_doubt_items.len()),
            "each decision is recorded once"
        );
        for item in in_doubt_items {
            let it = events["item.settled"]
                .iter()
                .find(|it| it["item"] == item.item.as_str())
                .unwrap();
            assert_eq!(it["by"], "ada (token admin)");
            let (resolution, reason) = (
                it["resolution"].as_str().unwrap(),
                it["reason"].as_str().unwrap(),
            );
            assert!(matches!(
                (resolution, reason),
                ("sent", CALLED) | ("resend", NOT_CALLED)
            ));
        }
    }
}
