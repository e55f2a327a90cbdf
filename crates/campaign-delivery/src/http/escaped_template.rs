//! Templates of requests. Escaping guarantees that output cannot leave the context in which it is
//! printed.

use std::collections::BTreeMap;

use minijinja::{AutoEscape, Error, ErrorKind, Output, State, Value};
use onward_campaign_file::templates::{TemplateLimits, TemplateSet};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::http::http_error::{HttpConfigError, HttpRequestError};

/// Maximum output of a template in bytes: one request can have a hundred items.
const OUTPUT_BYTES_MAX: usize = 32 << 20;
/// Maximum memory of intermediate values in bytes.
const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of steps of one rendering.
const STEPS_MAX: u64 = 1_000_000;

/// Characters that are percent-encoded in a URL or a form: all except letters, digits, `-`, `.`,
/// `_` and `~`.
const PERCENT_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Name of the only template in its template set.
const TEMPLATE_NAME: &str = "template";

/// Escaping of template output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TemplateEscaping {
    /// No escaping.
    Plain,
    /// Output is a JSON value.
    Json,
    /// Output is percent-encoded, for a URL or a form.
    Percent,
}

/// A compiled template with its escaping.
#[derive(Debug)]
pub(crate) struct EscapedTemplate {
    templates: TemplateSet,
    setting: String,
}

impl EscapedTemplate {
    /// Compiles a template; `setting` is the path of its setting, for error messages.
    pub(crate) fn new(
        setting: &str,
        source: &str,
        escape: TemplateEscaping,
    ) -> Result<Self, HttpConfigError> {
        let limits = TemplateLimits {
            output_bytes: OUTPUT_BYTES_MAX,
            memory_bytes: MEMORY_BYTES_MAX,
            steps: STEPS_MAX..=STEPS_MAX,
        };
        let mut templates = TemplateSet::new(limits, move |_| match escape {
            TemplateEscaping::Json => AutoEscape::Json,
            TemplateEscaping::Plain | TemplateEscaping::Percent => AutoEscape::None,
        });
        if escape == TemplateEscaping::Percent {
            templates = templates.with_formatter(print_percent_encoded);
        }
        templates
            .add_template(TEMPLATE_NAME, source)
            .map_err(|cause| HttpConfigError::InvalidTemplate {
                setting: setting.to_owned(),
                cause,
            })?;
        Ok(Self {
            templates,
            setting: setting.to_owned(),
        })
    }

    /// Renders the template with these variables.
    pub(crate) fn render(&self, variables: &TemplateVariables) -> Result<String, HttpRequestError> {
        self.templates
            .render(TEMPLATE_NAME, &variables.variables, variables.bytes)
            .map_err(|cause| HttpRequestError::Render {
                setting: self.setting.clone(),
                cause,
            })
    }
}

/// The variables of a template and their estimated size in bytes.
#[derive(Debug, Clone)]
pub(crate) struct TemplateVariables {
    variables: Value,
    bytes: u64,
}

/// Bytes that every value uses, whatever its type.
const VALUE_BYTES: usize = 64;

impl TemplateVariables {
    /// Creates variables from names and texts.
    pub(crate) fn from_named(named: BTreeMap<&str, &str>) -> Self {
        let bytes: usize = named
            .iter()
            .map(|(name, text)| VALUE_BYTES + name.len() + text.len())
            .sum();
        Self {
            variables: Value::from_pairs(named),
            bytes: bytes as u64,
        }
    }

    /// Creates one variable that is a list of objects.
    pub(crate) fn from_list(name: &str, all: impl Iterator<Item = Self>) -> Self {
        let (variables, bytes): (Vec<Value>, Vec<u64>) = all
            .map(|it| (it.variables, it.bytes + VALUE_BYTES as u64))
            .unzip();
        Self {
            variables: Value::from_pairs([(name, Value::from(variables))]),
            bytes: bytes.iter().sum(),
        }
    }
}

