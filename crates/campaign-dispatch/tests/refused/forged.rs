//! A reservation cannot be made by hand.

fn main() {
    let _ = onward_campaign_dispatch::Reservation {
        item: "item".into(),
        key: "key".into(),
        address: "ada@example.org".into(),
        recipient: "ada".into(),
        message: onward_campaign_dispatch::Message::default(),
    };
}
