//! Templates of requests. What they print cannot leave the place where it is printed.

use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Steps of one template, at most.
const FUEL: u64 = 1_000_000;

/// What stays as it is in a URL or a form.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name under which an environment has its one template.
const NAME: &str = "template";

/// How what is printed is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    /// As it is.
    Plain,
    /// As a value of JSON.
    Json,
    /// For a place in a URL or a form.
    Percent,
}

/// A template that could be read.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    what: String,
}

impl Template {
    /// Reads a template of `what`.
    pub(crate) fn new(what: &str, source: &str, escape: Escape) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(move |_| match escape {
            Escape::Json => AutoEscape::Json,
            Escape::Plain | Escape::Percent => AutoEscape::None,
        });
        if escape == Escape::Percent {
            environment.set_formatter(percent);
        }
        let read = environment.add_template_owned(NAME, source.to_owned());
        read.map_err(|cause| format!("the template of {what} cannot be read: {}", told(&cause)))?;
        Ok(Self { environment, what: what.to_owned() })
    }

    /// What it says about these.
    pub(crate) fn render(&self, about: &Value) -> Result<String, String> {
        let template = self.environment.get_template(NAME);
        let rendered = template.and_then(|template| template.render(about.clone()));
        rendered.map_err(|cause| format!("the template of {} cannot be filled in: {}", self.what, told(&cause)))
    }
}

/// Prints so that nothing is taken for a part of a URL or a form.
fn percent(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return minijinja::escape_formatter(out, state, value);
    }
    let text = value.to_string();
    let encoded = utf8_percent_encode(&text, ENCODED);
    out.write_fmt(format_args!("{encoded}")).map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot be printed"))
}

fn told(cause: &Error) -> String {
    let place = cause.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let detail = cause.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{detail}{place}", cause.kind())
}

#[cfg(test)]
mod tests {
    use minijinja::{Value, context};

    use super::{Escape, Template};

    fn render(source: &str, escape: Escape, about: &Value) -> Result<String, String> {
        Template::new("the body", source, escape)?.render(about)
    }

    #[test]
    fn what_is_printed_in_json_is_json_with_the_filter_or_without() {
        let about = context! { text => "a \"quote\",\n\\ and é" };
        for source in ["{\"text\": {{ text }}}", "{\"text\": {{ text|tojson }}}"] {
            let body: serde_json::Value = serde_json::from_str(&render(source, Escape::Json, &about).unwrap()).unwrap();
            assert_eq!(body["text"], "a \"quote\",\n\\ and é");
        }
    }

    #[test]
    fn what_is_printed_in_a_url_stays_one_part_of_it() {
        let about = context! { to => "../a?b=c&d#é@x" };
        let url = render("https://example.org/{{ to }}", Escape::Percent, &about).unwrap();
        assert_eq!(url, "https://example.org/..%2Fa%3Fb%3Dc%26d%23%C3%A9%40x");
    }

    #[test]
    fn a_name_that_stands_for_nothing_is_an_error() {
        for escape in [Escape::Plain, Escape::Json, Escape::Percent] {
            let refused = render("{{ subjetc }}", escape, &context! { subject => "Hello" }).unwrap_err();
            assert!(refused.starts_with("the template of the body cannot be filled in: undefined value"), "{refused}");
        }
        let optional = "{% if html is defined %}{{ html }}{% endif %}";
        assert_eq!(render(optional, Escape::Plain, &context! {}), Ok(String::new()));
    }

    #[test]
    fn a_template_that_cannot_be_read_or_does_not_end_is_refused() {
        assert!(render("{{ key", Escape::Plain, &context! {}).unwrap_err().contains("cannot be read"));
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert!(render(endless, Escape::Plain, &context! {}).is_err());
    }
}
