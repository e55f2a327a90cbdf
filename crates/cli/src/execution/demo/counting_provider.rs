//! HTTP provider that counts its calls, in the demo's own process, which is not killed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use tokio::net::TcpListener;

/// Delay before each response.
const ANSWER_DELAY: Duration = Duration::from_millis(20);

/// Number of calls per idempotency key.
#[derive(Clone, Default)]
pub(super) struct DemoProviderCalls(Arc<Mutex<BTreeMap<String, u32>>>);

impl DemoProviderCalls {
    /// Starts the provider on a free loopback port. Returns its call counts and its address.
    pub(super) async fn start_server() -> anyhow::Result<(Self, SocketAddr)> {
        let calls = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/send", post(Self::record_call))
            .with_state(calls.clone());
        tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok((calls, address))
    }

    async fn record_call(State(calls): State<Self>, headers: HeaderMap) {
        let key = headers
            .get("idempotency-key")
            .and_then(|key| key.to_str().ok())
            .unwrap_or_default();
        *calls.lock_counts().entry(key.to_owned()).or_default() += 1;
        tokio::time::sleep(ANSWER_DELAY).await;
    }

    fn lock_counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of distinct keys that the provider was called with.
    pub(super) fn key_count(&self) -> usize {
        self.lock_counts().len()
    }

    /// Whether the provider was called with this key.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.lock_counts().contains_key(key)
    }

    /// Number of keys that the provider was called with more than once.
    pub(super) fn repeated_count(&self) -> usize {
        self.lock_counts()
            .values()
            .filter(|count| **count > 1)
            .count()
    }
}
