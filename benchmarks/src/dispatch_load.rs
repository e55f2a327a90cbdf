//! The workload of the dispatch benchmark: campaign runs of any size, and a provider that accepts
//! everything at once. What remains is the cost of reserving and settling.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{ExponentialBackoff, Scope, SharedText, ValueError};
use onward_campaign_core::{
    AudienceRecipient, ComposeError, ComposeMessage, DeliveryChannel, DispatchPolicy,
    RenderedMessage, SendOutcome,
};
use onward_store::tables::CampaignRunRow;
use onward_store::{Error, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use onward_campaign_dispatch::{
    CampaignDelivery, CampaignDeployment, CampaignError, DeliveryError, DeliveryResolver,
    Dispatcher, EntropySource, Options, Provider, ProviderCapabilities, RepeatSendPolicy,
    Reservation, ScopedCampaigns, UnrestrictedGate,
};

/// Number of items of a job; all of them are reserved together.
pub const JOB_ITEMS: u32 = 100;

/// How often the benchmark checks whether a run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The benchmark workload on one store.
pub struct DispatchLoad {
    store: Arc<dyn Store>,
    scope: Scope,
}

/// The time that a campaign run took.
#[derive(Debug, Clone)]
pub struct DispatchTimings {
    /// From the start of the dispatcher until the run ended.
    pub total: Duration,
    /// The duration of each job, from when it was found until it was settled.
    pub jobs: Vec<Duration>,
}

impl DispatchLoad {
    /// Creates the workload in the default scope of a store that no other process uses.
    pub fn new(store: Arc<dyn Store>) -> Result<Self, ValueError> {
        let scope = Scope {
            tenant: "default".parse()?,
            project: "default".parse()?,
            environment: "default".parse()?,
        };
        Ok(Self { store, scope })
    }

    /// Deploys a campaign run with `items` items and returns its id.
    pub async fn deploy_run(&self, items: u32) -> Result<SharedText, CampaignError> {
        let deployment = CampaignDeployment {
            campaign_id: "bench".into(),
            channel: DeliveryChannel::Email,
            asset: "bench".into(),
            document: "{}".into(),
            scheduled_for: None,
            idempotency_key: None,
            already_reached: RepeatSendPolicy::Resend,
            deployed_by: "bench".to_owned(),
        };
        let (campaigns, entropy) = (self.scoped_campaigns(), EntropySource::default());
        let mut writer = campaigns.begin_audience(JOB_ITEMS, &entropy);
        for number in 0..items {
            let id = format!("lead-{number}");
            let address = format!("{id}@example.org");
            writer
                .add_recipient(AudienceRecipient {
                    id,
                    address,
                    data: serde_json::Map::new(),
                })
                .await?;
        }
        Ok(campaigns
            .deploy_campaign(&deployment, &writer.finish().await?, &entropy)
            .await?
            .run_id)
    }

    /// Dispatches with `concurrency` concurrent jobs until the campaign run has ended.
    pub async fn dispatch_run(
        &self,
        run: &SharedText,
        concurrency: usize,
    ) -> Result<DispatchTimings, CampaignError> {
        let durations = Arc::new(JobDurations::default());
        let dispatcher = self.new_dispatcher(concurrency, &durations);
        let campaigns = self.scoped_campaigns();
        let started_at = Instant::now();
        let (stop, stopped) = watch::channel(false);
        let dispatching = tokio::spawn(dispatcher.run(stopped));
        while campaigns.read_run(run).await?.ended_at.is_none() && !dispatching.is_finished() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let total = started_at.elapsed();
        stop.send_replace(true);
        dispatching
            .await
            .map_err(|error| Error::Unusable(format!("the dispatcher task failed: {error}")))??;
        Ok(DispatchTimings {
            total,
            jobs: std::mem::take(&mut *lock_durations(&durations)),
        })
    }

    /// Claims one due job durably and returns how long that took. The job stays locked. Returns
    /// `None` if no job is due.
    pub async fn measure_claim(&self) -> Result<Option<Duration>, Error> {
        let dispatcher = self.new_dispatcher(1, &Arc::default());
        let started_at = Instant::now();
        Ok(dispatcher.claim_job().await?.then(|| started_at.elapsed()))
    }

    fn scoped_campaigns(&self) -> ScopedCampaigns {
        ScopedCampaigns::new(Arc::clone(&self.store), self.scope.clone())
    }

    fn new_dispatcher(&self, concurrency: usize, durations: &Arc<JobDurations>) -> Dispatcher {
        let options = Options {
            concurrency,
            ..Options::default()
        };
        Dispatcher::new(
            Arc::clone(&self.store),
            Arc::new(BenchDeliveryResolver {
                durations: Arc::clone(durations),
            }),
            options,
        )
    }
}

/// The durations of the jobs processed so far.
type JobDurations = Mutex<Vec<Duration>>;

fn lock_durations(durations: &JobDurations) -> std::sync::MutexGuard<'_, Vec<Duration>> {
    durations.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resolves every run to the benchmark provider.
struct BenchDeliveryResolver {
    durations: Arc<JobDurations>,
}

impl DeliveryResolver for BenchDeliveryResolver {
    /// Creates a delivery per job; it is dropped when the job ends, which measures the job's
    /// duration.
    fn resolve_delivery(
        &self,
        _run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError> {
        let policy = DispatchPolicy {
            window: JOB_ITEMS as usize,
            max_sends: 3,
            max_attempts: 3,
            backoff: ExponentialBackoff {
                initial_ms: 1_000,
                max_ms: 10_000,
            },
            resend_in_doubt: false,
            lookup_after_ms: None,
            max_unreachable_ms: 3_600_000,
        };
        Ok(Arc::new(CampaignDelivery {
            provider: Arc::new(BenchProvider {
                started_at: Instant::now(),
                durations: Arc::clone(&self.durations),
            }),
            composer: Arc::new(EmptyComposer),
            gate: Arc::new(UnrestrictedGate),
            policy,
            timeout: Duration::from_secs(30),
        }))
    }
}

/// Accepts every item at once, and records its own lifetime when dropped.
struct BenchProvider {
    started_at: Instant,
    durations: Arc<JobDurations>,
}

impl Drop for BenchProvider {
    fn drop(&mut self) {
        lock_durations(&self.durations).push(self.started_at.elapsed());
    }
}

#[async_trait]
impl Provider for BenchProvider {
    fn name(&self) -> &str {
        "bench"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            max_batch: JOB_ITEMS as usize,
            ..ProviderCapabilities::default()
        }
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        batch
            .into_iter()
            .map(|it| (it.item_id().clone(), SendOutcome::Accepted(None)))
            .collect()
    }
}

/// Renders empty messages.
struct EmptyComposer;

impl ComposeMessage for EmptyComposer {
    fn compose_message(
        &self,
        _recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        Ok(RenderedMessage::default())
    }
}
