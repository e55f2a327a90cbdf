//! A store, a recording provider, and campaigns as clients see them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use onward_api::campaign::{
    CampaignApi as _, CampaignAuditEntry, CampaignItemCounts, CampaignRunView, CampaignStatus,
    ListAuditEntriesQuery,
};
use onward_api::client::ApiClient;
use onward_api::outbox::{CampaignJob, ListJobsQuery, ListOutboxItemsQuery, OutboxItemView};
use onward_testing::{ClusterDurability, PostgresCluster};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::recording_provider::RecordingProvider;
use crate::server_process::{ServerProcess, onward};
use crate::text;

/// Interval between two polls of the state of other processes.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout of each wait; a wait usually takes far less.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Lease of a job and of a node. It is long, because on a busy machine a process may be suspended
/// for a second.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A store, a provider and the configuration of a server that uses both.
pub(crate) struct CampaignHarness {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    pub(crate) provider: RecordingProvider,
    pub(crate) cluster: Option<Arc<PostgresCluster>>,
    token: String,
}

impl CampaignHarness {
    /// Creates a SQLite store; `extra` is added to the settings of the provider.
    pub(crate) async fn sqlite(extra: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        Self::of(folder, url, None, extra).await
    }

    pub(crate) async fn postgres(extra: &str) -> Self {
        let cluster = PostgresCluster::shared_cluster(ClusterDurability::Synced).unwrap();
        let url = cluster.create_database().unwrap();
        Self::of(tempfile::tempdir().unwrap(), url, Some(cluster), extra).await
    }

    async fn of(
        folder: TempDir,
        url: String,
        cluster: Option<Arc<PostgresCluster>>,
        extra: &str,
    ) -> Self {
        let provider = RecordingProvider::start().await;
        // In a batch, the idempotency keys are in the body.
        let body = match extra.contains("[providers.counting.http.batch]") {
            false => {
                "idempotency_header = \"idempotency-key\"\nbody = '{\"to\": {{ to }}, \"item\": {{ item }}}'".to_owned()
            }
            true => {
                let entry = "{\"to\": {{ it.to }}, \"item\": {{ it.item }}, \"key\": {{ it.key }}}";
                let each = "{% for it in items %}ENTRY{% if not loop.last %},{% endif %}{% endfor %}";
                format!("body = '{{\"items\": [{}]}}'", each.replace("ENTRY", entry))
            }
        };
        let config = format!(
            "[providers.counting.http]\nurl = \"{}\"\n{body}\n{extra}\n",
            provider.url()
        );
        std::fs::write(folder.path().join("onward.toml"), config).unwrap();
        let created = onward(&[
            "token", "create", "admin", "--role", "admin", "--store", &url,
        ])
        .output()
        .unwrap();
        assert_eq!(created.status.code(), Some(0), "{}", text(&created.stderr));
        let token = text(&created.stdout).trim().to_owned();
        Self {
            folder,
            url,
            provider,
            cluster,
            token,
        }
    }

    /// Deploys a campaign on the store, without a server, and returns the id of its run.
    pub(crate) fn deploy_into_store(&self, file: &Path) -> String {
        let deployed = self.run_json(&["campaign", "deploy", file.to_str().unwrap()]);
        deployed["run"].as_str().unwrap().to_owned()
    }

    /// Reads a campaign run from the store, without a server.
    pub(crate) fn show_from_store(&self, run: &str) -> Value {
        self.run_json(&["campaign", "show", run])
    }

