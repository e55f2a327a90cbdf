//! Email by SMTP.
//!
//! The provider runs each SMTP transaction command by command, because the phase at which it ends
//! early decides what is known: until the dot that ends a message is written, the message was not
//! sent; after that only the server's reply decides.

mod connection_pool;
mod implicit_tls;
mod mail_builder;
mod smtp_error;
mod smtp_failure;
mod transaction;

use std::net::IpAddr;
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
use crate::provider_error::MessageBuildError;
use crate::provider_spec::{DispatchPolicySpec, ProviderDefaults};
use crate::rate_limits::RateLimits;
use crate::secret::{SecretRedactor, SecretRef, SecretSource};
use crate::smtp::connection_pool::{SmtpConnectionPool, SmtpConnector, SmtpCredentials};
use crate::smtp::mail_builder::{MailBuilder, OutgoingMail};
use crate::smtp::smtp_failure::{SmtpFailure, SmtpPhase};
use crate::smtp::transaction::SmtpTransaction;

pub use smtp_error::{MailBuildError, SmtpConfigError};

/// Maximum number of connections of one provider.
const CONNECTIONS_MAX: usize = 100;

/// Wait before the next try if no connection became free in time.
const NO_CONNECTION_RETRY_MS: u64 = 1_000;

/// Configuration of an SMTP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmtpSpec {
    /// URL of the server, required: `smtps://host[:465]` for implicit TLS, or `smtp://host[:587]`.
    pub url: String,
    /// Encryption of an `smtp://` connection; not allowed with `smtps://`. default: `starttls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SmtpTlsMode>,
    /// Whether `tls: none` is allowed for a host that is not loopback. default: false.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Path of a PEM file with certificates to trust in addition to those of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// User name for authentication; requires `password`. default: no authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password for authentication, as a reference to a secret; requires `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
    /// Sender address of messages without a `from` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Domain of message ids and of the greeting (EHLO). default: the domain of the sender address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Maximum number of concurrent connections, between 1 and 100. default: 4.
    #[serde(default = "default_max_connections")]
    pub max_connections: usize,
    /// Time after which an idle connection is closed, in milliseconds. default: 15000.
    #[serde(default = "default_idle_timeout_ms")]
    pub idle_timeout_ms: u64,
    /// Timeout of one delivery, and of the wait for a free connection before it, in milliseconds.
    /// default: 60000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Rate limits of this provider. default: unlimited.
    #[serde(default)]
    pub rate_limits: RateLimits,
    /// Dispatch policy of jobs that use this provider.
    #[serde(default)]
    pub policy: DispatchPolicySpec,
}

/// Encryption of an `smtp://` connection, which begins unencrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmtpTlsMode {
    /// No encryption. Allowed for loopback hosts only, unless `allow_plaintext` is set.
    None,
    /// STARTTLS before any credentials or messages are sent. Fails if the server does not offer it.
    Starttls,
}

fn default_max_connections() -> usize {
    4
}

fn default_idle_timeout_ms() -> u64 {
    15_000
}

fn default_timeout_ms() -> u64 {
    60_000
}

impl SmtpSpec {
    pub(crate) fn provider_defaults(&self) -> ProviderDefaults {
        // Twice, because the wait for a free connection has the same timeout.
        let timeout = Duration::from_millis(self.timeout_ms) * 2;
        ProviderDefaults {
            window: self.max_connections,
            is_idempotent: false,
            lookup_after_ms: None,
            timeout,
        }
    }

    pub(crate) fn host_port(&self) -> Option<String> {
        let url: Url = self.url.parse().ok()?;
        Some(format!("{}:{}", url.host()?, server_port(&url)))
    }

    /// Builds the mail without sending it.
    pub(crate) fn dry_run(&self, item: &OutgoingItem<'_>) -> Result<(), MessageBuildError> {
        self.mail_builder()?.build_mail(item)?;
        Ok(())
    }

    fn mail_builder(&self) -> Result<MailBuilder, SmtpConfigError> {
        MailBuilder::new(self.from.as_deref(), self.domain.as_deref())
    }

    pub(crate) fn build_provider(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<SmtpProvider, SmtpConfigError> {
        if !(1..=CONNECTIONS_MAX).contains(&self.max_connections) {
            return Err(SmtpConfigError::MaxConnectionsOutOfRange(
                self.max_connections,
            ));
        }
        let url = self.parse_server_url()?;
        let host = url.host().ok_or(SmtpConfigError::MissingHost)?;
        let mail_builder = self.mail_builder()?;
        let credentials = self.resolve_credentials(secrets)?;
        let redactor = credentials
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
            client_id: connection_pool::client_id(mail_builder.sender_domain()),
            credentials,
        };
        self.check_plaintext(&url, &host)?;
        Ok(SmtpProvider {
            name: name.to_owned(),
            mail_builder,
            redactor,
            pool: SmtpConnectionPool::new(
                connector,
                Duration::from_millis(self.idle_timeout_ms),
                self.max_connections,
            ),
            send_permits: Arc::new(Semaphore::new(self.max_connections)),
            connection_permits: Semaphore::new(self.max_connections),
            timeout: Duration::from_millis(self.timeout_ms),
        })
    }

