//! Subscriptions to changes of one journal or one log, within this process. A notification is a
//! hint: the subscriber reads the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The topics that have subscribers, by key.
pub(crate) struct ChangeTopics<K: Ord>(Arc<Mutex<BTreeMap<K, watch::Sender<()>>>>);

impl<K: Ord> Default for ChangeTopics<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone> ChangeTopics<K> {
    /// Subscribes to changes after this call.
    pub(crate) fn subscribe(&self, key: K) -> ChangeSubscription<K> {
        let receiver = lock_topics(&self.0)
            .entry(key.clone())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe();
        ChangeSubscription {
            topics: Self(Arc::clone(&self.0)),
            key,
            receiver,
        }
    }

    /// Notifies the subscribers of a key.
    pub(crate) fn notify_change(&self, key: &K) {
        if let Some(topic) = lock_topics(&self.0).get(key) {
            topic.send_replace(());
        }
    }
}

/// Subscription to the changes of a key; dropping it unsubscribes.
pub(crate) struct ChangeSubscription<K: Ord> {
    topics: ChangeTopics<K>,
    key: K,
    receiver: watch::Receiver<()>,
}

impl<K: Ord> ChangeSubscription<K> {
    /// Waits for a change since the subscription, or since this last returned.
    pub(crate) async fn wait_for_change(&mut self) {
        // The topic exists as long as it has a subscriber.
        if self.receiver.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl<K: Ord> Drop for ChangeSubscription<K> {
    fn drop(&mut self) {
        let mut topics = lock_topics(&self.topics.0);
        // The receiver of this subscription still counts.
        if topics
            .get(&self.key)
            .is_some_and(|topic| topic.receiver_count() <= 1)
        {
            topics.remove(&self.key);
        }
    }
}

fn lock_topics<K: Ord>(
    topics: &Mutex<BTreeMap<K, watch::Sender<()>>>,
) -> MutexGuard<'_, BTreeMap<K, watch::Sender<()>>> {
    topics.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_change_reaches_the_subscribers_of_its_key_and_no_topic_stays() {
        let topics = ChangeTopics::default();
        let (mut first, mut second) = (topics.subscribe("a"), topics.subscribe("a"));
        let mut other = topics.subscribe("b");
        assert!(first.wait_for_change().now_or_never().is_none());
        topics.notify_change(&"a");
        assert!(first.wait_for_change().now_or_never().is_some());
        assert!(first.wait_for_change().now_or_never().is_none(), "once");
        assert!(second.wait_for_change().now_or_never().is_some());
        assert!(other.wait_for_change().now_or_never().is_none());
        drop((first, other));
        topics.notify_change(&"a");
        assert!(second.wait_for_change().now_or_never().is_some());
        drop(second);
        assert!(lock_topics(&topics.0).is_empty());
    }
}
