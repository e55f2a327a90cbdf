//! A reservation cannot be constructed by other crates.

fn main() {
    let _ = onward_campaign_dispatch::Reservation {
        item_id: "item".into(),
        idempotency_key: "key".into(),
        address: "ada@example.org".into(),
        recipient_id: "ada".into(),
        message: onward_campaign_core::RenderedMessage::default(),
    };
}
