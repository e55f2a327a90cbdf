//! The fixture of the tests: an in-memory store, a provider that records its calls outside of the
//! store, and dispatchers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{ExponentialBackoff, Scope, SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, CampaignRunStatus, ComposeError, ComposeMessage, DeliveryChannel,
    DispatchPolicy, ItemCounts, LookupOutcome, RenderedMessage, SendOutcome,
};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, CampaignError, CampaignFinding,
    CampaignFindingKind, DeploymentResult, Dispatcher, EntropySource, Options, Provider,
    ProviderCapabilities, RepeatSendPolicy, Reservation, ScopedCampaigns, UnrestrictedGate,
    examine_runs,
};
use onward_store::memory::MemoryStore;
use onward_store::tables::{JobRow, OutboxItemRow};
use onward_store::{RecordReader as _, Store, StoreClock, StorePolicy, TableScan};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

pub(crate) type SendScript = dyn Fn(&str, u32) -> SendOutcome + Send + Sync;

/// A provider with scripted outcomes that records how often it was called for each recipient.
pub(crate) struct RecordingProvider {
    pub(crate) calls: Mutex<BTreeMap<String, u32>>,
    pub(crate) capabilities: ProviderCapabilities,
    pub(crate) script: Box<SendScript>,
    pub(crate) known: Mutex<BTreeMap<String, LookupOutcome>>,
    /// Whether a call that reached the provider never returns.
    pub(crate) hangs: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    pub(crate) permits: Option<Arc<Semaphore>>,
    /// How long a call takes.
    pub(crate) latency: Duration,
}

impl RecordingProvider {
    pub(crate) fn new(script: impl Fn(&str, u32) -> SendOutcome + Send + Sync + 'static) -> Self {
        Self {
            calls: Mutex::default(),
            capabilities: ProviderCapabilities {
                max_batch: 10,
                ..ProviderCapabilities::default()
            },
            script: Box::new(script),
            known: Mutex::default(),
            hangs: None,
            permits: None,
            latency: Duration::ZERO,
        }
    }

    /// How often the provider was called for each recipient.
    pub(crate) fn calls(&self) -> BTreeMap<String, u32> {
        self.calls.lock().unwrap().clone()
    }
}

pub(crate) fn accepted() -> SendOutcome {
    SendOutcome::Accepted(Some("m-1".into()))
}

#[async_trait]
impl Provider for RecordingProvider {
    fn name(&self) -> &str {
        "recording"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.capabilities
    }

    fn send_permits(&self) -> Option<Arc<Semaphore>> {
        self.permits.clone()
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        tokio::time::sleep(self.latency).await;
        let mut outcomes = Vec::new();
        for reservation in batch {
            let count = {
                let mut calls = self.calls.lock().unwrap();
                let count = calls
                    .entry(reservation.recipient_id().to_string())
                    .or_insert(0);
                *count += 1;
                *count
            };
            if self.hangs.as_ref().is_some_and(|hangs| hangs()) {
                std::future::pending::<()>().await;
            }
            outcomes.push((
                reservation.item_id().clone(),
                (self.script)(reservation.recipient_id(), count),
            ));
        }
        outcomes
    }

    async fn lookup_status(&self, key: &str) -> LookupOutcome {
        self.known
            .lock()
            .unwrap()
            .get(key)
            .cloned()
            .unwrap_or(LookupOutcome::NotFound)
    }
}

struct GreetingComposer;

impl ComposeMessage for GreetingComposer {
    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        if recipient.id == "invalid" {
            return Err(ComposeError::new("the recipient has no name"));
        }
        Ok(RenderedMessage {
            parts: vec![("text".to_owned(), format!("Hello {}", recipient.id))],
        })
    }
}

/// The time of the runtime, which is virtual in tests with `start_paused`.
struct RuntimeClock(Instant);

impl StoreClock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_micros(1_767_225_600_000_000).unwrap();
        start.plus_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

pub(crate) const POLICY: DispatchPolicy = DispatchPolicy {
    window: 10,
    max_sends: 3,
    max_attempts: 3,
    backoff: ExponentialBackoff {
        initial_ms: 1_000,
        max_ms: 8_000,
    },
    resend_in_doubt: false,
    lookup_after_ms: None,
    max_unreachable_ms: 3_600_000,
};

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) provider: Arc<RecordingProvider>,
    delivery: Arc<CampaignDelivery>,
    pub(crate) campaigns: ScopedCampaigns,
}

impl World {
    pub(crate) fn new(provider: RecordingProvider, policy: DispatchPolicy) -> Self {
        Self::with_gate(provider, policy, UnrestrictedGate)
    }

