//! Calls a service, and hears as much of the answer as is needed.

use std::time::Duration;

use onward_campaign_core::SendOutcome;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::http::http_spec::{HttpAuthSpec, HttpSpec};
use crate::http::request::{ProviderHttpRequest, parse_header_name};
use crate::http::response_mapping;
use crate::secret::{SecretRedactor, SecretSource, SecretValue, encode_base64};

/// So much of an answer is heard.
const REPLY_BYTES_MAX: usize = 64 * 1_024;

/// How long connecting may take, at most.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// A connection that nobody uses is kept so long: shorter than services do, so that it is rarely they who close it, just when
/// somebody uses it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// What a service answered.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// For how long it wants not to be called.
    pub(crate) retry_after_ms: Option<u64>,
    /// What it said, if it is JSON, not too long, and was heard to the end.
    pub(crate) body: Option<Value>,
}

/// Calls a service.
#[derive(Debug)]
pub(crate) struct HttpProviderClient {
    client: reqwest::Client,
    /// What nobody is to read in what the service says.
    pub(crate) redactor: SecretRedactor,
}

impl HttpProviderClient {
    pub(crate) fn new(spec: &HttpSpec, secrets: &dyn SecretSource) -> Result<Self, String> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another may have been quicker, which is as good.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let (mut headers, mut veil) = (HeaderMap::new(), SecretRedactor::default());
        if let Some(auth) = &spec.auth {
            let secret = auth.secret_ref().resolve(secrets)?;
            add_auth_header(&mut headers, auth, &secret)?;
            veil = SecretRedactor::for_secret(&secret, auth.user_name());
        }
        let timeout = Duration::from_millis(spec.timeout_ms);
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .redirect(Policy::none())
            // Whom it leads to was checked; an intermediary of the environment was not.
            .no_proxy()
            .pool_idle_timeout(IDLE_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT_MAX.min(timeout / 2))
            .timeout(timeout)
            .tcp_nodelay(true);
        let client = client
            .build()
            .map_err(|cause| format!("HTTP cannot be used: {cause}"))?;
        Ok(Self {
            client,
            redactor: veil,
        })
    }

    /// Calls once. If there is no reply, what is known of the items all the same.
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
        let mut heard = Vec::new();
        let is_whole = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if heard.len() + chunk.len() > REPLY_BYTES_MAX => break false,
                Ok(Some(chunk)) => heard.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let body = is_whole
            .then(|| serde_json::from_slice(&heard).ok())
            .flatten();
        Ok(HttpReply {
            status,
            retry_after_ms,
            body,
        })
    }

    /// What is known of an item whose call came to nothing.
    fn classify_error(&self, cause: &reqwest::Error) -> SendOutcome {
        let (told, words) = (error_chain(cause), |text: &str| {
            self.redactor.redact_text(text)
        });
        if cause.is_builder() {
            return SendOutcome::InvalidMessage(words(&told));
        }
        if cause.is_connect() {
            let host = cause
                .url()
                .and_then(|url| Some(format!("{}:{}", url.host()?, url.port_or_known_default()?)));
            let host = host.as_deref().unwrap_or("the service");
            return SendOutcome::Deferred(words(&format!("could not connect to {host}: {told}")));
        }
        let what = if cause.is_timeout() {
            "the service did not answer in time"
        } else {
            "the connection was lost"
        };
        SendOutcome::Unknown(words(&format!(
            "{what}, it may have taken the item: {told}"
        )))
    }
}

fn add_auth_header(
    headers: &mut HeaderMap,
    auth: &HttpAuthSpec,
    secret: &SecretValue,
) -> Result<(), String> {
    let (name, text) = match auth {
        HttpAuthSpec::Bearer(_) => (AUTHORIZATION, format!("Bearer {}", secret.reveal())),
        HttpAuthSpec::Basic { user, .. } if user.contains(':') => {
            return Err("a user has no colon in its name".to_owned());
        }
        HttpAuthSpec::Basic { user, .. } => (
            AUTHORIZATION,
            format!(
                "Basic {}",
                encode_base64(&format!("{user}:{}", secret.reveal()))
            ),
        ),
        HttpAuthSpec::Header { name, .. } => (parse_header_name(name)?, secret.reveal().to_owned()),
    };
    let refuse = |_| {
        format!(
            "the secret {} cannot be sent in a header",
            auth.secret_ref().secret
        )
    };
    let mut value = HeaderValue::from_str(&text).map_err(refuse)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// What went wrong and why, without the URL, which may name somebody.
fn error_chain(cause: &reqwest::Error) -> String {
    let mut why: Option<&dyn std::error::Error> = std::error::Error::source(cause);
    let mut told = if cause.is_timeout() {
        "timed out".to_owned()
    } else {
        "failed".to_owned()
    };
    while let Some(cause) = why {
        told = format!("{told}: {cause}");
        why = cause.source();
    }
    told
}
