//! Error responses in the OpenAPI document, grouped by cause and not by route.

use std::collections::BTreeMap;

use onward_api::problem::{PROBLEM_JSON, Problem};
use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

macro_rules! error_responses {
    ($($(#[$doc:meta])* $name:ident: $($status:literal $description:literal),+;)+) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(($status, $description)),+].map(|(status, description)| (status.to_owned(), problem_response(description))).into()
            }
        }
    )+};
}

error_responses! {
    /// Errors that every request can return.
    CommonErrors:
        "400" "The request is malformed",
        "401" "The header `Authorization` is missing, or its bearer token is invalid",
        "403" "The role of the token lacks the required permission, the request names another scope, or a web page of another origin sent it",
        "421" "The header `Host` names no host of this server",
        "429" "The rate limit of the token is exceeded: retry after the time in the header `Retry-After`",
        "500" "Internal error",
        "503" "Temporarily unavailable, or the outcome is unknown: retry with the same idempotency key",
        "504" "The request timed out";
    /// Errors of requests with a body.
    BodyErrors:
        "413" "The body is too large",
        "415" "The header `Content-Type` does not name the expected media type",
        "422" "The content of the body is invalid";
    /// Errors of requests whose path or query is well-formed but invalid.
    UnprocessableErrors:
        "422" "The path or query is well-formed but invalid";
    /// Errors of requests for a named resource.
    NotFoundErrors:
        "404" "The resource does not exist, or it belongs to another scope";
    /// Errors of requests that expect a certain state, or whose name is ambiguous.
    ConflictErrors:
        "409" "The resource is not in the expected state, or its id is ambiguous";
}

fn problem_response(description: &str) -> RefOr<Response> {
    let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let response = Response::builder()
        .description(description)
        .content(PROBLEM_JSON, problem)
        .build();
    response.into()
}
