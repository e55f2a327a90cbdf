//! HTTP requests rendered from templates. They can go only to the host that the document
//! configures.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::percent_decode_str;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::{Host, Url};

use crate::http::escaped_template::{EscapedTemplate, TemplateEscaping, TemplateVariables};
use crate::http::http_error::{HttpConfigError, HttpRequestError};
use crate::http::http_spec::{HttpSpec, StatusLookupSpec};
use crate::outgoing_item::OutgoingItem;

const JSON_CONTENT_TYPE: &str = "application/json";

/// A rendered request.
#[derive(Debug)]
pub(crate) struct ProviderHttpRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<String>,
}

/// The scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderOrigin {
    scheme: String,
    host: Host,
    port: u16,
}

impl ProviderOrigin {
    fn from_url(url: &Url) -> Option<Self> {
        let port = url.port_or_known_default()?;
        Some(Self {
            scheme: url.scheme().to_owned(),
            host: url.host()?.to_owned(),
            port,
        })
    }

    fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }
}

impl fmt::Display for ProviderOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Returns the origin of a URL template, which does not depend on any variable; `setting` is the
/// path of its setting. Fails if a template expression could change the origin.
pub(crate) fn parse_origin(
    setting: &'static str,
    template: &str,
) -> Result<ProviderOrigin, HttpConfigError> {
    let invalid = || HttpConfigError::InvalidUrl { setting };
    let (scheme, rest) = template.split_once("://").ok_or_else(invalid)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") || authority.contains(['{', '}', '%', '\\']) {
        return Err(HttpConfigError::TemplateInOrigin { setting });
    }
    let url: Url = format!("{scheme}://{authority}/")
        .parse()
        .map_err(|_| invalid())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(HttpConfigError::CredentialsInUrl { setting });
    }
    ProviderOrigin::from_url(&url).ok_or_else(invalid)
}

/// The compiled templates of a request.
#[derive(Debug)]
pub(crate) struct HttpRequestTemplate {
    method: Method,
    origin: ProviderOrigin,
    url: EscapedTemplate,
    headers: Vec<(HeaderName, EscapedTemplate)>,
    key_header: Option<HeaderName>,
    body: Option<EscapedTemplate>,
    is_json: bool,
}

impl HttpRequestTemplate {
    pub(crate) fn from_spec(spec: &HttpSpec) -> Result<Self, HttpConfigError> {
        let origin = parse_origin("http.url", &spec.url)?;
        if origin.scheme == "http" && !origin.is_loopback() && !spec.allow_plaintext {
            return Err(HttpConfigError::Plaintext);
        }
        let content_type = spec
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
        let escape = body_escape(content_type.map_or(JSON_CONTENT_TYPE, |(_, value)| value));
        let header = |(name, source): (&String, &String)| {
            Ok((
                parse_header_name("http.headers", name)?,
                EscapedTemplate::new(
                    &format!("http.headers.{name}"),
                    source,
                    TemplateEscaping::Plain,
                )?,
            ))
        };
        let body = spec
            .body
            .as_ref()
            .map(|source| EscapedTemplate::new("http.body", source, escape))
            .transpose()?;
        Ok(Self {
            method: parse_method("http.method", &spec.method)?,
            origin,
            url: EscapedTemplate::new("http.url", &spec.url, TemplateEscaping::Percent)?,
            headers: spec
                .headers
                .iter()
                .map(header)
                .collect::<Result<_, HttpConfigError>>()?,
            key_header: spec
                .idempotency_header
                .as_deref()
                .map(|name| parse_header_name("http.idempotency_header", name))
                .transpose()?,
            is_json: body.is_some() && escape == TemplateEscaping::Json,
            body,
        })
    }

    /// Compiles the request of a status lookup. Fails if it leads to another origin than the URL
    /// for sending.
    pub(crate) fn for_lookup(
        spec: &HttpSpec,
        lookup: &StatusLookupSpec,
    ) -> Result<Self, HttpConfigError> {
        let setting = "http.status_lookup.url";
        let origin = parse_origin(setting, &lookup.url)?;
        if origin != parse_origin("http.url", &spec.url)? {
            return Err(HttpConfigError::LookupOrigin);
        }
        Ok(Self {
            method: parse_method("http.status_lookup.method", &lookup.method)?,
            origin,
            url: EscapedTemplate::new(setting, &lookup.url, TemplateEscaping::Percent)?,
            headers: Vec::new(),
            key_header: None,
            body: None,
            is_json: false,
        })
    }

    /// Renders the request for one item.
    pub(crate) fn render_request(
        &self,
        item: &OutgoingItem<'_>,
    ) -> Result<ProviderHttpRequest, HttpRequestError> {
        let mut request = self.render_templates(&item_variables(item))?;
        if let Some(name) = &self.key_header {
            request
                .headers
                .insert(name.clone(), parse_header_value(name, item.key)?);
        }
        Ok(request)
    }

