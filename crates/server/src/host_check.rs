//! Refuses requests that a web page makes the browser of the user send. A server on loopback has no
//! firewall in front of it: every page that a developer visits can address it.
//!
//! - A page whose name resolves to a loopback address (DNS rebinding) sends its own name as `Host`.
//! - A page of another site names itself in `Origin`, and the browser marks the request in
//!   `Sec-Fetch-Site`. Programs other than browsers send neither.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use onward_api::problem::{Code, Problem};

use crate::http_types::ProblemResponse;

/// Header in which a browser states how the page that sends a request is related to the server.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Host names that always mean this machine.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The host names under which clients may address the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCheck {
    /// The names, in lower case, without a port. `None` disables the check.
    names: Option<Arc<[String]>>,
}

impl HostCheck {
    /// The check for a server that listens on `listen`. It accepts loopback names, the listen
    /// address and the names in `allowed`. A server on a non-loopback address, whose names only its
    /// operator knows, checks nothing unless `allowed` has a name.
    pub fn new(listen: SocketAddr, allowed: &[String]) -> Self {
        if !listen.ip().is_loopback() && allowed.is_empty() {
            return Self { names: None };
        }
        let listen_name = match listen.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let mut names: Vec<String> = LOOPBACK_HOSTS.map(str::to_owned).into();
        names.push(listen_name);
        names.extend(allowed.iter().map(|name| name.to_ascii_lowercase()));
        Self {
            names: Some(names.into()),
        }
    }

    /// Checks the host that a request names, and the page that it comes from.
    fn check_request(&self, request: &Request) -> Result<(), Problem> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let host = request_host(request.headers());
        let in_target = request.uri().authority();
        let is_known = |host: &Authority| is_listed(names, host);
        let Some(host) = host.filter(|host| is_known(host) && in_target.is_none_or(is_known))
        else {
            return Err(Problem::new(
                Code::MisdirectedRequest,
                "the header Host names no host of this server: address it as localhost, 127.0.0.1 \
                 or [::1], or start it with --allowed-host NAME",
            ));
        };
        if is_cross_site(request.headers(), &host, names) {
            return Err(Problem::new(
                Code::CrossSiteRequest,
                "a web page of another origin sent this request (headers Origin and \
                 Sec-Fetch-Site): only pages that this server serves may use it from a browser",
            ));
        }
        Ok(())
    }
}

/// Middleware that refuses requests as [`HostCheck`] requires.
pub(crate) async fn enforce_host_check(
    State(check): State<HostCheck>,
    request: Request,
    next: Next,
) -> Response {
    match check.check_request(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => ProblemResponse::from(problem).into_response(),
    }
}

/// The value of the header `Host`; `None` if it is missing, repeated or malformed.
fn request_host(headers: &HeaderMap) -> Option<Authority> {
    let mut values = headers.get_all(HOST).iter();
    let (first, second) = (values.next(), values.next());
    let text = first.filter(|_| second.is_none())?.to_str().ok()?;
    text.parse().ok().filter(|_| !text.contains('@'))
}

fn is_listed(names: &[String], host: &Authority) -> bool {
    // A name with a final dot is the same name.
    let name = host.host();
    let name = name.strip_suffix('.').unwrap_or(name);
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a page of another origin sent the request. A page on another port of this machine is of
/// another origin as well.
fn is_cross_site(headers: &HeaderMap, host: &Authority, names: &[String]) -> bool {
    let is_foreign_site = |site: &[u8]| !matches!(site, b"same-origin" | b"none");
    let is_foreign_origin = |origin: &[u8]| {
        let authority = std::str::from_utf8(origin)
            .ok()
            .and_then(|origin| origin.split_once("://"))
            .and_then(|(_, authority)| authority.parse::<Authority>().ok());
        // A proxy may have replaced `Host`. Then the operator has listed the public name.
        let is_public_name = |authority: &Authority| {
            is_listed(names, authority) && !is_listed(&LOOPBACK_HOSTS.map(str::to_owned), authority)
        };
        !authority.is_some_and(|authority| authority == *host || is_public_name(&authority))
    };
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    let mut origins = headers.get_all(ORIGIN).iter();
    sites.any(|site| is_foreign_site(site.as_bytes()))
        || origins.any(|origin| is_foreign_origin(origin.as_bytes()))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn check(listen: &str, allowed: &[&str], headers: &[(&'static str, &str)]) -> Result<(), u16> {
        let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        let mut request = Request::builder().uri("/v1/functions");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        HostCheck::new(listen.parse().unwrap(), &allowed)
            .check_request(&request.body(Body::empty()).unwrap())
            .map_err(|problem| problem.status)
    }

    #[test]
    fn a_server_on_loopback_accepts_only_names_of_this_machine() {
        for (host, expected) in [
            ("localhost", Ok(())),
            ("LOCALHOST:7400", Ok(())),
            ("localhost.:7400", Ok(())),
            ("127.0.0.1:1", Ok(())),
            ("[::1]:7400", Ok(())),
            ("[::1]", Ok(())),
            ("evil.example", Err(421)),
            ("evil.example:7400", Err(421)),
            ("localhost.evil.example", Err(421)),
            ("localhost@evil.example", Err(421)),
            ("evil.example@localhost", Err(421)),
            ("127.0.0.1.evil.example", Err(421)),
            ("0.0.0.0:7400", Err(421)),
            ("onward.example", Err(421)),
            ("", Err(421)),
        ] {
            let found = check("127.0.0.1:7400", &[], &[("host", host)]);
            assert_eq!(found, expected, "{host}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check("127.0.0.1:7400", &[], &two), Err(421));
        assert_eq!(check("127.0.0.1:7400", &[], &[]), Err(421));
        let other_address = [("host", "127.0.0.7:7400")];
        assert_eq!(check("127.0.0.7:7400", &[], &other_address), Ok(()));
        let named = [("host", "Onward.example:443")];
        assert_eq!(check("127.0.0.1:7400", &["onward.example"], &named), Ok(()));
        assert_eq!(check("10.0.0.7:7400", &[], &named), Ok(()));
        assert_eq!(check("10.0.0.7:7400", &["other"], &named), Err(421));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let from_page = |name, value| {
            let headers = [("host", "localhost:7400"), (name, value)];
            check("127.0.0.1:7400", &["onward.example"], &headers)
        };
        for (origin, expected) in [
            ("http://localhost:7400", Ok(())),
            ("https://onward.example", Ok(())),
            ("http://localhost:3000", Err(403)),
            ("http://127.0.0.1:7400", Err(403)),
            ("http://evil.example", Err(403)),
            ("null", Err(403)),
            ("", Err(403)),
        ] {
            assert_eq!(from_page("origin", origin), expected, "{origin}");
        }
        for (site, expected) in [
            ("same-origin", Ok(())),
            ("none", Ok(())),
            ("same-site", Err(403)),
            ("cross-site", Err(403)),
            ("unheard-of", Err(403)),
        ] {
            assert_eq!(from_page("sec-fetch-site", site), expected, "{site}");
        }
        let two = [
            ("host", "localhost:7400"),
            ("origin", "http://localhost:7400"),
            ("origin", "http://evil.example"),
        ];
        assert_eq!(check("127.0.0.1:7400", &[], &two), Err(403));
    }
}
