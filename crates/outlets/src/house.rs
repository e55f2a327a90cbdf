//! The providers of a node, and how each campaign run reaches people by one of them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_campaign::{Campaign, Composer, Prerequisite, ProviderRef, Sample};
use onward_dispatcher::{Outlet, Outlets, Provider};
use onward_journal::Text;
use onward_providers::{ProviderSpec, Secrets, Throttle};
use onward_store::tables::{CampaignRun, Node};
use onward_store::{Error, Records as _, Scan, Store};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::gate::Hours;

/// Campaign runs whose templates are kept ready.
const RUNS_MAX: usize = 256;

/// Providers of campaign files that are kept connected.
const INLINE_MAX: usize = 256;

/// How often to count the nodes that share the limits of providers.
const COUNT: Duration = Duration::from_secs(5);

/// By then all others have counted this one.
const NOTICED: Duration = Duration::from_secs(10);

/// How often to look whether this node is among them.
const APPEAR: Duration = Duration::from_millis(100);

/// The providers of a node.
pub struct House {
    named: BTreeMap<String, ProviderSpec>,
    allows_inline: bool,
    secrets: Box<dyn Secrets + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Providers that were needed so far, by their definitions: campaigns with the same one share its limits.
    made: BTreeMap<String, Made>,
    runs: BTreeMap<Text, Arc<Outlet>>,
    /// How many share the limits, if that is known.
    nodes: Option<NonZeroU32>,
}

#[derive(Clone)]
struct Made {
    provider: Arc<dyn Provider>,
    throttle: Arc<Throttle>,
}

impl House {
    /// A house with these providers. Campaign files may define their own where that is allowed: whoever deploys them then says
    /// to whom this process connects, and with which of its secrets.
    pub fn new(
        named: BTreeMap<String, ProviderSpec>,
        allows_inline: bool,
        secrets: impl Secrets + Send + Sync + 'static,
    ) -> Self {
        Self { named, allows_inline, secrets: Box::new(secrets), state: Mutex::default() }
    }

    /// Whether a campaign could reach people, as far as is known without them.
    pub fn check(&self, campaign: &Campaign) -> Vec<Prerequisite> {
        let (name, spec) = match self.find(campaign) {
            Ok(found) => found,
            Err(words) => return vec![Prerequisite::new("provider.known", false, words)],
        };
        let known = Prerequisite::new("provider.known", true, format!("{name} is there"));
        let usable = match self.made(&name, &spec) {
            Ok(_) => Prerequisite::new("provider.usable", true, "it can be used, as far as is known without a call"),
            Err(words) => Prerequisite::new("provider.usable", false, words),
        };
        vec![known, usable, fits(&spec, Sample::stand_ins(campaign))]
    }

