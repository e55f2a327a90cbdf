//! Mail by SMTP.
//!
//! The conversation is led step by step, because it decides what is known when it ends early: until the dot that ends a
//! message is written, nothing was sent; from then on only the server's answer tells.

mod connection_pool;
mod implicit_tls;
mod mail_builder;
mod smtp_failure;
mod transaction;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{Provider, ProviderCapabilities, Reservation};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use url::{Host, Url};

use crate::outgoing_item::{OutgoingItem, invalid_message};
use crate::provider_spec::{DispatchPolicySpec, ProviderDefaults};
use crate::rate_limits::RateLimits;
use crate::secret::{SecretRedactor, SecretRef, SecretSource};
use crate::smtp::connection_pool::{SmtpConnectionPool, SmtpConnector};
use crate::smtp::mail_builder::{MailBuilder, OutgoingMail};
use crate::smtp::smtp_failure::{SmtpFailure, SmtpPhase};
use crate::smtp::transaction::SmtpTransaction;

/// Connections of one provider, at most.
const CONNECTIONS_MAX: usize = 100;

/// Who found no connection free asks again after so long.
const NO_CONNECTION_RETRY_MS: u64 = 1_000;

/// A server of mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmtpSpec {
    /// `smtps://host[:465]`, encrypted from the first byte, or `smtp://host[:587]`.
    pub url: String,
    /// How a connection of `smtp://` is encrypted: `starttls` unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SmtpTlsMode>,
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
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// How long a connection is kept that nobody uses.
    #[serde(default = "default_idle_ms")]
    pub idle_ms: u64,
    /// How long one delivery may take, and how long may be waited for a connection before.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// How many may be reached in which time.
    #[serde(default)]
    pub limits: RateLimits,
    /// How it is gone about.
    #[serde(default)]
    pub terms: DispatchPolicySpec,
}

/// How a connection that begins in the clear is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmtpTlsMode {
    /// Not at all. Only to this machine, unless `allow_plaintext` says otherwise.
    None,
    /// By STARTTLS, before anything is said. A server that does not offer it is not used.
    Starttls,
}

fn default_connections() -> usize {
    4
}

fn default_idle_ms() -> u64 {
    15_000
}

fn default_timeout_ms() -> u64 {
    60_000
}

impl SmtpSpec {
    pub(crate) fn provider_defaults(&self) -> ProviderDefaults {
        // As long may be waited for a connection.
        let patience = Duration::from_millis(self.timeout_ms) * 2;
        ProviderDefaults {
            window: self.connections,
            is_idempotent: false,
            lookup_after_ms: None,
            timeout: patience,
        }
    }

    pub(crate) fn host_port(&self) -> Option<String> {
        let url: Url = self.url.parse().ok()?;
        Some(format!("{}:{}", url.host()?, server_port(&url)))
    }

    /// Makes the mail, for nobody.
    pub(crate) fn dry_run(&self, parcel: &OutgoingItem<'_>) -> Result<(), String> {
        self.mail_builder()?.build_mail(parcel).map(drop)
    }

    fn mail_builder(&self) -> Result<MailBuilder, String> {
        MailBuilder::new(self.from.as_deref(), self.domain.as_deref())
    }

    pub(crate) fn build_provider(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<SmtpProvider, String> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(format!("connections is to be from 1 to {CONNECTIONS_MAX}"));
        }
        let url = self.parse_server_url()?;
        let host = url.host().ok_or("the URL names no host")?;
        let letterhead = self.mail_builder()?;
        let credentials = self.resolve_credentials(secrets)?;
        let veil = credentials
            .as_ref()
            .map(|it| SecretRedactor::for_secret(&it.password, Some(&it.user)))
            .unwrap_or_default();
        let connector = SmtpConnector {
            server: (host_to_string(&host), server_port(&url)),
            is_implicit_tls: url.scheme() == "smtps",
            uses_starttls: self.tls != Some(SmtpTlsMode::None),
            starttls_parameters: connection_pool::starttls_parameters(
                &host_to_string(&host),
                self.ca_file.as_deref(),
            )?,
            implicit_tls: connection_pool::build_implicit_tls(
                &host_to_string(&host),
                self.ca_file.as_deref(),
            )?,
            client_id: connection_pool::client_id(letterhead.sender_domain()),
            credentials,
        };
        connector.check_plaintext(&host, self.allow_plaintext)?;
        Ok(SmtpProvider {
            name: name.to_owned(),
            mail_builder: letterhead,
            redactor: veil,
            pool: SmtpConnectionPool::new(
                connector,
                Duration::from_millis(self.idle_ms),
                self.connections,
            ),
            send_permits: Arc::new(Semaphore::new(self.connections)),
            connection_permits: Semaphore::new(self.connections),
            timeout: Duration::from_millis(self.timeout_ms),
        })
    }

    fn parse_server_url(&self) -> Result<Url, String> {
        let expected = "expected smtps://host or smtp://host, with a port or without";
        let url: Url = self
            .url
            .parse()
            .map_err(|_| format!("{} is not a URL: {expected}", self.url))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "there is no place for a password in a URL: use user and password".to_owned(),
            );
        }
        let has_more =
            !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
        if !matches!(url.scheme(), "smtp" | "smtps") || has_more {
            return Err(format!(
                "{} is not the URL of a server of mail: {expected}",
                self.url
            ));
        }
        if url.scheme() == "smtps" && self.tls.is_some() {
            return Err(
                "smtps:// is encrypted from the first byte: leave tls out, or use smtp://"
                    .to_owned(),
            );
        }
        Ok(url)
    }

    fn resolve_credentials(
        &self,
        secrets: &dyn SecretSource,
    ) -> Result<Option<connection_pool::SmtpCredentials>, String> {
        match (&self.user, &self.password) {
            (None, None) => Ok(None),
            (Some(user), Some(password)) => Ok(Some(connection_pool::SmtpCredentials {
                user: user.clone(),
                password: password.resolve(secrets)?,
            })),
            (Some(_), None) => Err("there is a user but no password".to_owned()),
            (None, Some(_)) => Err("there is a password but no user".to_owned()),
        }
    }
}

