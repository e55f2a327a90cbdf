//! Pool of connections to an SMTP server: opens connections, and keeps idle ones for the next
//! message.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::secret::SecretValue;
pub(crate) use crate::smtp::implicit_tls::{ImplicitTlsConnector, build_implicit_tls};
use crate::smtp::smtp_error::SmtpConfigError;
use crate::smtp::smtp_failure::{SmtpFailure, SmtpPhase};

/// Minimum interval between two checks for expired idle connections.
const REAP_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// User name and password for authentication.
#[derive(Debug)]
pub(crate) struct SmtpCredentials {
    pub(crate) user: String,
    pub(crate) password: SecretValue,
}

/// Opens connections to one server.
pub(crate) struct SmtpConnector {
    pub(crate) server: (String, u16),
    /// Whether the connection is encrypted from the first byte.
    pub(crate) is_implicit_tls: bool,
    pub(crate) uses_starttls: bool,
    pub(crate) starttls_parameters: TlsParameters,
    pub(crate) implicit_tls: ImplicitTlsConnector,
    pub(crate) client_id: ClientId,
    pub(crate) credentials: Option<SmtpCredentials>,
}

impl SmtpConnector {
    async fn connect(&self) -> Result<AsyncSmtpConnection, SmtpFailure> {
        let server = (self.server.0.as_str(), self.server.1);
        let lost = |cause: std::io::Error| SmtpFailure::ConnectionLost(cause.to_string());
        let unreachable = |cause: std::io::Error| {
            SmtpFailure::ConnectFailed(format!(
                "cannot connect to {}:{}: {cause}",
                server.0, server.1
            ))
        };
        let stream = TcpStream::connect(server).await.map_err(unreachable)?;
        // The end of a message is a write of its own; with Nagle's algorithm it would wait until
        // the server has acknowledged the write before it.
        stream.set_nodelay(true).map_err(lost)?;
        let stream: Box<dyn AsyncTokioStream> = if self.is_implicit_tls {
            Box::new(self.implicit_tls.wrap_stream(stream).await.map_err(lost)?)
        } else {
            Box::new(stream)
        };
        let mut connection =
            AsyncSmtpConnection::connect_with_transport(stream, &self.client_id).await?;
        if !self.is_implicit_tls && self.uses_starttls {
            connection
                .starttls(self.starttls_parameters.clone(), &self.client_id)
                .await?;
        }
        if let Some(SmtpCredentials { user, password }) = &self.credentials {
            let credentials = Credentials::new(user.clone(), password.reveal().to_owned());
            connection
                .auth(&[Mechanism::Plain, Mechanism::Login], &credentials)
                .await?;
        }
        Ok(connection)
    }
}

impl fmt::Debug for SmtpConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpConnector")
            .field("server", &self.server)
            .field("credentials", &self.credentials)
            .finish()
    }
}

/// Returns the TLS settings for STARTTLS. They trust the certificate authorities of the machine,
/// and those in the file.
pub(crate) fn starttls_parameters(
    host: &str,
    ca_file: Option<&Path>,
) -> Result<TlsParameters, SmtpConfigError> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(path) = ca_file {
        let certificate =
            read_certificate(path).map_err(|cause| SmtpConfigError::Certificates {
                path: path.to_owned(),
                cause,
            })?;
        builder = builder.add_root_certificate(certificate);
    }
    builder
        .build_rustls()
        .map_err(|cause| SmtpConfigError::TlsSetup(cause.into()))
}

fn read_certificate(path: &Path) -> Result<Certificate, Box<dyn Error + Send + Sync>> {
    Ok(Certificate::from_pem(&std::fs::read(path)?)?)
}

/// Returns the client name for the greeting (EHLO): the domain, or the library's default.
pub(crate) fn client_id(domain: Option<&str>) -> ClientId {
    domain.map_or_else(ClientId::default, |domain| {
        ClientId::Domain(domain.to_owned())
    })
}

/// Idle connections, and the connector that opens new ones.
pub(crate) struct SmtpConnectionPool {
    connector: SmtpConnector,
    idle_timeout: Duration,
    idle_max: usize,
    idle: Arc<Mutex<IdleConnections>>,
}

/// Idle connections with the time since they are idle, the most recently used last.
#[derive(Default)]
struct IdleConnections {
    connections: Vec<(Instant, AsyncSmtpConnection)>,
    /// Whether a task that closes expired connections is running.
    has_reaper: bool,
}

impl SmtpConnectionPool {
    pub(crate) fn new(connector: SmtpConnector, idle_timeout: Duration, idle_max: usize) -> Self {
        Self {
            connector,
            idle_timeout,
            idle_max,
            idle: Arc::default(),
        }
    }

    /// Takes an idle connection, if there is one. The server may have closed it already.
    pub(crate) fn take_idle(&self, now: Instant) -> Option<AsyncSmtpConnection> {
        let mut idle = lock_idle(&self.idle);
        idle.close_expired(now, self.idle_timeout);
        idle.connections.pop().map(|(_, connection)| connection)
    }

    /// Returns a usable connection to the pool, which keeps it until the idle timeout.
    pub(crate) fn return_connection(&self, connection: AsyncSmtpConnection, now: Instant) {
        let mut idle = lock_idle(&self.idle);
        idle.close_expired(now, self.idle_timeout);
        if idle.connections.len() >= self.idle_max {
            return;
        }
        idle.connections.push((now, connection));
        if !idle.has_reaper {
            idle.has_reaper = true;
            tokio::spawn(reap_idle_connections(
                Arc::downgrade(&self.idle),
                self.idle_timeout,
            ));
        }
    }

    /// Opens a new connection. Fails with a timeout at the deadline.
    pub(crate) async fn open_connection(
        &self,
        deadline: Instant,
    ) -> Result<AsyncSmtpConnection, (SmtpPhase, SmtpFailure)> {
        match timeout_at(deadline, self.connector.connect()).await {
            Err(_) => Err((SmtpPhase::Connect, SmtpFailure::TimedOut)),
            Ok(connected) => connected.map_err(|failure| (SmtpPhase::Connect, failure)),
        }
    }
}

impl IdleConnections {
    /// Closes connections that were idle for at least `idle_timeout`.
    fn close_expired(&mut self, now: Instant, idle_timeout: Duration) {
        self.connections
            .retain(|(since, _)| now.duration_since(*since) < idle_timeout);
    }
}

fn lock_idle(idle: &Mutex<IdleConnections>) -> MutexGuard<'_, IdleConnections> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes expired connections periodically, until no idle connection is left.
async fn reap_idle_connections(idle: Weak<Mutex<IdleConnections>>, idle_timeout: Duration) {
    loop {
        sleep(idle_timeout.max(REAP_INTERVAL_MIN)).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = lock_idle(&idle);
        idle.close_expired(Instant::now(), idle_timeout);
        if idle.connections.is_empty() {
            idle.has_reaper = false;
            return;
        }
    }
}

impl fmt::Debug for SmtpConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpConnectionPool")
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}
