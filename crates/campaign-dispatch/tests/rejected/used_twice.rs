//! A provider call consumes its reservation.

async fn send_twice(provider: &dyn onward_campaign_dispatch::Provider, reservation: onward_campaign_dispatch::Reservation) {
    provider.deliver_batch(vec![reservation]).await;
    provider.deliver_batch(vec![reservation]).await;
}

fn main() {
    let _ = send_twice;
}
