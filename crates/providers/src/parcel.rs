//! What a provider works with: a reservation's content. The right to send stays with whoever was given the reservation.

use onward_dispatch::Answer;
use onward_dispatcher::{Message, Reservation};
use onward_journal::Text;

/// Words of a provider are kept up to so many characters.
const WORDS_MAX: usize = 500;

/// What is to be delivered to whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parcel<'a> {
    pub(crate) item: &'a str,
    pub(crate) key: &'a str,
    pub(crate) to: &'a str,
    pub(crate) recipient: &'a str,
    pub(crate) message: &'a Message,
}

impl<'a> Parcel<'a> {
    pub(crate) fn of(reservation: &'a Reservation) -> Self {
        Self {
            item: reservation.item(),
            key: reservation.key(),
            to: reservation.address(),
            recipient: reservation.recipient(),
            message: reservation.message(),
        }
    }
}

/// An answer's words: on one line, and not too long.
pub(crate) fn words(text: &str) -> Text {
    let mut words = String::new();
    let printed = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    words.extend(printed.take(WORDS_MAX));
    words.trim().into()
}

/// What is to be sent cannot be.
pub(crate) fn unfit(text: &str) -> Answer {
    Answer::Unfit(words(text))
}

/// Whether there is anything in a text that could end a line of a protocol.
pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_of_a_provider_are_one_line_of_bounded_length() {
        assert_eq!(&*words("550 no\r\nsuch user\n"), "550 no  such user");
        assert_eq!(words(&"é".repeat(10_000)).chars().count(), 500);
    }
}