    fn run_json(&self, args: &[&str]) -> Value {
        let output = onward(&[args, &["--json", "--store", &self.url]].concat())
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the command of a server on the store at `url`.
    pub(crate) fn command(&self, url: &str, args: &[&str]) -> Command {
        let config = self.folder.path().join("onward.toml");
        let defaults = [
            "serve",
            "--store",
            url,
            "--listen",
            "127.0.0.1:0",
            "--config",
            config.to_str().unwrap(),
        ];
        let mut command = onward(&[&defaults[..], args].concat());
        // Options in `args` take precedence.
        let lease = LEASE.as_millis().to_string();
        command
            .env("ONWARD_LEASE_MS", &lease)
            .env("ONWARD_CAMPAIGN_LEASE_MS", &lease);
        command
    }

    pub(crate) fn start_node(&self, args: &[&str]) -> ServerProcess {
        ServerProcess::start(&mut self.command(&self.url, args), &self.token)
    }

    /// Starts a node with the given command.
    pub(crate) fn start_node_with(&self, command: &mut Command) -> ServerProcess {
        ServerProcess::start(command, &self.token)
    }

    /// Writes a campaign file for these recipients; `extra` is added to it.
    pub(crate) fn campaign(&self, name: &str, recipients: &[String], extra: &str) -> PathBuf {
        let mut table = String::from("id,email\n");
        for id in recipients {
            writeln!(table, "{id},{id}@example.com").unwrap();
        }
        std::fs::write(self.folder.path().join(format!("{name}.csv")), table).unwrap();
        let campaign = format!(
            "campaign: {name}\nchannel: email\nprovider: counting\ntemplate:\n  from: \"News <news@example.com>\"\n  \
             subject: \"Hello {{{{ id }}}}\"\n  text: \"News.\"\naudience:\n  file: {name}.csv\n{extra}\n"
        );
        let file = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&file, campaign).unwrap();
        file
    }
}

/// Returns the ids of `count` recipients.
pub(crate) fn recipients(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("p{number:05}")).collect()
}

/// Polls until the condition holds; fails with `failure` after [`TIMEOUT`].
pub(crate) async fn wait_until(failure: &str, condition: impl AsyncFn() -> bool) {
    let since = Instant::now();
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        polls.tick().await;
        if condition().await {
            return;
        }
        assert!(since.elapsed() < TIMEOUT, "{failure}");
    }
}

pub(crate) async fn run(client: &ApiClient, run: &str) -> CampaignRunView {
    client.get_campaign_run(run).await.unwrap()
}

pub(crate) async fn counts(client: &ApiClient, id: &str) -> CampaignItemCounts {
    run(client, id).await.counts
}

/// Waits until a campaign run has ended, and returns its status.
pub(crate) async fn wait_until_ended(client: &ApiClient, id: &str) -> CampaignStatus {
    let since = Instant::now();
    loop {
        let run = run(client, id).await;
        if run.summary.status.is_terminal() {
            return run.summary.status;
        }
        assert!(
            since.elapsed() < TIMEOUT,
            "the run does not end: {run:?} {:?}",
            jobs(client, id).await
        );
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits until no item is waiting and no job is claimed.
pub(crate) async fn wait_until_settled(client: &ApiClient, id: &str) {
    wait_until("items are left waiting", async || {
        counts(client, id).await.waiting == 0
    })
    .await;
    let is_free = async || {
        jobs(client, id)
            .await
            .iter()
            .all(|job| job.locked_until.is_none())
    };
    wait_until("a job stays claimed", is_free).await;
}

pub(crate) async fn outbox(client: &ApiClient, run: &str) -> Vec<OutboxItemView> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let listing = ListOutboxItemsQuery {
            run: run.to_owned(),
            limit: Some(1_000),
            after,
            ..ListOutboxItemsQuery::default()
        };
        let page = client.list_outbox_items(listing).await.unwrap();
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return items;
        }
    }
}

pub(crate) async fn jobs(client: &ApiClient, run: &str) -> Vec<CampaignJob> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let listing = ListJobsQuery {
            run: Some(run.to_owned()),
            limit: Some(1_000),
            after,
            ..ListJobsQuery::default()
        };
        let page = client.list_jobs(listing).await.unwrap();
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return jobs;
        }
    }
}

pub(crate) async fn audit(client: &ApiClient, run: &str) -> Vec<CampaignAuditEntry> {
    let (mut entries, mut after) = (Vec::new(), None);
    loop {
        let page = client
            .list_audit_entries(
                run,
                ListAuditEntriesQuery {
                    after,
                    limit: Some(1_000),
                },
            )
            .await
            .unwrap();
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return entries;
        }
    }
}
