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
use onward_base::SharedText;

use connect::GuestConnector;
use request::RequestTarget;

pub use address::{AddressClass, classify_address};
pub use connect::{HostResolver, SystemResolver};
pub use error::HttpError;
pub use pattern::{HostPattern, HostPatternError};

/// What the server allows.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where requests may go; nowhere when empty.
    pub host_rules: Vec<HostRule>,
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
            host_rules: Vec::new(),
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
    pub idempotency_key: Option<SharedText>,
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
pub struct GuestHttpClient {
    client: Client<HttpsConnector<GuestConnector>, Full<Bytes>>,
    config: Arc<HttpConfig>,
}

impl GuestHttpClient {
    /// A client that trusts the certificates that the machine trusts.
    pub fn new(config: HttpConfig) -> Result<Self, HttpError> {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// A client that finds addresses in its own way.
    pub fn with_resolver(
        config: HttpConfig,
        resolver: Arc<dyn HostResolver>,
    ) -> Result<Self, HttpError> {
        let connector = GuestConnector {
            rules: config.host_rules.clone().into(),
            resolver,
        };
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(https);
        Ok(Self {
            client,
            config: Arc::new(config),
        })
    }

    /// Sends a request to a host that the server allows.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let target = RequestTarget::parse(&request.url)?;
        if !self
            .config
            .host_rules
            .iter()
            .any(|rule| target.matches(&rule.pattern))
        {
            return Err(HttpError::HostDenied {
                host: target.to_string(),
                allow_list: "the server's",
            });
        }
        let timeout = request.timeout.map_or(self.config.timeout, |timeout| {
            timeout.min(self.config.timeout)
        });
        match tokio::time::timeout(timeout, self.send_to_target(target, request)).await {
            Ok(response) => response,
            Err(_) => Err(HttpError::Timeout {
                ms: timeout.as_millis(),
            }),
        }
    }

    async fn send_to_target(
        &self,
        target: RequestTarget,
        request: HttpRequest,
    ) -> Result<HttpResponse, HttpError> {
        let request = request::build_request(target, request, self.config.request_bytes_max)?;
        let response = self.client.request(request).await.map_err(|error| {
            match HttpError::from_source(&error) {
                HttpError::Failed(reason) if error.is_connect() => HttpError::Unreachable(reason),
                error => error,
            }
        })?;
        read_response(response, self.config.response_bytes_max).await
    }
}

/// A client under the rules of a component too.
#[derive(Clone)]
pub struct ComponentEgress {
    /// The client.
    pub http: GuestHttpClient,
    /// Where the component may send requests, as far as the server allows it; nowhere when empty.
    pub hosts: Arc<[HostPattern]>,
}

impl ComponentEgress {
    /// Sends a request to a host that both allow.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let target = RequestTarget::parse(&request.url)?;
        if !self.hosts.iter().any(|pattern| target.matches(pattern)) {
            return Err(HttpError::HostDenied {
                host: target.to_string(),
                allow_list: "the component's",
            });
        }
        self.http.send(request).await
    }
}

async fn read_response(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<HttpResponse, HttpError> {
    let (head, mut body) = response.into_parts();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| HttpError::from_source(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if read.len() + data.len() > bytes_max {
            return Err(HttpError::TooLarge {
                what: "response",
                max: bytes_max,
            });
        }
        read.extend_from_slice(data);
    }
    Ok(HttpResponse {
        status: head.status.as_u16(),
        headers: header_pairs(&head.headers),
        body: read.freeze(),
    })
}

fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
        .collect()
}

fn tls_config() -> Result<rustls::ClientConfig, HttpError> {
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
fn default_port(scheme: Option<&str>) -> u16 {
    if scheme == Some("https") { 443 } else { 80 }
}
