//! A provider that counts, in a process that nobody kills.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use tokio::net::TcpListener;

/// How long it takes to answer.
const ANSWERS: Duration = Duration::from_millis(20);

/// How often it was called for which key.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<Mutex<BTreeMap<String, u32>>>);

impl Calls {
    /// Begins to answer.
    pub(super) async fn serve() -> anyhow::Result<(Self, SocketAddr)> {
        let calls = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/send", post(Self::take)).with_state(calls.clone());
        tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok((calls, address))
    }

    async fn take(State(calls): State<Self>, headers: HeaderMap) {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
        *calls.lock().entry(key.to_owned()).or_default() += 1;
        tokio::time::sleep(ANSWERS).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how many keys it was called.
    pub(super) fn keys(&self) -> usize {
        self.lock().len()
    }

    /// Whether it was called for this one.
    pub(super) fn has(&self, key: &str) -> bool {
        self.lock().contains_key(key)
    }

    /// For how many it was called more than once.
    pub(super) fn repeated(&self) -> usize {
        self.lock().values().filter(|count| **count > 1).count()
    }
}
