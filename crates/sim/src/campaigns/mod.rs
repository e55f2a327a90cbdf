//! Campaigns in a world of their own: several dispatchers on one store in memory, in virtual time, while everything fails that
//! can. Workers die between any two steps, or stand still for longer than their lease and go on; the store does not answer, or
//! does something and does not say so; the provider takes things and does not say so either.
//!
//! People pause and cancel, say what became of things, and want some tried again; now and then they are killed as well.
//!
//! What the provider was asked is kept outside of the store. In the end somebody settles what is in doubt, by what the provider
//! knows; then everybody was reached once, or the outbox says why not. Those who were not are reached by another run.

mod check;
mod people;
mod provider;
mod store;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_dispatch::{Backoff, Channel, Terms};
use onward_dispatcher::{
    Admission, Campaigns, Compose, Deployment, Dispatcher, Entropy, Gate, Message, Nature, Options, Outlet, Reached,
    Recipient, Refused, Scope,
};
use onward_journal::{Text, Timestamp};
use onward_store::conformance::Draw;
use onward_store::memory::Memory;
use onward_store::{Clock, Policy, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::provider::Ledger;
use self::store::Flaky;

/// How long a worker holds a job.
const LEASE: Duration = Duration::from_secs(60);

/// A commit that nothing was heard of is stored by then, or never.
const LATE: Duration = Duration::from_secs(90);

/// When worlds begin, in microseconds.
const BEGUN: i64 = 1_767_225_600_000_000;

/// By how many milliseconds clocks are set at most, forwards or back.
const SET_MS: u64 = 3_600_000;

/// For how long things go wrong.
const ROUGH: Duration = Duration::from_secs(240);

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Dispatchers that were killed.
    pub kills: u32,
    /// Times a worker stood still for longer than its lease.
    pub stalls: u32,
    /// Items that were in doubt when things had calmed down.
    pub in_doubt: u32,
    /// Items that were put off, refused or skipped.
    pub unserved: u32,
    /// Calls that reached the provider.
    pub calls: u32,
    /// Times a clock was set.
    pub set: u32,
    /// Items that somebody settled while things went wrong.
    pub verdicts: u32,
    /// Jobs that somebody wanted tried again, or sooner.
    pub redriven: u32,
    /// Runs that were cancelled.
    pub cancelled: u32,
    /// Items of runs that reach those whom another has not.
    pub retried: u32,
}

/// Lets some pass, in any order, or nobody for a while.
struct Moody(Chance);

impl Gate for Moody {
    fn admit(&self, recipients: &[&Recipient], at_most: usize, _now: Timestamp) -> Admission {
        let mut admitted: Vec<usize> = (0..recipients.len()).filter(|_| self.0.percent(70)).collect();
        admitted.truncate(at_most);
        if admitted.is_empty() {
            return Admission::Nobody(Duration::from_millis(1 + self.0.below(5_000)));
        }
        Admission::Some(admitted)
    }
}

/// The chance that all share.
#[derive(Clone)]
struct Chance(Arc<Mutex<Draw>>);

impl Chance {
    fn draw(&self) -> MutexGuard<'_, Draw> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn percent(&self, percent: u64) -> bool {
        self.draw().percent(percent)
    }

    fn below(&self, end: u64) -> u64 {
        self.draw().below(end)
    }

    fn entropy(&self) -> Entropy {
        let chance = self.clone();
        Entropy::new(move |bytes| {
            for byte in bytes {
                *byte = u8::try_from(chance.below(256)).unwrap_or(0);
            }
        })
    }
}

/// The time of the runtime, by a clock that somebody sets now and then.
struct Virtual {
    begun: Instant,
    set_by_ms: AtomicI64,
}

