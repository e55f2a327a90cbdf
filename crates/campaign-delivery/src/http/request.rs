//! HTTP requests rendered from templates. They can go only to the host that the document
//! configures.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::{Host, Url};

use crate::http::escaped_template::{EscapedTemplate, TemplateEscaping, TemplateVariables};
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

/// Returns the origin of a URL template, which does not depend on any variable. Fails if a template
/// expression could change it.
pub(crate) fn parse_origin(template: &str) -> Result<ProviderOrigin, String> {
    let expected =
        || format!("{template} is not a URL that begins with https://host/ or http://host/");
    let (scheme, rest) = template.split_once("://").ok_or_else(expected)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") || authority.contains(['{', '}', '%', '\\']) {
        return Err(format!(
            "{}, without a template before the path",
            expected()
        ));
    }
    let url: Url = format!("{scheme}://{authority}/")
        .parse()
        .map_err(|_| expected())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("there is no place for a password in a URL: use auth".to_owned());
    }
    ProviderOrigin::from_url(&url).ok_or_else(expected)
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
    pub(crate) fn from_spec(spec: &HttpSpec) -> Result<Self, String> {
        let target = parse_origin(&spec.url)?;
        if target.scheme == "http" && !target.is_loopback() && !spec.allow_plaintext {
            return Err("http:// would send everything in the clear to another machine: use https://, or say \
                        allow_plaintext: true"
                .to_owned());
        }
        let content_type = spec
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
        let escape = body_escape(content_type.map_or(JSON_CONTENT_TYPE, |(_, value)| value));
        let header = |(name, source): (&String, &String)| {
            Ok((
                parse_header_name(name)?,
                EscapedTemplate::new(
                    &format!("the header {name}"),
                    source,
                    TemplateEscaping::Plain,
                )?,
            ))
        };
        let body = spec
            .body
            .as_ref()
            .map(|source| EscapedTemplate::new("the body", source, escape))
            .transpose()?;
        Ok(Self {
            method: parse_method(&spec.method)?,
            origin: target,
            url: EscapedTemplate::new("the URL", &spec.url, TemplateEscaping::Percent)?,
            headers: spec
                .headers
                .iter()
                .map(header)
                .collect::<Result<_, String>>()?,
            key_header: spec
                .idempotency_header
                .as_deref()
                .map(parse_header_name)
                .transpose()?,
            is_json: body.is_some() && escape == TemplateEscaping::Json,
            body,
        })
    }

    /// Compiles the request of a status lookup. Fails if it leads to another origin than the URL
    /// for sending.
    pub(crate) fn for_lookup(spec: &HttpSpec, look: &StatusLookupSpec) -> Result<Self, String> {
        let target = parse_origin(&look.url)?;
        if target != self::parse_origin(&spec.url)? {
            return Err("look.url leads to another host than url".to_owned());
        }
        Ok(Self {
            method: parse_method(&look.method)?,
            origin: target,
            url: EscapedTemplate::new("the URL to look at", &look.url, TemplateEscaping::Percent)?,
            headers: Vec::new(),
            key_header: None,
            body: None,
            is_json: false,
        })
    }

    /// Renders the request for one item.
    pub(crate) fn render_request(
        &self,
        parcel: &OutgoingItem<'_>,
    ) -> Result<ProviderHttpRequest, String> {
        let mut request = self.fill_template(&item_variables(parcel))?;
        if let Some(name) = &self.key_header {
            request
                .headers
                .insert(name.clone(), parse_header_value(parcel.key)?);
        }
        Ok(request)
    }

    /// Renders the request for a batch of items.
    pub(crate) fn render_batch_request(
        &self,
        parcels: &[OutgoingItem<'_>],
    ) -> Result<ProviderHttpRequest, String> {
        self.fill_template(&TemplateVariables::from_list(
            "items",
            parcels.iter().map(item_variables),
        ))
    }

    /// Renders the status lookup of an idempotency key.
    pub(crate) fn render_lookup_request(&self, key: &str) -> Result<ProviderHttpRequest, String> {
        self.fill_template(&TemplateVariables::from_named(BTreeMap::from([(
            "key", key,
        )])))
    }

    fn fill_template(&self, about: &TemplateVariables) -> Result<ProviderHttpRequest, String> {
        let url: Url = self
            .url
            .render(about)?
            .parse()
            .map_err(|cause| format!("the URL cannot be used: {cause}"))?;
        if ProviderOrigin::from_url(&url).as_ref() != Some(&self.origin) {
            return Err("the URL leads to another host".to_owned());
        }
        let body = self
            .body
            .as_ref()
            .map(|body| body.render(about))
            .transpose()?;
        if let Some(body) = body.as_ref().filter(|_| self.is_json) {
            let checked: Result<serde::de::IgnoredAny, _> = serde_json::from_str(body);
            checked.map_err(|cause| {
                format!("the body is not JSON, which quotes around {{{{ }}}} can cause: {cause}")
            })?;
        }
        let mut headers = HeaderMap::new();
        if self.is_json {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_CONTENT_TYPE));
        }
        for (name, template) in &self.headers {
            headers.insert(name.clone(), parse_header_value(&template.render(about)?)?);
        }
        Ok(ProviderHttpRequest {
            method: self.method.clone(),
            url,
            headers,
            body,
        })
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
fn item_variables(parcel: &OutgoingItem<'_>) -> TemplateVariables {
    let parts = parcel
        .message
        .parts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let own = [
        ("key", parcel.key),
        ("item", parcel.item),
        ("to", parcel.to),
        ("recipient", parcel.recipient),
    ];
    TemplateVariables::from_named(parts.chain(own).collect())
}

fn parse_method(name: &str) -> Result<Method, String> {
    match name {
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" => {
            Method::from_bytes(name.as_bytes()).map_err(|it| it.to_string())
        }
        _ => Err(format!(
            "{name} is not a method: expected POST, PUT, PATCH, DELETE or GET"
        )),
    }
}

pub(crate) fn parse_header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("`{name}` is not the name of a header"))
}

/// Fails if the text has control characters, which could start another header.
pub(crate) fn parse_header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| "a header would have a line break or a control character in it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_origin;

    #[test]
    fn whom_a_url_leads_to_is_known_before_anything_is_filled_in() {
        for (url, host) in [
            ("https://api.example.org/v1/{{ to }}", "api.example.org:443"),
            ("http://127.0.0.1:8080?to={{ to }}", "127.0.0.1:8080"),
            ("https://[::1]/x", "[::1]:443"),
        ] {
            assert_eq!(
                parse_origin(url).map(|it| it.to_string()),
                Ok(host.to_owned())
            );
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
            assert!(parse_origin(url).is_err(), "{url}");
        }
    }
}
