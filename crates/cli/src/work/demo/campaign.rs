//! A campaign whose process is killed in the middle, by which nobody is reached twice.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use onward_api::Json;
use onward_api::campaign::{
    AudiencePart, CampaignRun, CampaignTally, Campaigning as _, DeployCampaign, Reached, Recipient,
};
use onward_api::outbox::{DoubtListing, ItemVerdict, Settle};
use onward_engine::client::{Client, Scope};
use onward_server::Service;
use onward_store::Policy;
use serde_json::json;

use super::provider::Calls;
use super::{PATIENCE, Worker, say};
use crate::paint;

/// Those who are reached, and how many of them in a job.
const PEOPLE: u32 = 300;
const JOB: u32 = 100;

/// A job is taken over so soon after its process is gone; in production it is five minutes.
const LEASE_MS: u32 = 1_000;

/// The process is killed when the provider was called for so many.
const KILL_AFTER: usize = 100;

/// How often to look.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// Plays it in a store of this folder.
pub(super) async fn play(folder: &Path) -> anyhow::Result<()> {
    let url = format!("sqlite:{}", folder.join("campaign.db").display());
    let store = onward_embed::store::open(&url, Policy::default()).await?;
    let scope = Scope { tenant: "default".parse()?, project: "default".parse()?, environment: "default".parse()? };
    let (calls, address) = Calls::serve().await?;
    let demo = Demo { onward: Service::new(Client::new(store, scope)), calls, url };
    demo.play(&address.to_string()).await
}

struct Demo {
    onward: Service,
    calls: Calls,
    url: String,
}

impl Demo {
    async fn play(&self, provider: &str) -> anyhow::Result<()> {
        let run = self.deploy(provider).await?;
        say(&format!("a campaign is deployed: {PEOPLE} messages, and a provider that counts its calls"))?;
        let first = self.sender()?;
        say(&format!("process {} sends it", first.pid()))?;
        self.until(&run, |_| self.calls.keys() >= KILL_AFTER).await?;
        let killed = first.pid();
        first.kill()?;
        say(&format!("process {killed} is killed with SIGKILL, after {} calls", self.calls.keys()))?;
        let second = self.sender()?;
        say(&format!("process {} is there, and takes over", second.pid()))?;
        let shown = self.until(&run, |run| run.tally.waiting == 0).await?;
        self.settle(&shown.tally, killed).await?;
        let over = self.until(&run, |run| run.summary.status.is_over()).await?;
        second.kill()?;
        self.summary(&over)
    }

    async fn deploy(&self, provider: &str) -> anyhow::Result<String> {
        let campaign = json!({
            "campaign": "demo",
            "channel": "social",
            "provider": { "http": {
                "url": format!("http://{provider}/send"),
                "body": "{\"to\": {{ to }}, \"text\": {{ text }}}",
                "idempotency_header": "Idempotency-Key",
            } },
            "template": { "text": "Hello {{ name }}" },
            "audience": { "file": "people.jsonl" },
        });
        let campaign = Json::parse(&campaign.to_string()).context("the campaign is not JSON")?;
        let people: Vec<Recipient> = (1..=PEOPLE).map(recipient).collect();
        for (number, people) in (0..).zip(people.chunks(JOB as usize)) {
            let part = AudiencePart { recipients: people.to_vec() };
            self.onward.put_audience_part("demo", number, part).await?;
        }
        let (audience, key) = ("demo".to_owned(), Some("demo".to_owned()));
        let deploy = DeployCampaign { campaign, audience, key, reached: Reached::Refuse, by: None };
        let deployed = self.onward.deploy_campaign(deploy).await;
        match deployed.context("is there a campaign in this folder already? Give another")? {
            deployed if deployed.existed => bail!("there is a campaign in {} already: give another folder", self.url),
            deployed => Ok(deployed.run),
        }
    }

    /// A process that sends campaigns.
    fn sender(&self) -> anyhow::Result<Worker> {
        let lease = LEASE_MS.to_string();
        let campaigns = ["--campaign-lease-ms", &lease, "--campaign-lanes", "1", "--inline-providers"];
        Worker::start(&[&["serve", "--store", &self.url, "--listen", "127.0.0.1:0"], &campaigns[..]].concat())
    }

    /// Waits until the run is as wanted.
    async fn until(&self, run: &str, is_wanted: impl Fn(&CampaignRun) -> bool) -> anyhow::Result<CampaignRun> {
        let looking = async {
            loop {
                let run = self.onward.campaign_run(run).await?;
                if is_wanted(&run) {
                    return Ok(run);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.context("nothing happens any more: this is a defect")?
    }

    /// What the killed process was calling for, nobody knows; the provider does.
    async fn settle(&self, tally: &CampaignTally, killed: u32) -> anyhow::Result<()> {
        let CampaignTally { served, in_doubt, .. } = *tally;
        say(&format!(
            "{served} are served; {in_doubt} are in doubt: process {killed} was calling for them when it died"
        ))?;
        let doubts = self.onward.outbox_in_doubt(DoubtListing::default()).await?.items;
        let mut again = 0;
        for item in doubts {
            let was_called = self.calls.has(&item.key);
            again += u32::from(!was_called);
            let verdict = if was_called { ItemVerdict::Sent } else { ItemVerdict::Again };
            let (why, by) = ("the log of the provider".to_owned(), Some("demo".to_owned()));
            self.onward.settle(&item.item, Settle { verdict, why, message_id: None, by }).await?;
        }
        say(&match again {
            0 => "the provider's log says that it has heard of all of them: they are served".to_owned(),
            _ => format!("the provider's log does not have {again} of them: those are sent, the others are served"),
        })?;
        Ok(())
    }

    fn summary(&self, run: &CampaignRun) -> anyhow::Result<()> {
        let (called, repeated) = (self.calls.keys(), self.calls.repeated());
        let is_once = repeated == 0 && called == PEOPLE as usize && run.tally.served == u64::from(PEOPLE);
        let word =
            if is_once { paint::good("reached once each").to_string() } else { paint::error("WRONG").to_string() };
        let mut out = anstream::stdout().lock();
        writeln!(
            out,
            "\n{called} people {word}: the provider was called twice for {repeated}; {}",
            run.summary.status.as_str()
        )?;
        writeln!(out, "\nThe store is still there. Try:\n  export ONWARD_STORE={}", self.url)?;
        writeln!(out, "  onward campaign show {}\n  onward outbox ls {0}", &run.summary.run[..8])?;
        if is_once { Ok(()) } else { bail!("somebody was not reached exactly once: this is a defect") }
    }
}

fn recipient(number: u32) -> Recipient {
    let data = json!({ "name": format!("number {number}") });
    let data = data.as_object().cloned().unwrap_or_default();
    Recipient { id: format!("p{number}"), to: format!("@p{number}"), data }
}
