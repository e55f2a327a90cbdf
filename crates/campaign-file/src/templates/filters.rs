//! Size limits for template filters that can expand a small input without bound, and the removal of
//! filters that messages do not need.

use minijinja::filters;
use minijinja::value::{Kwargs, Rest, StringInput, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// Maximum length in bytes of the text that one of these filters returns.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;

/// Removed filters: they produce output as large as a numeric argument, or output for programmers
/// only.
const REMOVED_FILTERS: [&str; 6] = ["batch", "slice", "indent", "pprint", "chain", "zip"];

/// Limits of a format string: its length in bytes, and the digits of each number in it.
const FORMAT_BYTES_MAX: usize = 1_000;
const FORMAT_DIGITS_MAX: usize = 3;

/// Installs the bounded filters in an environment and removes the others.
pub(crate) fn install_bounded_filters(templates: &mut Environment<'_>) {
    for name in REMOVED_FILTERS {
        templates.remove_filter(name);
    }
    templates.add_filter("replace", replace_bounded);
    templates.add_filter("join", join_bounded);
    templates.add_filter("format", format_bounded);
}

fn text_too_long() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("the text would be longer than {TEXT_BYTES_MAX} bytes"),
    )
}

fn replace_bounded(
    state: &mut State<'_, '_>,
    value: StringInput<'_>,
    from: StringInput<'_>,
    to: StringInput<'_>,
) -> Result<Value, Error> {
    let occurrences = value.as_str().matches(from.as_str()).count();
    let length = occurrences
        .saturating_mul(to.as_str().len())
        .saturating_add(value.as_str().len());
    if length > TEXT_BYTES_MAX {
        return Err(text_too_long());
    }
    filters::replace(state, value, from, to)
}

fn join_bounded(
    state: &mut State<'_, '_>,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let joiner_bytes = joiner.as_ref().map_or(0, |joiner| joiner.as_str().len());
    let mut length = 0_usize;
    for item in value.try_iter()? {
        let bytes = item
            .as_str()
            .map_or_else(|| item.to_string().len(), str::len);
        length = length.saturating_add(bytes).saturating_add(joiner_bytes);
        if length > TEXT_BYTES_MAX {
            return Err(text_too_long());
        }
    }
    filters::join(state, value, joiner, attribute, kwargs)
}

fn format_bounded(
    state: &mut State<'_, '_>,
    pattern: &Value,
    values: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let text = pattern.as_str().unwrap_or_default();
    let digits = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::len)
        .max()
        .unwrap_or(0);
    if text.len() > FORMAT_BYTES_MAX || digits > FORMAT_DIGITS_MAX || text.contains(['*', '(']) {
        let message = format!(
            "a format string is limited to {FORMAT_BYTES_MAX} bytes and to widths of \
             {FORMAT_DIGITS_MAX} digits, without names or `*`"
        );
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    filters::format(state, pattern, values)
}
