//! Deterministic simulation of campaigns: several dispatchers on one in-memory store, in virtual
//! time, with every kind of failure. Workers die between any two steps, or stall for longer than
//! their lease and continue; the store does not answer, or performs a commit without acknowledging
//! it; the provider accepts items without acknowledging them.
//!
//! Operators pause and cancel runs, settle items and redrive jobs; some of their actions are
//! aborted as well.
//!
//! The provider's calls are recorded outside of the store. At the end, the items in doubt are
//! settled according to the provider's records; then every recipient was reached once, or the
//! outbox contains the reason why not. A further run reaches the recipients that were not reached.

mod flaky_store;
mod invariants;
mod operators;
mod provider;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_base::{ExponentialBackoff, Scope, SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, ComposeError, ComposeMessage, DeliveryChannel, DispatchPolicy,
    RenderedMessage,
};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, CampaignError, Dispatcher, EntropySource,
    Options, Provider, ProviderCapabilities, RepeatSendPolicy, ScopedCampaigns, SendAdmission,
};
use onward_store::conformance::SeededRng;
use onward_store::memory::MemoryStore;
use onward_store::{Store, StoreClock, StorePolicy};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::flaky_store::FlakyStore;
use self::provider::SimProvider;
use crate::failure::SimFailure;

/// Duration of a worker's lease on a job.
const LEASE_DURATION: Duration = Duration::from_secs(60);

/// A commit without acknowledgement is stored within this time, or never.
const LATE_COMMIT_MAX: Duration = Duration::from_secs(90);

/// Start time of every simulation, in microseconds.
const START_MICROS: i64 = 1_767_225_600_000_000;

/// Maximum amount in milliseconds by which a clock is shifted, forwards or backwards.
const CLOCK_SHIFT_MAX_MS: u64 = 3_600_000;

/// Duration of fault injection.
const FAULT_DURATION: Duration = Duration::from_secs(240);

/// Whether a simulated component injects faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultMode {
    Injected,
    Off,
}

/// Result of the simulation of a seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CampaignSimReport {
    /// Number of dispatchers that were killed.
    pub kills: u32,
    /// Number of times a worker stalled for longer than its lease.
    pub stalls: u32,
    /// Number of items in doubt after fault injection had ended.
    pub in_doubt: u32,
    /// Number of items that were not delivered: exhausted, refused or skipped.
    pub undelivered: u32,
    /// Number of calls that reached the provider.
    pub provider_calls: u32,
    /// Number of times a clock was shifted.
    pub clock_shifts: u32,
    /// Number of items that an operator settled during fault injection.
    pub resolutions: u32,
    /// Number of jobs that an operator redrove.
    pub redriven: u32,
    /// Number of runs that were cancelled.
    pub cancelled: u32,
    /// Number of items of runs that retry the unreached recipients of another run.
    pub retried: u32,
    /// Number of items in doubt that a late answer of the provider settled.
    pub late_answers: u32,
}

/// Admits a random subset of the recipients, or delays all of them.
struct RandomGate(SharedRandom);

impl AdmissionGate for RandomGate {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        at_most: usize,
        _now: Timestamp,
    ) -> SendAdmission {
        let mut admitted: Vec<usize> = (0..recipients.len())
            .filter(|_| self.0.roll_percent(70))
            .collect();
        admitted.truncate(at_most);
        if admitted.is_empty() {
            return SendAdmission::Delayed(Duration::from_millis(1 + self.0.draw_below(5_000)));
        }
        SendAdmission::Admitted(admitted)
    }
}

/// The random number generator that all parts of the simulation share.
#[derive(Clone)]
struct SharedRandom(Arc<Mutex<SeededRng>>);

impl SharedRandom {
    fn lock_rng(&self) -> MutexGuard<'_, SeededRng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn roll_percent(&self, percent: u64) -> bool {
        self.lock_rng().roll_percent(percent)
    }

    fn draw_below(&self, end: u64) -> u64 {
        self.lock_rng().next_below(end)
    }

    fn entropy_source(&self) -> EntropySource {
        let random = self.clone();
        EntropySource::new(move |bytes| {
            for byte in bytes {
                *byte = u8::try_from(random.draw_below(256)).unwrap_or(0);
            }
        })
    }
}

/// The virtual time of the runtime plus an offset that the simulation changes at random.
struct SimClock {
    started_at: Instant,
    offset_ms: AtomicI64,
}

impl SimClock {
    fn shift_clock(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl StoreClock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed_ms = i64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        let ms = elapsed_ms.saturating_add(self.offset_ms.load(Ordering::SeqCst));
        Timestamp::from_micros(START_MICROS + ms * 1_000).unwrap_or(Timestamp::EPOCH)
    }
}

/// Renders one greeting per recipient.
struct GreetingComposer;

impl ComposeMessage for GreetingComposer {
    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        Ok(RenderedMessage {
            parts: vec![("text".to_owned(), format!("Hello {}", recipient.id))],
        })
    }
}

