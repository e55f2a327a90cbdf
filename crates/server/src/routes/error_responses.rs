//! What requests are refused with, for OpenAPI: by what can go wrong with them, and not by route.

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
    /// Any request.
    CommonErrors:
        "400" "The request cannot be read",
        "401" "Who asks is not known",
        "403" "The token does not allow this",
        "429" "Too many requests; `Retry-After` says when there may be another",
        "500" "Something went wrong",
        "503" "Not now, or it is not known whether it was done: ask again, with the same key",
        "504" "It took too long";
    /// A request with a body.
    BodyErrors:
        "413" "The body is too large",
        "415" "The body is of another type than expected",
        "422" "The body makes no sense";
    /// A request whose path or query can be read, and makes no sense.
    UnprocessableErrors:
        "422" "It makes no sense";
    /// A request about something that has a name.
    NotFoundErrors:
        "404" "There is no such thing, or it belongs to somebody else";
    /// A request that expects things to be in a certain way, or that may mean several.
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
