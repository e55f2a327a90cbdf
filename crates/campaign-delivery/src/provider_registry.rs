//! The providers of a node, and the delivery (provider, templates, send gate, policy) of each
//! campaign run.

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

/// Maximum number of campaign runs whose compiled delivery is cached.
const CACHED_RUNS_MAX: usize = 256;

/// Maximum number of providers from campaign files that stay cached with their connections.
const INLINE_PROVIDERS_MAX: usize = 256;

/// Interval at which a node counts the live nodes that share the rate limits of providers.
const NODE_COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which all other nodes have counted a node that joins.
const JOIN_GRACE: Duration = Duration::from_secs(10);

/// Interval at which a node checks whether it is among the live nodes, while it is not.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The providers of a node, built on first use. Implements [`DeliveryResolver`] for the dispatcher.
pub struct ProviderRegistry {
    named_providers: BTreeMap<String, ProviderSpec>,
    allows_inline: bool,
    secrets: Box<dyn SecretSource + Send + Sync>,
    state: Mutex<ProviderRegistryState>,
}

#[derive(Default)]
struct ProviderRegistryState {
    /// Providers built so far, by name and definition: campaigns with the same provider share its
    /// rate limits.
    providers: BTreeMap<String, RegisteredProvider>,
    deliveries: BTreeMap<SharedText, Arc<CampaignDelivery>>,
    /// Number of live nodes that share the rate limits; `None` while it is unknown.
    live_nodes: Option<NonZeroU32>,
}

#[derive(Clone)]
struct RegisteredProvider {
    provider: Arc<dyn Provider>,
    throttle: Arc<RateLimiter>,
}

impl ProviderRegistry {
    /// Creates a registry with these named providers. With `allows_inline`, campaign files may
    /// define their own: then a user who deploys a campaign decides to which hosts this process
    /// connects, and with which of its secrets.
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

    /// Checks whether the campaign could be delivered, as far as that can be determined without its
    /// recipients.
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

    /// Divides the rate limits of providers among the live nodes of the store; `me` is the id of
    /// this node. Runs until it is dropped. A provider with rate limits sends nothing until this
    /// node knows the number of nodes and the other nodes have counted this one.
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
                // The other nodes do not count this node, so they leave it no share.
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

    /// Returns the provider of a campaign, and its name in the outbox.
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
            // Providers in use stay: a second instance would double their connections and rate
            // limits.
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

/// Checks the provider that a campaign defines inline, without its secrets, and whether it could
/// send the sample message. Returns nothing for a named provider.
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

/// Checks whether a provider could send at least one of these samples. A message that it cannot
/// build would fail for all recipients.
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

/// Placeholder values for secrets that are not available where the check runs.
struct PlaceholderSecrets;

impl SecretSource for PlaceholderSecrets {
    fn lookup_secret(&self, _name: &str) -> Option<String> {
        Some("secret".to_owned())
    }
}

/// Parses the inline definition of a provider; returns it with its name in the outbox.
fn parse_inline_provider(
    definition: &Map<String, Value>,
) -> Result<(String, ProviderSpec), String> {
    let spec: ProviderSpec = serde_json::from_value(definition.clone().into())
        .map_err(|error| format!("the definition of the provider makes no sense: {error}"))?;
    let name = spec.host_port().unwrap_or_else(|| spec.kind().to_owned());
    Ok((name, spec))
}

/// Returns the number of live nodes, or `None` if this node is not among them.
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
