//! Short descriptions of JSON values for error messages.

pub(crate) use onward_base::excerpt::quote_excerpt;
use onward_base::excerpt::split_excerpt;
use serde_json::value::RawValue;

/// Returns an excerpt from the beginning of a scalar value; lists and objects are described only as
/// such.
pub(crate) fn describe_json(raw: &RawValue) -> String {
    match raw.get().as_bytes() {
        [b'{', ..] => "an object".to_owned(),
        [b'[', ..] => "a list".to_owned(),
        [b'"', ..] => serde_json::from_str(raw.get()).map_or_else(
            |_| "a string that is not Unicode".to_owned(),
            |decoded: String| quote_excerpt(&decoded),
        ),
        _ => {
            let (shown, more) = split_excerpt(raw.get());
            format!("{shown}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_by_its_type() {
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
