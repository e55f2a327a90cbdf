//! Filters that could make much of little, with a limit; and those that nobody needs in a letter, without.

use minijinja::filters;
use minijinja::value::{Kwargs, Rest, StringInput, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// Bytes of a text that these filters make, at most.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;

/// Filters that take a number and make as much of it, or write what only programmers read.
const ABSENT: [&str; 6] = ["batch", "slice", "indent", "pprint", "chain", "zip"];

/// Characters of a format, and digits of a number in it.
const FORMAT_MAX: usize = 1_000;
const DIGITS_MAX: usize = 3;

/// Gives templates these filters.
pub(crate) fn limit(templates: &mut Environment<'_>) {
    for name in ABSENT {
        templates.remove_filter(name);
    }
    templates.add_filter("replace", replace);
    templates.add_filter("join", join);
    templates.add_filter("format", format);
}

fn too_long() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the text would be longer than {TEXT_BYTES_MAX} bytes"))
}

fn replace(
    state: &mut State<'_, '_>,
    value: StringInput<'_>,
    from: StringInput<'_>,
    to: StringInput<'_>,
) -> Result<Value, Error> {
    let times = value.as_str().matches(from.as_str()).count();
    let length = times.saturating_mul(to.as_str().len()).saturating_add(value.as_str().len());
    if length > TEXT_BYTES_MAX {
        return Err(too_long());
    }
    filters::replace(state, value, from, to)
}

fn join(
    state: &mut State<'_, '_>,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let between = joiner.as_ref().map_or(0, |joiner| joiner.as_str().len());
    let mut length = 0_usize;
    for item in value.try_iter()? {
        let bytes = item.as_str().map_or_else(|| item.to_string().len(), str::len);
        length = length.saturating_add(bytes).saturating_add(between);
        if length > TEXT_BYTES_MAX {
            return Err(too_long());
        }
    }
    filters::join(state, value, joiner, attribute, kwargs)
}

fn format(state: &mut State<'_, '_>, pattern: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let text = pattern.as_str().unwrap_or_default();
    let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if text.len() > FORMAT_MAX || digits > DIGITS_MAX || text.contains(['*', '(']) {
        let words = format!("a format has at most {FORMAT_MAX} bytes and no names, and its widths {DIGITS_MAX} digits");
        return Err(Error::new(ErrorKind::InvalidOperation, words));
    }
    filters::format(state, pattern, values)
}
