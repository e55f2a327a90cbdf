//! Mail by SMTP.
//!
//! The conversation is led step by step, because it decides what is known when it ends early: until the dot that ends a
//! message is written, nothing was sent; from then on only the server's answer tells.

mod connect;
mod mail;
mod talk;
mod trouble;
mod wrap;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::Answer;
use onward_dispatcher::{Nature, Provider, Reservation};
use onward_journal::Text;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use url::{Host, Url};

use crate::limits::Limits;
use crate::parcel::{Parcel, unfit};
use crate::secret::{SecretRef, Secrets, Veil};
use crate::smtp::connect::{Connector, Pool};
use crate::smtp::mail::{Envelope, Letterhead};
use crate::smtp::talk::Talk;
use crate::smtp::trouble::{Phase, Trouble};
use crate::spec::{Defaults, TermsSpec};

/// Connections of one provider, at most.
const CONNECTIONS_MAX: usize = 100;

/// Who found no connection free asks again after so long.
const CROWDED_MS: u64 = 1_000;

/// A server of mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmtpSpec {
    /// `smtps://host[:465]`, encrypted from the first byte, or `smtp://host[:587]`.
    pub url: String,
    /// How a connection of `smtp://` is encrypted: `starttls` unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Whether `tls: none` may be used with another machine.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// A file of certificates (PEM) to trust besides those of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Who logs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With which password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
    /// Who sends, where a message does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The domain in the ids of messages and in the greeting: that of `from` unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Connections at a time.
    #[serde(default = "connections")]
    pub connections: usize,
    /// How long a connection is kept that nobody uses.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
    /// How long one delivery may take, and how long may be waited for a connection before.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// How many may be reached in which time.
    #[serde(default)]
    pub limits: Limits,
    /// How it is gone about.
    #[serde(default)]
    pub terms: TermsSpec,
}

/// How a connection that begins in the clear is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Not at all. Only to this machine, unless `allow_plaintext` says otherwise.
    None,
    /// By STARTTLS, before anything is said. A server that does not offer it is not used.
    Starttls,
}

fn connections() -> usize {
    4
}

fn idle_ms() -> u64 {
    15_000
}

fn timeout_ms() -> u64 {
    60_000
}

impl SmtpSpec {
    pub(crate) fn defaults(&self) -> Defaults {
        // As long may be waited for a connection.
        let patience = Duration::from_millis(self.timeout_ms) * 2;
        Defaults { window: self.connections, repeats: false, looks_after_ms: None, patience }
    }

    pub(crate) fn host(&self) -> Option<String> {
        let url: Url = self.url.parse().ok()?;
        Some(format!("{}:{}", url.host()?, port(&url)))
    }

    /// Makes the mail, for nobody.
    pub(crate) fn rehearse(&self, parcel: &Parcel<'_>) -> Result<(), String> {
        self.letterhead()?.write(parcel).map(drop)
    }

    fn letterhead(&self) -> Result<Letterhead, String> {
        Letterhead::new(self.from.as_deref(), self.domain.as_deref())
    }

    pub(crate) fn build(&self, name: &str, secrets: &dyn Secrets) -> Result<Smtp, String> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(format!("connections is to be from 1 to {CONNECTIONS_MAX}"));
        }
        let url = self.checked_url()?;
        let host = url.host().ok_or("the URL names no host")?;
        let letterhead = self.letterhead()?;
        let credentials = self.credentials(secrets)?;
        let veil = credentials.as_ref().map(|it| Veil::over(&it.password, Some(&it.user))).unwrap_or_default();
        let connector = Connector {
            server: (bare(&host), port(&url)),
            is_wrapped: url.scheme() == "smtps",
            starttls: self.tls != Some(Tls::None),
            starttls_with: connect::starttls(&bare(&host), self.ca_file.as_deref())?,
            wrap_with: connect::wrapping(&bare(&host), self.ca_file.as_deref())?,
            hello: connect::hello(letterhead.domain()),
            credentials,
        };
        connector.check_plaintext(&host, self.allow_plaintext)?;
        Ok(Smtp {
            name: name.to_owned(),
            letterhead,
            veil,
            pool: Pool::new(connector, Duration::from_millis(self.idle_ms), self.connections),
            room: Arc::new(Semaphore::new(self.connections)),
            free: Semaphore::new(self.connections),
            timeout: Duration::from_millis(self.timeout_ms),
        })
    }

    fn checked_url(&self) -> Result<Url, String> {
        let expected = "expected smtps://host or smtp://host, with a port or without";
        let url: Url = self.url.parse().map_err(|_| format!("{} is not a URL: {expected}", self.url))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("there is no place for a password in a URL: use user and password".to_owned());
        }
        let has_more = !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
        if !matches!(url.scheme(), "smtp" | "smtps") || has_more {
            return Err(format!("{} is not the URL of a server of mail: {expected}", self.url));
        }
        if url.scheme() == "smtps" && self.tls.is_some() {
            return Err("smtps:// is encrypted from the first byte: leave tls out, or use smtp://".to_owned());
        }
        Ok(url)
    }

    fn credentials(&self, secrets: &dyn Secrets) -> Result<Option<connect::Login>, String> {
        match (&self.user, &self.password) {
            (None, None) => Ok(None),
            (Some(user), Some(password)) => {
                Ok(Some(connect::Login { user: user.clone(), password: password.resolve(secrets)? }))
            }
            (Some(_), None) => Err("there is a user but no password".to_owned()),
            (None, Some(_)) => Err("there is a password but no user".to_owned()),
        }
    }
}

