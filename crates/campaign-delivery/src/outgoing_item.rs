//! What a provider works with: a reservation's content. The right to send stays with whoever was given the reservation.

use onward_base::SharedText;
use onward_campaign_core::{RenderedMessage, SendOutcome};
use onward_campaign_dispatch::Reservation;

/// Words of a provider are kept up to so many characters.
const OUTCOME_CHARS_MAX: usize = 500;

/// What is to be delivered to whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingItem<'a> {
    pub(crate) item: &'a str,
    pub(crate) key: &'a str,
    pub(crate) to: &'a str,
    pub(crate) recipient: &'a str,
    pub(crate) message: &'a RenderedMessage,
}

impl<'a> OutgoingItem<'a> {
    pub(crate) fn from_reservation(reservation: &'a Reservation) -> Self {
        Self {
            item: reservation.item_id(),
            key: reservation.idempotency_key(),
            to: reservation.address(),
            recipient: reservation.recipient_id(),
            message: reservation.message(),
        }
    }
}

/// An answer's words: on one line, and not too long.
pub(crate) fn sanitize_text(text: &str) -> SharedText {
    let mut words = String::new();
    let printed = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    words.extend(printed.take(OUTCOME_CHARS_MAX));
    words.trim().into()
}

/// What is to be sent cannot be.
pub(crate) fn invalid_message(text: &str) -> SendOutcome {
    SendOutcome::InvalidMessage(sanitize_text(text))
}

/// Whether there is anything in a text that could end a line of a protocol.
pub(crate) fn has_control_chars(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::sanitize_text;

    #[test]
    fn words_of_a_provider_are_one_line_of_bounded_length() {
        assert_eq!(
            &*sanitize_text("550 no\r\nsuch user\n"),
            "550 no  such user"
        );
        assert_eq!(sanitize_text(&"é".repeat(10_000)).chars().count(), 500);
    }
}
