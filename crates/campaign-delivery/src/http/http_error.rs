//! Errors of the HTTP provider: a configuration that cannot be used, and a request that cannot be
//! rendered. They never repeat a URL or the value of a header: it may contain a secret.

use onward_campaign_file::templates::TemplateError;
use thiserror::Error;

use crate::http::BATCH_MAX;
use crate::secret::SecretError;

/// The reason why the configuration of an HTTP provider cannot be used. `setting` is the path of
/// the invalid setting.
#[derive(Debug, Error)]
pub enum HttpConfigError {
    /// A URL template does not begin with scheme and host.
    #[error("`{setting}` is not a URL that begins with https://HOST/ or http://HOST/")]
    InvalidUrl {
        /// Path of the setting.
        setting: &'static str,
    },
    /// A template expression could change the origin of a URL.
    #[error(
        "`{setting}` must begin with https://HOST/ or http://HOST/, \
         without a template before the path"
    )]
    TemplateInOrigin {
        /// Path of the setting.
        setting: &'static str,
    },
    /// A URL contains a user name or a password.
    #[error("`{setting}` must not contain a user name or password: use `http.auth`")]
    CredentialsInUrl {
        /// Path of the setting.
        setting: &'static str,
    },
    /// Requests would be unencrypted to a host that is not loopback.
    #[error(
        "`http.url` begins with http://, which would send everything unencrypted \
         to a host that is not loopback: use https://, or set `http.allow_plaintext`"
    )]
    Plaintext,
    /// The status lookup has another scheme, host or port.
    #[error(
        "`http.status_lookup.url` leads to another host than `http.url`: \
         scheme, host and port must be the same"
    )]
    LookupOrigin,
    /// An HTTP method is not supported.
    #[error("`{setting}`: {method} is not a supported method: use POST, PUT, PATCH, DELETE or GET")]
    UnknownMethod {
        /// Path of the setting.
        setting: &'static str,
        /// The configured method.
        method: String,
    },
    /// The name of a header is invalid.
    #[error("`{setting}`: `{name}` is not the name of a header")]
    InvalidHeaderName {
        /// Path of the setting.
        setting: &'static str,
        /// The configured name.
        name: String,
    },
    /// A header with credentials is set in `headers`.
    #[error(
        "`http.headers.{0}` contains credentials: use `http.auth` with a reference to a secret"
    )]
    CredentialsInHeader(String),
    /// A template cannot be compiled.
    #[error("`{setting}`: invalid template: {cause}")]
    InvalidTemplate {
        /// Path of the setting.
        setting: String,
        /// The error of the template engine.
        cause: TemplateError,
    },
    /// The maximum number of items per request is out of range.
    #[error("`http.batch.max_items` is {0}: it must be between 1 and {BATCH_MAX}")]
    MaxItemsOutOfRange(usize),
    /// The message id of the response is set for a batch.
    #[error(
        "`http.responses.message_id` is not allowed with `http.batch`, \
         where each item has its own message id: use `http.batch.message_id`"
    )]
    MessageIdWithBatch,
    /// The header for the idempotency key is set for a batch.
    #[error(
        "`http.idempotency_header` is not allowed with `http.batch`, \
         which has a key per item: use the keys in `http.body`"
    )]
    IdempotencyHeaderWithBatch,
    /// The status lookup has no condition for an unknown key.
    #[error(
        "`http.status_lookup` requires `not_found`, such as [404], or `found`: \
         without them an unknown key cannot be recognized"
    )]
    MissingNotFound,
    /// The service is idempotent, but never receives a key.
    #[error(
        "`http.idempotent` requires that the idempotency key is sent: \
         set `http.idempotency_header`, or use {{{{ key }}}} in a template"
    )]
    KeyNotSent,
    /// Duplicates are mapped for a service that is not idempotent.
    #[error("`http.responses.duplicate` requires `http.idempotent: true`")]
    DuplicateWithoutIdempotency,
    /// A status is neither a number nor a range.
    #[error(
        "`{setting}`: {status} is not a status: use a status such as 409, or a range such as \"500-599\""
    )]
    InvalidStatus {
        /// Path of the setting.
        setting: String,
        /// The configured status.
        status: String,
    },
    /// A JSON pointer is invalid.
    #[error("`{setting}`: `{pointer}` is not a JSON pointer, such as /data/id")]
    InvalidPointer {
        /// Path of the setting.
        setting: &'static str,
        /// The configured pointer.
        pointer: String,
    },
    /// The user name of basic authentication contains a colon.
    #[error("`http.auth.basic.user` must not contain a colon")]
    ColonInUserName,
    /// A secret cannot be resolved.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A secret contains characters that are not allowed in a header.
    #[error("`http.auth`: the secret {0} contains characters that are not allowed in a header")]
    UnprintableSecret(String),
    /// The HTTP client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    ClientSetup(reqwest::Error),
}

/// The reason why a request cannot be rendered for an item.
#[derive(Debug, Error)]
pub enum HttpRequestError {
    /// A template cannot be rendered.
    #[error("`{setting}`: cannot render the template: {cause}")]
    Render {
        /// Path of the setting.
        setting: String,
        /// The error of the template engine.
        cause: TemplateError,
    },
    /// The rendered URL is invalid.
    #[error("the rendered URL is invalid: {0}")]
    InvalidUrl(url::ParseError),
    /// The rendered URL has another scheme, host or port than the configured one.
    #[error("the rendered URL leads to another host")]
    OtherOrigin,
    /// The path of the rendered URL has a segment that would remove others.
    #[error(
        "the path of the rendered URL has a segment `.` or `..`, which would lead to another path"
    )]
    DotSegment,
    /// The rendered body is not JSON.
    #[error("the body is not JSON: remove any quotes around {{{{ }}}}, which adds its own: {0}")]
    InvalidJson(serde_json::Error),
    /// A rendered header has more than one line.
    #[error("the header `{0}` would contain a line break or another control character")]
    InvalidHeaderValue(String),
}
