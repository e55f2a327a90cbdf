//! The content of a reservation, as providers use it. It does not carry the right to send: that
//! stays with the holder of the reservation.

use onward_base::SharedText;
use onward_campaign_core::{RenderedMessage, SendOutcome};
use onward_campaign_dispatch::Reservation;

/// Maximum number of characters of a provider's response text that is kept.
const OUTCOME_CHARS_MAX: usize = 500;

/// A message with its recipient, item id and idempotency key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingItem<'a> {
    pub(crate) item_id: &'a str,
    pub(crate) key: &'a str,
    pub(crate) to: &'a str,
    pub(crate) recipient: &'a str,
    pub(crate) message: &'a RenderedMessage,
}

impl<'a> OutgoingItem<'a> {
    pub(crate) fn from_reservation(reservation: &'a Reservation) -> Self {
        Self {
            item_id: reservation.item_id(),
            key: reservation.idempotency_key(),
            to: reservation.address(),
            recipient: reservation.recipient_id(),
            message: reservation.message(),
        }
    }
}

/// Returns the text of a response on one line, truncated to [`OUTCOME_CHARS_MAX`] characters.
pub(crate) fn sanitize_text(text: &str) -> SharedText {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let line: String = printable.take(OUTCOME_CHARS_MAX).collect();
    line.trim().into()
}

/// The outcome of an item whose message cannot be built.
pub(crate) fn invalid_message(error: &dyn std::error::Error) -> SendOutcome {
    SendOutcome::InvalidMessage(sanitize_text(&error.to_string()))
}

/// Returns whether a text has control characters, which could end a line of a protocol.
pub(crate) fn has_control_chars(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::sanitize_text;

    #[test]
    fn a_response_text_is_one_line_of_bounded_length() {
        assert_eq!(
            &*sanitize_text("550 no\r\nsuch user\n"),
            "550 no  such user"
        );
        assert_eq!(sanitize_text(&"é".repeat(10_000)).chars().count(), 500);
    }
}
