//! The workload of the dispatch benchmark: campaign runs of any size, and a provider that accepts
//! everything at once. What remains is the cost of reserving and settling.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_campaign_core::{
    AudienceRecipient, ComposeMessage, DeliveryChannel, DispatchPolicy, ExponentialBackoff,
    RenderedMessage, SendOutcome,
};
use onward_store::tables::CampaignRunRow;
use onward_store::{Error, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{
    CampaignDelivery, CampaignDeployment, CampaignError, CampaignScope, DeliveryResolver,
    Dispatcher, EntropySource, Options, Provider, ProviderCapabilities, RepeatSendPolicy,
    Reservation, ScopedCampaigns, UnrestrictedGate,
};

/// Number of items of a job; all of them are reserved together.
pub const JOB_ITEMS: u32 = 100;

/// How often the benchmark checks whether a run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The benchmark workload on one store.
pub struct DispatchLoad {
    store: Arc<dyn Store>,
    scope: CampaignScope,
}

/// The time that a campaign run took.
#[derive(Debug, Clone)]
pub struct DispatchTimings {
    /// From the start of the dispatcher until the run was over.
    pub total: Duration,
    /// The duration of each job, from when it was found until it was settled.
    pub jobs: Vec<Duration>,
}

impl DispatchLoad {
    /// Creates the workload on a store that no other process uses.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            scope: CampaignScope {
                tenant: "default".into(),
                workspace: "default/default".into(),
            },
        }
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
        let mut gathering = campaigns.begin_audience(JOB_ITEMS, &entropy);
        for number in 0..items {
            let id = format!("lead-{number}");
            let address = format!("{id}@example.org");
            gathering
                .add_recipient(AudienceRecipient {
                    id,
                    address,
                    data: serde_json::Map::new(),
                })
                .await?;
        }
        Ok(campaigns
            .deploy_campaign(&deployment, &gathering.finish().await?, &entropy)
            .await?
            .run_id)
    }

    /// Dispatches with `lanes` concurrent jobs until the campaign run is over.
    pub async fn dispatch_run(
        &self,
        run: &SharedText,
        lanes: usize,
    ) -> Result<DispatchTimings, CampaignError> {
        let times = Arc::new(JobDurations::default());
        let dispatcher = self.new_dispatcher(lanes, &times);
        let campaigns = self.scoped_campaigns();
        let begun = Instant::now();
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(dispatcher.run(stopped));
        while campaigns.read_run(run).await?.ended_at.is_none() && !working.is_finished() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let all = begun.elapsed();
        stop.send_replace(true);
        working
            .await
            .map_err(|error| Error::Unusable(format!("the dispatcher has ended: {error}")))??;
        Ok(DispatchTimings {
            total: all,
            jobs: std::mem::take(&mut *lock_durations(&times)),
        })
    }

    /// Claims one due job durably and returns how long that took. The job stays locked. Returns
    /// `None` if no job is due.
    pub async fn measure_claim(&self) -> Result<Option<Duration>, Error> {
        let dispatcher = self.new_dispatcher(1, &Arc::default());
        let begun = Instant::now();
        Ok(dispatcher.claim_job().await?.then(|| begun.elapsed()))
    }

    fn scoped_campaigns(&self) -> ScopedCampaigns {
        ScopedCampaigns::new(Arc::clone(&self.store), self.scope.clone())
    }

    fn new_dispatcher(&self, lanes: usize, times: &Arc<JobDurations>) -> Dispatcher {
        let options = Options {
            concurrency: lanes,
            ..Options::default()
        };
        Dispatcher::new(
            Arc::clone(&self.store),
            Arc::new(BenchDeliveryResolver {
                durations: Arc::clone(times),
            }),
            options,
        )
    }
}

/// The durations of the jobs processed so far.
type JobDurations = Mutex<Vec<Duration>>;

fn lock_durations(times: &JobDurations) -> std::sync::MutexGuard<'_, Vec<Duration>> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resolves every run to the benchmark provider.
struct BenchDeliveryResolver {
    durations: Arc<JobDurations>,
}

impl DeliveryResolver for BenchDeliveryResolver {
    /// Creates a delivery per job; it is dropped when the job ends, which measures the job's
    /// duration.
    fn resolve_delivery(&self, _run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        let terms = DispatchPolicy {
            window: JOB_ITEMS as usize,
            max_sends: 3,
            max_attempts: 3,
            backoff: ExponentialBackoff::default(),
            resend_in_doubt: false,
            lookup_after_ms: None,
        };
        Ok(Arc::new(CampaignDelivery {
            provider: Arc::new(BenchProvider {
                started_at: Instant::now(),
                durations: Arc::clone(&self.durations),
            }),
            composer: Arc::new(EmptyComposer),
            gate: Arc::new(UnrestrictedGate),
            policy: terms,
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
        "nothing"
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
    fn compose_message(&self, _recipient: &AudienceRecipient) -> Result<RenderedMessage, String> {
        Ok(RenderedMessage::default())
    }
}
