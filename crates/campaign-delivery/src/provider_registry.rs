//! The providers of a node, and how each campaign run reaches people by one of them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{ProviderSpec, RateLimiter, SecretSource};
use onward_base::SharedText;
use onward_campaign_dispatch::{CampaignDelivery, DeliveryResolver, Provider};
use onward_campaign_file::{
    Campaign, DeployPrerequisite, ProviderRef, SampleMessage, TemplateComposer,
};
use onward_store::tables::{CampaignRunRow, NodeRow};
use onward_store::{Error, RecordReader as _, Store, TableScan};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::send_gate::SendGate;

/// Campaign runs whose templates are kept ready.
const CACHED_RUNS_MAX: usize = 256;

/// Providers of campaign files that are kept connected.
const INLINE_PROVIDERS_MAX: usize = 256;

/// How often to count the nodes that share the limits of providers.
const NODE_COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// By then all others have counted this one.
const JOIN_GRACE: Duration = Duration::from_secs(10);

/// How often to look whether this node is among them.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The providers of a node.
pub struct ProviderRegistry {
    named_providers: BTreeMap<String, ProviderSpec>,
    allows_inline: bool,
    secrets: Box<dyn SecretSource + Send + Sync>,
    state: Mutex<ProviderRegistryState>,
}

#[derive(Default)]
struct ProviderRegistryState {
    /// Providers that were needed so far, by their definitions: campaigns with the same one share its limits.
    providers: BTreeMap<String, RegisteredProvider>,
    deliveries: BTreeMap<SharedText, Arc<CampaignDelivery>>,
    /// How many share the limits, if that is known.
    live_nodes: Option<NonZeroU32>,
}

#[derive(Clone)]
struct RegisteredProvider {
    provider: Arc<dyn Provider>,
    throttle: Arc<RateLimiter>,
}

impl ProviderRegistry {
    /// A house with these providers. Campaign files may define their own where that is allowed: whoever deploys them then says
    /// to whom this process connects, and with which of its secrets.
    pub fn new(
        named: BTreeMap<String, ProviderSpec>,
        allows_inline: bool,
        secrets: impl SecretSource + Send + Sync + 'static,
    ) -> Self {
        Self {
            named_providers: named,
            allows_inline,
            secrets: Box::new(secrets),
            state: Mutex::default(),
        }
    }

    /// Whether a campaign could reach people, as far as is known without them.
    pub fn check_campaign(&self, campaign: &Campaign) -> Vec<DeployPrerequisite> {
        let (name, spec) = match self.find_provider(campaign) {
            Ok(found) => found,
            Err(words) => return vec![DeployPrerequisite::new("provider.known", false, words)],
        };
        let known = DeployPrerequisite::new("provider.known", true, format!("{name} is there"));
        let usable = match self.get_or_build_provider(&name, &spec) {
            Ok(_) => DeployPrerequisite::new(
                "provider.usable",
                true,
                "it can be used, as far as is known without a call",
            ),
            Err(words) => DeployPrerequisite::new("provider.usable", false, words),
        };
        vec![
            known,
            usable,
            check_samples_fit(&spec, SampleMessage::placeholder_samples(campaign)),
        ]
    }

