//! Requests to the outside, for tasks and for the engine. Only to hosts that the server and the component both allow, only
//! to addresses that are fit for it, and only so much for so long. Nothing is followed: a redirect is an answer.

mod address;
mod connect;
mod error;
mod pattern;
mod request;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onward_journal::Text;

use connect::Connector;
use request::Target;

pub use address::{Class, classify};
pub use connect::{Resolve, SystemResolver};
pub use error::HttpError;
pub use pattern::{HostPattern, PatternError};

/// What the server allows.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where requests may go; nowhere when empty.
    pub hosts: Vec<HostRule>,
    /// A larger request, headers included, is not sent.
    pub request_bytes_max: usize,
    /// A larger response, headers not included, is cut off.
    pub response_bytes_max: usize,
    /// How long a request may take; one may ask for less.
    pub timeout: Duration,
}

impl Default for HttpConfig {
    /// No hosts, a mebibyte each way, thirty seconds.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            request_bytes_max: 1 << 20,
            response_bytes_max: 1 << 20,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Hosts that the server allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// Which.
    pub pattern: HostPattern,
    /// Whether they may have addresses inside a network. Metadata services of clouds are refused even so.
    pub private_networks: bool,
}

/// A request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// Such as `GET`.
    pub method: String,
    /// With scheme and host.
    pub url: String,
    /// Those that say how the message is framed are the host's.
    pub headers: Vec<(String, String)>,
    /// Empty for none.
    pub body: Bytes,
    /// How long it may take, if that is less than the configuration says.
    pub timeout: Option<Duration>,
    /// Sent as `Idempotency-Key`, unless the headers have one.
    pub idempotency_key: Option<Text>,
}

/// A response, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Such as 200.
    pub status: u16,
    /// What is not UTF-8 in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// As it came.
    pub body: Bytes,
}

/// A client under the server's rules. A clone is a counter, not a copy; they share connections.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    config: Arc<HttpConfig>,
}

impl Http {
    /// A client that trusts the certificates that the machine trusts.
    pub fn new(config: HttpConfig) -> Result<Self, HttpError> {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// A client that finds addresses in its own way.
    pub fn with_resolver(config: HttpConfig, resolver: Arc<dyn Resolve>) -> Result<Self, HttpError> {
        let connector = Connector { rules: config.hosts.clone().into(), resolver };
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(https);
        Ok(Self { client, config: Arc::new(config) })
    }

    /// Sends a request to a host that the server allows.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let target = Target::parse(&request.url)?;
        if !self.config.hosts.iter().any(|rule| target.matches(&rule.pattern)) {
            return Err(HttpError::Host { host: target.to_string(), whose: "the server's" });
        }
        let timeout = request.timeout.map_or(self.config.timeout, |timeout| timeout.min(self.config.timeout));
        match tokio::time::timeout(timeout, self.exchange(target, request)).await {
            Ok(response) => response,
            Err(_) => Err(HttpError::Timeout { ms: timeout.as_millis() }),
        }
    }

    async fn exchange(&self, target: Target, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = request::build(target, request, self.config.request_bytes_max)?;
        let response = self.client.request(request).await.map_err(|error| match HttpError::of(&error) {
            HttpError::Failed(reason) if error.is_connect() => HttpError::Unreachable(reason),
            error => error,
        })?;
        read(response, self.config.response_bytes_max).await
    }
}

/// A client under the rules of a component too.
#[derive(Clone)]
pub struct Egress {
    /// The client.
    pub http: Http,
    /// Where the component may send requests, as far as the server allows it; nowhere when empty.
    pub hosts: Arc<[HostPattern]>,
}

impl Egress {
    /// Sends a request to a host that both allow.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let target = Target::parse(&request.url)?;
        if !self.hosts.iter().any(|pattern| target.matches(pattern)) {
            return Err(HttpError::Host { host: target.to_string(), whose: "the component's" });
        }
        self.http.send(request).await
    }
}

async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<HttpResponse, HttpError> {
    let (head, mut body) = response.into_parts();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| HttpError::of(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if read.len() + data.len() > bytes_max {
            return Err(HttpError::TooLarge { what: "response", max: bytes_max });
        }
        read.extend_from_slice(data);
    }
    Ok(HttpResponse { status: head.status.as_u16(), headers: readable(&head.headers), body: read.freeze() })
}

fn readable(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect()
}

fn tls() -> Result<rustls::ClientConfig, HttpError> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "cannot read a certificate of the machine");
    }
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::Failed(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The port of a URL without one.
fn usual_port(scheme: Option<&str>) -> u16 {
    if scheme == Some("https") { 443 } else { 80 }
}
