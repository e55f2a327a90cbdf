//! Demo of a campaign whose process is killed while it sends: every recipient is still reached
//! exactly once.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use onward_api::RawJson;
use onward_api::campaign::{
    CampaignApi as _, CampaignItemCounts, CampaignRunView, DeployCampaignRequest,
    PreviousRecipientsPolicy, PutAudiencePartRequest, RecipientInput,
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

/// Number of recipients; `JOB_SIZE` of them form one job.
const RECIPIENTS: u32 = 300;
const JOB_SIZE: u32 = 100;

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
            "deployed a campaign: {RECIPIENTS} messages through a provider that counts its calls"
        ))?;
        let first = self.spawn_sender()?;
        print_step(&format!("process {} sends it", first.pid()))?;
        self.wait_until(&run, |_| self.calls.key_count() >= KILL_AFTER)
            .await?;
        let killed = first.pid();
        first.kill()?;
        print_step(&format!(
            "process {killed} killed with SIGKILL after {} calls",
            self.calls.key_count()
        ))?;
        let second = self.spawn_sender()?;
        print_step(&format!("process {} takes over", second.pid()))?;
        let shown = self.wait_until(&run, |run| run.counts.waiting == 0).await?;
        self.settle_in_doubt(&shown.counts, killed).await?;
        let ended = self
            .wait_until(&run, |run| run.summary.status.is_terminal())
            .await?;
        second.kill()?;
        self.print_summary(&ended)
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
            "audience": { "file": "recipients.jsonl" },
        });
        let campaign =
            RawJson::parse(&campaign.to_string()).context("invalid campaign document")?;
        let recipients: Vec<RecipientInput> = (1..=RECIPIENTS).map(build_recipient).collect();
        for (number, part) in (0..).zip(recipients.chunks(JOB_SIZE as usize)) {
            let part = PutAudiencePartRequest {
                recipients: part.to_vec(),
            };
            self.onward.put_audience_part("demo", number, part).await?;
        }
        let (audience, key) = ("demo".to_owned(), Some("demo".to_owned()));
        let deploy = DeployCampaignRequest {
            campaign,
            audience,
            key,
            previous_recipients: PreviousRecipientsPolicy::Reject,
            by: None,
        };
        let deployed = self.onward.deploy_campaign(deploy).await;
        match deployed.context("cannot deploy the campaign: use --folder with an empty folder")? {
            deployed if deployed.existed => bail!(
                "{} already contains a campaign: use --folder with another folder",
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
            "--campaign-max-jobs",
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

    /// Polls the run until `condition` holds. Fails after [`STEP_TIMEOUT`].
    async fn wait_until(
        &self,
        run: &str,
        condition: impl Fn(&CampaignRunView) -> bool,
    ) -> anyhow::Result<CampaignRunView> {
        let polling = async {
            loop {
                let run = self.onward.get_campaign_run(run).await?;
                if condition(&run) {
                    return Ok(run);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, polling)
            .await
            .context("the demo made no progress for a minute: this is a defect")?
    }

    /// Settles the items that the killed process was sending, from the log of the provider: the
    /// store cannot know whether the provider received them.
    async fn settle_in_doubt(
        &self,
        counts: &CampaignItemCounts,
        killed: u32,
    ) -> anyhow::Result<()> {
        let CampaignItemCounts { sent, in_doubt, .. } = *counts;
        print_step(&format!(
            "{sent} items are sent; {in_doubt} are in doubt: process {killed} was killed while it sent them"
        ))?;
        let in_doubt_items = self
            .onward
            .list_in_doubt_items(ListInDoubtItemsQuery::default())
            .await?
            .items;
        let mut resent = 0;
        for item in in_doubt_items {
            let was_called = self.calls.has_key(&item.key);
            resent += u32::from(!was_called);
            let resolution = if was_called {
                ItemResolution::Sent
            } else {
                ItemResolution::Resend
            };
            let (reason, by) = ("log of the provider".to_owned(), Some("demo".to_owned()));
            self.onward
                .settle_item(
                    &item.item,
                    SettleItemRequest {
                        resolution,
                        reason,
                        message_id: None,
                        by,
                    },
                )
                .await?;
        }
        print_step(&match resent {
            0 => "the provider's log contains all of them: settled as sent".to_owned(),
            _ => format!(
                "the provider's log does not contain {resent} of them: settled as resend, the others as sent"
            ),
        })?;
        Ok(())
    }

    fn print_summary(&self, run: &CampaignRunView) -> anyhow::Result<()> {
        let (called, repeated) = (self.calls.key_count(), self.calls.repeated_count());
        let is_once = repeated == 0
            && called == RECIPIENTS as usize
            && run.counts.sent == u64::from(RECIPIENTS);
        let outcome = if is_once {
            console::style_success("reached once each").to_string()
        } else {
            console::style_error("NOT reached once each").to_string()
        };
        let mut out = console::text_output();
        writeln!(
            out,
            "\n{called} recipients {outcome}: {repeated} with a repeated provider call; run {}",
            run.summary.status.as_str()
        )?;
        writeln!(
            out,
            "\nThe store is kept. Try:\n  export ONWARD_STORE={}",
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
            bail!("a recipient was not reached exactly once: this is a defect")
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
