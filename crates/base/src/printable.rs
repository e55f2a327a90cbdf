//! Characters that change how a terminal shows other text.

/// Whether a character must be escaped before it is printed: a control character, a line separator,
/// or a mark that changes the direction of the text next to it, so that a line reads differently.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}
