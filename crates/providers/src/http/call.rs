//! Calls a service, and hears as much of the answer as is needed.

use std::time::Duration;

use onward_dispatch::Answer;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::http::request::{Request, header_name};
use crate::http::said;
use crate::http::spec::{AuthSpec, HttpSpec};
use crate::parcel::words;
use crate::secret::{Secret, Secrets};

/// So much of an answer is heard.
const REPLY_BYTES_MAX: usize = 64 * 1_024;

/// How long connecting may take, at most.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection that nobody uses is kept so long: shorter than services do, so that it is rarely they who close it, just when
/// somebody uses it.
const IDLE: Duration = Duration::from_secs(4);

/// What a service answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// For how long it wants not to be called.
    pub(crate) retry_after_ms: Option<u64>,
    /// What it said, if it is JSON, not too long, and was heard to the end.
    pub(crate) body: Option<Value>,
}

/// Calls a service.
#[derive(Debug)]
pub(crate) struct Caller {
    client: reqwest::Client,
}

impl Caller {
    pub(crate) fn new(spec: &HttpSpec, secrets: &dyn Secrets) -> Result<Self, String> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another may have been quicker, which is as good.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let mut headers = HeaderMap::new();
        if let Some(auth) = &spec.auth {
            authorize(&mut headers, auth, &auth.secret().resolve(secrets)?)?;
        }
        let timeout = Duration::from_millis(spec.timeout_ms);
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .redirect(Policy::none())
            // Whom it leads to was checked; an intermediary of the environment was not.
            .no_proxy()
            .pool_idle_timeout(IDLE)
            .connect_timeout(CONNECT.min(timeout / 2))
            .timeout(timeout)
            .tcp_nodelay(true);
        let client = client.build().map_err(|cause| format!("HTTP cannot be used: {cause}"))?;
        Ok(Self { client })
    }

    /// Calls once. If there is no reply, what is known of the items all the same.
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Answer> {
        let Request { method, url, headers, body } = request;
        let mut builder = self.client.request(method, url).headers(headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let request = builder.build().map_err(|cause| Answer::Unfit(words(&chain(&cause))))?;
        let mut response = self.client.execute(request).await.map_err(|cause| lost(&cause))?;
        let status = response.status().as_u16();
        let retry_after_ms = said::retry_after_ms(response.headers());
        let mut heard = Vec::new();
        let is_whole = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if heard.len() + chunk.len() > REPLY_BYTES_MAX => break false,
                Ok(Some(chunk)) => heard.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let body = is_whole.then(|| serde_json::from_slice(&heard).ok()).flatten();
        Ok(Reply { status, retry_after_ms, body })
    }
}

fn authorize(headers: &mut HeaderMap, auth: &AuthSpec, secret: &Secret) -> Result<(), String> {
    let (name, text) = match auth {
        AuthSpec::Bearer(_) => (AUTHORIZATION, format!("Bearer {}", secret.reveal())),
        AuthSpec::Basic { user, .. } if user.contains(':') => return Err("a user has no colon in its name".to_owned()),
        AuthSpec::Basic { user, .. } => {
            (AUTHORIZATION, format!("Basic {}", base64(&format!("{user}:{}", secret.reveal()))))
        }
        AuthSpec::Header { name, .. } => (header_name(name)?, secret.reveal().to_owned()),
    };
    let refuse = |_| format!("the secret {} cannot be sent in a header", auth.secret().secret);
    let mut value = HeaderValue::from_str(&text).map_err(refuse)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |group: &[u8]| -> String {
        let bits = group.iter().chain([&0, &0]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let digit = |place: usize| char::from(DIGITS[(bits >> (18 - 6 * place)) as usize % 64]);
        (0..4).map(|place| if place <= group.len() { digit(place) } else { '=' }).collect()
    };
    text.as_bytes().chunks(3).map(digits).collect()
}

/// What is known of an item whose call came to nothing.
fn lost(cause: &reqwest::Error) -> Answer {
    let told = chain(cause);
    if cause.is_builder() {
        return Answer::Unfit(words(&told));
    }
    if cause.is_connect() {
        return Answer::Later(words(&format!("the service cannot be reached: {told}")));
    }
    let what = if cause.is_timeout() { "the service did not answer in time" } else { "the connection was lost" };
    Answer::Unknown(words(&format!("{what}, it may have taken the item: {told}")))
}

/// What went wrong and why, without the URL, which may name somebody.
fn chain(cause: &reqwest::Error) -> String {
    let mut why: Option<&dyn std::error::Error> = std::error::Error::source(cause);
    let mut told = if cause.is_timeout() { "timed out".to_owned() } else { "failed".to_owned() };
    while let Some(cause) = why {
        told = format!("{told}: {cause}");
        why = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn names_and_passwords_are_encoded_as_rfc_4648_says() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("Aladdin:open sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ] {
            assert_eq!(base64(text), encoded);
        }
    }
}
