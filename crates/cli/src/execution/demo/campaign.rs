//! Demo of a campaign whose process is killed while it sends: every recipient is still reached
//! exactly once.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use onward_api::RawJson;
use onward_api::campaign::{
    CampaignApi as _, CampaignRunView, CampaignTally, DeployCampaignRequest,
    PutAudiencePartRequest, RecipientInput, RepeatContactPolicy,
};
use onward_api::outbox::{ItemResolution, ListInDoubtItemsQuery, SettleItemRequest};
use onward_base::Scope;
use onward_engine::client::EngineClient;
use onward_service::ApiService;
use onward_store::StorePolicy;
use serde_json::json;

use super::counting_provider::DemoProviderCalls;
use super::{DemoProcess, STEP_TIMEOUT, print_step};
use crate::console;

/// Number of recipients; `JOB_ITEMS` of them form one job.
const RECIPIENTS: u32 = 300;
const JOB_ITEMS: u32 = 100;

/// Job lease: how soon another process takes over a job from a dead one. The default in production
/// is five minutes.
const LEASE_MS: u32 = 1_000;

/// The process is killed when the provider has been called for this many recipients.
const KILL_AFTER: usize = 100;

/// How often to poll the run.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

/// Plays the campaign demo with a store in `folder`.
pub(super) async fn play_campaign(folder: &Path) -> anyhow::Result<()> {
    let url = format!("sqlite:{}", folder.join("campaign.db").display());
    let store = onward_embed::store::open_store(&url, StorePolicy::default()).await?;
    let scope = Scope {
        tenant: "default".parse()?,
        project: "default".parse()?,
        environment: "default".parse()?,
    };
    let (calls, address) = DemoProviderCalls::start_server().await?;
    let demo = CampaignDemo {
        onward: ApiService::new(EngineClient::new(store, scope)),
        calls,
        url,
    };
    demo.run_script(&address.to_string()).await
}

struct CampaignDemo {
    onward: ApiService,
    calls: DemoProviderCalls,
    url: String,
}

impl CampaignDemo {
    async fn run_script(&self, provider: &str) -> anyhow::Result<()> {
        let run = self.deploy_demo(provider).await?;
        print_step(&format!(
            "a campaign is deployed: {RECIPIENTS} messages, and a provider that counts its calls"
        ))?;
        let first = self.spawn_sender()?;
        print_step(&format!("process {} sends it", first.pid()))?;
        self.wait_until(&run, |_| self.calls.key_count() >= KILL_AFTER)
            .await?;
        let killed = first.pid();
        first.kill()?;
        print_step(&format!(
            "process {killed} is killed with SIGKILL, after {} calls",
            self.calls.key_count()
        ))?;
        let second = self.spawn_sender()?;
        print_step(&format!(
            "process {} is there, and takes over",
            second.pid()
        ))?;
        let shown = self.wait_until(&run, |run| run.tally.waiting == 0).await?;
        self.settle_in_doubt(&shown.tally, killed).await?;
        let over = self
            .wait_until(&run, |run| run.summary.status.is_terminal())
            .await?;
        second.kill()?;
        self.print_summary(&over)
    }

    async fn deploy_demo(&self, provider: &str) -> anyhow::Result<String> {
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
        let campaign = RawJson::parse(&campaign.to_string()).context("the campaign is not JSON")?;
        let people: Vec<RecipientInput> = (1..=RECIPIENTS).map(build_recipient).collect();
        for (number, people) in (0..).zip(people.chunks(JOB_ITEMS as usize)) {
            let part = PutAudiencePartRequest {
                recipients: people.to_vec(),
            };
            self.onward.put_audience_part("demo", number, part).await?;
        }
        let (audience, key) = ("demo".to_owned(), Some("demo".to_owned()));
        let deploy = DeployCampaignRequest {
            campaign,
            audience,
            key,
            reached: RepeatContactPolicy::Refuse,
            by: None,
        };
        let deployed = self.onward.deploy_campaign(deploy).await;
        match deployed.context("is there a campaign in this folder already? Give another")? {
            deployed if deployed.existed => bail!(
                "there is a campaign in {} already: give another folder",
                self.url
            ),
            deployed => Ok(deployed.run),
        }
    }

