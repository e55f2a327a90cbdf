//! Error responses in the OpenAPI document, grouped by cause and not by route.

use std::collections::BTreeMap;

use onward_api::problem::{PROBLEM_JSON, Problem};
use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

macro_rules! error_responses {
    ($($(#[$doc:meta])* $name:ident: $($status:literal $words:literal),+;)+) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(($status, $words)),+].map(|(status, words)| (status.to_owned(), problem_response(words))).into()
            }
        }
    )+};
}

error_responses! {
    /// Errors that every request can return.
    CommonErrors:
        "400" "The request cannot be read",
        "401" "Who asks is not known",
        "403" "The token does not allow this",
        "429" "Too many requests; `Retry-After` says when there may be another",
        "500" "Something went wrong",
        "503" "Not now, or it is not known whether it was done: ask again, with the same key",
        "504" "It took too long";
    /// Errors of requests with a body.
    BodyErrors:
        "413" "The body is too large",
        "415" "The body is of another type than expected",
        "422" "The body makes no sense";
    /// Errors of requests whose path or query is well-formed but invalid.
    UnprocessableErrors:
        "422" "It makes no sense";
    /// Errors of requests for a named resource.
    NotFoundErrors:
        "404" "There is no such thing, or it belongs to somebody else";
    /// Errors of requests that expect a certain state, or whose name is ambiguous.
    ConflictErrors:
        "409" "Something is not as expected";
}

fn problem_response(words: &str) -> RefOr<Response> {
    let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let response = Response::builder()
        .description(words)
        .content(PROBLEM_JSON, problem)
        .build();
    response.into()
}
