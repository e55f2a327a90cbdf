//! Words from one process to another.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{NotificationHandler, Store as _};
use onward_store_postgres::PostgresStore;
use onward_store_postgres::scratch_schema::ScratchSchema;
use tokio::sync::mpsc;

use crate::server::{connect, fresh, open};

/// What a store hears.
fn hearing(
    store: &PostgresStore,
) -> (
    onward_store::RegistrationGuard,
    mpsc::UnboundedReceiver<String>,
) {
    let (sender, words) = mpsc::unbounded_channel();
    let heard: NotificationHandler = Arc::new(move |word: &str| drop(sender.send(word.to_owned())));
    (store.subscribe(heard).unwrap(), words)
}

/// Tells until it is heard: whoever has begun to listen may not be listening yet.
async fn until_heard(
    teller: &PostgresStore,
    words: &mut mpsc::UnboundedReceiver<String>,
    said: &str,
) {
    let heard = async {
        loop {
            teller.notify(said.to_owned());
            let patience = Duration::from_millis(100);
            if let Ok(word) = tokio::time::timeout(patience, words.recv()).await
                && word.as_deref() == Some(said)
            {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), heard)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_tells_the_other_hears() {
    let fixture = fresh().await;
    let other = open(&fixture.url).await;
    let (_hearing, mut words) = hearing(&other);
    until_heard(&fixture.store, &mut words, "hello").await;
    for number in 0..5_000 {
        fixture.store.notify(format!("shard {}", number % 100));
    }
    until_heard(&fixture.store, &mut words, "enough").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_was_cut_off_hears_again() {
    let fixture = fresh().await;
    let (_hearing, mut words) = hearing(&fixture.store);
    until_heard(&fixture.store, &mut words, "before").await;
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
    until_heard(&fixture.store, &mut words, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_in_another_schema_hears_nothing() {
    let fixture = fresh().await;
    let scratch = ScratchSchema::create(&fixture.url, "elsewhere")
        .await
        .unwrap();
    let stranger = open(&scratch.store_url()).await;
    let (_hearing, mut strange) = hearing(&stranger);
    until_heard(&stranger, &mut strange, "own").await;
    let (_hearing, mut words) = hearing(&fixture.store);
    until_heard(&fixture.store, &mut words, "ours").await;
    stranger.notify("theirs".to_owned());
    until_heard(&stranger, &mut strange, "last").await;
    while let Ok(word) = strange.try_recv() {
        assert_ne!(word, "ours");
    }
}
