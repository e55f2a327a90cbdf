//! Templates of requests. Escaping guarantees that output cannot leave the context in which it is
//! printed.

use std::collections::BTreeMap;

use minijinja::{AutoEscape, Error, ErrorKind, Output, State, Value};
use onward_campaign_file::templates::{TemplateLimits, TemplateSet};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

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
    label: String,
}

impl EscapedTemplate {
    /// Compiles a template; `what` is its name in error messages.
    pub(crate) fn new(what: &str, source: &str, escape: TemplateEscaping) -> Result<Self, String> {
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
            .map_err(|wrong| format!("the template of {what} cannot be read: {wrong}"))?;
        Ok(Self {
            templates,
            label: what.to_owned(),
        })
    }

    /// Renders the template with these variables.
    pub(crate) fn render(&self, about: &TemplateVariables) -> Result<String, String> {
        let rendered = self
            .templates
            .render(TEMPLATE_NAME, &about.variables, about.bytes);
        rendered.map_err(|wrong| {
            format!(
                "the template of {} cannot be filled in: {wrong}",
                self.label
            )
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
        .map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot be printed"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{EscapedTemplate, TemplateEscaping, TemplateVariables};

    fn render(
        source: &str,
        escape: TemplateEscaping,
        about: &[(&str, &str)],
    ) -> Result<String, String> {
        EscapedTemplate::new("the body", source, escape)?.render(&TemplateVariables::from_named(
            about.iter().copied().collect(),
        ))
    }

    #[test]
    fn what_is_printed_in_json_is_json_with_the_filter_or_without() {
        let about = [("text", "a \"quote\",\n\\ and é")];
        for source in ["{\"text\": {{ text }}}", "{\"text\": {{ text|tojson }}}"] {
            let body: serde_json::Value =
                serde_json::from_str(&render(source, TemplateEscaping::Json, &about).unwrap())
                    .unwrap();
            assert_eq!(body["text"], "a \"quote\",\n\\ and é");
        }
    }

    #[test]
    fn what_is_printed_in_a_url_stays_one_part_of_it() {
        let about = [("to", "../a?b=c&d#é@x")];
        let url = render(
            "https://example.org/{{ to }}",
            TemplateEscaping::Percent,
            &about,
        )
        .unwrap();
        assert_eq!(url, "https://example.org/..%2Fa%3Fb%3Dc%26d%23%C3%A9%40x");
    }

    #[test]
    fn a_name_that_stands_for_nothing_is_an_error() {
        for escape in [
            TemplateEscaping::Plain,
            TemplateEscaping::Json,
            TemplateEscaping::Percent,
        ] {
            let refused = render("{{ subjetc }}", escape, &[("subject", "Hello")]).unwrap_err();
            assert!(
                refused.starts_with(
                    "the template of the body cannot be filled in: `subjetc` is not defined"
                ),
                "{refused}"
            );
        }
        let optional = "{% if html is defined %}{{ html }}{% endif %}";
        assert_eq!(
            render(optional, TemplateEscaping::Plain, &[]),
            Ok(String::new())
        );
    }

    #[test]
    fn a_template_that_cannot_be_read_or_does_not_end_is_refused() {
        assert!(
            render("{{ key", TemplateEscaping::Plain, &[])
                .unwrap_err()
                .contains("cannot be read")
        );
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert!(render(endless, TemplateEscaping::Plain, &[]).is_err());
    }
    #[test]
    fn a_template_uses_up_neither_the_memory_nor_the_stack() {
        let doubled: String = (0..30).map(|_| "{% set key = key ~ key %}").collect();
        for source in [
            format!("{doubled}{{{{ key|length }}}}"),
            format!("{{{{ {}key }}}}", "not ".repeat(100_000)),
        ] {
            let refused = render(&source, TemplateEscaping::Json, &[("key", "k")]).unwrap_err();
            assert!(
                refused.starts_with("the template of the body cannot be"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_hundred_long_messages_are_one_request() {
        let (html, body) = (
            "<p>é</p>".repeat(10_000),
            "[{% for item in items %}{{ item.html|tojson }}{% if not loop.last %},{% endif %}{% endfor %}]",
        );
        let all = std::iter::repeat_n(
            TemplateVariables::from_named(BTreeMap::from([("html", &*html)])),
            100,
        );
        let body = EscapedTemplate::new("the body", body, TemplateEscaping::Json)
            .unwrap()
            .render(&TemplateVariables::from_list("items", all))
            .unwrap();
        let body: Vec<String> = serde_json::from_str(&body).unwrap();
        assert_eq!(body, vec![html; 100]);
    }
}
