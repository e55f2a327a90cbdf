//! Requests to other services. A workflow's request is an operation of its own, recorded and
//! retried by the engine; a task's is part of the task.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::call::Call;
use crate::function::Kind;
use crate::host::{self, Target, milliseconds};
use crate::payload::{decode, encode};
use crate::{Error, Result};

/// A request, as `METHOD URL`.
///
/// Unless it has an `idempotency-key` of its own, it is sent with one by which the service can
/// recognise a repeated attempt: the key of the operation, as [`own`](crate::own) tells it to a
/// task. The second request of a task has `/2` added to it, the third `/3`, and the next attempt
/// counts anew: send them in the same order.
///
/// ```
/// # use onward::prelude::*;
/// # #[task]
/// # fn charge(cents: u64) -> Result<String> {
/// http("POST https://api.example.com/charges").json(&cents).send()?.successful()?.text()
/// # }
/// ```
pub fn http(line: &str) -> Http {
    Http {
        line: line.to_owned(),
        headers: BTreeMap::new(),
        body: Ok(None),
        timeout: None,
    }
}

/// A request to be sent.
#[must_use = "nothing happens before send()"]
pub struct Http {
    line: String,
    headers: BTreeMap<String, String>,
    /// A body that cannot be written is reported when the request is sent.
    body: Result<Option<String>>,
    timeout: Option<Duration>,
}

/// What the engine takes as the input of a request.
#[derive(Serialize)]
struct Input {
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

impl Http {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.insert(name.to_owned(), value.into());
        self
    }

    /// Sends this as JSON.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        self.body = encode(body).map(Some);
        self.header("content-type", "application/json")
    }

    /// Sends this as it is.
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Ok(Some(body.into()));
        self
    }

    /// How long it may take.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sends it and waits for the response.
    ///
    /// In a task, an answer with an error status is a response too: see [`Response::successful`].
    /// In a workflow, so is one that would be the same next time, such as 404; a service that
    /// cannot answer now (408, 429, 500 and above) is the failure `http_status`, and is asked again
    /// as [`Call::retry`] says. A request that came to nothing is the failure `http_failed` or
    /// `timeout`; one that is not allowed `http_denied`, which is final.
    pub fn send(self) -> Result<Response> {
        match host::running() {
            (_, Kind::Workflow) => self.into_call().run(),
            (_, Kind::Task) => host::http(&self.into_request()?),
        }
    }

    /// The request as a call of a workflow: to say how it is retried, or not to wait for it.
    pub fn into_call(self) -> Call<Response> {
        let Self {
            line,
            headers,
            body,
            timeout,
        } = self;
        let input = parts(&line)
            .and(body)
            .and_then(|body| encode(&Input { headers, body }));
        let call = Call::new(Target::Http(line), input, None);
        match timeout {
            Some(limit) => call.timeout(limit),
            None => call,
        }
    }

    fn into_request(self) -> Result<Request> {
        let (method, url) = parts(&self.line)?;
        Ok(Request {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: self.headers.into_iter().collect(),
            body: self.body?.map(String::into_bytes),
            timeout_ms: self.timeout.map(milliseconds),
        })
    }
}

fn parts(line: &str) -> Result<(&str, &str)> {
    let invalid =
        || Error::new("http_invalid", format!("expected METHOD URL, not {line:?}")).permanent();
    line.split_once(' ').ok_or_else(invalid)
}

/// A request as a task sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` …
    pub method: String,
    /// Where to.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Option<Vec<u8>>,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
}

/// What a service answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// 200 is well.
    pub status: u16,
    /// Names and values. What came several times is there several times, such as `set-cookie`.
    #[serde(default, deserialize_with = "headers", serialize_with = "headers_out")]
    pub headers: Vec<(String, String)>,
    /// What came; a text in a journal.
    #[serde(default, deserialize_with = "body", serialize_with = "body_out")]
    pub body: Vec<u8>,
}

impl Response {
    /// A response without headers, for a stub in a test.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// The same, or the failure `http_STATUS` if the status is not one of success. Requests that
    /// the service found wrong are not worth trying again.
    pub fn successful(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let error = Error::new(
            format!("http_{}", self.status),
            String::from_utf8_lossy(&self.body),
        );
        let worth_repeating =
            !(400..500).contains(&self.status) || matches!(self.status, 408 | 425 | 429);
        Err(if worth_repeating {
            error
        } else {
            error.permanent()
        })
    }

    /// A header, by its name in any case; the first if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as a text.
    pub fn text(self) -> Result<String> {
        Ok(String::from_utf8(self.body)?)
    }

    /// The body as a value.
    pub fn json<T: DeserializeOwned>(self) -> Result<T> {
        decode(&self.text()?)
    }
}

/// What came under one name. It is recorded as a text, or as a list if there are several.
#[derive(Default)]
struct Values(Vec<String>);

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [value] => target.serialize_str(value),
            values => values.serialize(target),
        }
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(ValuesVisitor)
    }
}

/// What serde derives for this would be several kilobytes of every component that sends requests.
struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of a header, or a list of them")
    }

    fn visit_str<E>(self, value: &str) -> Result<Values, E> {
        Ok(Values(vec![value.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Values, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = source.next_element()? {
            values.push(value);
        }
        Ok(Values(values))
    }
}

fn headers<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<(String, String)>, D::Error> {
    let named = BTreeMap::<String, Values>::deserialize(source)?;
    let each = |(name, Values(values)): (String, _)| {
        Vec::into_iter(values).map(move |value| (name.clone(), value))
    };
    Ok(named.into_iter().flat_map(each).collect())
}

/// As the engine writes them: names in lower case.
fn headers_out<S: Serializer>(headers: &[(String, String)], target: S) -> Result<S::Ok, S::Error> {
    let mut named: BTreeMap<String, Values> = BTreeMap::new();
    for (name, value) in headers {
        named
            .entry(name.to_ascii_lowercase())
            .or_default()
            .0
            .push(value.clone());
    }
    named.serialize(target)
}

fn body<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<u8>, D::Error> {
    Ok(String::deserialize(source)?.into_bytes())
}

fn body_out<S: Serializer>(body: &[u8], target: S) -> Result<S::Ok, S::Error> {
    target.serialize_str(&String::from_utf8_lossy(body))
}
