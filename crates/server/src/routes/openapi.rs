//! `/openapi.json`: bytes made once, with an entity tag.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::OpenApi;

/// The serialized OpenAPI document.
#[derive(Clone)]
pub(super) struct OpenApiBytes {
    bytes: Bytes,
    entity_tag: HeaderValue,
}

impl OpenApiBytes {
    pub(super) fn serialize(document: &OpenApi) -> Self {
        // A document of derived types can be serialized; an empty one would fail every client.
        let bytes = serde_json::to_vec(document).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let entity_tag = format!("\"{:016x}\"", hasher.finish());
        Self {
            bytes: bytes.into(),
            entity_tag: HeaderValue::from_str(&entity_tag)
                .unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
        }
    }

    /// Responds with the document, or with 304 if the client has it.
    pub(super) fn respond(self, request_headers: &HeaderMap) -> Response {
        let known = request_headers.get_all(IF_NONE_MATCH).iter().any(|tags| {
            let matches = |tag: &[u8]| {
                let tag = tag.trim_ascii();
                tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == self.entity_tag.as_bytes()
            };
            tags.as_bytes().split(|byte| *byte == b',').any(matches)
        });
        let headers = [
            (ETAG, self.entity_tag),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        if known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let media_type = HeaderValue::from_static("application/json");
        (headers, [(CONTENT_TYPE, media_type)], self.bytes).into_response()
    }
}
