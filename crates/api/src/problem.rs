//! What went wrong, as RFC 9457 has it: a document that people read and programs branch on.

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::campaign::PrerequisiteCheck;

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A name for the kind of problem: `urn:onward:problem:` and the code.
    pub r#type: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is the matter this time.
    pub detail: String,
    /// What kind of problem it is; stable, for programs.
    pub code: Code,
    /// Of a campaign that cannot be deployed: all that was looked at, and what did not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<PrerequisiteCheck>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, title) = code.about();
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

/// As programs read them.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let words = Self::ALL.iter().map(|code| code.as_str());
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .enum_values(Some(words))
            .into()
    }
}

impl ToSchema for Code {}

/// Declares the codes, so that nothing about one is written down twice.
macro_rules! problem_codes {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal $status:literal $title:literal;)+) => {
        /// A kind of problem. The list grows; what a code means does not change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// As it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The HTTP status, and the kind of problem in words.
            pub const fn about(self) -> (u16, &'static str) {
                match self {
                    $(Self::$name => ($status, $title),)+
                }
            }
        }
    };
}

problem_codes! {
    /// The request cannot be read.
    InvalidRequest "invalid_request" 400 "the request cannot be read";
    /// There is no token, or not one that is known.
    Unauthenticated "unauthenticated" 401 "who asks is not known";
    /// The token does not allow it.
    Forbidden "forbidden" 403 "the token does not allow this";
    /// There is no such thing, or it belongs to somebody else.
    NotFound "not_found" 404 "there is no such thing";
    /// There is no such execution.
    NoExecution "no_execution" 404 "there is no such execution";
    /// Several things begin with what was given.
    AmbiguousId "ambiguous_id" 409 "several things are meant";
    /// No such function was deployed.
    NoFunction "no_function" 404 "there is no such function";
    /// There is no such component.
    NoComponent "no_component" 404 "there is no such component";
    /// There is no such run, or no snapshot of it.
    NoRun "no_run" 404 "there is no such run";
    /// The function is a task.
    NotAWorkflow "not_a_workflow" 409 "only workflows are started";
    /// The execution is over.
    ExecutionOver "execution_over" 409 "the execution is over";
    /// The key has started something else.
    KeyTaken "key_taken" 409 "the key has started something else";
    /// Earlier runs of the campaign have reached some of those whom another is to reach.
    ReachedBefore "reached_before" 409 "earlier runs have reached them: `reached` says what to do (leaveOut, again)";
    /// Something else was changed at the same moment, or is not as expected.
    Conflict "conflict" 409 "something is not as expected";
    /// A task that is claimed by somebody else by now, or over.
    LeaseLost "lease_lost" 409 "the task is not held by this worker";
    /// The path is not one that this server has for the method.
    MethodNotAllowed "method_not_allowed" 405 "the path has no such method";
    /// It is larger than it may be.
    TooLarge "too_large" 413 "it is too large";
    /// The body is of another media type than expected.
    UnsupportedMediaType "unsupported_media_type" 415 "the body is of another type than expected";
    /// It can be read, and makes no sense.
    Unprocessable "unprocessable" 422 "it makes no sense";
    /// The component cannot be run.
    BadComponent "bad_component" 422 "the component cannot be run";
    /// Too many requests.
    RateLimited "rate_limited" 429 "too many requests";
    /// Something went wrong here.
    Internal "internal" 500 "something went wrong";
    /// What is stored is damaged.
    Corrupt "corrupt" 500 "what is stored is damaged";
    /// The store cannot be reached, or the server is stopping.
    Unavailable "unavailable" 503 "not now";
    /// It is not known whether it was done: ask again with the same key.
    OutcomeUnknown "outcome_unknown" 503 "it is not known whether it was done";
    /// It took longer than it may.
    TimedOut "timed_out" 504 "it took too long";
}
