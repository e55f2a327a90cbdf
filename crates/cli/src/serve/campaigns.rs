//! Sending campaigns, beside the engine: how, and until when.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use onward_dispatcher::{Dispatcher, Options, Outlets};
use onward_journal::Text;
use onward_outlets::House;
use onward_providers::{Environment, ProviderSpec};
use onward_store::{Error, Store};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::settings::{Setting, Settings, pick};
use crate::paint;

/// How long calls of providers may take that are under way when it stops.
const CALLS: Duration = Duration::from_secs(35);

const LANES: NonZeroU32 = NonZeroU32::new(16).expect("not zero");
const LEASE_MS: NonZeroU64 = NonZeroU64::new(300_000).expect("not zero");

/// What the command line says.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct CampaignArgs {
    /// Jobs of campaigns that are worked on at a time; 16 unless told [env: ONWARD_CAMPAIGN_LANES]
    #[arg(long, value_name = "N")]
    campaign_lanes: Option<NonZeroU32>,
    /// Jobs of campaigns of one tenant that are worked on at a time, on all nodes together; any number unless told [env: ONWARD_CAMPAIGN_TENANT_MAX]
    #[arg(long, value_name = "N")]
    campaign_tenant_max: Option<NonZeroU32>,
    /// How long a job of a campaign is held by a process that is not heard of, in milliseconds; 300000 unless told [env: ONWARD_CAMPAIGN_LEASE_MS]
    #[arg(long, value_name = "MS")]
    campaign_lease_ms: Option<NonZeroU64>,
    /// Let campaign files define providers: whoever deploys one then says to whom this process connects, with which of its secrets [env: ONWARD_INLINE_PROVIDERS]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    inline_providers: Option<bool>,
}

/// What a file says.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CampaignFile {
    lanes: Option<NonZeroU32>,
    tenant_max: Option<NonZeroU32>,
    lease_ms: Option<NonZeroU64>,
    inline_providers: Option<bool>,
}

/// The settings that hold.
pub(crate) struct CampaignSettings {
    pub(super) lanes: Setting<NonZeroU32>,
    pub(super) tenant_max: Setting<Option<NonZeroU32>>,
    pub(super) lease_ms: Setting<NonZeroU64>,
    pub(super) inline_providers: Setting<bool>,
}

impl CampaignArgs {
    /// The settings that hold.
    pub(super) fn settle(self, file: &CampaignFile) -> anyhow::Result<CampaignSettings> {
        Ok(CampaignSettings {
            lanes: pick(self.campaign_lanes, "ONWARD_CAMPAIGN_LANES", file.lanes, || LANES, |text| Ok(text.parse()?))?,
            tenant_max: pick(
                self.campaign_tenant_max.map(Some),
                "ONWARD_CAMPAIGN_TENANT_MAX",
                file.tenant_max.map(Some),
                || None,
                |text| Ok(Some(text.parse()?)),
            )?,
            lease_ms: pick(
                self.campaign_lease_ms,
                "ONWARD_CAMPAIGN_LEASE_MS",
                file.lease_ms,
                || LEASE_MS,
                |text| Ok(text.parse()?),
            )?,
            inline_providers: pick(
                self.inline_providers,
                "ONWARD_INLINE_PROVIDERS",
                file.inline_providers,
                || false,
                |text| Ok(text.parse()?),
            )?,
        })
    }
}

/// Campaigns that are being sent.
pub(super) struct Sending {
    stop: watch::Sender<bool>,
    dispatching: JoinHandle<Result<(), Error>>,
    sharing: JoinHandle<()>,
}

/// Says which providers cannot be used: a secret is missing, say. What is sent by others need not wait for that.
fn warn(providers: &BTreeMap<String, ProviderSpec>) {
    for (name, spec) in providers {
        if let Err(words) = spec.build(name, &Environment) {
            paint::say(format_args!("{}: {}", paint::error("warning"), paint::plain(&words)));
        }
    }
}

impl Sending {
    /// Begins, in the background.
    pub(super) fn begin(settings: &Settings, store: &Arc<dyn Store>, node: &Text, house: &Arc<House>) -> Self {
        warn(&settings.providers.value);
        let options = Options {
            worker: settings.node_name.value.as_str().into(),
            lanes: settings.campaigns.lanes.value.get() as usize,
            tenant_max: settings.campaigns.tenant_max.value.map(NonZeroU32::get),
            lease: Duration::from_millis(settings.campaigns.lease_ms.value.get()),
            ..Options::default()
        };
        let dispatcher = Dispatcher::new(Arc::clone(store), Arc::clone(house) as Arc<dyn Outlets>, options);
        let (stop, stopped) = watch::channel(false);
        let (house, store, node) = (Arc::clone(house), Arc::clone(store), node.clone());
        let sharing = tokio::spawn(async move { house.follow(&*store, &node).await });
        Self { stop, dispatching: tokio::spawn(dispatcher.run(stopped)), sharing }
    }

    /// Waits until it no longer works, which is when its store has failed.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.dispatching).await {
            Ok(Ok(())) => anyhow!("the dispatcher has ended, and nobody asked for it"),
            Ok(Err(error)) => error.into(),
            Err(panic) => panic.into(),
        }
    }

    /// Begins nothing more from now on.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for calls of providers that are under way: whoever is cut off leaves them in doubt.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.sharing.abort();
        match tokio::time::timeout(CALLS, &mut self.dispatching).await {
            Ok(ended) => ended??,
            Err(_) => tracing::warn!("some calls of providers did not end in time; they are in doubt"),
        }
        Ok(())
    }
}
