//! How to reach a service over HTTP, as a document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::http::status::HttpStatusMatch;
use crate::provider_spec::DispatchPolicySpec;
use crate::rate_limits::RateLimits;
use crate::secret::SecretRef;

/// A service with an interface over HTTP.
///
/// Templates know `key`, `item`, `to`, `recipient` and the message's parts by their names; in a batch they know `items`, a list
/// of such. What they print is encoded for where it stands: as JSON in a body of JSON, percent-encoded in a URL or a form.
/// A name that stands for nothing is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// `POST` unless it is said.
    #[serde(default = "default_method")]
    pub method: String,
    /// Where to, as a template. Scheme, host and port are what they are.
    pub url: String,
    /// What else is sent in headers, as templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Who we are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<HttpAuthSpec>,
    /// What is sent, as a template. JSON, unless the header `content-type` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Many items in one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<HttpBatchSpec>,
    /// The header that carries the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    /// Whether the service takes each key once, whatever is sent with it. Only whoever runs it can know.
    #[serde(default)]
    pub takes_keys_once: bool,
    /// What its answers mean.
    #[serde(default)]
    pub answers: HttpResponseSpec,
    /// How to ask what became of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<StatusLookupSpec>,
    /// Whether `http://` may be used with another machine.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// How long a call may take.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// How many may be reached in which time.
    #[serde(default)]
    pub limits: RateLimits,
    /// How it is gone about.
    #[serde(default)]
    pub terms: DispatchPolicySpec,
}

/// Who we are, for a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HttpAuthSpec {
    /// `Authorization: Bearer` with this secret.
    Bearer(SecretRef),
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: SecretRef,
    },
    /// A header of its own.
    Header {
        /// Its name.
        name: String,
        /// What is in it.
        value: SecretRef,
    },
}

impl HttpAuthSpec {
    /// Whom a password belongs to.
    pub(crate) fn user_name(&self) -> Option<&str> {
        match self {
            Self::Basic { user, .. } => Some(user),
            Self::Bearer(_) | Self::Header { .. } => None,
        }
    }

    pub(crate) fn secret_ref(&self) -> &SecretRef {
        match self {
            Self::Bearer(secret) => secret,
            Self::Basic { password, .. } => password,
            Self::Header { value, .. } => value,
        }
    }
}

/// What the answers of a service mean. What is not said is as HTTP has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpResponseSpec {
    /// The item is taken: 200–299.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<HttpStatusMatch>,
    /// The key was taken before, which is as good. Only for a service that takes each key once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duplicate: Vec<HttpStatusMatch>,
    /// Nothing is taken now, for as long as `Retry-After` says: 425, 429, and 503 if it says how long; and 401, 403 and 407,
    /// which are about who we are and not about the item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<HttpStatusMatch>,
    /// The item was surely not taken, and may be another time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<HttpStatusMatch>,
    /// The item is not taken, ever: 300–499 that nothing else is said of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<HttpStatusMatch>,
    /// The item may have been taken: 408, and 500–599 that nothing else is said of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<HttpStatusMatch>,
    /// Where in the answer the service's name for the message is (a JSON pointer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Where in the answer it says what is wrong (a JSON pointer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Many items in one request, and what is said of each of them. Places are JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpBatchSpec {
    /// Items of one request, at most 100.
    pub max: usize,
    /// Where in the answer the list of items is.
    pub items: String,
    /// Where in an entry it says which item it is about: by its id or its key.
    pub id: String,
    /// Where in an entry it says what became of it; a number is read as a status of HTTP unless it is listed below.
    pub status: String,
    /// What it says there of an item that is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
    /// Of one that is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Of one that was not taken, and may be another time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<String>,
    /// Where in an entry the service's name for the message is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Where in an entry it says what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How to ask what became of a key. Places are JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusLookupSpec {
    /// `GET` unless it is said.
    #[serde(default = "default_lookup_method")]
    pub method: String,
    /// Where, as a template that knows `key`; on the same host.
    pub url: String,
    /// The statuses that say that it was taken: 200–299 unless they are said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<HttpStatusMatch>,
    /// Where in such an answer there is something if it was: neither null nor an empty list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Where in such an answer it says what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What it says there if it was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// The statuses that say that nothing is known of it, such as 404. None unless they are said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nothing: Vec<HttpStatusMatch>,
    /// Where in such an answer the service's name for the message is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

fn default_method() -> String {
    "POST".to_owned()
}

fn default_lookup_method() -> String {
    "GET".to_owned()
}

fn default_timeout_ms() -> u64 {
    30_000
}
