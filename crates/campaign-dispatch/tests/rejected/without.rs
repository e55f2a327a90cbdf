//! A provider cannot be called without a reservation: the row of an item is not one.

async fn send(provider: &dyn onward_campaign_dispatch::Provider, item: onward_store::tables::OutboxItemRow) {
    provider.deliver_batch(vec![item]).await;
}

fn main() {
    let _ = send;
}
