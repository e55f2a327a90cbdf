//! Forwards the log lines of guests to `tracing`, at the level that the guest chose.

use std::borrow::Cow;
use std::fmt::Display;

use onward_execution::GuestLogLevel;

/// Logs a line of a guest under the target `onward::guest`. Line breaks and other control
/// characters are escaped, so that a guest cannot forge a line of another origin.
pub fn log_guest_line(execution: impl Display, level: GuestLogLevel, message: &str) {
    let message = escape_control_chars(message);
    match level {
        GuestLogLevel::Debug => tracing::debug!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Info => tracing::info!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Warn => tracing::warn!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Error => tracing::error!(target: "onward::guest", %execution, "{message}"),
    }
}

/// Escapes characters that break or reorder a line of the log; a tab is kept.
fn escape_control_chars(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe_in_line) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe_in_line(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character ends a line, controls a terminal, or changes the direction of text.
fn is_unsafe_in_line(character: char) -> bool {
    let is_separator = matches!(character, '\u{2028}' | '\u{2029}');
    let is_direction_mark = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    (character.is_control() && character != '\t') || is_separator || is_direction_mark
}

#[cfg(test)]
mod tests {
    use super::escape_control_chars;

    #[test]
    fn a_guest_cannot_forge_a_line_of_the_log() {
        for (message, logged) in [
            (
                "first\n2026-01-01 ERROR forged",
                "first\\n2026-01-01 ERROR forged",
            ),
            ("a\r\u{1b}[2Kb", "a\\r\\u{1b}[2Kb"),
            ("a\u{2028}b\u{85}c", "a\\u{2028}b\\u{85}c"),
            ("\u{202e}live", "\\u{202e}live"),
        ] {
            assert_eq!(escape_control_chars(message), logged);
        }
        let plain = "Zoë\t\"quoted\" 50 %";
        assert_eq!(escape_control_chars(plain), plain);
    }
}
