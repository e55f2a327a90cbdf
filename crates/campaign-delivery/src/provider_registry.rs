//! The providers of a node, and the delivery (provider, templates, send gate, policy) of each
//! campaign run.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{NamedProvider, ProviderSpec, RateLimiter, SecretSource};
use onward_base::SharedText;
use onward_campaign_dispatch::{CampaignDelivery, DeliveryError, DeliveryResolver, Provider};
use onward_campaign_file::{
    Campaign, DeployPrerequisite, MessageRenderError, ProviderRef, SampleMessage, TemplateComposer,
};
use onward_store::tables::{CampaignRunRow, NodeRow};
use onward_store::{Error, RecordReader as _, Store, TableScan};
use serde_json::{Map, Value};
use thiserror::Error as ThisError;
use tokio::time::Instant;

use crate::provider_error::{CampaignProviderError, MessageBuildError};
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

/// Whether campaign files may define providers. If they may, a user who deploys a campaign decides
/// to which hosts this process connects, and with which of its secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InlineProviderPolicy {
    /// Campaign files may define providers.
    Allow,
    /// Campaign files must name a provider of the node.
    Reject,
}

impl From<bool> for InlineProviderPolicy {
    /// Converts the value of the setting `campaigns.inline-providers`.
    fn from(is_allowed: bool) -> Self {
        if is_allowed {
            Self::Allow
        } else {
            Self::Reject
        }
    }
}

/// The providers of a node, built on first use. Implements [`DeliveryResolver`] for the dispatcher.
pub struct ProviderRegistry {
    named_providers: BTreeMap<String, NamedProvider>,
    inline_policy: InlineProviderPolicy,
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
    rate_limiter: Arc<RateLimiter>,
}