    pub(crate) fn with_gate(
        provider: RecordingProvider,
        policy: DispatchPolicy,
        gate: impl AdmissionGate,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(
            StorePolicy::default(),
            Arc::new(RuntimeClock(Instant::now())),
        ));
        let provider = Arc::new(provider);
        let delivery = CampaignDelivery {
            provider: Arc::clone(&provider) as Arc<dyn Provider>,
            composer: Arc::new(GreetingComposer),
            gate: Arc::new(gate),
            policy,
            timeout: Duration::from_secs(30),
        };
        let campaigns = ScopedCampaigns::new(Arc::clone(&store), scope());
        Self {
            store,
            provider,
            delivery: Arc::new(delivery),
            campaigns,
        }
    }

    pub(crate) async fn deploy(
        &self,
        recipients: &[&str],
    ) -> Result<DeploymentResult, CampaignError> {
        self.deploy_as(deployment(None), recipients).await
    }

    pub(crate) async fn deploy_as(
        &self,
        deployment: CampaignDeployment,
        recipients: &[&str],
    ) -> Result<DeploymentResult, CampaignError> {
        let entropy = EntropySource::default();
        let mut writer = self.campaigns.begin_audience(4, &entropy);
        for id in recipients {
            writer.add_recipient(recipient(id)).await?;
        }
        self.campaigns
            .deploy_campaign(&deployment, &writer.finish().await?, &entropy)
            .await
    }

    pub(crate) fn dispatcher(&self) -> Dispatcher {
        self.dispatcher_on(Arc::clone(&self.store))
    }

    pub(crate) fn dispatcher_with(&self, options: Options) -> Dispatcher {
        Dispatcher::new(
            Arc::clone(&self.store),
            Arc::new(Arc::clone(&self.delivery)),
            options,
        )
    }

    pub(crate) fn dispatcher_on(&self, store: Arc<dyn Store>) -> Dispatcher {
        let options = Options {
            concurrency: 2,
            poll_interval: Duration::from_millis(10),
            ..Options::default()
        };
        Dispatcher::new(store, Arc::new(Arc::clone(&self.delivery)), options)
    }

    /// Runs a dispatcher until the condition holds.
    pub(crate) async fn work_until(&self, is_met: impl AsyncFn(&Self) -> bool) {
        let (stop, stopped) = watch::channel(false);
        let dispatching = tokio::spawn(self.dispatcher().run(stopped));
        // An hour of virtual time.
        for _ in 0..36_000 {
            if is_met(self).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(
            is_met(self).await,
            "{:?} {:?}",
            self.jobs().await,
            self.items().await
        );
        stop.send_replace(true);
        dispatching.await.unwrap().unwrap();
        let problems: Vec<CampaignFinding> = self
            .findings()
            .await
            .into_iter()
            .filter(|finding| finding.kind != CampaignFindingKind::InDoubt)
            .collect();
        assert_eq!(problems, [], "dispatchers leave nothing stuck");
    }

    /// The findings of the doctor.
    pub(crate) async fn findings(&self) -> Vec<CampaignFinding> {
        let mut findings = Vec::new();
        examine_runs(&*self.store, None, &mut |finding| findings.push(finding))
            .await
            .unwrap();
        findings
    }

    pub(crate) async fn finding_kinds(&self) -> Vec<CampaignFindingKind> {
        self.findings()
            .await
            .into_iter()
            .map(|finding| finding.kind)
            .collect()
    }

    /// Runs a dispatcher for this much virtual time.
    pub(crate) async fn work_for(&self, time: Duration) {
        let started_at = Instant::now();
        self.work_until(async |_| started_at.elapsed() >= time)
            .await;
    }

    /// Runs a dispatcher until the campaign run has ended.
    pub(crate) async fn work_until_ended(&self, run: &str) {
        self.work_until(async |world| world.has_ended(run).await)
            .await;
    }

    pub(crate) async fn has_ended(&self, run: &str) -> bool {
        let run = self.campaigns.read_run(run).await.unwrap();
        run.ended_at.is_some()
    }

    pub(crate) async fn run_status(&self, run: &str) -> CampaignRunStatus {
        self.campaigns.read_run(run).await.unwrap().status
    }

    pub(crate) async fn item_counts(&self, run: &str) -> ItemCounts {
        self.campaigns.count_run_items(run).await.unwrap()
    }

    pub(crate) async fn items(&self) -> Vec<OutboxItemRow> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }

    pub(crate) async fn jobs(&self) -> Vec<JobRow> {
        let rows: Vec<(JobRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<JobRow>())
            .await
            .unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }

    /// The status and reason of each item, by recipient.
    pub(crate) async fn statuses(&self) -> BTreeMap<String, String> {
        let status = |row: &OutboxItemRow| match &row.reason {
            Some(reason) => format!("{} {reason}", row.status),
            None if row.in_doubt_since.is_some() => "in doubt".to_owned(),
            None => row.status.to_string(),
        };
        self.items()
            .await
            .iter()
            .map(|row| (row.recipient_id.to_string(), status(row)))
            .collect()
    }

    pub(crate) async fn events(&self, run: &str) -> Vec<String> {
        self.campaigns
            .list_audit_entries(run, 0, 1_000)
            .await
            .unwrap()
            .into_iter()
            .map(|entry| entry.event.to_string())
            .collect()
    }
}

pub(crate) fn scope() -> Scope {
    Scope {
        tenant: "acme".parse().unwrap(),
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
    }
}

pub(crate) fn deployment(key: Option<&str>) -> CampaignDeployment {
    CampaignDeployment {
        campaign_id: "spring".into(),
        channel: DeliveryChannel::Email,
        asset: "spring".into(),
        document: "{}".into(),
        scheduled_for: None,
        idempotency_key: key.map(str::to_owned),
        already_reached: RepeatSendPolicy::Refuse,
        deployed_by: "ada".to_owned(),
    }
}

pub(crate) fn recipient(id: &str) -> AudienceRecipient {
    AudienceRecipient {
        id: id.to_owned(),
        address: format!("{id}@example.org"),
        data: serde_json::Map::new(),
    }
}

pub(crate) fn expect(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(id, status)| ((*id).to_owned(), (*status).to_owned()))
        .collect()
}
