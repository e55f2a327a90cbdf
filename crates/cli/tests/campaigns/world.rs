//! A store, a provider, and what can be seen of campaigns from outside.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use onward_api::campaign::{
    CampaignApi as _, CampaignAuditEntry, CampaignRunView, CampaignStatus, CampaignTally,
    ListAuditEntriesQuery,
};
use onward_api::client::ApiClient;
use onward_api::outbox::{CampaignJob, ListJobsQuery, ListOutboxItemsQuery, OutboxItemView};
use onward_testing::PostgresCluster;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::node::{Node, onward};
use crate::provider::Provider;
use crate::text;

/// How often to look at what other processes do.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Nothing here takes nearly as long.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

/// How long others wait before they take over a job. On a busy machine processes stand still for a
/// second now and then.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A store and a provider.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    pub(crate) provider: Provider,
    pub(crate) cluster: Option<Arc<PostgresCluster>>,
    token: String,
}

impl World {
    /// A world on SQLite, with more to say of the provider.
    pub(crate) async fn sqlite(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        Self::of(folder, url, None, more).await
    }

    pub(crate) async fn postgres(more: &str) -> Self {
        let cluster = PostgresCluster::shared_cluster().unwrap();
        let url = cluster.create_database().unwrap();
        Self::of(tempfile::tempdir().unwrap(), url, Some(cluster), more).await
    }

    async fn of(
        folder: TempDir,
        url: String,
        cluster: Option<Arc<PostgresCluster>>,
        more: &str,
    ) -> Self {
        let provider = Provider::start().await;
        // Where many go together, the keys are beside them.
        let body = match more.contains("[providers.counting.http.batch]") {
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
            "[providers.counting.http]\nurl = \"{}\"\n{body}\n{more}\n",
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

    /// Deploys a campaign without anybody who sends it; returns its run.
    pub(crate) fn deploy_into_store(&self, file: &Path) -> String {
        let deployed = self.told(&["campaign", "deploy", file.to_str().unwrap()]);
        deployed["run"].as_str().unwrap().to_owned()
    }

    /// A campaign run, seen without anybody who serves it.
    pub(crate) fn look_into_store(&self, run: &str) -> Value {
        self.told(&["campaign", "show", run])
    }

    fn told(&self, args: &[&str]) -> Value {
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

    /// A process that serves the store at `url`.
    pub(crate) fn command(&self, url: &str, args: &[&str]) -> Command {
        let config = self.folder.path().join("onward.toml");
        let usual = [
            "serve",
            "--store",
            url,
            "--listen",
            "127.0.0.1:0",
            "--config",
            config.to_str().unwrap(),
        ];
        let mut command = onward(&[&usual[..], args].concat());
        // What is said in `args` counts more.
        let lease = LEASE.as_millis().to_string();
        command
            .env("ONWARD_LEASE_MS", &lease)
            .env("ONWARD_CAMPAIGN_LEASE_MS", &lease);
        command
    }

    pub(crate) fn node(&self, args: &[&str]) -> Node {
        Node::begun(&mut self.command(&self.url, args), &self.token)
    }

    /// A node that is started in another way.
    pub(crate) fn node_by(&self, command: &mut Command) -> Node {
        Node::begun(command, &self.token)
    }

    /// Writes a campaign for these people, with more to say of it.
    pub(crate) fn campaign(&self, name: &str, people: &[String], more: &str) -> PathBuf {
        let mut table = String::from("id,email\n");
        for who in people {
            writeln!(table, "{who},{who}@example.com").unwrap();
        }
        std::fs::write(self.folder.path().join(format!("{name}.csv")), table).unwrap();
        let campaign = format!(
            "campaign: {name}\nchannel: email\nprovider: counting\ntemplate:\n  from: \"News <news@example.com>\"\n  \
             subject: \"Hello {{{{ id }}}}\"\n  text: \"News.\"\naudience:\n  file: {name}.csv\n{more}\n"
        );
        let file = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&file, campaign).unwrap();
        file
    }
}

/// So many people.
pub(crate) fn people(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("p{number:05}")).collect()
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let since = Instant::now();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if is_so().await {
            return;
        }
        assert!(since.elapsed() < HANGS, "{what}");
    }
}

pub(crate) async fn run(client: &ApiClient, run: &str) -> CampaignRunView {
    client.get_campaign_run(run).await.unwrap()
}

pub(crate) async fn tally(client: &ApiClient, id: &str) -> CampaignTally {
    run(client, id).await.tally
}

/// Waits until a campaign run is over, and returns what it came to.
pub(crate) async fn until_over(client: &ApiClient, id: &str) -> CampaignStatus {
    let since = Instant::now();
    loop {
        let run = run(client, id).await;
        if run.summary.status.is_terminal() {
            return run.summary.status;
        }
        assert!(
            since.elapsed() < HANGS,
            "the run does not end: {run:?} {:?}",
            jobs(client, id).await
        );
        sleep(LOOK).await;
    }
}

/// Waits until there is nothing left to do that a process could do.
pub(crate) async fn until_done(client: &ApiClient, id: &str) {
    until("some are left waiting", async || {
        tally(client, id).await.waiting == 0
    })
    .await;
    let is_free = async || {
        jobs(client, id)
            .await
            .iter()
            .all(|job| job.locked_until.is_none())
    };
    until("somebody keeps a job", is_free).await;
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
