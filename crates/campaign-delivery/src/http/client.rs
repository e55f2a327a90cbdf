//! HTTP client of a provider: sends requests and reads bounded responses.

use std::time::Duration;

use onward_campaign_core::SendOutcome;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::http::http_error::HttpConfigError;
use crate::http::http_spec::{HttpAuthSpec, HttpSpec};
use crate::http::request::{ProviderHttpRequest, parse_header_name};
use crate::http::response_mapping;
use crate::secret::{SecretRedactor, SecretSource, SecretValue, encode_base64};

/// Maximum number of bytes of a response that are read.
const REPLY_BYTES_MAX: usize = 64 * 1_024;

/// Maximum connect timeout.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Time after which an idle connection is closed: shorter than the usual timeout of services, so
/// that the service rarely closes a connection just when a request uses it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The response of a service.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// The wait that the service asked for (`Retry-After`), in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
    /// The body, if it is JSON, not too long, and was read completely.
    pub(crate) body: Option<Value>,
}

/// Sends requests to one service, with its credentials.
#[derive(Debug)]
pub(crate) struct HttpProviderClient {
    client: reqwest::Client,
    /// Removes the credentials from texts of the service.
    pub(crate) redactor: SecretRedactor,
}

impl HttpProviderClient {
    pub(crate) fn new(
        spec: &HttpSpec,
        secrets: &dyn SecretSource,
    ) -> Result<Self, HttpConfigError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed a provider first, which is equally good.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let (mut headers, mut redactor) = (HeaderMap::new(), SecretRedactor::default());
        if let Some(auth) = &spec.auth {
            let secret = auth.secret_ref().resolve(auth.secret_setting(), secrets)?;
            add_auth_header(&mut headers, auth, &secret)?;
            redactor = SecretRedactor::for_secret(&secret, auth.user_name());
        }
        let timeout = Duration::from_millis(spec.timeout_ms);
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .redirect(Policy::none())
            // The target host was checked; a proxy from the environment was not.
            .no_proxy()
            .pool_idle_timeout(IDLE_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT_MAX.min(timeout / 2))
            .timeout(timeout)
            .tcp_nodelay(true);
        let client = client.build().map_err(HttpConfigError::ClientSetup)?;
        Ok(Self { client, redactor })
    }

    /// Sends one request. Without a response, returns the outcome of its items as far as it is
    /// known.
    pub(crate) async fn send_request(
        &self,
        request: ProviderHttpRequest,
    ) -> Result<HttpReply, SendOutcome> {
        let ProviderHttpRequest {
            method,
            url,
            headers,
            body,
        } = request;
        let mut builder = self.client.request(method, url).headers(headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let request = builder.build().map_err(|cause| {
            SendOutcome::InvalidMessage(self.redactor.redact_text(&error_chain(&cause)))
        })?;
        let mut response = self
            .client
            .execute(request)
            .await
            .map_err(|cause| self.classify_error(&cause))?;
        let status = response.status().as_u16();
        let retry_after_ms = response_mapping::parse_retry_after_ms(response.headers());
        let mut received = Vec::new();
        let is_complete = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if received.len() + chunk.len() > REPLY_BYTES_MAX => break false,
                Ok(Some(chunk)) => received.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let body = is_complete
            .then(|| serde_json::from_slice(&received).ok())
            .flatten();
        Ok(HttpReply {
            status,
            retry_after_ms,
            body,
        })
    }

    /// Returns the outcome of an item whose request failed without a response.
    fn classify_error(&self, cause: &reqwest::Error) -> SendOutcome {
        let (chain, redact) = (error_chain(cause), |text: &str| {
            self.redactor.redact_text(text)
        });
        if cause.is_builder() {
            return SendOutcome::InvalidMessage(redact(&chain));
        }
        if cause.is_connect() {
            let host = cause
                .url()
                .and_then(|url| Some(format!("{}:{}", url.host()?, url.port_or_known_default()?)));
            let host = host.as_deref().unwrap_or("the service");
            return SendOutcome::Unreachable(redact(&format!("cannot connect to {host}: {chain}")));
        }
        let event = if cause.is_timeout() {
            "the service did not respond before the timeout"
        } else {
            "the connection was lost"
        };
        SendOutcome::Unknown(redact(&format!(
            "{event}, and the service may have accepted the item: {chain}"
        )))
    }
}

fn add_auth_header(
    headers: &mut HeaderMap,
    auth: &HttpAuthSpec,
    secret: &SecretValue,
) -> Result<(), HttpConfigError> {
    let (name, text) = match auth {
        HttpAuthSpec::Bearer(_) => (AUTHORIZATION, format!("Bearer {}", secret.reveal())),
        HttpAuthSpec::Basic { user, .. } if user.contains(':') => {
            return Err(HttpConfigError::ColonInUserName);
        }
        HttpAuthSpec::Basic { user, .. } => (
            AUTHORIZATION,
            format!(
                "Basic {}",
                encode_base64(&format!("{user}:{}", secret.reveal()))
            ),
        ),
        HttpAuthSpec::Header { name, .. } => (
            parse_header_name("http.auth.header.name", name)?,
            secret.reveal().to_owned(),
        ),
    };
    let unprintable = |_| HttpConfigError::UnprintableSecret(auth.secret_ref().secret.clone());
    let mut value = HeaderValue::from_str(&text).map_err(unprintable)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Describes an error with its causes, without the URL, which may contain personal data.
fn error_chain(cause: &reqwest::Error) -> String {
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(cause);
    let mut chain = if cause.is_timeout() {
        "timed out".to_owned()
    } else {
        "failed".to_owned()
    };
    while let Some(cause) = source {
        chain = format!("{chain}: {cause}");
        source = cause.source();
    }
    chain
}