    /// Spawns a server process that sends campaigns.
    fn spawn_sender(&self) -> anyhow::Result<DemoProcess> {
        let lease = LEASE_MS.to_string();
        let campaigns = [
            "--campaign-lease-ms",
            &lease,
            "--campaign-lanes",
            "1",
            "--inline-providers",
        ];
        DemoProcess::spawn_self(
            &[
                &["serve", "--store", &self.url, "--listen", "127.0.0.1:0"],
                &campaigns[..],
            ]
            .concat(),
        )
    }

    /// Polls the run until `is_wanted` holds. Fails after [`STEP_TIMEOUT`].
    async fn wait_until(
        &self,
        run: &str,
        is_wanted: impl Fn(&CampaignRunView) -> bool,
    ) -> anyhow::Result<CampaignRunView> {
        let looking = async {
            loop {
                let run = self.onward.get_campaign_run(run).await?;
                if is_wanted(&run) {
                    return Ok(run);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, looking)
            .await
            .context("nothing happens any more: this is a defect")?
    }

    /// Settles the items that the killed process was sending, from the log of the provider: the
    /// store cannot know whether the provider received them.
    async fn settle_in_doubt(&self, tally: &CampaignTally, killed: u32) -> anyhow::Result<()> {
        let CampaignTally {
            served, in_doubt, ..
        } = *tally;
        print_step(&format!(
            "{served} are served; {in_doubt} are in doubt: process {killed} was calling for them when it died"
        ))?;
        let doubts = self
            .onward
            .list_in_doubt_items(ListInDoubtItemsQuery::default())
            .await?
            .items;
        let mut again = 0;
        for item in doubts {
            let was_called = self.calls.has_key(&item.key);
            again += u32::from(!was_called);
            let verdict = if was_called {
                ItemResolution::Sent
            } else {
                ItemResolution::Again
            };
            let (why, by) = (
                "the log of the provider".to_owned(),
                Some("demo".to_owned()),
            );
            self.onward
                .settle_item(
                    &item.item,
                    SettleItemRequest {
                        verdict,
                        why,
                        message_id: None,
                        by,
                    },
                )
                .await?;
        }
        print_step(&match again {
            0 => "the provider's log says that it has heard of all of them: they are served"
                .to_owned(),
            _ => format!(
                "the provider's log does not have {again} of them: those are sent, the others are served"
            ),
        })?;
        Ok(())
    }

    fn print_summary(&self, run: &CampaignRunView) -> anyhow::Result<()> {
        let (called, repeated) = (self.calls.key_count(), self.calls.repeated_count());
        let is_once = repeated == 0
            && called == RECIPIENTS as usize
            && run.tally.served == u64::from(RECIPIENTS);
        let word = if is_once {
            console::style_success("reached once each").to_string()
        } else {
            console::style_error("WRONG").to_string()
        };
        let mut out = anstream::stdout().lock();
        writeln!(
            out,
            "\n{called} people {word}: the provider was called twice for {repeated}; {}",
            run.summary.status.as_str()
        )?;
        writeln!(
            out,
            "\nThe store is still there. Try:\n  export ONWARD_STORE={}",
            self.url
        )?;
        writeln!(
            out,
            "  onward campaign show {}\n  onward outbox ls {0}",
            &run.summary.run[..8]
        )?;
        if is_once {
            Ok(())
        } else {
            bail!("somebody was not reached exactly once: this is a defect")
        }
    }
}

fn build_recipient(number: u32) -> RecipientInput {
    let data = json!({ "name": format!("number {number}") });
    let data = data.as_object().cloned().unwrap_or_default();
    RecipientInput {
        id: format!("p{number}"),
        to: format!("@p{number}"),
        data,
    }
}