    /// Renders the request for a batch of items.
    pub(crate) fn render_batch_request(
        &self,
        items: &[OutgoingItem<'_>],
    ) -> Result<ProviderHttpRequest, HttpRequestError> {
        self.render_templates(&TemplateVariables::from_list(
            "items",
            items.iter().map(item_variables),
        ))
    }

    /// Renders the status lookup of an idempotency key.
    pub(crate) fn render_lookup_request(
        &self,
        key: &str,
    ) -> Result<ProviderHttpRequest, HttpRequestError> {
        self.render_templates(&TemplateVariables::from_named(BTreeMap::from([(
            "key", key,
        )])))
    }

    fn render_templates(
        &self,
        variables: &TemplateVariables,
    ) -> Result<ProviderHttpRequest, HttpRequestError> {
        let url = self.url.render(variables)?;
        check_path_segments(&url)?;
        let url: Url = url.parse().map_err(HttpRequestError::InvalidUrl)?;
        if ProviderOrigin::from_url(&url).as_ref() != Some(&self.origin) {
            return Err(HttpRequestError::OtherOrigin);
        }
        let body = self
            .body
            .as_ref()
            .map(|body| body.render(variables))
            .transpose()?;
        if let Some(body) = body.as_ref().filter(|_| self.is_json) {
            serde_json::from_str::<serde::de::IgnoredAny>(body)
                .map_err(HttpRequestError::InvalidJson)?;
        }
        let mut headers = HeaderMap::new();
        if self.is_json {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_CONTENT_TYPE));
        }
        for (name, template) in &self.headers {
            let value = parse_header_value(name, &template.render(variables)?)?;
            headers.insert(name.clone(), value);
        }
        Ok(ProviderHttpRequest {
            method: self.method.clone(),
            url,
            headers,
            body,
        })
    }
}

/// Fails if the path of a URL has a segment `.` or `..`, also one that appears only when a service
/// or a proxy decodes the path, as often as it may. Such a segment would remove others of the path,
/// so that the request of a recipient would go to another operation of the service.
fn check_path_segments(url: &str) -> Result<(), HttpRequestError> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    // The first segment is the authority.
    let mut path = path
        .split_once('/')
        .map_or(String::new(), |(_, path)| path.to_owned());
    loop {
        // A URL parser removes tabs and line breaks.
        let is_dots = |segment: &str| {
            let segment = segment.replace(['\t', '\r', '\n'], "");
            matches!(segment.as_str(), "." | "..")
        };
        if path.split(['/', '\\']).any(is_dots) {
            return Err(HttpRequestError::DotSegment);
        }
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path {
            return Ok(());
        }
        path = decoded;
    }
}

/// Returns the escaping of a body with this content type.
fn body_escape(content_type: &str) -> TemplateEscaping {
    let kind = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match kind.as_str() {
        "application/x-www-form-urlencoded" => TemplateEscaping::Percent,
        kind if kind.ends_with("/json") || kind.ends_with("+json") => TemplateEscaping::Json,
        _ => TemplateEscaping::Plain,
    }
}

/// The template variables of an item. The built-in names take precedence over the parts of the
/// message.
fn item_variables(item: &OutgoingItem<'_>) -> TemplateVariables {
    let parts = item
        .message
        .parts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let builtin = [
        ("key", item.key),
        ("item", item.item_id),
        ("to", item.to),
        ("recipient", item.recipient),
    ];
    TemplateVariables::from_named(parts.chain(builtin).collect())
}

fn parse_method(setting: &'static str, name: &str) -> Result<Method, HttpConfigError> {
    match name {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(HttpConfigError::UnknownMethod {
            setting,
            method: name.to_owned(),
        }),
    }
}

pub(crate) fn parse_header_name(
    setting: &'static str,
    name: &str,
) -> Result<HeaderName, HttpConfigError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| HttpConfigError::InvalidHeaderName {
        setting,
        name: name.to_owned(),
    })
}

/// Fails if the text has control characters, which could start another header.
fn parse_header_value(name: &HeaderName, text: &str) -> Result<HeaderValue, HttpRequestError> {
    HeaderValue::from_str(text).map_err(|_| HttpRequestError::InvalidHeaderValue(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{check_path_segments, parse_origin};

    #[test]
    fn a_path_with_dot_segments_is_rejected_however_they_are_encoded() {
        let url = |segment: &str| format!("https://api.example.org/u/{segment}/end?to=..#..");
        for segment in [
            ".",
            "..",
            "%2e",
            "%2E.",
            ".%2e",
            "%252e%252E",
            "%25252e",
            "a%2F..%2Fb",
            "a%5c..",
            ".\t.",
        ] {
            assert!(check_path_segments(&url(segment)).is_err(), "{segment}");
        }
        for segment in [
            "a",
            "...",
            "..a",
            "a..",
            ".a",
            "a.b",
            "%2e%2e%2e",
            "%C3%A9",
            "%ff",
        ] {
            assert!(check_path_segments(&url(segment)).is_ok(), "{segment}");
        }
        assert!(check_path_segments("https://api.example.org?to=..").is_ok());
    }

    #[test]
    fn the_origin_of_a_url_template_does_not_depend_on_variables() {
        for (url, host) in [
            ("https://api.example.org/v1/{{ to }}", "api.example.org:443"),
            ("http://127.0.0.1:8080?to={{ to }}", "127.0.0.1:8080"),
            ("https://[::1]/x", "[::1]:443"),
        ] {
            assert_eq!(parse_origin("http.url", url).unwrap().to_string(), host);
        }
        for url in [
            "https://{{ to }}/x",
            "https://example.org{{ to }}/x",
            "https://user:secret@example.org/",
            "ftp://example.org/",
            "example.org",
            "{{ to }}",
            "https://example.org\\{{ to }}",
            "https://",
        ] {
            assert!(parse_origin("http.url", url).is_err(), "{url}");
        }
    }
}