/// The simulated world of a seed.
struct CampaignWorld {
    random: SharedRandom,
    clock: Arc<SimClock>,
    /// The store without injected faults.
    store: Arc<dyn Store>,
    /// The store with injected faults, as dispatchers and operators see it.
    flaky_store: Arc<FlakyStore>,
    provider: Arc<SimProvider>,
    delivery: Arc<CampaignDelivery>,
    campaigns: ScopedCampaigns,
    /// The recipients that the run must reach.
    recipients: Vec<String>,
    run: SharedText,
    may_cancel: bool,
    report: CampaignSimReport,
}

/// A dispatcher task and the handle to stop it.
struct RunningDispatcher {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Runs the simulation of a seed. Fails with a description of the violated invariant.
pub fn simulate_campaign(seed: u64) -> Result<CampaignSimReport, SimFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime?.block_on(run_campaign_world(seed))
}

async fn run_campaign_world(seed: u64) -> Result<CampaignSimReport, SimFailure> {
    let mut world = CampaignWorld::new(seed).await?;
    let mut running: Vec<RunningDispatcher> = (0..2).map(|_| world.spawn_dispatcher()).collect();
    world.run_with_faults(&mut running, FAULT_DURATION).await?;
    if world.random.roll_percent(50) && world.retry_undelivered().await? {
        world
            .run_with_faults(&mut running, FAULT_DURATION / 4)
            .await?;
    }
    world.check_no_duplicates().await?;
    for it in running {
        it.stop.send_replace(true);
        it.task.await?;
    }
    Ok(world.report)
}

impl CampaignWorld {
    async fn new(seed: u64) -> Result<Self, SimFailure> {
        let random = SharedRandom(Arc::new(Mutex::new(SeededRng::new(seed))));
        let clock = Arc::new(SimClock {
            started_at: Instant::now(),
            offset_ms: AtomicI64::new(0),
        });
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(
            StorePolicy::default(),
            Arc::clone(&clock) as Arc<dyn StoreClock>,
        ));
        let (provider, delivery) = random_delivery(&random);
        let scope = Scope {
            tenant: "acme".parse()?,
            project: "shop".parse()?,
            environment: "production".parse()?,
        };
        let flaky_store = Arc::new(FlakyStore::new(Arc::clone(&store), random.clone()));
        let campaigns = ScopedCampaigns::new(Arc::clone(&store), scope);
        // Some recipients are named twice.
        let count = 1 + random.draw_below(14);
        let recipients: Vec<String> = (0..count)
            .map(|_| format!("r{}", random.draw_below(count + 3)))
            .collect();
        let run = deploy_random_run(&campaigns, &random, &recipients).await?;
        let (may_cancel, report) = (random.roll_percent(20), CampaignSimReport::default());
        Ok(Self {
            random,
            clock,
            store,
            flaky_store,
            provider,
            delivery,
            campaigns,
            recipients,
            run,
            may_cancel,
            report,
        })
    }

    fn spawn_dispatcher(&self) -> RunningDispatcher {
        let options = Options {
            concurrency: usize::try_from(1 + self.random.draw_below(3)).unwrap_or(1),
            lease: LEASE_DURATION,
            tenant_concurrency: self
                .random
                .roll_percent(30)
                .then(|| 1 + u32::try_from(self.random.draw_below(2)).unwrap_or(0)),
            poll_interval: Duration::from_secs(1),
            entropy: self.random.entropy_source(),
            ..Options::default()
        };
        let store = Arc::clone(&self.flaky_store) as Arc<dyn Store>;
        let dispatcher = Dispatcher::new(store, Arc::new(Arc::clone(&self.delivery)), options);
        let (stop, stopped) = watch::channel(false);
        // The dispatcher ends only if the store fails permanently, which this one does not.
        let task = tokio::spawn(async move { drop(dispatcher.run(stopped).await) });
        RunningDispatcher { stop, task }
    }

    /// Runs dispatchers with fault injection for this duration, then without until the run has
    /// ended, and checks the invariants.
    async fn run_with_faults(
        &mut self,
        running: &mut [RunningDispatcher],
        duration: Duration,
    ) -> Result<(), SimFailure> {
        self.flaky_store.set_faults(FaultMode::Injected);
        self.provider.set_faults(FaultMode::Injected);
        let started_at = Instant::now();
        while started_at.elapsed() < duration {
            sleep(Duration::from_millis(self.random.draw_below(4_000))).await;
            let victim = usize::try_from(self.random.draw_below(running.len() as u64)).unwrap_or(0);
            match self.random.draw_below(10) {
                0..4 => {
                    running[victim].task.abort();
                    self.report.kills += 1;
                    running[victim] = self.spawn_dispatcher();
                }
                4 => {
                    running[victim].stop.send_replace(true);
                    let ended = std::mem::replace(&mut running[victim], self.spawn_dispatcher());
                    drop(ended.task.await);
                }
                5 if self.random.roll_percent(10) => {
                    let by_ms = i64::try_from(self.random.draw_below(2 * CLOCK_SHIFT_MAX_MS))
                        .unwrap_or(0)
                        - CLOCK_SHIFT_MAX_MS as i64;
                    self.clock.shift_clock(by_ms);
                    self.report.clock_shifts += 1;
                }
                _ => self.act_as_operator().await?,
            }
        }
        self.flaky_store.set_faults(FaultMode::Off);
        self.provider.set_faults(FaultMode::Off);
        // Commits of operators may be stored only now.
        sleep(LATE_COMMIT_MAX).await;
        drop(self.campaigns.resume_run(&self.run, "sim").await);
        self.wait_until_idle().await?;
        self.report.stalls = self.flaky_store.stall_count();
        self.check_invariants().await
    }

    /// Deploys a further run for the recipients that the last one did not reach. Returns `false` if
    /// there are none.
    async fn retry_undelivered(&mut self) -> Result<bool, SimFailure> {
        self.recipients = self.undelivered_recipients().await?;
        let retried = self
            .campaigns
            .retry_run(&self.run, "sim", &self.random.entropy_source())
            .await;
        match retried {
            Ok(deployed) if !self.recipients.is_empty() => {
                self.run = deployed.run_id;
                self.report.retried += deployed.items;
                Ok(true)
            }
            Err(CampaignError::NothingToRetry) if self.recipients.is_empty() => Ok(false),
            other => Err(SimFailure::new(format!(
                "retrying {:?} failed: {other:?}\n{}",
                self.recipients,
                self.dump_state().await
            ))),
        }
    }

    /// Waits until no item is open and no job will run.
    async fn wait_until_idle(&mut self) -> Result<(), SimFailure> {
        let started_at = Instant::now();
        loop {
            let counts = self.campaigns.count_run_items(&self.run).await?;
            if counts.open_items() == 0 && self.is_idle().await? {
                self.report.in_doubt = u32::try_from(counts.in_doubt).unwrap_or(u32::MAX);
                return Ok(());
            }
            if started_at.elapsed() > Duration::from_secs(48 * 3_600) {
                return Err(SimFailure::new(format!(
                    "the run does not end: {}",
                    self.dump_state().await
                )));
            }
            sleep(Duration::from_secs(10)).await;
        }
    }
}

