//! A load to measure dispatchers with: campaign runs of any size, and a provider that takes everything at once and says
//! nothing. What is left is what reserving and settling cost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Backoff, Channel, Terms};
use onward_journal::Text;
use onward_store::tables::CampaignRun;
use onward_store::{Error, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{
    Campaigns, Compose, Deployment, Dispatcher, Entropy, Message, Nature, Open, Options, Outlet, Outlets, Provider,
    Reached, Recipient, Refused, Reservation, Scope,
};

/// Items of a job, all of which are reserved together.
pub const JOB_ITEMS: u32 = 100;

/// How often to look whether a run is over.
const LOOK: Duration = Duration::from_millis(2);

/// The load on a store.
pub struct Load {
    store: Arc<dyn Store>,
    scope: Scope,
}

/// What a campaign run took.
#[derive(Debug, Clone)]
pub struct Took {
    /// From the first look for work until it was over.
    pub all: Duration,
    /// Each of its jobs, from when it was found until it was settled.
    pub jobs: Vec<Duration>,
}

impl Load {
    /// The load on a store that nobody else works on.
    pub fn on(store: Arc<dyn Store>) -> Self {
        Self { store, scope: Scope { tenant: "default".into(), workspace: "default/default".into() } }
    }

    /// Deploys a campaign run with so many items, and returns its id.
    pub async fn deploy(&self, items: u32) -> Result<Text, Refused> {
        let deployment = Deployment {
            campaign: "bench".into(),
            channel: Channel::Email,
            asset: "bench".into(),
            document: "{}".into(),
            scheduled_for: None,
            key: None,
            reached: Reached::Again,
            by: "bench".to_owned(),
        };
        let (campaigns, entropy) = (self.campaigns(), Entropy::default());
        let mut gathering = campaigns.gather(JOB_ITEMS, &entropy);
        for number in 0..items {
            let id = format!("lead-{number}");
            let address = format!("{id}@example.org");
            gathering.add(Recipient { id, address, data: serde_json::Map::new() }).await?;
        }
        Ok(campaigns.deploy(&deployment, &gathering.finish().await?, &entropy).await?.run)
    }

    /// Works on so many jobs at a time until a campaign run is over.
    pub async fn dispatch(&self, run: &Text, lanes: usize) -> Result<Took, Refused> {
        let times = Arc::new(Times::default());
        let dispatcher = self.dispatcher(lanes, &times);
        let campaigns = self.campaigns();
        let begun = Instant::now();
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(dispatcher.run(stopped));
        while campaigns.run(run).await?.ended_at.is_none() && !working.is_finished() {
            tokio::time::sleep(LOOK).await;
        }
        let all = begun.elapsed();
        stop.send_replace(true);
        working.await.map_err(|error| Error::Unusable(format!("the dispatcher has ended: {error}")))??;
        Ok(Took { all, jobs: std::mem::take(&mut *lock(&times)) })
    }

    /// Finds a job that waits and makes it durable that it is locked; and how long that takes. The job is left so. Nothing if
    /// none waits.
    pub async fn claim(&self) -> Result<Option<Duration>, Error> {
        let dispatcher = self.dispatcher(1, &Arc::default());
        let begun = Instant::now();
        Ok(dispatcher.claim().await?.then(|| begun.elapsed()))
    }

    fn campaigns(&self) -> Campaigns {
        Campaigns::new(Arc::clone(&self.store), self.scope.clone())
    }

    fn dispatcher(&self, lanes: usize, times: &Arc<Times>) -> Dispatcher {
        let options = Options { lanes, ..Options::default() };
        Dispatcher::new(Arc::clone(&self.store), Arc::new(Anybody { times: Arc::clone(times) }), options)
    }
}

/// How long jobs took.
type Times = Mutex<Vec<Duration>>;

fn lock(times: &Times) -> std::sync::MutexGuard<'_, Vec<Duration>> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reaches anybody, for any run.
struct Anybody {
    times: Arc<Times>,
}

impl Outlets for Anybody {
    /// Made for a job when work on it begins, and gone when that ends.
    fn outlet(&self, _run: &CampaignRun) -> Result<Arc<Outlet>, String> {
        let terms = Terms {
            window: JOB_ITEMS as usize,
            calls_max: 3,
            attempts_max: 3,
            backoff: Backoff::default(),
            repeats: false,
            looks_after_ms: None,
        };
        Ok(Arc::new(Outlet {
            provider: Arc::new(Taking { begun: Instant::now(), times: Arc::clone(&self.times) }),
            compose: Arc::new(Empty),
            gate: Arc::new(Open),
            terms,
            patience: Duration::from_secs(30),
        }))
    }
}

/// Takes everything at once.
struct Taking {
    begun: Instant,
    times: Arc<Times>,
}

impl Drop for Taking {
    fn drop(&mut self) {
        lock(&self.times).push(self.begun.elapsed());
    }
}

#[async_trait]
impl Provider for Taking {
    fn name(&self) -> &str {
        "nothing"
    }

    fn nature(&self) -> Nature {
        Nature { batch_max: JOB_ITEMS as usize, ..Nature::default() }
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        batch.into_iter().map(|it| (it.item().clone(), Answer::Accepted(None))).collect()
    }
}

/// Has nothing to say.
struct Empty;

impl Compose for Empty {
    fn compose(&self, _recipient: &Recipient) -> Result<Message, String> {
        Ok(Message::default())
    }
}