    /// Shares the limits of providers with the other nodes of the store that are alive, this one being `me`. By a provider that
    /// has limits nobody is reached before it is known who shares them, and before they know of this node.
    pub async fn track_live_nodes(&self, store: &dyn Store, me: &str) {
        let mut seen: Option<Instant> = None;
        loop {
            let wait = match count_live_nodes(store, me).await {
                Ok(Some(nodes)) => {
                    let since = *seen.get_or_insert_with(Instant::now);
                    let is_known = self.lock_state().live_nodes.is_some()
                        || nodes.get() == 1
                        || since.elapsed() >= JOIN_GRACE;
                    self.set_node_count(is_known.then_some(nodes));
                    NODE_COUNT_INTERVAL
                }
                // Nobody leaves it a part.
                Ok(None) => {
                    seen = None;
                    self.set_node_count(None);
                    JOIN_POLL_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(%error, "the nodes could not be counted");
                    NODE_COUNT_INTERVAL
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn set_node_count(&self, nodes: Option<NonZeroU32>) {
        let mut state = self.lock_state();
        state.live_nodes = nodes;
        for made in state.providers.values() {
            made.throttle.set_node_count(nodes);
        }
    }

    /// The provider of a campaign, and what it is called in the outbox.
    fn find_provider(&self, campaign: &Campaign) -> Result<(String, ProviderSpec), String> {
        match &campaign.provider {
            ProviderRef::Named(name) => {
                let known = || {
                    self.named_providers
                        .keys()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let spec = self.named_providers.get(name).cloned();
                spec.map(|spec| (name.clone(), spec)).ok_or_else(|| {
                    match self.named_providers.is_empty() {
                        true => format!("there is no provider {name}: this server has none"),
                        false => format!("there is no provider {name}; there are: {}", known()),
                    }
                })
            }
            ProviderRef::Inline(_) if !self.allows_inline => Err(
                "this server does not take providers from campaign files: name one that it has"
                    .to_owned(),
            ),
            ProviderRef::Inline(definition) => parse_inline_provider(definition),
        }
    }

    fn get_or_build_provider(
        &self,
        name: &str,
        spec: &ProviderSpec,
    ) -> Result<RegisteredProvider, String> {
        let definition = format!(
            "{name} {}",
            serde_json::to_string(spec).map_err(|error| error.to_string())?
        );
        if let Some(made) = self.lock_state().providers.get(&definition) {
            return Ok(made.clone());
        }
        let provider = spec.build_provider(name, &*self.secrets)?;
        let throttle = Arc::new(RateLimiter::new(spec.rate_limits()));
        let mut state = self.lock_state();
        throttle.set_node_count(state.live_nodes);
        if state.providers.len() >= self.named_providers.len() + INLINE_PROVIDERS_MAX {
            // Those that are in use stay: made once more, one would have its connections and its limits twice.
            state
                .providers
                .retain(|_, made| Arc::strong_count(&made.provider) > 1);
        }
        Ok(state
            .providers
            .entry(definition)
            .or_insert(RegisteredProvider { provider, throttle })
            .clone())
    }

    fn build_delivery(&self, run: &CampaignRunRow) -> Result<CampaignDelivery, String> {
        let campaign = Campaign::from_document(&run.document).map_err(|error| error.to_string())?;
        let (name, spec) = self.find_provider(&campaign)?;
        let RegisteredProvider { provider, throttle } = self.get_or_build_provider(&name, &spec)?;
        let quiet = campaign.schedule.quiet.clone();
        Ok(CampaignDelivery {
            provider,
            composer: Arc::new(
                TemplateComposer::new(&campaign).map_err(|unfit| unfit.to_string())?,
            ),
            gate: Arc::new(SendGate {
                quiet_hours: quiet,
                throttle,
            }),
            policy: campaign.retries.apply_to_policy(spec.dispatch_policy()),
            timeout: spec.send_timeout(),
        })
    }

    fn lock_state(&self) -> MutexGuard<'_, ProviderRegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeliveryResolver for ProviderRegistry {
    fn resolve_delivery(&self, run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        if let Some(outlet) = self.lock_state().deliveries.get(&run.id) {
            return Ok(Arc::clone(outlet));
        }
        let outlet = Arc::new(self.build_delivery(run)?);
        let mut state = self.lock_state();
        if state.deliveries.len() >= CACHED_RUNS_MAX {
            state.deliveries.clear();
        }
        state.deliveries.insert(run.id.clone(), Arc::clone(&outlet));
        Ok(outlet)
    }
}

/// Whether the provider that a campaign defines itself can be used, as far as is known where its secrets are not; and
/// whether it could send what somebody is sent.
pub fn check_inline_provider(
    campaign: &Campaign,
    sample: Option<&SampleMessage>,
) -> Vec<DeployPrerequisite> {
    let ProviderRef::Inline(definition) = &campaign.provider else {
        return Vec::new();
    };
    let made = parse_inline_provider(definition).and_then(|(name, spec)| {
        spec.build_provider(&name, &PlaceholderSecrets)
            .map(|_| (name, spec))
    });
    match made {
        Ok((name, spec)) => {
            let words = format!("{name} is defined in the campaign");
            let fits =
                sample.map(|sample| check_samples_fit(&spec, std::iter::once(sample.clone())));
            [DeployPrerequisite::new("provider.definition", true, words)]
                .into_iter()
                .chain(fits)
                .collect()
        }
        Err(words) => vec![DeployPrerequisite::new("provider.definition", false, words)],
    }
}

/// Whether a provider could send one of these. What it cannot make a message of would fail for everybody.
fn check_samples_fit(
    spec: &ProviderSpec,
    samples: impl Iterator<Item = SampleMessage>,
) -> DeployPrerequisite {
    let tried = samples.map(
        |SampleMessage {
             recipient,
             to,
             message,
         }| spec.dry_run(&recipient, &to, &message),
    );
    let found = tried.reduce(|first, next| first.or_else(|words| next.map_err(|_| words)));
    let (pass, words) = match found {
        None | Some(Ok(())) => (true, "what is sent fits the provider".to_owned()),
        Some(Err(words)) => (
            false,
            format!("the provider could send this to nobody: {words}"),
        ),
    };
    DeployPrerequisite::new("provider.fits", pass, words)
}

/// Secrets of which it is not known what they are.
struct PlaceholderSecrets;

impl SecretSource for PlaceholderSecrets {
    fn lookup_secret(&self, _name: &str) -> Option<String> {
        Some("secret".to_owned())
    }
}

/// The provider that a campaign defines, and what it is called in the outbox.
fn parse_inline_provider(
    definition: &Map<String, Value>,
) -> Result<(String, ProviderSpec), String> {
    let spec: ProviderSpec = serde_json::from_value(definition.clone().into())
        .map_err(|error| format!("the definition of the provider makes no sense: {error}"))?;
    let name = spec.host_port().unwrap_or_else(|| spec.kind().to_owned());
    Ok((name, spec))
}

/// How many nodes are alive, if this one is among them.
async fn count_live_nodes(store: &dyn Store, me: &str) -> Result<Option<NonZeroU32>, Error> {
    let now = store.now().await?;
    let nodes: Vec<(NodeRow, u64)> = store.list_records(TableScan::all_rows::<NodeRow>()).await?;
    let mut alive = nodes.iter().filter(|(node, _)| node.seen_until > now);
    let count = NonZeroU32::new(u32::try_from(alive.clone().count()).unwrap_or(u32::MAX));
    Ok(count.filter(|_| alive.any(|(node, _)| &*node.node_id == me)))
}

#[cfg(test)]
#[path = "provider_registry_tests.rs"]
mod tests;
