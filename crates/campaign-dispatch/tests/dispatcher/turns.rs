//! Tenants share what there is: lanes, and room at providers. Nobody is kept back by those who are
//! gone, or slow.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, ComposeMessage, DispatchPolicy, RenderedMessage, SendOutcome,
};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, CampaignScope, DeliveryResolver,
    Dispatcher, EntropySource, Options, Provider, ProviderCapabilities, Reservation,
    ScopedCampaigns, SendAdmission, UnrestrictedGate,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use crate::world::{Counting, TERMS, World, accepted, deployment, recipient};

struct Empty;

impl ComposeMessage for Empty {
    fn compose_message(&self, _recipient: &AudienceRecipient) -> Result<RenderedMessage, String> {
        Ok(RenderedMessage::default())
    }
}

/// Takes half a minute for each, and knows how many wait for it at a time.
#[derive(Default)]
pub(crate) struct Slow {
    room: Option<Arc<Semaphore>>,
    at_a_time: AtomicUsize,
    most: AtomicUsize,
    pub(crate) called: Mutex<Vec<String>>,
}

#[async_trait]
impl Provider for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities::default()
    }

    fn send_permits(&self) -> Option<Arc<Semaphore>> {
        self.room.clone()
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let at_a_time = self.at_a_time.fetch_add(batch.len(), Ordering::SeqCst) + batch.len();
        self.most.fetch_max(at_a_time, Ordering::SeqCst);
        sleep(Duration::from_secs(25)).await;
        self.at_a_time.fetch_sub(batch.len(), Ordering::SeqCst);
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

pub(crate) fn outlet(
    provider: Arc<dyn Provider>,
    gate: impl AdmissionGate,
    terms: DispatchPolicy,
) -> Arc<CampaignDelivery> {
    let (compose, patience) = (Arc::new(Empty), Duration::from_secs(60));
    Arc::new(CampaignDelivery {
        provider,
        composer: compose,
        gate: Arc::new(gate),
        policy: terms,
        timeout: patience,
    })
}

/// One tenant is reached by a provider that is slow, all others by one that is not.
struct ByTenant {
    slow: Arc<CampaignDelivery>,
    quick: Arc<CampaignDelivery>,
}

impl DeliveryResolver for ByTenant {
    fn resolve_delivery(&self, run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        Ok(Arc::clone(if &*run.tenant_id == "slow" {
            &self.slow
        } else {
            &self.quick
        }))
    }
}

async fn deploy(world: &World, tenant: &str, count: usize) -> (ScopedCampaigns, SharedText) {
    let scope = CampaignScope {
        tenant: tenant.into(),
        workspace: "shop".into(),
    };
    let (campaigns, entropy) = (
        ScopedCampaigns::new(Arc::clone(&world.store), scope),
        EntropySource::default(),
    );
    let mut gathering = campaigns.begin_audience(100, &entropy);
    for number in 0..count {
        gathering
            .add_recipient(recipient(&format!("{tenant}{number}")))
            .await
            .unwrap();
    }
    let audience = gathering.finish().await.unwrap();
    let run = campaigns
        .deploy_campaign(&deployment(None), &audience, &entropy)
        .await
        .unwrap()
        .run_id;
    (campaigns, run)
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_a_slow_provider_does_not_keep_all_lanes() {
    for lanes in [1, 8] {
        let world = World::new(Counting::new(|_, _| accepted()), TERMS);
        let outlets = ByTenant {
            slow: outlet(Arc::new(Slow::default()), UnrestrictedGate, TERMS),
            quick: outlet(Arc::clone(&world.provider) as _, UnrestrictedGate, TERMS),
        };
        let (slow, slow_run) = deploy(&world, "slow", 1_600).await;
        let (stop, stopped) = watch::channel(false);
        let options = Options {
            concurrency: lanes,
            ..Options::default()
        };
        let working = tokio::spawn(
            Dispatcher::new(Arc::clone(&world.store), Arc::new(outlets), options).run(stopped),
        );
        sleep(Duration::from_secs(5)).await;
        let (quick, run) = deploy(&world, "quick", 1).await;
        let since = Instant::now();
        while quick.read_run(&run).await.unwrap().ended_at.is_none()
            && since.elapsed() < Duration::from_secs(1_800)
        {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{lanes} lanes: waited for {:?}",
            since.elapsed()
        );
        stop.send_replace(true);
        working.await.unwrap().unwrap();
        // Whoever gave way has not failed.
        let tally = slow.count_run_items(&slow_run).await.unwrap();
        assert_eq!((tally.failed, tally.in_doubt), (0, 0));
        assert!(
            world
                .jobs()
                .await
                .iter()
                .all(|job| job.attempts <= 1 && &*job.status != "locked")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_worker_that_is_gone_do_not_count_for_ever() {
    let is_stuck = Arc::new(AtomicBool::new(true));
    let mut provider = Counting::new(|_, _| accepted());
    let hangs = Arc::clone(&is_stuck);
    provider.hangs = Some(Box::new(move || hangs.load(Ordering::SeqCst)));
    let world = World::new(provider, TERMS);
    let people: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
    let run = world
        .deploy(&people.iter().map(String::as_str).collect::<Vec<_>>())
        .await
        .unwrap()
        .run_id;
    let options = Options {
        concurrency: 8,
        tenant_concurrency: Some(2),
        ..Options::default()
    };
    let (_stop, stopped) = watch::channel(false);
    let doomed = tokio::spawn(world.dispatcher_with(options.clone()).run(stopped));
    sleep(Duration::from_secs(5)).await;
    doomed.abort();
    is_stuck.store(false, Ordering::SeqCst);
    let (stop, stopped) = watch::channel(false);
    let working = tokio::spawn(world.dispatcher_with(options).run(stopped));
    sleep(Duration::from_secs(3_600)).await;
    stop.send_replace(true);
    working.await.unwrap().unwrap();
    let tally = world.campaigns.count_run_items(&run).await.unwrap();
    assert_eq!(
        (tally.open_items(), tally.served, tally.in_doubt),
        (0, 32, 8),
        "two jobs of four were being called for"
    );
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_at_the_provider_is_not_reserved_and_has_not_failed() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let slow = Arc::new(Slow {
        room: Some(Arc::new(Semaphore::new(3))),
        ..Slow::default()
    });
    let (campaigns, run) = deploy(&world, "slow", 1_600).await;
    let outlet = outlet(
        Arc::clone(&slow) as _,
        UnrestrictedGate,
        DispatchPolicy {
            max_attempts: 2,
            ..TERMS
        },
    );
    let (stop, stopped) = watch::channel(false);
    let options = Options {
        concurrency: 16,
        ..Options::default()
    };
    let working = tokio::spawn(
        Dispatcher::new(Arc::clone(&world.store), Arc::new(outlet), options).run(stopped),
    );
    for _ in 0..20 {
        sleep(Duration::from_secs(60)).await;
        let held = world
            .items()
            .await
            .iter()
            .filter(|item| item.held_since.is_some())
            .count();
        assert!(held <= 3, "a crash would leave {held} in doubt");
    }
    stop.send_replace(true);
    working.await.unwrap().unwrap();
    let tally = campaigns.count_run_items(&run).await.unwrap();
    assert_eq!(slow.most.load(Ordering::SeqCst), 3);
    assert!(
        tally.served >= 3 * 20 * 60 / 25 - 10,
        "all of the room is used: {tally:?}"
    );
    assert_eq!((tally.failed, tally.in_doubt), (0, 0));
}

/// Panics the first time.
struct Faulty(AtomicBool);

impl AdmissionGate for Faulty {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        _at_most: usize,
        _now: Timestamp,
    ) -> SendAdmission {
        assert!(
            self.0.swap(true, Ordering::SeqCst),
            "the first time it panics"
        );
        SendAdmission::Admitted((0..recipients.len()).collect())
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_the_way_ends_no_other_work() {
    let world = World::gated(
        Counting::new(|_, _| accepted()),
        TERMS,
        Faulty(AtomicBool::new(false)),
    );
    let run = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    assert_eq!(world.provider.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn runs_of_a_tenant_take_turns_as_well() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let outlet = outlet(Arc::new(Slow::default()), UnrestrictedGate, TERMS);
    let (campaigns, _) = deploy(&world, "slow", 10_000).await;
    let (stop, stopped) = watch::channel(false);
    let options = Options {
        concurrency: 4,
        ..Options::default()
    };
    let working = tokio::spawn(
        Dispatcher::new(Arc::clone(&world.store), Arc::new(outlet), options).run(stopped),
    );
    sleep(Duration::from_secs(5)).await;
    let entropy = EntropySource::default();
    let mut gathering = campaigns.begin_audience(100, &entropy);
    gathering.add_recipient(recipient("other")).await.unwrap();
    let second = CampaignDeployment {
        campaign_id: "small".into(),
        ..deployment(None)
    };
    let run = campaigns
        .deploy_campaign(&second, &gathering.finish().await.unwrap(), &entropy)
        .await
        .unwrap()
        .run_id;
    let since = Instant::now();
    while campaigns.read_run(&run).await.unwrap().ended_at.is_none()
        && since.elapsed() < Duration::from_secs(3_600)
    {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(
        since.elapsed() < Duration::from_secs(600),
        "it waited for {:?}",
        since.elapsed()
    );
    stop.send_replace(true);
    working.await.unwrap().unwrap();
}