impl Virtual {
    fn set(&self, by_ms: i64) {
        self.set_by_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for Virtual {
    fn now(&self) -> Timestamp {
        let elapsed_ms = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let ms = elapsed_ms.saturating_add(self.set_by_ms.load(Ordering::SeqCst));
        Timestamp::from_micros(BEGUN + ms * 1_000).unwrap_or(Timestamp::EPOCH)
    }
}

struct Plain;

impl Compose for Plain {
    fn compose(&self, recipient: &Recipient) -> Result<Message, String> {
        Ok(Message { parts: vec![("text".to_owned(), format!("Hello {}", recipient.id))] })
    }
}

/// The world of a seed.
struct World {
    chance: Chance,
    clock: Arc<Virtual>,
    /// The store as it is.
    store: Arc<dyn Store>,
    /// The store as workers see it.
    flaky: Arc<Flaky>,
    ledger: Arc<Ledger>,
    outlet: Arc<Outlet>,
    campaigns: Campaigns,
    /// Those whom the run is to reach.
    recipients: Vec<String>,
    run: Text,
    may_cancel: bool,
    report: Report,
}

/// A dispatcher at work.
struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Lives through a seed. Fails with what should not have happened.
pub fn run(seed: u64) -> Result<Report, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| error.to_string())?.block_on(live(seed))
}

async fn live(seed: u64) -> Result<Report, String> {
    let mut world = World::new(seed).await?;
    let mut running: Vec<Running> = (0..2).map(|_| world.dispatcher()).collect();
    world.go_through(&mut running, ROUGH).await?;
    if world.chance.percent(50) && world.retry().await? {
        world.go_through(&mut running, ROUGH / 4).await?;
    }
    world.check_once().await?;
    for it in running {
        it.stop.send_replace(true);
        it.task.await.map_err(|error| error.to_string())?;
    }
    Ok(world.report)
}

impl World {
    async fn new(seed: u64) -> Result<Self, String> {
        let chance = Chance(Arc::new(Mutex::new(Draw::new(seed))));
        let clock = Arc::new(Virtual { begun: Instant::now(), set_by_ms: AtomicI64::new(0) });
        let store: Arc<dyn Store> = Arc::new(Memory::new(Policy::default(), Arc::clone(&clock) as Arc<dyn Clock>));
        let nature = Nature {
            batch_max: usize::try_from(1 + chance.below(4)).unwrap_or(1),
            takes_keys_once: chance.percent(25),
            can_look: chance.percent(25),
        };
        let ledger = Arc::new(Ledger::new(chance.clone(), nature));
        let terms = Terms {
            window: usize::try_from(1 + chance.below(5)).unwrap_or(1),
            calls_max: 3,
            attempts_max: 4,
            backoff: Backoff { first_ms: 1_000, max_ms: 30_000 },
            repeats: nature.takes_keys_once,
            looks_after_ms: nature.can_look.then_some(600_000),
        };
        let outlet = Arc::new(Outlet {
            provider: Arc::clone(&ledger) as Arc<dyn onward_dispatcher::Provider>,
            compose: Arc::new(Plain),
            gate: Arc::new(Moody(chance.clone())),
            terms,
            patience: Duration::from_secs(30),
        });
        let scope = Scope { tenant: "acme".into(), workspace: "shop".into() };
        let flaky = Arc::new(Flaky::new(Arc::clone(&store), chance.clone()));
        let campaigns = Campaigns::new(Arc::clone(&store), scope);
        // Some are named twice.
        let count = 1 + chance.below(14);
        let recipients: Vec<String> = (0..count).map(|_| format!("r{}", chance.below(count + 3))).collect();
        let channel = *chance.draw().pick(&Channel::ALL);
        let deployment = Deployment {
            campaign: "spring".into(),
            channel,
            asset: "spring".into(),
            document: "{}".into(),
            scheduled_for: None,
            key: None,
            reached: Reached::Refuse,
            by: "sim".to_owned(),
        };
        let (entropy, part_items) = (chance.entropy(), u32::try_from(1 + chance.below(6)).unwrap_or(1));
        let mut gathering = campaigns.gather(part_items, &entropy);
        for id in &recipients {
            let recipient = Recipient { id: id.clone(), address: id.clone(), data: serde_json::Map::new() };
            gathering.add(recipient).await.map_err(|error| error.to_string())?;
        }
        let audience = gathering.finish().await.map_err(|error| error.to_string())?;
        let deployed = campaigns.deploy(&deployment, &audience, &entropy).await;
        let run = deployed.map_err(|error| error.to_string())?.run;
        let (may_cancel, report) = (chance.percent(20), Report::default());
        Ok(Self { chance, clock, store, flaky, ledger, outlet, campaigns, recipients, run, may_cancel, report })
    }

