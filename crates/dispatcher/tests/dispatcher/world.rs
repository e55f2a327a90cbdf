//! A store, a provider that keeps count outside of it, and dispatchers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Backoff, Channel, Found, Terms};
use onward_dispatcher::{
    Ailment, Campaigns, Compose, Deployed, Deployment, Dispatcher, Entropy, Flaw, Gate, Message, Nature, Open, Options,
    Outlet, Provider, Reached, Recipient, Refused, Reservation, Scope, examine,
};
use onward_journal::{Text, Timestamp};
use onward_store::memory::Memory;
use onward_store::tables::{Job, OutboxItem};
use onward_store::{Clock, Policy, Records as _, Scan, Store};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) type Script = dyn Fn(&str, u32) -> Answer + Send + Sync;

/// A provider that does what a test says, and knows how often it was called for whom.
pub(crate) struct Counting {
    pub(crate) calls: Mutex<BTreeMap<String, u32>>,
    pub(crate) nature: Nature,
    pub(crate) script: Box<Script>,
    pub(crate) known: Mutex<BTreeMap<String, Found>>,
    /// Whether a call that it has heard is never answered.
    pub(crate) hangs: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Counting {
    pub(crate) fn new(script: impl Fn(&str, u32) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            calls: Mutex::default(),
            nature: Nature { batch_max: 10, ..Nature::default() },
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

pub(crate) fn accepted() -> Answer {
    Answer::Accepted(Some("m-1".into()))
}

#[async_trait]
impl Provider for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn nature(&self) -> Nature {
        self.nature
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        let mut answers = Vec::new();
        for reservation in batch {
            let count = {
                let mut calls = self.calls.lock().unwrap();
                let count = calls.entry(reservation.recipient().to_string()).or_insert(0);
                *count += 1;
                *count
            };
            if self.hangs.as_ref().is_some_and(|hangs| hangs()) {
                std::future::pending::<()>().await;
            }
            answers.push((reservation.item().clone(), (self.script)(reservation.recipient(), count)));
        }
        answers
    }

    async fn look(&self, key: &str) -> Found {
        self.known.lock().unwrap().get(key).cloned().unwrap_or(Found::Nothing)
    }
}

struct Plain;

impl Compose for Plain {
    fn compose(&self, recipient: &Recipient) -> Result<Message, String> {
        if recipient.id == "unfit" {
            return Err("there is no name".to_owned());
        }
        Ok(Message { parts: vec![("text".to_owned(), format!("Hello {}", recipient.id))] })
    }
}

/// The time of the runtime, which is virtual where a test says so.
struct Virtual(Instant);

impl Clock for Virtual {
    fn now(&self) -> Timestamp {
        let begun = Timestamp::from_micros(1_767_225_600_000_000).unwrap();
        begun.plus_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

pub(crate) const TERMS: Terms = Terms {
    window: 10,
    calls_max: 3,
    attempts_max: 3,
    backoff: Backoff { first_ms: 1_000, max_ms: 8_000 },
    repeats: false,
    looks_after_ms: None,
};

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) provider: Arc<Counting>,
    outlet: Arc<Outlet>,
    pub(crate) campaigns: Campaigns,
}

impl World {
    pub(crate) fn new(provider: Counting, terms: Terms) -> Self {
        Self::gated(provider, terms, Open)
    }

    pub(crate) fn gated(provider: Counting, terms: Terms, gate: impl Gate) -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::new(Policy::default(), Arc::new(Virtual(Instant::now()))));
        let provider = Arc::new(provider);
        let outlet = Outlet {
            provider: Arc::clone(&provider) as Arc<dyn Provider>,
            compose: Arc::new(Plain),
            gate: Arc::new(gate),
            terms,
            patience: Duration::from_secs(30),
        };
        let campaigns = Campaigns::new(Arc::clone(&store), scope());
        Self { store, provider, outlet: Arc::new(outlet), campaigns }
    }

    pub(crate) async fn deploy(&self, recipients: &[&str]) -> Result<Deployed, Refused> {
        self.deploy_as(deployment(None), recipients).await
    }