/// Prints a value percent-encoded, so that it cannot be parsed as syntax of a URL or a form.
fn print_percent_encoded(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    if value.is_undefined() {
        return minijinja::escape_formatter(out, state, value);
    }
    let text = value.to_string();
    let encoded = utf8_percent_encode(&text, PERCENT_ENCODE_SET);
    out.write_fmt(format_args!("{encoded}"))
        .map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot write the output"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{EscapedTemplate, TemplateEscaping, TemplateVariables};
    use crate::provider_error::MessageBuildError;

    fn render(
        source: &str,
        escape: TemplateEscaping,
        variables: &[(&str, &str)],
    ) -> Result<String, MessageBuildError> {
        let variables = TemplateVariables::from_named(variables.iter().copied().collect());
        Ok(EscapedTemplate::new("http.body", source, escape)?.render(&variables)?)
    }

    #[test]
    fn output_in_json_is_json_with_or_without_the_filter() {
        let variables = [("text", "a \"quote\",\n\\ and é")];
        for source in ["{\"text\": {{ text }}}", "{\"text\": {{ text|tojson }}}"] {
            let body: serde_json::Value =
                serde_json::from_str(&render(source, TemplateEscaping::Json, &variables).unwrap())
                    .unwrap();
            assert_eq!(body["text"], "a \"quote\",\n\\ and é");
        }
    }

    #[test]
    fn output_in_a_url_cannot_add_syntax_to_it() {
        let variables = [("to", "../a?b=c&d#é@x")];
        let url = render(
            "https://example.org/{{ to }}",
            TemplateEscaping::Percent,
            &variables,
        )
        .unwrap();
        assert_eq!(url, "https://example.org/..%2Fa%3Fb%3Dc%26d%23%C3%A9%40x");
    }

    #[test]
    fn an_undefined_variable_is_an_error() {
        for escape in [
            TemplateEscaping::Plain,
            TemplateEscaping::Json,
            TemplateEscaping::Percent,
        ] {
            let error = render("{{ subjetc }}", escape, &[("subject", "Hello")])
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(
                    "`http.body`: cannot render the template: `subjetc` is not defined"
                ),
                "{error}"
            );
        }
        let optional = "{% if html is defined %}{{ html }}{% endif %}";
        assert_eq!(render(optional, TemplateEscaping::Plain, &[]).unwrap(), "");
    }

    #[test]
    fn an_invalid_or_endless_template_is_rejected() {
        assert!(
            render("{{ key", TemplateEscaping::Plain, &[])
                .unwrap_err()
                .to_string()
                .contains("invalid template")
        );
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert!(render(endless, TemplateEscaping::Plain, &[]).is_err());
    }

    #[test]
    fn a_template_exhausts_neither_memory_nor_stack() {
        let doubled: String = (0..30).map(|_| "{% set key = key ~ key %}").collect();
        for source in [
            format!("{doubled}{{{{ key|length }}}}"),
            format!("{{{{ {}key }}}}", "not ".repeat(100_000)),
        ] {
            let error = render(&source, TemplateEscaping::Json, &[("key", "k")])
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("`http.body`: "), "{error}");
        }
    }

    #[test]
    fn a_hundred_long_messages_fit_in_one_request() {
        let (html, body) = (
            "<p>é</p>".repeat(10_000),
            "[{% for item in items %}{{ item.html|tojson }}{% if not loop.last %},{% endif %}{% endfor %}]",
        );
        let all = std::iter::repeat_n(
            TemplateVariables::from_named(BTreeMap::from([("html", &*html)])),
            100,
        );
        let body = EscapedTemplate::new("http.body", body, TemplateEscaping::Json)
            .unwrap()
            .render(&TemplateVariables::from_list("items", all))
            .unwrap();
        let body: Vec<String> = serde_json::from_str(&body).unwrap();
        assert_eq!(body, vec![html; 100]);
    }
}