    fn parse_server_url(&self) -> Result<Url, SmtpConfigError> {
        let url: Url = self.url.parse().map_err(|_| SmtpConfigError::InvalidUrl)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SmtpConfigError::CredentialsInUrl);
        }
        let has_more =
            !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
        if !matches!(url.scheme(), "smtp" | "smtps") || has_more {
            return Err(SmtpConfigError::NotServerUrl);
        }
        if url.scheme() == "smtps" && self.tls.is_some() {
            return Err(SmtpConfigError::TlsModeWithSmtps);
        }
        Ok(url)
    }

    /// Fails if the connection would be unencrypted to a host that is not loopback, and plaintext
    /// is not allowed.
    fn check_plaintext(&self, url: &Url, host: &Host<&str>) -> Result<(), SmtpConfigError> {
        let is_encrypted = url.scheme() == "smtps" || self.tls != Some(SmtpTlsMode::None);
        if is_encrypted || self.allow_plaintext || is_loopback(host) {
            return Ok(());
        }
        Err(SmtpConfigError::Plaintext)
    }

    fn resolve_credentials(
        &self,
        secrets: &dyn SecretSource,
    ) -> Result<Option<SmtpCredentials>, SmtpConfigError> {
        match (&self.user, &self.password) {
            (None, None) => Ok(None),
            (Some(user), Some(password)) => Ok(Some(SmtpCredentials {
                user: user.clone(),
                password: password.resolve("smtp.password", secrets)?,
            })),
            (Some(_), None) => Err(SmtpConfigError::MissingPassword),
            (None, Some(_)) => Err(SmtpConfigError::MissingUser),
        }
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            *name == "localhost"
                || name
                    .parse::<IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

fn server_port(url: &Url) -> u16 {
    url.port()
        .unwrap_or(if url.scheme() == "smtps" { 465 } else { 587 })
}

/// Returns the host in the form that is used to connect. The URL parser does not know the `smtp`
/// schemes, so it returns an IPv4 address as a domain.
fn host_to_string(host: &Host<&str>) -> String {
    match host {
        Host::Domain(name) => (*name).to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Sends mail through a pool of SMTP connections.
#[derive(Debug)]
pub(crate) struct SmtpProvider {
    name: String,
    mail_builder: MailBuilder,
    pool: SmtpConnectionPool,
    /// Removes the password from replies of the server.
    redactor: SecretRedactor,
    /// Permits that a worker acquires before it reserves items.
    send_permits: Arc<Semaphore>,
    /// Permits that this provider acquires itself, so that the number of connections is limited for
    /// every caller.
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
        let mut outcomes = Vec::new();
        for reservation in batch {
            outcomes.push((
                reservation.item_id().clone(),
                self.send_mail(&OutgoingItem::from_reservation(&reservation))
                    .await,
            ));
        }
        outcomes
    }
}

impl SmtpProvider {
    async fn send_mail(&self, item: &OutgoingItem<'_>) -> SendOutcome {
        let mail = match self.mail_builder.build_mail(item) {
            Ok(mail) => mail,
            Err(error) => return invalid_message(&error),
        };
        let Ok(Ok(_permit)) = timeout(self.timeout, self.connection_permits.acquire()).await else {
            // Throttled, because the server is not at fault: the wait must not count as a send.
            return SendOutcome::Throttled(
                "no SMTP connection became free before the timeout".into(),
                Some(NO_CONNECTION_RETRY_MS),
            );
        };
        // The deadline starts here: a long wait for a connection must not shorten the transaction
        // and leave the message in doubt.
        match self
            .run_transaction(&mail, Instant::now() + self.timeout)
            .await
        {
            Ok(()) => SendOutcome::Accepted(Some(mail.message_id.as_str().into())),
            Err((phase, failure)) => smtp_failure::map_failure(phase, &failure, &self.redactor),
        }
    }

    /// Runs one transaction, on an idle connection or a new one.
    async fn run_transaction(
        &self,
        mail: &OutgoingMail,
        deadline: Instant,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        while let Some(connection) = self.pool.take_idle(Instant::now()) {
            let mut transaction = SmtpTransaction::new(connection, deadline);
            match transaction.send_mail_from(mail).await {
                Ok(()) => return self.complete_transaction(transaction, mail).await,
                // The server has closed this idle connection. No message was sent on it.
                Err((_, SmtpFailure::ConnectionLost(_) | SmtpFailure::Temporary(421, _))) => {}
                Err(failure) => return self.abort_transaction(transaction, failure).await,
            }
        }
        let connection = self.pool.open_connection(deadline).await?;
        let mut transaction = SmtpTransaction::new(connection, deadline);
        match transaction.send_mail_from(mail).await {
            Ok(()) => self.complete_transaction(transaction, mail).await,
            Err(failure) => self.abort_transaction(transaction, failure).await,
        }
    }

    async fn complete_transaction(
        &self,
        mut transaction: SmtpTransaction,
        mail: &OutgoingMail,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        match transaction.send_message(mail).await {
            Ok(()) => {
                self.pool
                    .return_connection(transaction.into_connection(), Instant::now());
                Ok(())
            }
            Err(failure) => self.abort_transaction(transaction, failure).await,
        }
    }

    /// Ends a failed transaction. Returns the connection to the pool if the server still accepts
    /// commands.
    async fn abort_transaction(
        &self,
        mut transaction: SmtpTransaction,
        (phase, failure): (SmtpPhase, SmtpFailure),
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        if failure.keeps_connection(phase) && transaction.reset().await {
            self.pool
                .return_connection(transaction.into_connection(), Instant::now());
        }
        Err((phase, failure))
    }
}

#[cfg(test)]
mod scripted_server;
#[cfg(test)]
mod tests;
