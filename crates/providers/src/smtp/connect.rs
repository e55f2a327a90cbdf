//! Connections to a server: making them, and keeping a few for the next message.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use url::Host;

use crate::secret::Secret;
use crate::smtp::trouble::{Phase, Trouble};

/// Who logs in, and with what.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) server: (String, u16),
    /// Encrypted from the first byte.
    pub(crate) is_wrapped: bool,
    pub(crate) starttls: bool,
    pub(crate) tls: TlsParameters,
    pub(crate) hello: ClientId,
    pub(crate) credentials: Option<Login>,
}

impl Connector {
    /// Nothing is said in the clear to another machine, unless somebody wants it so.
    pub(crate) fn check_plaintext(&self, host: &Host<&str>, is_allowed: bool) -> Result<(), String> {
        if self.is_wrapped || self.starttls || is_allowed || is_loopback(host) {
            return Ok(());
        }
        Err("tls: none would send mail in the clear to another machine: use starttls or smtps://, or say \
             allow_plaintext: true"
            .to_owned())
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Trouble> {
        let server = (self.server.0.as_str(), self.server.1);
        let mut connection = if self.is_wrapped {
            let tls = Some(self.tls.clone());
            AsyncSmtpConnection::connect_tokio1(server, None, &self.hello, tls, None).await?
        } else {
            let stream = TcpStream::connect(server).await.map_err(|cause| Trouble::Lost(cause.to_string()))?;
            // The end of a message is a write of its own, which would wait until the server has confirmed the one before.
            stream.set_nodelay(true).map_err(|cause| Trouble::Lost(cause.to_string()))?;
            AsyncSmtpConnection::connect_with_transport(Box::new(stream), &self.hello).await?
        };
        if !self.is_wrapped && self.starttls {
            connection.starttls(self.tls.clone(), &self.hello).await?;
        }
        if let Some(Login { user, password }) = &self.credentials {
            let credentials = Credentials::new(user.clone(), password.reveal().to_owned());
            connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await?;
        }
        Ok(connection)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("server", &self.server).field("credentials", &self.credentials).finish()
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Trusts the certificate authorities of this machine, and those in a file.
pub(crate) fn tls(host: &str, ca_file: Option<&Path>) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(path) = ca_file {
        let about =
            |cause: &dyn fmt::Display| format!("the certificates in {} cannot be used: {cause}", path.display());
        let pem = std::fs::read(path).map_err(|cause| about(&cause))?;
        builder = builder.add_root_certificate(Certificate::from_pem(&pem).map_err(|cause| about(&cause))?);
    }
    builder.build_rustls().map_err(|cause| format!("TLS cannot be used: {cause}"))
}

/// How a server is greeted.
pub(crate) fn hello(domain: Option<&str>) -> ClientId {
    domain.map_or_else(ClientId::default, |domain| ClientId::Domain(domain.to_owned()))
}

/// Connections that nobody uses just now, the last used first.
pub(crate) struct Pool {
    connector: Connector,
    keep: Duration,
    idle_max: usize,
    idle: Mutex<Vec<(Instant, AsyncSmtpConnection)>>,
}

impl Pool {
    pub(crate) fn new(connector: Connector, keep: Duration, idle_max: usize) -> Self {
        Self { connector, keep, idle_max, idle: Mutex::default() }
    }

    /// A connection that is there. It may be stale.
    pub(crate) fn idle(&self, now: Instant) -> Option<AsyncSmtpConnection> {
        let mut idle = self.connections(now);
        idle.pop().map(|(_, connection)| connection)
    }

    /// Keeps a connection that is good, for a while.
    pub(crate) fn keep(&self, connection: AsyncSmtpConnection, now: Instant) {
        let mut idle = self.connections(now);
        if idle.len() < self.idle_max {
            idle.push((now, connection));
        }
    }

    /// A new connection.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<AsyncSmtpConnection, (Phase, Trouble)> {
        match timeout_at(deadline, self.connector.connect()).await {
            Err(_) => Err((Phase::Hello, Trouble::Late)),
            Ok(connected) => connected.map_err(|trouble| (Phase::Hello, trouble)),
        }
    }

    fn connections(&self, now: Instant) -> MutexGuard<'_, Vec<(Instant, AsyncSmtpConnection)>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| now.duration_since(*since) < self.keep);
        idle
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("connector", &self.connector).finish_non_exhaustive()
    }
}
