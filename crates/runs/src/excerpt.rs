//! Foreign text in our own sentences: cut to a length, quoted, and nothing in it that could move a terminal's cursor.

use serde_json::value::RawValue;

/// Long enough to recognise a value by.
const EXCERPT_CHARS_MAX: usize = 60;

/// The beginning of a text, quoted and escaped.
pub(crate) fn quote_excerpt(text: &str) -> String {
    let (shown, more) = truncate_excerpt(text);
    format!("{shown:?}{more}")
}

/// The beginning of a JSON value; of lists and objects only what they are.
pub(crate) fn describe_json(raw: &RawValue) -> String {
    match raw.get().as_bytes() {
        [b'{', ..] => "an object".to_owned(),
        [b'[', ..] => "a list".to_owned(),
        [b'"', ..] => serde_json::from_str(raw.get()).map_or_else(
            |_| "a string that is not Unicode".to_owned(),
            |decoded: String| quote_excerpt(&decoded),
        ),
        _ => {
            let (shown, more) = truncate_excerpt(raw.get());
            format!("{shown}{more}")
        }
    }
}

fn truncate_excerpt(text: &str) -> (&str, &'static str) {
    text.char_indices()
        .nth(EXCERPT_CHARS_MAX)
        .map_or((text, ""), |(end, _)| (&text[..end], "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_harmless() {
        assert_eq!(quote_excerpt("abc"), r#""abc""#);
        assert_eq!(
            quote_excerpt("\u{1b}[2J\u{9b}\n\u{202e}é"),
            r#""\u{1b}[2J\u{9b}\n\u{202e}é""#
        );
        assert_eq!(
            quote_excerpt(&"é".repeat(61)),
            format!("\"{}\"…", "é".repeat(60))
        );
    }

    #[test]
    fn a_value_is_shown_as_what_it_is() {
        let shown = |text: &str| describe_json(serde_json::from_str(text).unwrap());
        for (value, expected) in [
            ("1e400", "1e400"),
            ("null", "null"),
            (r#""a\u0000""#, r#""a\0""#),
            (r#""\ud800""#, "a string that is not Unicode"),
            ("[1]", "a list"),
            ("{}", "an object"),
        ] {
            assert_eq!(shown(value), expected);
        }
        assert_eq!(shown(&"1".repeat(99)), format!("{}…", "1".repeat(60)));
    }
}
