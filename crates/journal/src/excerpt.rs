//! Foreign text in our own sentences: cut to a length, and nothing in it that could move a terminal's cursor.

/// Long enough to recognise a value by.
const EXCERPT_CHARS_MAX: usize = 60;

/// The beginning of a text, for an error message.
pub(crate) fn excerpt_text(text: &str) -> String {
    truncate_printable(text, EXCERPT_CHARS_MAX)
}

/// At most `chars_max` characters of a text, unprintable ones replaced.
pub(crate) fn truncate_printable(text: &str, chars_max: usize) -> String {
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

/// Controls, and the marks that turn the direction of writing around.
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
}