fn port(url: &Url) -> u16 {
    url.port().unwrap_or(if url.scheme() == "smtps" { 465 } else { 587 })
}

/// A host as it is connected to. In a URL of a scheme that nobody knows, an IPv4 address is but a name.
fn bare(host: &Host<&str>) -> String {
    match host {
        Host::Domain(name) => (*name).to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Sends mail.
#[derive(Debug)]
pub(crate) struct Smtp {
    name: String,
    letterhead: Letterhead,
    pool: Pool,
    /// What nobody is to read in what the server says.
    veil: Veil,
    /// Taken by whoever reserves.
    room: Arc<Semaphore>,
    /// Taken here, so that there are never more connections, whoever calls.
    free: Semaphore,
    timeout: Duration,
}

#[async_trait]
impl Provider for Smtp {
    fn name(&self) -> &str {
        &self.name
    }

    fn nature(&self) -> Nature {
        Nature::default()
    }

    fn room(&self) -> Option<Arc<Semaphore>> {
        Some(Arc::clone(&self.room))
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        let mut answers = Vec::new();
        for reservation in batch {
            answers.push((reservation.item().clone(), self.send(&Parcel::of(&reservation)).await));
        }
        answers
    }
}

impl Smtp {
    async fn send(&self, parcel: &Parcel<'_>) -> Answer {
        let envelope = match self.letterhead.write(parcel) {
            Ok(envelope) => envelope,
            Err(words) => return unfit(&words),
        };
        let Ok(Ok(_permit)) = timeout(self.timeout, self.free.acquire()).await else {
            // It is not the server that is at fault: waiting is not to count as a try.
            return Answer::Busy("no connection became free in time".into(), Some(CROWDED_MS));
        };
        // Counted from here: whoever has waited for long must not leave a message in doubt for want of time.
        match self.converse(&envelope, Instant::now() + self.timeout).await {
            Ok(()) => Answer::Accepted(Some(envelope.id.as_str().into())),
            Err((phase, trouble)) => trouble::answer(phase, &trouble, &self.veil),
        }
    }

    /// Leads one conversation, on a connection that is there or a new one.
    async fn converse(&self, envelope: &Envelope, deadline: Instant) -> Result<(), (Phase, Trouble)> {
        while let Some(connection) = self.pool.idle(Instant::now()) {
            let mut talk = Talk::new(connection, deadline);
            match talk.open(envelope).await {
                Ok(()) => return self.finish(talk, envelope).await,
                // The server has had enough of this connection. Nothing was sent on it.
                Err((_, Trouble::Lost(_) | Trouble::Temporary(421, _))) => {}
                Err(trouble) => return self.give_up(talk, trouble).await,
            }
        }
        let connection = self.pool.connect(deadline).await?;
        let mut talk = Talk::new(connection, deadline);
        match talk.open(envelope).await {
            Ok(()) => self.finish(talk, envelope).await,
            Err(trouble) => self.give_up(talk, trouble).await,
        }
    }

    async fn finish(&self, mut talk: Talk, envelope: &Envelope) -> Result<(), (Phase, Trouble)> {
        match talk.send(envelope).await {
            Ok(()) => {
                self.pool.keep(talk.into_connection(), Instant::now());
                Ok(())
            }
            Err(trouble) => self.give_up(talk, trouble).await,
        }
    }

    /// Keeps the connection for others if the server still listens.
    async fn give_up(&self, mut talk: Talk, (phase, trouble): (Phase, Trouble)) -> Result<(), (Phase, Trouble)> {
        if trouble.leaves_connection(phase) && talk.reset().await {
            self.pool.keep(talk.into_connection(), Instant::now());
        }
        Err((phase, trouble))
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