    /// Shares the limits of providers with the other nodes of the store that are alive, this one being `me`. By a provider that
    /// has limits nobody is reached before it is known who shares them, and before they know of this node.
    pub async fn follow(&self, store: &dyn Store, me: &str) {
        let mut seen: Option<Instant> = None;
        loop {
            let wait = match census(store, me).await {
                Ok(Some(nodes)) => {
                    let since = *seen.get_or_insert_with(Instant::now);
                    let is_known = self.state().nodes.is_some() || nodes.get() == 1 || since.elapsed() >= NOTICED;
                    self.share(is_known.then_some(nodes));
                    COUNT
                }
                // Nobody leaves it a part.
                Ok(None) => {
                    seen = None;
                    self.share(None);
                    APPEAR
                }
                Err(error) => {
                    tracing::debug!(%error, "the nodes could not be counted");
                    COUNT
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn share(&self, nodes: Option<NonZeroU32>) {
        let mut state = self.state();
        state.nodes = nodes;
        for made in state.made.values() {
            made.throttle.share(nodes);
        }
    }

    /// The provider of a campaign, and what it is called in the outbox.
    fn find(&self, campaign: &Campaign) -> Result<(String, ProviderSpec), String> {
        match &campaign.provider {
            ProviderRef::Named(name) => {
                let known = || self.named.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let spec = self.named.get(name).cloned();
                spec.map(|spec| (name.clone(), spec)).ok_or_else(|| match self.named.is_empty() {
                    true => format!("there is no provider {name}: this server has none"),
                    false => format!("there is no provider {name}; there are: {}", known()),
                })
            }
            ProviderRef::Inline(_) if !self.allows_inline => {
                Err("this server does not take providers from campaign files: name one that it has".to_owned())
            }
            ProviderRef::Inline(definition) => inline(definition),
        }
    }

    fn made(&self, name: &str, spec: &ProviderSpec) -> Result<Made, String> {
        let definition = format!("{name} {}", serde_json::to_string(spec).map_err(|error| error.to_string())?);
        if let Some(made) = self.state().made.get(&definition) {
            return Ok(made.clone());
        }
        let provider = spec.build(name, &*self.secrets)?;
        let throttle = Arc::new(Throttle::new(spec.limits()));
        let mut state = self.state();
        throttle.share(state.nodes);
        if state.made.len() >= self.named.len() + INLINE_MAX {
            // Those that are in use stay: made once more, one would have its connections and its limits twice.
            state.made.retain(|_, made| Arc::strong_count(&made.provider) > 1);
        }
        Ok(state.made.entry(definition).or_insert(Made { provider, throttle }).clone())
    }

    fn outlet_of(&self, run: &CampaignRun) -> Result<Outlet, String> {
        let campaign = Campaign::from_document(&run.document).map_err(|error| error.to_string())?;
        let (name, spec) = self.find(&campaign)?;
        let Made { provider, throttle } = self.made(&name, &spec)?;
        let quiet = campaign.schedule.quiet.clone();
        Ok(Outlet {
            provider,
            compose: Arc::new(Composer::new(&campaign).map_err(|unfit| unfit.to_string())?),
            gate: Arc::new(Hours { quiet, throttle }),
            terms: campaign.retries.apply(spec.terms()),
            patience: spec.patience(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlets for House {
    fn outlet(&self, run: &CampaignRun) -> Result<Arc<Outlet>, String> {
        if let Some(outlet) = self.state().runs.get(&run.id) {
            return Ok(Arc::clone(outlet));
        }
        let outlet = Arc::new(self.outlet_of(run)?);
        let mut state = self.state();
        if state.runs.len() >= RUNS_MAX {
            state.runs.clear();
        }
        state.runs.insert(run.id.clone(), Arc::clone(&outlet));
        Ok(outlet)
    }
}

/// Whether the provider that a campaign defines itself can be used, as far as is known where its secrets are not; and
/// whether it could send what somebody is sent.
pub fn check_definition(campaign: &Campaign, sample: Option<&Sample>) -> Vec<Prerequisite> {
    let ProviderRef::Inline(definition) = &campaign.provider else { return Vec::new() };
    let made = inline(definition).and_then(|(name, spec)| spec.build(&name, &Unknown).map(|_| (name, spec)));
    match made {
        Ok((name, spec)) => {
            let words = format!("{name} is defined in the campaign");
            let fits = sample.map(|sample| fits(&spec, std::iter::once(sample.clone())));
            [Prerequisite::new("provider.definition", true, words)].into_iter().chain(fits).collect()
        }
        Err(words) => vec![Prerequisite::new("provider.definition", false, words)],
    }
}

/// Whether a provider could send one of these. What it cannot make a message of would fail for everybody.
fn fits(spec: &ProviderSpec, samples: impl Iterator<Item = Sample>) -> Prerequisite {
    let tried = samples.map(|Sample { recipient, to, message }| spec.rehearse(&recipient, &to, &message));
    let found = tried.reduce(|first, next| first.or_else(|words| next.map_err(|_| words)));
    let (pass, words) = match found {
        None | Some(Ok(())) => (true, "what is sent fits the provider".to_owned()),
        Some(Err(words)) => (false, format!("the provider could send this to nobody: {words}")),
    };
    Prerequisite::new("provider.fits", pass, words)
}

/// Secrets of which it is not known what they are.
struct Unknown;

impl Secrets for Unknown {
    fn secret(&self, _name: &str) -> Option<String> {
        Some("secret".to_owned())
    }
}

/// The provider that a campaign defines, and what it is called in the outbox.
fn inline(definition: &Map<String, Value>) -> Result<(String, ProviderSpec), String> {
    let spec: ProviderSpec = serde_json::from_value(definition.clone().into())
        .map_err(|error| format!("the definition of the provider makes no sense: {error}"))?;
    let name = spec.host().unwrap_or_else(|| spec.kind().to_owned());
    Ok((name, spec))
}

/// How many nodes are alive, if this one is among them.
async fn census(store: &dyn Store, me: &str) -> Result<Option<NonZeroU32>, Error> {
    let now = store.now().await?;
    let nodes: Vec<(Node, u64)> = store.list(Scan::all::<Node>()).await?;
    let mut alive = nodes.iter().filter(|(node, _)| node.seen_until > now);
    let count = NonZeroU32::new(u32::try_from(alive.clone().count()).unwrap_or(u32::MAX));
    Ok(count.filter(|_| alive.any(|(node, _)| &*node.node_id == me)))
}

#[cfg(test)]
#[path = "house_tests.rs"]
mod tests;
