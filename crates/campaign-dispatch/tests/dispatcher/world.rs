//! A store, a provider that keeps count outside of it, and dispatchers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, ComposeMessage, DeliveryChannel, DispatchPolicy, ExponentialBackoff,
    LookupOutcome, RenderedMessage, SendOutcome,
};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, CampaignError, CampaignFinding,
    CampaignFindingKind, CampaignScope, DeploymentResult, Dispatcher, EntropySource, Options,
    Provider, ProviderCapabilities, RepeatSendPolicy, Reservation, ScopedCampaigns,
    UnrestrictedGate, examine_runs,
};
use onward_store::memory::MemoryStore;
use onward_store::tables::{JobRow, OutboxItemRow};
use onward_store::{RecordReader as _, Store, StoreClock, StorePolicy, TableScan};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) type Script = dyn Fn(&str, u32) -> SendOutcome + Send + Sync;

/// A provider that does what a test says, and knows how often it was called for whom.
pub(crate) struct Counting {
    pub(crate) calls: Mutex<BTreeMap<String, u32>>,
    pub(crate) nature: ProviderCapabilities,
    pub(crate) script: Box<Script>,
    pub(crate) known: Mutex<BTreeMap<String, LookupOutcome>>,
    /// Whether a call that it has heard is never answered.
    pub(crate) hangs: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Counting {
    pub(crate) fn new(script: impl Fn(&str, u32) -> SendOutcome + Send + Sync + 'static) -> Self {
        Self {
            calls: Mutex::default(),
            nature: ProviderCapabilities {
                max_batch: 10,
                ..ProviderCapabilities::default()
            },
            script: Box::new(script),
            known: Mutex::default(),
            hangs: None,
        }
    }

    /// How often it was called for each recipient.
    pub(crate) fn calls(&self) -> BTreeMap<String, u32> {
        self.calls.lock().unwrap().clone()
    }
}

pub(crate) fn accepted() -> SendOutcome {
    SendOutcome::Accepted(Some("m-1".into()))
}

#[async_trait]
impl Provider for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.nature
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let mut answers = Vec::new();
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
            answers.push((
                reservation.item_id().clone(),
                (self.script)(reservation.recipient_id(), count),
            ));
        }
        answers
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

struct Plain;

impl ComposeMessage for Plain {
    fn compose_message(&self, recipient: &AudienceRecipient) -> Result<RenderedMessage, String> {
        if recipient.id == "unfit" {
            return Err("there is no name".to_owned());
        }
        Ok(RenderedMessage {
            parts: vec![("text".to_owned(), format!("Hello {}", recipient.id))],
        })
    }
}

/// The time of the runtime, which is virtual where a test says so.
struct Virtual(Instant);

impl StoreClock for Virtual {
    fn now(&self) -> Timestamp {
        let begun = Timestamp::from_micros(1_767_225_600_000_000).unwrap();
        begun.plus_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

pub(crate) const TERMS: DispatchPolicy = DispatchPolicy {
    window: 10,
    max_sends: 3,
    max_attempts: 3,
    backoff: ExponentialBackoff {
        initial_ms: 1_000,
        max_ms: 8_000,
    },
    resend_in_doubt: false,
    lookup_after_ms: None,
};

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) provider: Arc<Counting>,
    outlet: Arc<CampaignDelivery>,
    pub(crate) campaigns: ScopedCampaigns,
}

impl World {
    pub(crate) fn new(provider: Counting, terms: DispatchPolicy) -> Self {
        Self::gated(provider, terms, UnrestrictedGate)
    }

    pub(crate) fn gated(
        provider: Counting,
        terms: DispatchPolicy,
        gate: impl AdmissionGate,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(
            StorePolicy::default(),
            Arc::new(Virtual(Instant::now())),
        ));
        let provider = Arc::new(provider);
        let outlet = CampaignDelivery {
            provider: Arc::clone(&provider) as Arc<dyn Provider>,
            composer: Arc::new(Plain),
            gate: Arc::new(gate),
            policy: terms,
            timeout: Duration::from_secs(30),
        };
        let campaigns = ScopedCampaigns::new(Arc::clone(&store), scope());
        Self {
            store,
            provider,
            outlet: Arc::new(outlet),
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
        let mut gathering = self.campaigns.begin_audience(4, &entropy);
        for id in recipients {
            gathering.add_recipient(recipient(id)).await?;
        }
        self.campaigns
            .deploy_campaign(&deployment, &gathering.finish().await?, &entropy)
            .await
    }

    pub(crate) fn dispatcher(&self) -> Dispatcher {
        self.dispatcher_on(Arc::clone(&self.store))
    }

    pub(crate) fn dispatcher_with(&self, options: Options) -> Dispatcher {
        Dispatcher::new(
            Arc::clone(&self.store),
            Arc::new(Arc::clone(&self.outlet)),
            options,
        )
    }

    pub(crate) fn dispatcher_on(&self, store: Arc<dyn Store>) -> Dispatcher {
        let options = Options {
            concurrency: 2,
            poll_interval: Duration::from_millis(10),
            ..Options::default()
        };
        Dispatcher::new(store, Arc::new(Arc::clone(&self.outlet)), options)
    }

    /// Works until the condition holds.
    pub(crate) async fn work_until(&self, is_met: impl AsyncFn(&Self) -> bool) {
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(self.dispatcher().run(stopped));
        // An hour, which takes no time.
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
        working.await.unwrap().unwrap();
        let wrong: Vec<CampaignFinding> = self
            .found()
            .await
            .into_iter()
            .filter(|it| it.kind != CampaignFindingKind::InDoubt)
            .collect();
        assert_eq!(wrong, [], "whatever dispatchers do, nothing is stuck");
    }

    /// What a doctor finds.
    pub(crate) async fn found(&self) -> Vec<CampaignFinding> {
        let mut found = Vec::new();
        examine_runs(&*self.store, None, &mut |flaw| found.push(flaw))
            .await
            .unwrap();
        found
    }

    pub(crate) async fn ailments(&self) -> Vec<CampaignFindingKind> {
        self.found()
            .await
            .into_iter()
            .map(|flaw| flaw.kind)
            .collect()
    }

    /// Works for so long.
    pub(crate) async fn work_for(&self, time: Duration) {
        let since = Instant::now();
        self.work_until(async |_| since.elapsed() >= time).await;
    }

    pub(crate) async fn work_until_over(&self, run: &str) {
        self.work_until(async |world| {
            world
                .campaigns
                .read_run(run)
                .await
                .unwrap()
                .ended_at
                .is_some()
        })
        .await;
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

    /// The items by recipient: status and reason.
    pub(crate) async fn statuses(&self) -> BTreeMap<String, String> {
        let status = |row: &OutboxItemRow| match &row.reason {
            Some(reason) => format!("{} {reason}", row.status),
            None if row.doubt_since.is_some() => "in doubt".to_owned(),
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

pub(crate) fn scope() -> CampaignScope {
    CampaignScope {
        tenant: "acme".into(),
        workspace: "shop".into(),
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
