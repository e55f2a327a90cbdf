//! HTTP requests. The request of a workflow is an operation of its own, recorded and retried by the
//! engine; the request of a task is part of the task.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::call::Call;
use crate::function::FunctionKind;
use crate::host::{self, CallTarget, milliseconds};
use crate::payload::{decode, encode};
use crate::{Error, Result};

/// Builds a request from `METHOD URL`.
///
/// Unless the request has an `idempotency-key` header, the key of the operation is added, which is
/// equal for every attempt: the one that [`call_context`](crate::call_context) returns in a task.
/// The second request of a task has the suffix `/2`, the third `/3`; each attempt counts from the
/// start, so send requests in the same order.
///
/// ```
/// # use onward::prelude::*;
/// # #[task]
/// # fn charge(cents: u64) -> Result<String> {
/// http("POST https://api.example.com/charges").json(&cents).send()?.successful()?.text()
/// # }
/// ```
pub fn http(line: &str) -> RequestBuilder {
    RequestBuilder {
        line: line.to_owned(),
        headers: BTreeMap::new(),
        body: Ok(None),
        timeout: None,
    }
}

/// A request under construction.
#[must_use = "nothing happens before send()"]
pub struct RequestBuilder {
    line: String,
    headers: BTreeMap<String, String>,
    /// A body that cannot be serialized fails when the request is sent.
    body: Result<Option<String>>,
    timeout: Option<Duration>,
}

/// The input of a request operation, as the engine expects it.
#[derive(Serialize)]
#[cfg_attr(not(target_arch = "wasm32"), derive(Deserialize))]
pub(crate) struct HttpInput {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
}

impl RequestBuilder {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        self.body = encode(body).map(Some);
        self.header("content-type", "application/json")
    }

    /// Sets a text body.
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Ok(Some(body.into()));
        self
    }

    /// Timeout of the request.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sends the request and waits for the response.
    ///
    /// In a task, every status is a response: see [`HttpResponse::successful`]. In a workflow, the
    /// retryable statuses 408, 429, 500 and above are the failure `http_status`, which is retried
    /// by the policy of [`Call::retry`]; every other status is a response. A request without a
    /// response fails with `http_failed` or `timeout`; one that is not allowed fails
    /// with `http_denied`, which is not retried.
    pub fn send(self) -> Result<HttpResponse> {
        match host::running_function() {
            (_, FunctionKind::Workflow) => self.into_call().run(),
            (_, FunctionKind::Task) => host::http(&self.into_request()?),
        }
    }

    /// Converts the request into a call of a workflow, to set policies or not to wait for it.
    pub fn into_call(self) -> Call<HttpResponse> {
        let Self {
            line,
            headers,
            body,
            timeout,
        } = self;
        let input = split_request_line(&line)
            .and(body)
            .and_then(|body| encode(&HttpInput { headers, body }));
        let call = Call::new(CallTarget::Http(line), input, None);
        match timeout {
            Some(limit) => call.timeout(limit),
            None => call,
        }
    }

    fn into_request(self) -> Result<HttpRequest> {
        let (method, url) = split_request_line(&self.line)?;
        Ok(HttpRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: self.headers.into_iter().collect(),
            body: self.body?.map(String::into_bytes),
            timeout_ms: self.timeout.map(milliseconds),
        })
    }
}

fn split_request_line(line: &str) -> Result<(&str, &str)> {
    let invalid =
        || Error::new("http_invalid", format!("expected METHOD URL, not {line:?}")).non_retryable();
    line.split_once(' ').ok_or_else(invalid)
}

/// A request that a task sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// HTTP method, such as `GET`.
    pub method: String,
    /// Absolute URL.
    pub url: String,
    /// Headers: names and values.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Option<Vec<u8>>,
    /// Timeout of the request.
    pub timeout_ms: Option<u64>,
}

/// Response of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers: names and values. A repeated header, such as `set-cookie`, has several entries.
    #[serde(
        default,
        deserialize_with = "read_headers",
        serialize_with = "write_headers"
    )]
    pub headers: Vec<(String, String)>,
    /// Body; recorded as text in a journal.
    #[serde(default, deserialize_with = "read_body", serialize_with = "write_body")]
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A response without headers, for a stub in a test.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// Returns the response, or the failure `http_STATUS` if the status is not 2xx. The failure is
    /// not retryable for 4xx, except for 408, 425 and 429.
    pub fn successful(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let error = Error::new(
            format!("http_{}", self.status),
            String::from_utf8_lossy(&self.body),
        );
        let is_retryable =
            !(400..500).contains(&self.status) || matches!(self.status, 408 | 425 | 429);
        Err(if is_retryable {
            error
        } else {
            error.non_retryable()
        })
    }

    /// Value of a header by case-insensitive name; the first if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(self) -> Result<String> {
        Ok(String::from_utf8(self.body)?)
    }

    /// The body, deserialized from JSON.
    pub fn json<T: DeserializeOwned>(self) -> Result<T> {
        decode(&self.text()?)
    }
}

/// Values of one header. They are recorded as a text, or as a list if there are several.
#[derive(Default)]
struct HeaderValueList(Vec<String>);

impl Serialize for HeaderValueList {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [value] => target.serialize_str(value),
            values => values.serialize(target),
        }
    }
}

impl<'de> Deserialize<'de> for HeaderValueList {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(HeaderValueVisitor)
    }
}

/// Written by hand because derived code would add several kilobytes to every component that sends
/// requests.
struct HeaderValueVisitor;

impl<'de> Visitor<'de> for HeaderValueVisitor {
    type Value = HeaderValueList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of a header, or a list of them")
    }

    fn visit_str<E>(self, value: &str) -> Result<HeaderValueList, E> {
        Ok(HeaderValueList(vec![value.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<HeaderValueList, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = source.next_element()? {
            values.push(value);
        }
        Ok(HeaderValueList(values))
    }
}

fn read_headers<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<(String, String)>, D::Error> {
    let named = BTreeMap::<String, HeaderValueList>::deserialize(source)?;
    let each = |(name, HeaderValueList(values)): (String, _)| {
        Vec::into_iter(values).map(move |value| (name.clone(), value))
    };
    Ok(named.into_iter().flat_map(each).collect())
}

/// Writes headers like the engine: names in lower case.
fn write_headers<S: Serializer>(
    headers: &[(String, String)],
    target: S,
) -> Result<S::Ok, S::Error> {
    let mut named: BTreeMap<String, HeaderValueList> = BTreeMap::new();
    for (name, value) in headers {
        named
            .entry(name.to_ascii_lowercase())
            .or_default()
            .0
            .push(value.clone());
    }
    named.serialize(target)
}

fn read_body<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<u8>, D::Error> {
    Ok(String::deserialize(source)?.into_bytes())
}

fn write_body<S: Serializer>(body: &[u8], target: S) -> Result<S::Ok, S::Error> {
    target.serialize_str(&String::from_utf8_lossy(body))
}
