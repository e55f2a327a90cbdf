//! Sends campaigns in the background of a server: its settings, its start and its drain.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use onward_base::SharedText;
use onward_campaign_delivery::{EnvironmentSecrets, NamedProvider, ProviderRegistry};
use onward_campaign_dispatch::{DeliveryResolver, Dispatcher, Options};
use onward_store::{Error, Store};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::settings::{ResolvedSetting, ServerSettings, resolve_setting};
use crate::console;

/// How long provider calls in progress may take when the server stops.
const SEND_DRAIN_TIMEOUT: Duration = Duration::from_secs(35);

const DEFAULT_MAX_JOBS: NonZeroU32 = NonZeroU32::new(16).expect("not zero");
const DEFAULT_LEASE_MS: NonZeroU64 = NonZeroU64::new(300_000).expect("not zero");

/// Campaign settings on the command line.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct CampaignSettingsArgs {
    /// Maximum number of campaign jobs in progress on this node [env: ONWARD_CAMPAIGN_MAX_JOBS]
    /// [default: 16]
    #[arg(long, value_name = "N")]
    campaign_max_jobs: Option<NonZeroU32>,
    /// Maximum number of campaign jobs in progress per tenant, on all nodes together [env:
    /// ONWARD_CAMPAIGN_MAX_JOBS_PER_TENANT] [default: unlimited]
    #[arg(long, value_name = "N")]
    campaign_max_jobs_per_tenant: Option<NonZeroU32>,
    /// Lease of a campaign job in milliseconds: how long it stays claimed by a process that no
    /// longer renews it [env: ONWARD_CAMPAIGN_LEASE_MS] [default: 300000]
    #[arg(long, value_name = "MS")]
    campaign_lease_ms: Option<NonZeroU64>,
    /// Allow campaign files to define providers: a user who can deploy campaigns then decides which
    /// hosts this process connects to and which of its secrets it sends there [env:
    /// ONWARD_INLINE_PROVIDERS] [default: false]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    inline_providers: Option<bool>,
}

/// The `[campaigns]` table of the configuration file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CampaignSettingsTable {
    max_jobs: Option<NonZeroU32>,
    max_jobs_per_tenant: Option<NonZeroU32>,
    lease_ms: Option<NonZeroU64>,
    inline_providers: Option<bool>,
}

/// The effective campaign settings, each with its source.
pub(crate) struct CampaignSettings {
    pub(super) max_jobs: ResolvedSetting<NonZeroU32>,
    pub(super) max_jobs_per_tenant: ResolvedSetting<Option<NonZeroU32>>,
    pub(super) lease_ms: ResolvedSetting<NonZeroU64>,
    pub(super) inline_providers: ResolvedSetting<bool>,
}

impl CampaignSettingsArgs {
    /// Resolves the effective settings from command line, environment, file and defaults.
    pub(super) fn resolve_settings(
        self,
        file: &CampaignSettingsTable,
    ) -> anyhow::Result<CampaignSettings> {
        Ok(CampaignSettings {
            max_jobs: resolve_setting(
                self.campaign_max_jobs,
                "ONWARD_CAMPAIGN_MAX_JOBS",
                file.max_jobs,
                || DEFAULT_MAX_JOBS,
                |text| Ok(text.parse()?),
            )?,
            max_jobs_per_tenant: resolve_setting(
                self.campaign_max_jobs_per_tenant.map(Some),
                "ONWARD_CAMPAIGN_MAX_JOBS_PER_TENANT",
                file.max_jobs_per_tenant.map(Some),
                || None,
                |text| Ok(Some(text.parse()?)),
            )?,
            lease_ms: resolve_setting(
                self.campaign_lease_ms,
                "ONWARD_CAMPAIGN_LEASE_MS",
                file.lease_ms,
                || DEFAULT_LEASE_MS,
                |text| Ok(text.parse()?),
            )?,
            inline_providers: resolve_setting(
                self.inline_providers,
                "ONWARD_INLINE_PROVIDERS",
                file.inline_providers,
                || false,
                |text| Ok(text.parse()?),
            )?,
        })
    }
}

/// The background tasks that send campaigns.
pub(super) struct CampaignSender {
    stop: watch::Sender<bool>,
    dispatching: JoinHandle<Result<(), Error>>,
    limit_sharing: JoinHandle<()>,
}

/// Warns about providers that cannot be used, for example because a secret is missing. Campaigns of
/// other providers are still sent.
fn warn_unusable_providers(providers: &BTreeMap<String, NamedProvider>) {
    for (name, named) in providers {
        if let Err(error) = named.spec.build_provider(name, &EnvironmentSecrets) {
            console::print_message(format_args!(
                "{}: {}",
                console::style_error("warning"),
                console::escape_control_chars(&error.to_string())
            ));
        }
    }
}

impl CampaignSender {
    /// Starts the dispatcher and the sharing of rate limits between nodes.
    pub(super) fn start_sending(
        settings: &ServerSettings,
        store: &Arc<dyn Store>,
        node: &SharedText,
        providers: &Arc<ProviderRegistry>,
    ) -> Self {
        warn_unusable_providers(&settings.providers.value);
        let options = Options {
            worker_name: settings.node_name.value.as_str().into(),
            concurrency: settings.campaigns.max_jobs.value.get() as usize,
            tenant_concurrency: settings
                .campaigns
                .max_jobs_per_tenant
                .value
                .map(NonZeroU32::get),
            lease: Duration::from_millis(settings.campaigns.lease_ms.value.get()),
            ..Options::default()
        };
        let dispatcher = Dispatcher::new(
            Arc::clone(store),
            Arc::clone(providers) as Arc<dyn DeliveryResolver>,
            options,
        );
        let (stop, stopped) = watch::channel(false);
        let (providers, store, node) = (Arc::clone(providers), Arc::clone(store), node.clone());
        let sharing = tokio::spawn(async move { providers.track_live_nodes(&*store, &node).await });
        Self {
            stop,
            dispatching: tokio::spawn(dispatcher.run(stopped)),
            limit_sharing: sharing,
        }
    }

    /// Waits until the dispatcher ends, which it only does when its store has failed.
    pub(super) async fn wait_for_failure(&mut self) -> anyhow::Error {
        match (&mut self.dispatching).await {
            Ok(Ok(())) => anyhow!("the campaign dispatcher stopped unexpectedly"),
            Ok(Err(error)) => error.into(),
            Err(panic) => panic.into(),
        }
    }

    /// Stops starting new sends.
    pub(super) fn stop_sending(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for provider calls in progress, at most [`SEND_DRAIN_TIMEOUT`]. Items whose call is
    /// cut off are in doubt.
    pub(super) async fn drain_sends(mut self) -> anyhow::Result<()> {
        self.limit_sharing.abort();
        match tokio::time::timeout(SEND_DRAIN_TIMEOUT, &mut self.dispatching).await {
            Ok(ended) => ended??,
            Err(_) => {
                tracing::warn!(
                    "provider calls did not complete within the drain timeout; their items are in doubt"
                )
            }
        }
        Ok(())
    }
}
