//! The configuration document of a provider with an HTTP API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::http::status::HttpStatusMatch;
use crate::provider_spec::DispatchPolicySpec;
use crate::rate_limits::RateLimits;
use crate::secret::SecretRef;

/// Configuration of a service with an HTTP API.
///
/// Templates can use `key`, `item`, `to`, `recipient` and the parts of the message by name; in a
/// batch they can use `items`, a list of such objects. Output is escaped for its context: as JSON
/// in a JSON body, percent-encoded in a URL or a form. An undefined variable is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// HTTP method: `POST`, `PUT`, `PATCH`, `DELETE` or `GET`. default: `POST`.
    #[serde(default = "default_method")]
    pub method: String,
    /// URL template, required. Scheme, host and port cannot contain template expressions.
    pub url: String,
    /// Additional headers, as templates. Headers with credentials belong in `auth`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Authentication of the requests. default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<HttpAuthSpec>,
    /// Body template. It is JSON, unless the header `content-type` sets another type. default: no
    /// body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Settings for several items in one request. default: one item per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<HttpBatchSpec>,
    /// Name of the header that contains the idempotency key. Not allowed with `batch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    /// Whether the service deduplicates by idempotency key, whatever else the request contains.
    /// Only the operator of the service can know this. Requires that the key is sent. default:
    /// false.
    #[serde(default)]
    pub idempotent: bool,
    /// Mapping of responses to outcomes.
    #[serde(default)]
    pub responses: HttpResponseSpec,
    /// Request that looks up the status of an idempotency key. default: the service has no status
    /// lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_lookup: Option<StatusLookupSpec>,
    /// Whether `http://` is allowed for a host that is not loopback. default: false.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Timeout of one request, in milliseconds. default: 30000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Rate limits of this provider. default: unlimited.
    #[serde(default)]
    pub rate_limits: RateLimits,
    /// Dispatch policy of jobs that use this provider.
    #[serde(default)]
    pub policy: DispatchPolicySpec,
}

/// Authentication of requests to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HttpAuthSpec {
    /// The header `Authorization: Bearer` with this secret.
    Bearer(SecretRef),
    /// HTTP basic authentication.
    Basic {
        /// The user name, without a colon.
        user: String,
        /// The password, as a reference to a secret.
        password: SecretRef,
    },
    /// A custom header, such as an API key.
    Header {
        /// The name of the header.
        name: String,
        /// The value of the header, as a reference to a secret.
        value: SecretRef,
    },
}

impl HttpAuthSpec {
    /// The user name that belongs to the secret, for basic authentication.
    pub(crate) fn user_name(&self) -> Option<&str> {
        match self {
            Self::Basic { user, .. } => Some(user),
            Self::Bearer(_) | Self::Header { .. } => None,
        }
    }

    /// Path of the setting that refers to the secret.
    pub(crate) fn secret_setting(&self) -> &'static str {
        match self {
            Self::Bearer(_) => "http.auth.bearer",
            Self::Basic { .. } => "http.auth.basic.password",
            Self::Header { .. } => "http.auth.header.value",
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

/// Mapping of HTTP responses to outcomes. Statuses that are not listed have their usual meaning,
/// given as the default of each field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpResponseSpec {
    /// The service accepted the item. default: 200–299.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<HttpStatusMatch>,
    /// The service had accepted the idempotency key before, which counts as accepted. Requires
    /// `idempotent`. default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duplicate: Vec<HttpStatusMatch>,
    /// The service accepts nothing now, for the duration of `Retry-After`. default: 425, 429, and
    /// 503 with a `Retry-After`; also 401, 403 and 407, which are about the credentials and not
    /// about the item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttled: Vec<HttpStatusMatch>,
    /// The service certainly did not accept the item, and may accept it later. default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<HttpStatusMatch>,
    /// The service rejected the item permanently. default: all other statuses from 300 to 499.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<HttpStatusMatch>,
    /// The service may have accepted the item. default: 408, and all other statuses from 500 to
    /// 599.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<HttpStatusMatch>,
    /// JSON pointer to the service's message id in the response. Not allowed with `batch`, which
    /// has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// JSON pointer to the error message in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Settings for several items in one request, and the outcome of each in the response. Positions
/// are JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpBatchSpec {
    /// Maximum number of items per request, required: between 1 and 100.
    pub max_items: usize,
    /// Pointer to the list of entries in the response, required.
    pub items: String,
    /// Pointer in an entry to the item id or idempotency key of its item, required.
    pub id: String,
    /// Pointer in an entry to its status, required. A number is an HTTP status, unless it is listed
    /// below.
    pub status: String,
    /// Status values of an accepted item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
    /// Status values of an item that was rejected permanently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
    /// Status values of an item that was not accepted, and may be accepted later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<String>,
    /// Pointer in an entry to the service's message id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Pointer in an entry to the error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Request that looks up the status of an idempotency key. Positions are JSON pointers. `not_found`
/// or `found` is required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusLookupSpec {
    /// HTTP method of the lookup. default: `GET`.
    #[serde(default = "default_lookup_method")]
    pub method: String,
    /// URL template of the lookup, required. It can use `key`, and must have the same scheme, host
    /// and port as the URL for sending.
    pub url: String,
    /// HTTP statuses for an item that the service accepted. default: 200–299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<HttpStatusMatch>,
    /// Pointer in such a response to a value that is neither null nor an empty list if the service
    /// has the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Pointer in such a response to the status of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Values of `status` for an item that the service rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
    /// HTTP statuses for an unknown idempotency key, such as 404. default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_found: Vec<HttpStatusMatch>,
    /// Pointer in such a response to the service's message id.
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
