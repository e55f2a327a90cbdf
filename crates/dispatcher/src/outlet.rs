//! How a campaign run reaches people: by whom, and with what.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Backoff, Found, Terms};
use onward_journal::{Text, Timestamp};
use onward_store::tables::CampaignRun;
use tokio::sync::Semaphore;

use crate::audience::Recipient;
use crate::reserve::Reservation;

/// What a provider can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Items of one call, at most.
    pub batch_max: usize,
    /// It takes each key once, so it can be called again with one.
    pub takes_keys_once: bool,
    /// It can be asked what became of a key.
    pub can_look: bool,
}

impl Default for Nature {
    /// One at a time, and it knows nothing of keys.
    fn default() -> Self {
        Self { batch_max: 1, takes_keys_once: false, can_look: false }
    }
}

/// Who really sends.
///
/// It is called with reservations and in no other way: a reservation is made by the commit that stores it, and is used up by
/// the call.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// What it is called, in the outbox.
    fn name(&self) -> &str;

    /// What it can do.
    fn nature(&self) -> Nature;

    /// How many items it can be called for at a time by this process. Whoever reserves takes that much room before, so that
    /// what waits for its turn is not reserved.
    fn room(&self) -> Option<Arc<Semaphore>> {
        None
    }

    /// Delivers, and tells what became of each item by its id. What it says nothing of is in doubt.
    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)>;

    /// What it knows of a key.
    async fn look(&self, _key: &str) -> Found {
        Found::Unsure
    }
}

/// What is sent to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Its parts by name, such as `subject` and `text`.
    pub parts: Vec<(String, String)>,
}

impl Message {
    /// A part of it.
    pub fn part(&self, name: &str) -> Option<&str> {
        self.parts.iter().find(|(part, _)| part == name).map(|(_, text)| text.as_str())
    }
}

/// Makes what is sent.
pub trait Compose: Send + Sync + 'static {
    /// What this recipient is sent, or why there is nothing that can be.
    fn compose(&self, recipient: &Recipient) -> Result<Message, String>;
}

/// Says when people may be reached: so many a second, and not at night.
pub trait Gate: Send + Sync + 'static {
    /// Lets some of these pass, in their order and `at_most` so many, and counts them.
    fn admit(&self, recipients: &[&Recipient], at_most: usize, now: Timestamp) -> Admission;

    /// The provider has said that it takes nothing before so much time has gone by: whoever else uses it waits as well.
    fn hold(&self, _wait: Duration, _now: Timestamp) {}
}

/// Who may be reached now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// These, by their places in the list. There is at least one.
    Some(Vec<usize>),
    /// Nobody, before so much time has gone by.
    Nobody(Duration),
}

impl Admission {
    /// Those who are let pass one by one, `at_most` so many; or how long the first of the others has to wait.
    pub fn of(recipients: &[&Recipient], at_most: usize, pass: impl Fn(&Recipient) -> Result<(), Duration>) -> Self {
        let (mut admitted, mut shortest) = (Vec::new(), Duration::MAX);
        for (place, recipient) in recipients.iter().enumerate() {
            if admitted.len() >= at_most {
                break;
            }
            match pass(recipient) {
                Ok(()) => admitted.push(place),
                Err(wait) => shortest = shortest.min(wait),
            }
        }
        if admitted.is_empty() && !recipients.is_empty() { Self::Nobody(shortest) } else { Self::Some(admitted) }
    }
}

/// Everybody, at any time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Gate for Open {
    fn admit(&self, recipients: &[&Recipient], at_most: usize, _now: Timestamp) -> Admission {
        Admission::Some((0..recipients.len().min(at_most)).collect())
    }
}

/// How a campaign run reaches people.
pub struct Outlet {
    /// Who sends.
    pub provider: Arc<dyn Provider>,
    /// What.
    pub compose: Arc<dyn Compose>,
    /// When.
    pub gate: Arc<dyn Gate>,
    /// How it is gone about.
    pub terms: Terms,
    /// How long a call may take.
    pub patience: Duration,
}

/// When somebody looks again who may know the provider of what is in doubt.
const LOOK_AGAIN_MS: u64 = 600_000;

impl Outlet {
    /// One by which nobody is reached, for runs that are cancelled, and for what others have left behind: whether the provider
    /// takes each key once, and can be asked, is not known here, so what is in doubt is left for somebody who knows.
    pub(crate) fn closed() -> Self {
        let (backoff, calls_max) = (Backoff::default(), u32::MAX);
        let looks_after_ms = Some(LOOK_AGAIN_MS);
        let terms = Terms { window: 1, calls_max, attempts_max: u32::MAX, backoff, repeats: true, looks_after_ms };
        let (provider, compose) = (Arc::new(Closed), Arc::new(Closed));
        Self { provider, compose, gate: Arc::new(Open), terms, patience: Duration::ZERO }
    }
}

/// Reaches nobody.
struct Closed;

#[async_trait]
impl Provider for Closed {
    fn name(&self) -> &str {
        "none"
    }

    fn nature(&self) -> Nature {
        Nature::default()
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        batch.iter().map(|it| (it.item().clone(), Answer::Later("there is no provider".into()))).collect()
    }
}

impl Compose for Closed {
    fn compose(&self, _recipient: &Recipient) -> Result<Message, String> {
        Err("there is no provider".to_owned())
    }
}

/// Knows how campaign runs reach people.
pub trait Outlets: Send + Sync + 'static {
    /// How this one does, or why it cannot.
    fn outlet(&self, run: &CampaignRun) -> Result<Arc<Outlet>, String>;
}

/// All of them in the same way.
impl Outlets for Arc<Outlet> {
    fn outlet(&self, _run: &CampaignRun) -> Result<Arc<Outlet>, String> {
        Ok(Self::clone(self))
    }
}