/// The reason why the delivery of a campaign run cannot be built.
#[derive(Debug, ThisError)]
enum RunDeliveryError {
    #[error(transparent)]
    Document(#[from] onward_campaign_file::Error),
    #[error(transparent)]
    Provider(#[from] CampaignProviderError),
    #[error(transparent)]
    Templates(#[from] MessageRenderError),
}

impl ProviderRegistry {
    /// Creates a registry with these named providers. `inline_policy` determines whether campaign
    /// files may define others.
    pub fn new(
        named: BTreeMap<String, NamedProvider>,
        inline_policy: InlineProviderPolicy,
        secrets: impl SecretSource + Send + Sync + 'static,
    ) -> Self {
        Self {
            named_providers: named,
            inline_policy,
            secrets: Box::new(secrets),
            state: Mutex::default(),
        }
    }

    /// Checks whether the campaign of a tenant could be delivered, as far as that can be determined
    /// without its recipients.
    pub fn check_campaign(&self, campaign: &Campaign, tenant: &str) -> Vec<DeployPrerequisite> {
        let (name, named) = match self.find_provider(campaign, tenant) {
            Ok(found) => found,
            Err(error) => return vec![DeployPrerequisite::unmet("provider.known", &error)],
        };
        let spec = &named.spec;
        let message = format!("the server has the provider {name}");
        let known = DeployPrerequisite::met("provider.known", message);
        let usable = match self.get_or_build_provider(&name, spec) {
            Ok(_) => DeployPrerequisite::met(
                "provider.usable",
                "its configuration is valid; no connection was made",
            ),
            Err(error) => DeployPrerequisite::unmet("provider.usable", &error),
        };
        let fits = check_samples_fit(spec, SampleMessage::placeholder_samples(campaign));
        let from = named.check_campaign_sender(campaign);
        [known, usable, fits].into_iter().chain(from).collect()
    }

    /// Divides the rate limits of providers among the live nodes of the store; `me` is the id of
    /// this node. Runs until it is dropped. A provider with rate limits sends nothing until this
    /// node knows the number of nodes and the other nodes have counted this one.
    pub async fn track_live_nodes(&self, store: &dyn Store, me: &str) {
        let mut joined_at: Option<Instant> = None;
        loop {
            let wait = match count_live_nodes(store, me).await {
                Ok(Some(nodes)) => {
                    let joined_at = *joined_at.get_or_insert_with(Instant::now);
                    let is_known = self.lock_state().live_nodes.is_some()
                        || nodes.get() == 1
                        || joined_at.elapsed() >= JOIN_GRACE;
                    self.set_node_count(is_known.then_some(nodes));
                    NODE_COUNT_INTERVAL
                }
                // The other nodes do not count this node, so they leave it no share.
                Ok(None) => {
                    joined_at = None;
                    self.set_node_count(None);
                    JOIN_POLL_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot count the live nodes");
                    NODE_COUNT_INTERVAL
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn set_node_count(&self, nodes: Option<NonZeroU32>) {
        let mut state = self.lock_state();
        state.live_nodes = nodes;
        for registered in state.providers.values() {
            registered.rate_limiter.set_node_count(nodes);
        }
    }

    /// Returns the provider of a campaign of this tenant, and its name in the outbox. A provider
    /// that the tenant may not use is unknown to it.
    fn find_provider(
        &self,
        campaign: &Campaign,
        tenant: &str,
    ) -> Result<(String, NamedProvider), CampaignProviderError> {
        let available = self
            .named_providers
            .iter()
            .filter(|(_, provider)| provider.is_open_to(tenant));
        match &campaign.provider {
            ProviderRef::Named(name) => match available.clone().find(|(it, _)| *it == name) {
                Some((name, provider)) => Ok((name.clone(), provider.clone())),
                None => Err(CampaignProviderError::UnknownProvider {
                    name: name.clone(),
                    available: available.map(|(name, _)| name.clone()).collect(),
                }),
            },
            ProviderRef::Inline(_) if self.inline_policy == InlineProviderPolicy::Reject => {
                Err(CampaignProviderError::InlineNotAllowed)
            }
            ProviderRef::Inline(definition) => {
                let (name, spec) = parse_inline_provider(definition)?;
                Ok((name, spec.into()))
            }
        }
    }

    fn get_or_build_provider(
        &self,
        name: &str,
        spec: &ProviderSpec,
    ) -> Result<RegisteredProvider, CampaignProviderError> {
        let definition = format!("{name} {}", serde_json::to_string(spec)?);
        if let Some(registered) = self.lock_state().providers.get(&definition) {
            return Ok(registered.clone());
        }
        let provider = spec.build_provider(name, &*self.secrets)?;
        let rate_limiter = Arc::new(RateLimiter::new(spec.rate_limits()));
        let mut state = self.lock_state();
        rate_limiter.set_node_count(state.live_nodes);
        if state.providers.len() >= self.named_providers.len() + INLINE_PROVIDERS_MAX {
            // Providers in use stay: a second instance would double their connections and rate
            // limits.
            state
                .providers
                .retain(|_, registered| Arc::strong_count(&registered.provider) > 1);
        }
        let built = RegisteredProvider {
            provider,
            rate_limiter,
        };
        Ok(state.providers.entry(definition).or_insert(built).clone())
    }

    fn build_delivery(&self, run: &CampaignRunRow) -> Result<CampaignDelivery, RunDeliveryError> {
        let campaign = Campaign::from_document(&run.document)?;
        let (name, named) = self.find_provider(&campaign, &run.tenant_id)?;
        let spec = &named.spec;
        let RegisteredProvider {
            provider,
            rate_limiter,
        } = self.get_or_build_provider(&name, spec)?;
        Ok(CampaignDelivery {
            provider,
            composer: named.limit_senders(TemplateComposer::new(&campaign)?),
            gate: Arc::new(SendGate {
                quiet_hours: campaign.schedule.quiet_hours.clone(),
                rate_limiter,
            }),
            policy: spec.dispatch_policy(&campaign.retries),
            timeout: spec.send_timeout(),
        })
    }

    fn lock_state(&self) -> MutexGuard<'_, ProviderRegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeliveryResolver for ProviderRegistry {
    fn resolve_delivery(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError> {
        if let Some(delivery) = self.lock_state().deliveries.get(&run.id) {
            return Ok(Arc::clone(delivery));
        }
        let delivery = Arc::new(self.build_delivery(run).map_err(DeliveryError::new)?);
        let mut state = self.lock_state();
        if state.deliveries.len() >= CACHED_RUNS_MAX {
            state.deliveries.clear();
        }
        state
            .deliveries
            .insert(run.id.clone(), Arc::clone(&delivery));
        Ok(delivery)
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
    let (name, spec) = match build_with_placeholders(definition) {
        Ok(found) => found,
        Err(error) => return vec![DeployPrerequisite::unmet("provider.definition", &error)],
    };
    let message = format!("the campaign defines the provider {name}");
    let mut checks = vec![DeployPrerequisite::met("provider.definition", message)];
    checks.extend(sample.map(|sample| check_samples_fit(&spec, std::iter::once(sample.clone()))));
    checks
}

/// Parses the inline definition of a provider, and builds the provider without its secrets.
fn build_with_placeholders(
    definition: &Map<String, Value>,
) -> Result<(String, ProviderSpec), CampaignProviderError> {
    let (name, spec) = parse_inline_provider(definition)?;
    spec.build_provider(&name, &PlaceholderSecrets)?;
    Ok((name, spec))
}

/// Checks whether a provider could send at least one of these samples. A message that it cannot
/// build would fail for all recipients.
fn check_samples_fit(
    spec: &ProviderSpec,
    samples: impl Iterator<Item = SampleMessage>,
) -> DeployPrerequisite {
    let results = samples.map(|sample| {
        let SampleMessage {
            recipient,
            to,
            message,
        } = sample;
        spec.dry_run(&recipient, &to, &message)
    });
    let first_success: Option<Result<(), MessageBuildError>> =
        results.reduce(|first, next| first.or_else(|error| next.map_err(|_| error)));
    const ID: &str = "provider.fits";
    match first_success {
        None | Some(Ok(())) => DeployPrerequisite::met(ID, "the provider can build the message"),
        Some(Err(error)) => {
            let message =
                format!("the provider cannot build the message for any recipient: {error}");
            DeployPrerequisite::unmet(ID, &message)
        }
    }
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
) -> Result<(String, ProviderSpec), CampaignProviderError> {
    let spec = ProviderSpec::try_from(Value::from(definition.clone()))?;
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
