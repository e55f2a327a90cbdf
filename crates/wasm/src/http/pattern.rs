//! Patterns for allow-lists of hosts to which requests may be sent.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Pattern of hosts: `api.example.com`, `*.example.com` (all subdomains, but not the domain itself)
/// or `*`; followed by `:8443` for one port or `:*` for all ports. Without a port, the pattern
/// matches the default port of the scheme.
///
/// ```
/// use onward_wasm::HostPattern;
/// let pattern: HostPattern = "*.example.com:8443".parse()?;
/// assert!(pattern.matches("api.example.com", 8443, 443));
/// assert!(!pattern.matches("example.com", 8443, 443));
/// # Ok::<(), onward_wasm::HostPatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: HostMatch,
    port: PortMatch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostMatch {
    Any,
    SubdomainOf(String),
    Exact(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortMatch {
    SchemeDefault,
    Any,
    Exact(u16),
}

impl HostPattern {
    /// Whether the pattern allows requests to this host and port; `usual_port` is the default port
    /// of the scheme.
    pub fn matches(&self, host: &str, port: u16, usual_port: u16) -> bool {
        let host = normalize_host(host);
        let host_fits = match &self.host {
            HostMatch::Any => true,
            HostMatch::SubdomainOf(parent) => host
                .strip_suffix(parent.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            HostMatch::Exact(name) => host == *name,
        };
        let port_fits = match self.port {
            PortMatch::SchemeDefault => port == usual_port,
            PortMatch::Any => true,
            PortMatch::Exact(allowed) => port == allowed,
        };
        host_fits && port_fits
    }
}

/// Converts a host to lower case and removes a trailing dot and the brackets of an IPv6 address.
pub(super) fn normalize_host(host: &str) -> String {
    let host = host.strip_suffix('.').unwrap_or(host);
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.to_ascii_lowercase()
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let refuse = || HostPatternError(text.chars().take(100).collect());
        let (host, port) = split_port(text);
        let port = match port {
            None => PortMatch::SchemeDefault,
            Some("*") => PortMatch::Any,
            Some(port) => PortMatch::Exact(
                port.parse()
                    .ok()
                    .filter(|port| *port != 0)
                    .ok_or_else(refuse)?,
            ),
        };
        if host == "*" {
            return Ok(Self {
                host: HostMatch::Any,
                port,
            });
        }
        let host = normalize_host(host);
        let host = match host.strip_prefix("*.") {
            Some(parent) if is_host_name(parent) => HostMatch::SubdomainOf(parent.to_owned()),
            None if is_host_name(&host) => HostMatch::Exact(host),
            _ => return Err(refuse()),
        };
        Ok(Self { host, port })
    }
}

/// Splits a host from its port; an IPv6 address with a port must be in brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if host.starts_with('[') == host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    }
}

fn is_host_name(text: &str) -> bool {
    let is_address = text.parse::<std::net::Ipv6Addr>().is_ok();
    let is_letter = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    is_address
        || text
            .split('.')
            .all(|label| !label.is_empty() && label.chars().all(is_letter))
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostMatch::Any => f.write_str("*")?,
            HostMatch::SubdomainOf(parent) => write!(f, "*.{parent}")?,
            HostMatch::Exact(host) if host.contains(':') => write!(f, "[{host}]")?,
            HostMatch::Exact(host) => f.write_str(host)?,
        }
        match self.port {
            PortMatch::SchemeDefault => Ok(()),
            PortMatch::Any => f.write_str(":*"),
            PortMatch::Exact(port) => write!(f, ":{port}"),
        }
    }
}

/// A text that is not a valid host pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a pattern of hosts: expected such as `api.example.com`, `*.example.com:8443` or `*`"
)]
pub struct HostPatternError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_hosts_and_ports() {
        for (pattern, host, port, expected) in [
            ("api.example.com", "api.example.com", 443, true),
            ("api.example.com", "API.Example.com.", 443, true),
            ("API.example.com.", "api.example.com", 443, true),
            ("api.example.com", "api.example.com", 8443, false),
            ("api.example.com", "xapi.example.com", 443, false),
            ("api.example.com", "api.example.com.evil.org", 443, false),
            ("api.example.com:8443", "api.example.com", 8443, true),
            ("api.example.com:8443", "api.example.com", 443, false),
            ("api.example.com:*", "api.example.com", 1, true),
            ("*.example.com", "api.example.com", 443, true),
            ("*.example.com", "a.b.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("*.example.com", ".example.com", 443, false),
            ("*.example.com", "evilexample.com", 443, false),
            ("*", "anything", 443, true),
            ("*", "anything", 80, false),
            ("*:*", "anything", 1, true),
            ("127.0.0.1:8080", "127.0.0.1", 8080, true),
            ("[::1]:8080", "[::1]", 8080, true),
            ("[::1]", "::1", 443, true),
        ] {
            let parsed: HostPattern = pattern.parse().unwrap();
            assert_eq!(
                parsed.matches(host, port, 443),
                expected,
                "{pattern} {host}:{port}"
            );
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in [
            "",
            "*.",
            "*.*",
            "a*b",
            "https://example.com",
            "example.com/x",
            "a..b",
            "a:0",
            "a:99999",
            "a:",
            "a b",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text:?}");
        }
    }
}