/// Creates a provider with random capabilities and a delivery that uses it, with a random policy.
fn random_delivery(random: &SharedRandom) -> (Arc<SimProvider>, Arc<CampaignDelivery>) {
    let capabilities = ProviderCapabilities {
        max_batch: usize::try_from(1 + random.draw_below(4)).unwrap_or(1),
        idempotent: random.roll_percent(25),
        status_lookup: random.roll_percent(25),
    };
    let provider = Arc::new(SimProvider::new(random.clone(), capabilities));
    let policy = DispatchPolicy {
        window: usize::try_from(1 + random.draw_below(5)).unwrap_or(1),
        max_sends: 3,
        max_attempts: 4,
        backoff: ExponentialBackoff {
            initial_ms: 1_000,
            max_ms: 30_000,
        },
        resend_in_doubt: capabilities.idempotent,
        lookup_after_ms: capabilities.status_lookup.then_some(600_000),
        max_unreachable_ms: random.draw_below(120_000),
    };
    let delivery = Arc::new(CampaignDelivery {
        provider: Arc::clone(&provider) as Arc<dyn Provider>,
        composer: Arc::new(GreetingComposer),
        gate: Arc::new(RandomGate(random.clone())),
        policy,
        timeout: Duration::from_secs(30),
    });
    (provider, delivery)
}

/// Deploys a run for these recipients, over a random channel and in parts of a random size. Returns
/// the id of the run.
async fn deploy_random_run(
    campaigns: &ScopedCampaigns,
    random: &SharedRandom,
    recipients: &[String],
) -> Result<SharedText, CampaignError> {
    let channel = *random.lock_rng().pick_element(&DeliveryChannel::ALL);
    let deployment = CampaignDeployment {
        campaign_id: "spring".into(),
        channel,
        asset: "spring".into(),
        document: "{}".into(),
        scheduled_for: None,
        idempotency_key: None,
        already_reached: RepeatSendPolicy::Refuse,
        deployed_by: "sim".to_owned(),
    };
    let entropy = random.entropy_source();
    let part_items = u32::try_from(1 + random.draw_below(6)).unwrap_or(1);
    let mut writer = campaigns.begin_audience(part_items, &entropy);
    for id in recipients {
        let recipient = AudienceRecipient {
            id: id.clone(),
            address: id.clone(),
            data: serde_json::Map::new(),
        };
        writer.add_recipient(recipient).await?;
    }
    let audience = writer.finish().await?;
    let deployed = campaigns
        .deploy_campaign(&deployment, &audience, &entropy)
        .await?;
    Ok(deployed.run_id)
}
