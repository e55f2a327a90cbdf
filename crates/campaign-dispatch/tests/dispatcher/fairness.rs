//! Tenants share the job slots of a node and the permits of a provider: neither slow providers nor
//! crashed workers block other tenants.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{Scope, SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, ComposeError, ComposeMessage, DispatchPolicy, JobStatus, RenderedMessage,
    SendOutcome,
};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, DeliveryError, DeliveryResolver,
    Dispatcher, EntropySource, Options, Provider, ProviderCapabilities, Reservation,
    ScopedCampaigns, SendAdmission, UnrestrictedGate,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use crate::world::{POLICY, RecordingProvider, World, accepted, deployment, recipient, scope};

struct EmptyComposer;

impl ComposeMessage for EmptyComposer {
    fn compose_message(
        &self,
        _recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        Ok(RenderedMessage::default())
    }
}

/// A provider that takes 25 s per call and records the maximum number of concurrent items.
#[derive(Default)]
pub(crate) struct SlowProvider {
    permits: Option<Arc<Semaphore>>,
    in_progress: AtomicUsize,
    max_in_progress: AtomicUsize,
    pub(crate) called: Mutex<Vec<String>>,
}

#[async_trait]
impl Provider for SlowProvider {
    fn name(&self) -> &str {
        "slow"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities::default()
    }

    fn send_permits(&self) -> Option<Arc<Semaphore>> {
        self.permits.clone()
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let in_progress = self.in_progress.fetch_add(batch.len(), Ordering::SeqCst) + batch.len();
        self.max_in_progress
            .fetch_max(in_progress, Ordering::SeqCst);
        sleep(Duration::from_secs(25)).await;
        self.in_progress.fetch_sub(batch.len(), Ordering::SeqCst);
        self.called
            .lock()
            .unwrap()
            .extend(batch.iter().map(|it| it.recipient_id().to_string()));
        batch
            .iter()
            .map(|it| (it.item_id().clone(), accepted()))
            .collect()
    }
}

pub(crate) fn delivery(
    provider: Arc<dyn Provider>,
    gate: impl AdmissionGate,
    policy: DispatchPolicy,
) -> Arc<CampaignDelivery> {
    Arc::new(CampaignDelivery {
        provider,
        composer: Arc::new(EmptyComposer),
        gate: Arc::new(gate),
        policy,
        timeout: Duration::from_secs(60),
    })
}

/// Uses a slow provider for the tenant `slow`, and a fast one for all others.
struct DeliveryByTenant {
    slow: Arc<CampaignDelivery>,
    fast: Arc<CampaignDelivery>,
}

