//! Outgoing HTTP requests of tasks and of the engine. A request is sent only to hosts that both the
//! server and the component allow, only to permitted addresses, and within limits of size and time.
//! Redirects are not followed: a redirect is returned as the response.

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

/// The server's allow-list of hosts and limits of HTTP requests.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Hosts to which requests may be sent; if empty, all requests are refused.
    pub host_rules: Vec<HostRule>,
    /// Maximum size of a request in bytes, including its URL and headers; a larger request is not
    /// sent; default: 1 MiB.
    pub request_bytes_max: usize,
    /// Maximum size of a response body in bytes, without headers; reading stops with an error above
    /// it; default: 1 MiB.
    pub response_bytes_max: usize,
    /// Timeout of a request; a request may set a shorter one; default: 30 s.
    pub timeout: Duration,
}

impl Default for HttpConfig {
    /// No hosts, 1 MiB in each direction, a timeout of 30 s.
    fn default() -> Self {
        Self {
            host_rules: Vec::new(),
            request_bytes_max: 1 << 20,
            response_bytes_max: 1 << 20,
            timeout: Duration::from_secs(30),
        }
    }
}

/// An entry of the server's allow-list of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// The hosts and ports that the rule allows.
    pub pattern: HostPattern,
    /// Whether these hosts may have private addresses. Cloud metadata services are refused in any
    /// case.
    pub private_networks: bool,
}

/// An HTTP request of a guest or of the engine.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// The HTTP method, such as `GET`.
    pub method: String,
    /// Absolute URL with scheme and host.
    pub url: String,
    /// Names and values of the headers. Headers that frame the message, such as `content-length`,
    /// are set by the host and refused here.
    pub headers: Vec<(String, String)>,
    /// The request body; empty if there is none.
    pub body: Bytes,
    /// Timeout of this request; `None` or a longer one means the timeout of [`HttpConfig`].
    pub timeout: Option<Duration>,
    /// Sent as the header `Idempotency-Key`, unless `headers` already has one.
    pub idempotency_key: Option<SharedText>,
}

/// An HTTP response of any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status, such as 200.
    pub status: u16,
    /// Names and values of the headers; invalid UTF-8 in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// The response body, unchanged.
    pub body: Bytes,
}

/// HTTP client that enforces the server's rules. Clones share the same client and its connections.
#[derive(Clone)]
pub struct GuestHttpClient {
    client: Client<HttpsConnector<GuestConnector>, Full<Bytes>>,
    config: Arc<HttpConfig>,
}

impl GuestHttpClient {
    /// Creates a client that trusts the root certificates of the machine.
    pub fn new(config: HttpConfig) -> Result<Self, HttpError> {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// Creates a client that resolves host names with `resolver`.
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

    /// Sends a request and reads the response. Fails if the server does not allow the host.
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

/// HTTP client that also enforces the allow-list of a component.
#[derive(Clone)]
pub struct ComponentEgress {
    /// The client that enforces the server's rules.
    pub http: GuestHttpClient,
    /// Hosts to which the component may send requests if the server allows them too; if empty, all
    /// requests are refused.
    pub hosts: Arc<[HostPattern]>,
}

impl ComponentEgress {
    /// Sends a request and reads the response. Fails if the server or the component does not allow
    /// the host.
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

/// Port of a URL that specifies none: 443 for `https`, otherwise 80.
fn default_port(scheme: Option<&str>) -> u16 {
    if scheme == Some("https") { 443 } else { 80 }
}
