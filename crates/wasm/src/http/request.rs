//! Validates a guest's request and builds the HTTP request that is sent.

use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};

use super::pattern::{HostPattern, normalize_host};
use super::{HttpError, HttpRequest, default_port};

/// Headers that frame the message or name its receiver. A guest that could set them could make this
/// host and a server behind it interpret the same message differently (request smuggling).
const RESERVED_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const IDEMPOTENCY_KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The parsed and normalized target of a request.
#[derive(Debug)]
pub(super) struct RequestTarget {
    uri: Uri,
    host: String,
    port: u16,
    default_port: u16,
}

impl RequestTarget {
    pub(super) fn parse(url: &str) -> Result<Self, HttpError> {
        let uri: Uri = url
            .parse()
            .map_err(|error| invalid_request(format_args!("its URL: {error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(invalid_request(
                "its URL must begin with `http://` or `https://`",
            ));
        }
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err(invalid_request(
                "its URL must not have a user: send an `authorization` header",
            ));
        }
        let host = uri
            .host()
            .map(normalize_host)
            .filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid_request("its URL has no host"))?;
        let usual_port = default_port(uri.scheme_str());
        let port = uri.port_u16().unwrap_or(usual_port);
        // An invalid port is refused and not treated as a missing one.
        if uri.authority().is_some_and(|authority| {
            authority.port().is_none() && authority.as_str() != authority.host()
        }) {
            return Err(invalid_request("the port of its URL"));
        }
        Ok(Self {
            uri,
            host,
            port,
            default_port: usual_port,
        })
    }

    pub(super) fn matches(&self, pattern: &HostPattern) -> bool {
        pattern.matches(&self.host, self.port, self.default_port)
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}:{}`", self.host, self.port)
    }
}

/// Builds the request that is sent. Fails if it is too large or malformed, or sets a reserved
/// header.
pub(super) fn build_request(
    target: RequestTarget,
    request: HttpRequest,
    bytes_max: usize,
) -> Result<Request<Full<Bytes>>, HttpError> {
    let headers: usize = request
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if request.url.len() + headers + request.body.len() > bytes_max {
        return Err(HttpError::TooLarge {
            what: "request",
            max: bytes_max,
        });
    }
    let method =
        Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid_request("its method"))?;
    if method == Method::CONNECT {
        return Err(invalid_request("`CONNECT` is not a request"));
    }
    let mut built = Request::new(Full::new(request.body));
    *built.method_mut() = method;
    *built.uri_mut() = target.uri;
    for (name, value) in &request.headers {
        let (name, value) = parse_header(name, value)?;
        built.headers_mut().append(name, value);
    }
    if let Some(key) = request
        .idempotency_key
        .filter(|_| !built.headers().contains_key(IDEMPOTENCY_KEY_HEADER))
    {
        let key =
            HeaderValue::from_str(&key).map_err(|_| invalid_request("its idempotency key"))?;
        built.headers_mut().insert(IDEMPOTENCY_KEY_HEADER, key);
    }
    Ok(built)
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HttpError> {
    let parsed: HeaderName = name
        .parse()
        .map_err(|_| invalid_request("the name of a header"))?;
    if RESERVED_HEADERS.contains(&parsed.as_str()) {
        return Err(invalid_request(format_args!(
            "guests must not set the header `{parsed}`"
        )));
    }
    let value = HeaderValue::from_str(value)
        .map_err(|_| invalid_request(format_args!("the value of `{parsed}`")))?;
    Ok((parsed, value))
}

fn invalid_request(what: impl fmt::Display) -> HttpError {
    HttpError::Invalid(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> HttpRequest {
        HttpRequest {
            method: "POST".to_owned(),
            url: "https://api.example.com/x".to_owned(),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: Bytes::from_static(b"12345"),
            timeout: None,
            idempotency_key: Some("root.1".into()),
        }
    }

    fn built(request: HttpRequest) -> Result<Request<Full<Bytes>>, HttpError> {
        build_request(RequestTarget::parse(&request.url)?, request, 100)
    }

    #[test]
    fn the_idempotency_key_is_sent_unless_there_is_one() {
        let key = |request: Request<Full<Bytes>>| {
            let keys: Vec<_> = request
                .headers()
                .get_all(IDEMPOTENCY_KEY_HEADER)
                .iter()
                .cloned()
                .collect();
            keys
        };
        assert_eq!(key(built(request(&[])).unwrap()), ["root.1"]);
        assert_eq!(
            key(built(request(&[("Idempotency-Key", "mine")])).unwrap()),
            ["mine"]
        );
        assert!(
            key(built(HttpRequest {
                idempotency_key: None,
                ..request(&[])
            })
            .unwrap())
            .is_empty()
        );
    }

    #[test]
    fn headers_that_frame_the_message_are_refused() {
        for name in [
            "Host",
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "not a name",
            "x\r\ny",
        ] {
            assert!(
                matches!(built(request(&[(name, "x")])), Err(HttpError::Invalid(_))),
                "{name}"
            );
        }
        assert!(built(request(&[("x-y", "a\r\nHost: b")])).is_err());
        assert!(built(request(&[("x-y", "a")])).is_ok());
    }

    #[test]
    fn a_request_has_a_size_limit() {
        let large = request(&[("x-y", &"z".repeat(100))]);
        assert_eq!(
            built(large).unwrap_err(),
            HttpError::TooLarge {
                what: "request",
                max: 100
            }
        );
    }

    #[test]
    fn a_url_has_a_host_and_no_user() {
        for (url, expected) in [
            ("http://a.b/c?d", "`a.b:80`"),
            ("https://A.b./", "`a.b:443`"),
            ("https://[::1]:8443", "`::1:8443`"),
            ("http://127.0.0.1:99/x", "`127.0.0.1:99`"),
        ] {
            assert_eq!(RequestTarget::parse(url).unwrap().to_string(), expected);
        }
        for url in [
            "",
            "/x",
            "a.b",
            "ftp://a.b",
            "http://",
            "http://u:p@a.b",
            "http://a.b:x",
            "http://a b",
            "file:///x",
        ] {
            assert!(RequestTarget::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_method_is_a_token() {
        for method in ["", "GET X", "CONNECT"] {
            assert!(
                built(HttpRequest {
                    method: method.to_owned(),
                    ..request(&[])
                })
                .is_err(),
                "{method}"
            );
        }
    }
}