impl DeliveryResolver for DeliveryByTenant {
    fn resolve_delivery(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError> {
        Ok(Arc::clone(if &*run.tenant_id == "slow" {
            &self.slow
        } else {
            &self.fast
        }))
    }
}

async fn deploy(world: &World, tenant: &str, count: usize) -> (ScopedCampaigns, SharedText) {
    let scope = Scope {
        tenant: tenant.parse().unwrap(),
        ..scope()
    };
    let (campaigns, entropy) = (
        ScopedCampaigns::new(Arc::clone(&world.store), scope),
        EntropySource::default(),
    );
    let mut writer = campaigns.begin_audience(100, &entropy);
    for number in 0..count {
        writer
            .add_recipient(recipient(&format!("{tenant}{number}")))
            .await
            .unwrap();
    }
    let audience = writer.finish().await.unwrap();
    let run = campaigns
        .deploy_campaign(&deployment(None), &audience, &entropy)
        .await
        .unwrap()
        .run_id;
    (campaigns, run)
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_a_slow_provider_does_not_occupy_all_job_slots() {
    for concurrency in [1, 8] {
        let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
        let deliveries = DeliveryByTenant {
            slow: delivery(Arc::new(SlowProvider::default()), UnrestrictedGate, POLICY),
            fast: delivery(Arc::clone(&world.provider) as _, UnrestrictedGate, POLICY),
        };
        let (slow, slow_run) = deploy(&world, "slow", 1_600).await;
        let (stop, stopped) = watch::channel(false);
        let options = Options {
            concurrency,
            ..Options::default()
        };
        let dispatching = tokio::spawn(
            Dispatcher::new(Arc::clone(&world.store), Arc::new(deliveries), options).run(stopped),
        );
        sleep(Duration::from_secs(5)).await;
        let (fast, run) = deploy(&world, "fast", 1).await;
        let started_at = Instant::now();
        while fast.read_run(&run).await.unwrap().ended_at.is_none()
            && started_at.elapsed() < Duration::from_secs(1_800)
        {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(
            started_at.elapsed() < Duration::from_secs(60),
            "{concurrency} slots: waited for {:?}",
            started_at.elapsed()
        );
        stop.send_replace(true);
        dispatching.await.unwrap().unwrap();
        // Preempted jobs have not failed.
        let counts = slow.count_run_items(&slow_run).await.unwrap();
        assert_eq!((counts.failed, counts.in_doubt), (0, 0));
        assert!(
            world
                .jobs()
                .await
                .iter()
                .all(|job| job.attempts <= 1 && job.status != JobStatus::Locked)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_crashed_worker_do_not_count_against_the_limit_of_their_tenant() {
    let is_stuck = Arc::new(AtomicBool::new(true));
    let mut provider = RecordingProvider::new(|_, _| accepted());
    let hangs = Arc::clone(&is_stuck);
    provider.hangs = Some(Box::new(move || hangs.load(Ordering::SeqCst)));
    let world = World::new(provider, POLICY);
    let recipients: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
    let run = world
        .deploy(&recipients.iter().map(String::as_str).collect::<Vec<_>>())
        .await
        .unwrap()
        .run_id;
    let options = Options {
        concurrency: 8,
        tenant_concurrency: Some(2),
        ..Options::default()
    };
    let (_stop, stopped) = watch::channel(false);
    let crashing = tokio::spawn(world.dispatcher_with(options.clone()).run(stopped));
    sleep(Duration::from_secs(5)).await;
    crashing.abort();
    is_stuck.store(false, Ordering::SeqCst);
    let (stop, stopped) = watch::channel(false);
    let dispatching = tokio::spawn(world.dispatcher_with(options).run(stopped));
    sleep(Duration::from_secs(3_600)).await;
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
    let counts = world.item_counts(&run).await;
    assert_eq!(
        (counts.open_items(), counts.sent, counts.in_doubt),
        (0, 32, 8),
        "two jobs of four items each were in progress"
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_that_waits_for_a_permit_is_neither_reserved_nor_failed() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let slow = Arc::new(SlowProvider {
        permits: Some(Arc::new(Semaphore::new(3))),
        ..SlowProvider::default()
    });
    let (campaigns, run) = deploy(&world, "slow", 1_600).await;
    let delivery = delivery(
        Arc::clone(&slow) as _,
        UnrestrictedGate,
        DispatchPolicy {
            max_attempts: 2,
            ..POLICY
        },
    );
    let (stop, stopped) = watch::channel(false);
    let options = Options {
        concurrency: 16,
        ..Options::default()
    };
    let dispatching = tokio::spawn(
        Dispatcher::new(Arc::clone(&world.store), Arc::new(delivery), options).run(stopped),
    );
    for _ in 0..20 {
        sleep(Duration::from_secs(60)).await;
        let reserved = world
            .items()
            .await
            .iter()
            .filter(|item| item.reserved_since.is_some())
            .count();
        assert!(reserved <= 3, "a crash would leave {reserved} in doubt");
    }
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
    let counts = campaigns.count_run_items(&run).await.unwrap();
    assert_eq!(slow.max_in_progress.load(Ordering::SeqCst), 3);
    assert!(
        counts.sent >= 3 * 20 * 60 / 25 - 10,
        "all permits are used: {counts:?}"
    );
    assert_eq!((counts.failed, counts.in_doubt), (0, 0));
}

/// Panics at the first call.
struct PanickingGate(AtomicBool);

impl AdmissionGate for PanickingGate {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        _at_most: usize,
        _now: Timestamp,
    ) -> SendAdmission {
        assert!(self.0.swap(true, Ordering::SeqCst), "injected panic");
        SendAdmission::Admitted((0..recipients.len()).collect())
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_job_does_not_stop_the_dispatcher() {
    let world = World::with_gate(
        RecordingProvider::new(|_, _| accepted()),
        POLICY,
        PanickingGate(AtomicBool::new(false)),
    );
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&run).await;
    assert_eq!(world.provider.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_tenant_share_its_job_slots() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let delivery = delivery(Arc::new(SlowProvider::default()), UnrestrictedGate, POLICY);
    let (campaigns, _) = deploy(&world, "slow", 10_000).await;
    let (stop, stopped) = watch::channel(false);
    let options = Options {
        concurrency: 4,
        ..Options::default()
    };
    let dispatching = tokio::spawn(
        Dispatcher::new(Arc::clone(&world.store), Arc::new(delivery), options).run(stopped),
    );
    sleep(Duration::from_secs(5)).await;
    let entropy = EntropySource::default();
    let mut writer = campaigns.begin_audience(100, &entropy);
    writer.add_recipient(recipient("other")).await.unwrap();
    let second = CampaignDeployment {
        campaign_id: "small".into(),
        ..deployment(None)
    };
    let run = campaigns
        .deploy_campaign(&second, &writer.finish().await.unwrap(), &entropy)
        .await
        .unwrap()
        .run_id;
    let started_at = Instant::now();
    while campaigns.read_run(&run).await.unwrap().ended_at.is_none()
        && started_at.elapsed() < Duration::from_secs(3_600)
    {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(
        started_at.elapsed() < Duration::from_secs(600),
        "waited for {:?}",
        started_at.elapsed()
    );
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
}