    fn dispatcher(&self) -> Running {
        let options = Options {
            lanes: usize::try_from(1 + self.chance.below(3)).unwrap_or(1),
            lease: LEASE,
            tenant_max: self.chance.percent(30).then(|| 1 + u32::try_from(self.chance.below(2)).unwrap_or(0)),
            look: Duration::from_secs(1),
            entropy: self.chance.entropy(),
            ..Options::default()
        };
        let store = Arc::clone(&self.flaky) as Arc<dyn Store>;
        let dispatcher = Dispatcher::new(store, Arc::new(Arc::clone(&self.outlet)), options);
        let (stop, stopped) = watch::channel(false);
        // A store that fails for good would stop it; this one does not.
        let task = tokio::spawn(async move { drop(dispatcher.run(stopped).await) });
        Running { stop, task }
    }

    /// A run in rough times, until it has come to what it comes to.
    async fn go_through(&mut self, running: &mut [Running], rough: Duration) -> Result<(), String> {
        self.flaky.be_calm(false);
        self.ledger.be_calm(false);
        let since = Instant::now();
        while since.elapsed() < rough {
            sleep(Duration::from_millis(self.chance.below(4_000))).await;
            let victim = usize::try_from(self.chance.below(running.len() as u64)).unwrap_or(0);
            match self.chance.below(10) {
                0..4 => {
                    running[victim].task.abort();
                    self.report.kills += 1;
                    running[victim] = self.dispatcher();
                }
                4 => {
                    running[victim].stop.send_replace(true);
                    let ended = std::mem::replace(&mut running[victim], self.dispatcher());
                    drop(ended.task.await);
                }
                5 if self.chance.percent(10) => {
                    let by_ms = i64::try_from(self.chance.below(2 * SET_MS)).unwrap_or(0) - SET_MS as i64;
                    self.clock.set(by_ms);
                    self.report.set += 1;
                }
                _ => self.somebody().await?,
            }
        }
        self.flaky.be_calm(true);
        self.ledger.be_calm(true);
        // What somebody wanted may come to be stored only now.
        sleep(LATE).await;
        drop(self.campaigns.resume(&self.run, "sim").await);
        self.settle_down().await?;
        self.report.stalls = self.flaky.stalls();
        self.check().await
    }

    /// Another run, for those whom the last has not reached. Tells whether there is anybody.
    async fn retry(&mut self) -> Result<bool, String> {
        self.recipients = self.unserved().await?;
        let retried = self.campaigns.retry(&self.run, "sim", &self.chance.entropy()).await;
        match retried {
            Ok(deployed) if !self.recipients.is_empty() => {
                self.run = deployed.run;
                self.report.retried += deployed.items;
                Ok(true)
            }
            Err(Refused::EverybodyReached) if self.recipients.is_empty() => Ok(false),
            other => Err(format!("{:?} were not reached: {other:?}\n{}", self.recipients, self.dump().await)),
        }
    }

    /// Waits until nothing happens any more.
    async fn settle_down(&mut self) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let tally = self.campaigns.tally(&self.run).await.map_err(|error| error.to_string())?;
            if tally.open() == 0 && self.is_idle().await? {
                self.report.in_doubt = u32::try_from(tally.in_doubt).unwrap_or(u32::MAX);
                return Ok(());
            }
            if since.elapsed() > Duration::from_secs(48 * 3_600) {
                return Err(format!("it does not come to an end: {}", self.dump().await));
            }
            sleep(Duration::from_secs(10)).await;
        }
    }
}
