//! Checks of a request that precede its handler: one `Host`, one length of the body, and a length
//! that some route could accept.

use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, HOST};
use axum::http::{HeaderMap, Method, Version};
use onward_api::problem::{Code, Problem};

use crate::connections::RequestOrigin;

/// Returns the declared length of a body, if there is one.
pub(crate) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns why a request is refused before it reaches a route.
pub(crate) fn find_refusal(request: &Request, body_bytes_max: u64) -> Option<Problem> {
    let origin = request.extensions().get::<RequestOrigin>();
    if origin.is_some_and(|origin| origin.has_conflicting_length) {
        return Some(Problem::new(
            Code::InvalidRequest,
            "the request has both headers Content-Length and Transfer-Encoding: send one of them",
        ));
    }
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && request.version() >= Version::HTTP_11) {
        return Some(Problem::new(
            Code::InvalidRequest,
            format!("the request has {hosts} headers Host: send exactly one"),
        ));
    }
    let length = declared_length(request.headers()).unwrap_or(0);
    (length > body_bytes_max).then(|| {
        Problem::new(
            Code::TooLarge,
            format!("the body has {length} bytes, but no path accepts more than {body_bytes_max}"),
        )
    })
}

/// The method of a request as the label of a metric: one of a fixed set, because clients can send
/// any word as a method.
pub(crate) fn method_label(method: &Method) -> &'static str {
    const LABELS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"];
    LABELS
        .into_iter()
        .find(|label| *label == method.as_str())
        .unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::method_label;

    #[test]
    fn an_unusual_method_has_the_label_other() {
        assert_eq!(method_label(&Method::DELETE), "DELETE");
        for method in ["PATCH", "get", "BREW-0001"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(method_label(&method), "other");
        }
    }
}