    pub(crate) async fn deploy_as(&self, deployment: Deployment, recipients: &[&str]) -> Result<Deployed, Refused> {
        let entropy = Entropy::default();
        let mut gathering = self.campaigns.gather(4, &entropy);
        for id in recipients {
            gathering.add(recipient(id)).await?;
        }
        self.campaigns.deploy(&deployment, &gathering.finish().await?, &entropy).await
    }

    pub(crate) fn dispatcher(&self) -> Dispatcher {
        self.dispatcher_on(Arc::clone(&self.store))
    }

    pub(crate) fn dispatcher_with(&self, options: Options) -> Dispatcher {
        Dispatcher::new(Arc::clone(&self.store), Arc::new(Arc::clone(&self.outlet)), options)
    }

    pub(crate) fn dispatcher_on(&self, store: Arc<dyn Store>) -> Dispatcher {
        let options = Options { lanes: 2, look: Duration::from_millis(10), ..Options::default() };
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
        assert!(is_met(self).await, "{:?} {:?}", self.jobs().await, self.items().await);
        stop.send_replace(true);
        working.await.unwrap().unwrap();
        let wrong: Vec<Flaw> = self.found().await.into_iter().filter(|it| it.ailment != Ailment::InDoubt).collect();
        assert_eq!(wrong, [], "whatever dispatchers do, nothing is stuck");
    }

    /// What a doctor finds.
    pub(crate) async fn found(&self) -> Vec<Flaw> {
        let mut found = Vec::new();
        examine(&*self.store, None, &mut |flaw| found.push(flaw)).await.unwrap();
        found
    }

    pub(crate) async fn ailments(&self) -> Vec<Ailment> {
        self.found().await.into_iter().map(|flaw| flaw.ailment).collect()
    }

    /// Works for so long.
    pub(crate) async fn work_for(&self, time: Duration) {
        let since = Instant::now();
        self.work_until(async |_| since.elapsed() >= time).await;
    }

    pub(crate) async fn work_until_over(&self, run: &str) {
        self.work_until(async |world| world.campaigns.run(run).await.unwrap().ended_at.is_some()).await;
    }

    pub(crate) async fn items(&self) -> Vec<OutboxItem> {
        let rows: Vec<(OutboxItem, u64)> = self.store.list(Scan::all::<OutboxItem>()).await.unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }

    pub(crate) async fn jobs(&self) -> Vec<Job> {
        let rows: Vec<(Job, u64)> = self.store.list(Scan::all::<Job>()).await.unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }

    /// The items by recipient: status and reason.
    pub(crate) async fn statuses(&self) -> BTreeMap<String, String> {
        let status = |row: &OutboxItem| match &row.reason {
            Some(reason) => format!("{} {reason}", row.status),
            None if row.doubt_since.is_some() => "in doubt".to_owned(),
            None => row.status.to_string(),
        };
        self.items().await.iter().map(|row| (row.recipient_id.to_string(), status(row))).collect()
    }

    pub(crate) async fn events(&self, run: &str) -> Vec<String> {
        self.campaigns.audit(run, 0, 1_000).await.unwrap().into_iter().map(|entry| entry.event.to_string()).collect()
    }
}

pub(crate) fn scope() -> Scope {
    Scope { tenant: "acme".into(), workspace: "shop".into() }
}

pub(crate) fn deployment(key: Option<&str>) -> Deployment {
    Deployment {
        campaign: "spring".into(),
        channel: Channel::Email,
        asset: "spring".into(),
        document: "{}".into(),
        scheduled_for: None,
        key: key.map(str::to_owned),
        reached: Reached::Refuse,
        by: "ada".to_owned(),
    }
}

pub(crate) fn recipient(id: &str) -> Recipient {
    Recipient { id: id.to_owned(), address: format!("{id}@example.org"), data: serde_json::Map::new() }
}

pub(crate) fn expect(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(id, status)| ((*id).to_owned(), (*status).to_owned())).collect()
}
