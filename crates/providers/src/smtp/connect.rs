//! Connections to a server: making them, and keeping a few for the next message.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use url::Host;

use crate::secret::Secret;
use crate::smtp::trouble::{Phase, Trouble};
pub(crate) use crate::smtp::wrap::{Wrapping, wrapping};

/// Connections that nobody uses are looked at no more often than this.
const WATCH_MIN: Duration = Duration::from_millis(10);

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
    pub(crate) starttls_with: TlsParameters,
    pub(crate) wrap_with: Wrapping,
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
        let lost = |cause: std::io::Error| Trouble::Lost(cause.to_string());
        let unreached = |cause: std::io::Error| {
            Trouble::Unreached(format!("could not connect to {}:{}: {cause}", server.0, server.1))
        };
        let stream = TcpStream::connect(server).await.map_err(unreached)?;
        // The end of a message is a write of its own, which would wait until the server has confirmed the one before.
        stream.set_nodelay(true).map_err(lost)?;
        let stream: Box<dyn AsyncTokioStream> =
            if self.is_wrapped { Box::new(self.wrap_with.wrap(stream).await.map_err(lost)?) } else { Box::new(stream) };
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &self.hello).await?;
        if !self.is_wrapped && self.starttls {
            connection.starttls(self.starttls_with.clone(), &self.hello).await?;
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

/// How a connection is encrypted by STARTTLS. The certificate authorities of this machine are trusted, and those in a file.
pub(crate) fn starttls(host: &str, ca_file: Option<&Path>) -> Result<TlsParameters, String> {
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

/// Connections that nobody uses just now, and how to make others.
pub(crate) struct Pool {
    connector: Connector,
    keep: Duration,
    idle_max: usize,
    idle: Arc<Mutex<Idle>>,
}

/// Connections and since when nobody uses them, the last used last.
#[derive(Default)]
struct Idle {
    connections: Vec<(Instant, AsyncSmtpConnection)>,
    /// Whether somebody is there to close them when it is time.
    is_watched: bool,
}

impl Pool {
    pub(crate) fn new(connector: Connector, keep: Duration, idle_max: usize) -> Self {
        Self { connector, keep, idle_max, idle: Arc::default() }
    }

    /// A connection that is there. It may be stale.
    pub(crate) fn idle(&self, now: Instant) -> Option<AsyncSmtpConnection> {
        let mut idle = lock(&self.idle);
        idle.close(now, self.keep);
        idle.connections.pop().map(|(_, connection)| connection)
    }

    /// Keeps a connection that is good, for a while.
    pub(crate) fn keep(&self, connection: AsyncSmtpConnection, now: Instant) {
        let mut idle = lock(&self.idle);
        idle.close(now, self.keep);
        if idle.connections.len() >= self.idle_max {
            return;
        }
        idle.connections.push((now, connection));
        if !idle.is_watched {
            idle.is_watched = true;
            tokio::spawn(watch(Arc::downgrade(&self.idle), self.keep));
        }
    }

    /// A new connection.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<AsyncSmtpConnection, (Phase, Trouble)> {
        match timeout_at(deadline, self.connector.connect()).await {
            Err(_) => Err((Phase::Hello, Trouble::Late)),
            Ok(connected) => connected.map_err(|trouble| (Phase::Hello, trouble)),
        }
    }
}

impl Idle {
    /// Closes what nobody has used for so long.
    fn close(&mut self, now: Instant, keep: Duration) {
        self.connections.retain(|(since, _)| now.duration_since(*since) < keep);
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes connections in time, until there are none.
async fn watch(idle: Weak<Mutex<Idle>>, keep: Duration) {
    loop {
        sleep(keep.max(WATCH_MIN)).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = lock(&idle);
        idle.close(Instant::now(), keep);
        if idle.connections.is_empty() {
            idle.is_watched = false;
            return;
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("connector", &self.connector).finish_non_exhaustive()
    }
}