fn server_port(url: &Url) -> u16 {
    url.port()
        .unwrap_or(if url.scheme() == "smtps" { 465 } else { 587 })
}

/// A host as it is connected to. In a URL of a scheme that nobody knows, an IPv4 address is but a name.
fn host_to_string(host: &Host<&str>) -> String {
    match host {
        Host::Domain(name) => (*name).to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Sends mail.
#[derive(Debug)]
pub(crate) struct SmtpProvider {
    name: String,
    mail_builder: MailBuilder,
    pool: SmtpConnectionPool,
    /// What nobody is to read in what the server says.
    redactor: SecretRedactor,
    /// Taken by whoever reserves.
    send_permits: Arc<Semaphore>,
    /// Taken here, so that there are never more connections, whoever calls.
    connection_permits: Semaphore,
    timeout: Duration,
}

#[async_trait]
impl Provider for SmtpProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities::default()
    }

    fn send_permits(&self) -> Option<Arc<Semaphore>> {
        Some(Arc::clone(&self.send_permits))
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let mut answers = Vec::new();
        for reservation in batch {
            answers.push((
                reservation.item_id().clone(),
                self.send_mail(&OutgoingItem::from_reservation(&reservation))
                    .await,
            ));
        }
        answers
    }
}

impl SmtpProvider {
    async fn send_mail(&self, parcel: &OutgoingItem<'_>) -> SendOutcome {
        let envelope = match self.mail_builder.build_mail(parcel) {
            Ok(envelope) => envelope,
            Err(words) => return invalid_message(&words),
        };
        let Ok(Ok(_permit)) = timeout(self.timeout, self.connection_permits.acquire()).await else {
            // It is not the server that is at fault: waiting is not to count as a try.
            return SendOutcome::Throttled(
                "no connection became free in time".into(),
                Some(NO_CONNECTION_RETRY_MS),
            );
        };
        // Counted from here: whoever has waited for long must not leave a message in doubt for want of time.
        match self
            .run_transaction(&envelope, Instant::now() + self.timeout)
            .await
        {
            Ok(()) => SendOutcome::Accepted(Some(envelope.message_id.as_str().into())),
            Err((phase, trouble)) => smtp_failure::map_failure(phase, &trouble, &self.redactor),
        }
    }

    /// Leads one conversation, on a connection that is there or a new one.
    async fn run_transaction(
        &self,
        envelope: &OutgoingMail,
        deadline: Instant,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        while let Some(connection) = self.pool.take_idle(Instant::now()) {
            let mut talk = SmtpTransaction::new(connection, deadline);
            match talk.send_mail_from(envelope).await {
                Ok(()) => return self.complete_transaction(talk, envelope).await,
                // The server has had enough of this connection. Nothing was sent on it.
                Err((_, SmtpFailure::ConnectionLost(_) | SmtpFailure::Temporary(421, _))) => {}
                Err(trouble) => return self.abort_transaction(talk, trouble).await,
            }
        }
        let connection = self.pool.open_connection(deadline).await?;
        let mut talk = SmtpTransaction::new(connection, deadline);
        match talk.send_mail_from(envelope).await {
            Ok(()) => self.complete_transaction(talk, envelope).await,
            Err(trouble) => self.abort_transaction(talk, trouble).await,
        }
    }

    async fn complete_transaction(
        &self,
        mut talk: SmtpTransaction,
        envelope: &OutgoingMail,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        match talk.send_message(envelope).await {
            Ok(()) => {
                self.pool
                    .return_connection(talk.into_connection(), Instant::now());
                Ok(())
            }
            Err(trouble) => self.abort_transaction(talk, trouble).await,
        }
    }

    /// Keeps the connection for others if the server still listens.
    async fn abort_transaction(
        &self,
        mut talk: SmtpTransaction,
        (phase, trouble): (SmtpPhase, SmtpFailure),
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        if trouble.keeps_connection(phase) && talk.reset().await {
            self.pool
                .return_connection(talk.into_connection(), Instant::now());
        }
        Err((phase, trouble))
    }
}

#[cfg(test)]
mod scripted_server;
#[cfg(test)]
mod tests;
