//! Errors as RFC 9457 problem documents: people read `detail`, programs branch on `code`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::campaign::PrerequisiteCheck;

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// URI of the kind of problem: `urn:onward:problem:` followed by the code.
    pub r#type: String,
    /// The kind of problem, for people; the same for every problem with this code.
    pub title: String,
    /// The HTTP status of the response.
    pub status: u16,
    /// What failed in this request, and why.
    pub detail: String,
    /// The kind of problem; stable, so that programs can match on it.
    pub code: Code,
    /// If a campaign cannot be deployed: every prerequisite that was checked, including those that
    /// failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<PrerequisiteCheck>,
}

impl Problem {
    /// Creates a problem; status, title and type follow from the code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, title) = code.status_and_title();
        let r#type = format!("urn:onward:problem:{}", code.as_str());
        Self {
            r#type,
            title: title.to_owned(),
            status,
            detail: detail.into(),
            code,
            prerequisites: Vec::new(),
        }
    }
}

/// The schema `ProblemCode` lists the codes as strings, as they appear in JSON.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let codes = Self::ALL.iter().map(|code| code.as_str());
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .enum_values(Some(codes))
            .description(Some(
                "The kind of a problem. New codes may be added; the meaning of a code never changes.",
            ))
            .into()
    }
}

impl ToSchema for Code {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ProblemCode")
    }
}

/// Declares the codes with their text, status and title in one place.
macro_rules! problem_codes {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal $status:literal $title:literal;)+) => {
        /// The kind of a problem. New codes may be added; the meaning of a code never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code as it appears in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The HTTP status and the title of the code.
            pub const fn status_and_title(self) -> (u16, &'static str) {
                match self {
                    $(Self::$name => ($status, $title),)+
                }
            }
        }
    };
}

problem_codes! {
    /// The request is malformed and cannot be parsed.
    InvalidRequest "invalid_request" 400 "the request is malformed";
    /// The request has no token, or the token is unknown.
    Unauthenticated "unauthenticated" 401 "authentication is required";
    /// The token does not permit the operation.
    Forbidden "forbidden" 403 "the role of the token lacks the required permission";
    /// A web page of another origin sent the request.
    CrossSiteRequest "cross_site_request" 403 "requests of web pages of other origins are refused";
    /// The resource does not exist, or it belongs to another scope.
    NotFound "not_found" 404 "resource not found";
    /// The execution does not exist.
    NoExecution "no_execution" 404 "execution not found";
    /// The given id is a prefix of several ids.
    AmbiguousId "ambiguous_id" 409 "the id is ambiguous";
    /// No function of this name is deployed.
    NoFunction "no_function" 404 "function not found";
    /// The component does not exist.
    NoComponent "no_component" 404 "component not found";
    /// The run does not exist.
    NoRun "no_run" 404 "run not found";
    /// The run exists, but has no stored snapshot yet.
    NoSnapshot "no_snapshot" 404 "the run has no snapshot yet";
    /// The function is a task; only workflows can be started.
    NotAWorkflow "not_a_workflow" 409 "the function is not a workflow";
    /// The execution has ended.
    ExecutionOver "execution_over" 409 "the execution has ended";
    /// The idempotency key was already used to start something else.
    KeyTaken "key_taken" 409 "the idempotency key was used for a different request";
    /// Earlier runs of the campaign have reached some of the recipients of this deployment.
    RecipientsAlreadyReached "recipients_already_reached" 409 "earlier runs have reached some of the recipients: set `previousRecipients` to `exclude` or `resend`";
    /// Another component has some of the names of the component's functions.
    FunctionsTaken "functions_taken" 409 "another component has functions of these names: set `replace` to take them over";
    /// A concurrent change interfered, or the resource is not in the expected state.
    Conflict "conflict" 409 "the resource is not in the expected state";
    /// The execution has as many signals as are allowed that it has not consumed.
    SignalsFull "signals_full" 429 "the execution has too many signals that it has not consumed";
    /// The claim token is no longer valid: the task has ended, or another worker has claimed it.
    LeaseLost "lease_lost" 409 "the claim token is no longer valid";
    /// The server does not support this method for the path.
    MethodNotAllowed "method_not_allowed" 405 "method not allowed";
    /// The request or a value in it is larger than allowed.
    TooLarge "too_large" 413 "the request is too large";
    /// The media type of the body is not the expected one.
    UnsupportedMediaType "unsupported_media_type" 415 "unsupported media type";
    /// The header `Host` names no host of this server.
    MisdirectedRequest "misdirected_request" 421 "the request names another host";
    /// The request can be parsed, but its content is invalid.
    Unprocessable "unprocessable" 422 "the content of the request is invalid";
    /// The component cannot be run.
    BadComponent "bad_component" 422 "the component cannot be run";
    /// The rate limit is exceeded.
    RateLimited "rate_limited" 429 "too many requests";
    /// An internal error of the server.
    Internal "internal" 500 "internal error";
    /// Stored data is damaged.
    Corrupt "corrupt" 500 "stored data is corrupt";
    /// The store cannot be reached, or the server is stopping.
    Unavailable "unavailable" 503 "temporarily unavailable";
    /// It is unknown whether the operation was carried out: retry with the same idempotency key.
    OutcomeUnknown "outcome_unknown" 503 "the outcome of the operation is unknown";
    /// The operation exceeded its timeout.
    TimedOut "timed_out" 504 "the operation timed out";
}
