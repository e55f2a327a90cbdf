//! Excerpts of foreign text for error messages: limited in length, and without characters that
//! control a terminal.

/// Maximum length of an excerpt in characters: long enough to recognise a value.
const EXCERPT_CHARS_MAX: usize = 60;

/// Returns the first 60 characters of a text for an error message, with unprintable characters
/// replaced. A longer text ends with an ellipsis.
pub fn excerpt_text(text: &str) -> String {
    truncate_printable(text, EXCERPT_CHARS_MAX)
}

/// Returns the first 60 characters of a text, quoted and escaped. An ellipsis follows if the text
/// is longer.
pub fn quote_excerpt(text: &str) -> String {
    let (shown, more) = split_excerpt(text);
    format!("{shown:?}{more}")
}

/// Returns the first 60 characters of a text, and an ellipsis if the text is longer (otherwise the
/// empty string).
pub fn split_excerpt(text: &str) -> (&str, &'static str) {
    text.char_indices()
        .nth(EXCERPT_CHARS_MAX)
        .map_or((text, ""), |(end, _)| (&text[..end], "…"))
}

/// Returns at most `chars_max` characters of a text, with unprintable characters replaced. If the
/// text is longer, the last character is an ellipsis.
pub fn truncate_printable(text: &str, chars_max: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(chars_max)
        .map(replace_unprintable)
        .collect();
    if text.chars().nth(chars_max).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// Replaces control characters and the marks that change the direction of writing.
fn replace_unprintable(char: char) -> char {
    let turns =
        matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if char.is_control() || turns {
        char::REPLACEMENT_CHARACTER
    } else {
        char
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_harmless() {
        assert_eq!(truncate_printable("abc", 3), "abc");
        assert_eq!(truncate_printable("abcd", 3), "ab…");
        assert_eq!(
            excerpt_text(&"x".repeat(99)).chars().count(),
            EXCERPT_CHARS_MAX
        );
        assert_eq!(
            truncate_printable("\u{1b}[2J\u{9b}\u{7f}\n\u{202e}é", 20),
            "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}é"
        );
    }

    #[test]
    fn a_quoted_excerpt_is_escaped_and_cut() {
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
}
