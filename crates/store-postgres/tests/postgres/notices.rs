//! Notifications from one process to another.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{NotificationHandler, Store as _};
use onward_store_postgres::PostgresStore;
use onward_store_postgres::scratch_schema::ScratchSchema;
use tokio::sync::mpsc;

use crate::server::{connect, fresh, open};

/// Subscribes to the notifications of a store.
fn subscribe_to(
    store: &PostgresStore,
) -> (
    onward_store::RegistrationGuard,
    mpsc::UnboundedReceiver<String>,
) {
    let (forward, received) = mpsc::unbounded_channel();
    let handler: NotificationHandler =
        Arc::new(move |notification: &str| drop(forward.send(notification.to_owned())));
    (store.subscribe(handler).unwrap(), received)
}

/// Sends a notification until it is received, because a new subscriber may not listen yet.
async fn notify_until_received(
    sender: &PostgresStore,
    received: &mut mpsc::UnboundedReceiver<String>,
    notification_text: &str,
) {
    let delivered = async {
        loop {
            sender.notify(notification_text.to_owned());
            let interval = Duration::from_millis(100);
            if let Ok(notification) = tokio::time::timeout(interval, received.recv()).await
                && notification.as_deref() == Some(notification_text)
            {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), delivered)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_receives_notifications_of_another_store() {
    let fixture = fresh().await;
    let other = open(&fixture.url).await;
    let (_subscription, mut received) = subscribe_to(&other);
    notify_until_received(&fixture.store, &mut received, "hello").await;
    for number in 0..5_000 {
        fixture.store.notify(format!("shard {}", number % 100));
    }
    notify_until_received(&fixture.store, &mut received, "enough").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_listener_reconnects() {
    let fixture = fresh().await;
    let (_subscription, mut received) = subscribe_to(&fixture.store);
    notify_until_received(&fixture.store, &mut received, "before").await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    assert_eq!(
        connect(&fixture.url)
            .await
            .query(cut, &[])
            .await
            .unwrap()
            .len(),
        1
    );
    notify_until_received(&fixture.store, &mut received, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_in_another_schema_receives_nothing() {
    let fixture = fresh().await;
    let scratch = ScratchSchema::create(&fixture.url, "elsewhere")
        .await
        .unwrap();
    let other_store = open(&scratch.store_url()).await;
    let (_subscription, mut other_received) = subscribe_to(&other_store);
    notify_until_received(&other_store, &mut other_received, "own").await;
    let (_subscription, mut received) = subscribe_to(&fixture.store);
    notify_until_received(&fixture.store, &mut received, "ours").await;
    other_store.notify("theirs".to_owned());
    notify_until_received(&other_store, &mut other_received, "last").await;
    while let Ok(notification) = other_received.try_recv() {
        assert_ne!(notification, "ours");
    }
}
