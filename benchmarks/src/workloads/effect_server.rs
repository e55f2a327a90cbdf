//! HTTP server that receives the effects of the `recovery` workload: it holds requests back until
//! it is switched to answering, and counts them by idempotency key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Maximum size of a request in bytes; those of the benchmark have a few hundred.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// The running server. It stops accepting connections when this is dropped.
pub(super) struct EffectServer {
    /// Address of the server as `HOST:PORT`.
    pub(super) host: String,
    log: Arc<EffectLog>,
    accepting: JoinHandle<()>,
}

/// State that all connections share.
struct EffectLog {
    /// Number of requests per idempotency key.
    counts_by_key: Mutex<BTreeMap<String, u32>>,
    /// Total number of requests.
    total: watch::Sender<usize>,
    /// Whether requests are answered. Initially `false`: connections wait.
    is_answering: watch::Sender<bool>,
}

impl EffectServer {
    /// Listens on a free loopback port and holds all requests back.
    pub(super) async fn listen_on_loopback() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot listen on loopback")?;
        let host = listener.local_addr()?.to_string();
        let (count, is_open) = (watch::Sender::new(0), watch::Sender::new(false));
        let log = Arc::new(EffectLog {
            counts_by_key: Mutex::default(),
            total: count,
            is_answering: is_open,
        });
        let accepting = tokio::spawn(accept_connections(listener, Arc::clone(&log)));
        Ok(Self {
            host,
            log,
            accepting,
        })
    }

    /// Returns the URL that the workflows send their requests to.
    pub(super) fn effects_url(&self) -> String {
        format!("http://{}/effects", self.host)
    }

    /// Waits until at least `count` requests have arrived.
    pub(super) async fn wait_for_requests(&self, count: usize) -> anyhow::Result<()> {
        self.log
            .total
            .subscribe()
            .wait_for(|seen| *seen >= count)
            .await
            .map(drop)
            .context("the effect server has stopped")
    }

    /// Answers the requests that wait and all later ones.
    pub(super) fn start_answering(&self) {
        self.log.is_answering.send_replace(true);
    }

    /// Returns the number of requests per idempotency key.
    pub(super) fn counts_by_key(&self) -> BTreeMap<String, u32> {
        self.log
            .counts_by_key
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for EffectServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept_connections(listener: TcpListener, log: Arc<EffectLog>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer_requests(stream, Arc::clone(&log)))),
            // The process is out of file descriptors, or the client has closed the connection.
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Answers the requests of one connection in sequence until it is closed.
async fn answer_requests(mut stream: TcpStream, log: Arc<EffectLog>) {
    let mut bytes = Vec::new();
    while let Some(key) = read_request_key(&mut stream, &mut bytes).await {
        *log.counts_by_key
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key)
            .or_default() += 1;
        log.total.send_modify(|count| *count += 1);
        if log
            .is_answering
            .subscribe()
            .wait_for(|is_open| *is_open)
            .await
            .is_err()
            || stream.write_all(RESPONSE).await.is_err()
        {
            return;
        }
    }
}

/// Reads the next request, which has no body, and returns its idempotency key; empty if it has
/// none. `None` if the connection is closed or the request is too large.
async fn read_request_key(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = bytes.drain(..end + 4).collect();
            return Some(
                idempotency_key(&String::from_utf8_lossy(&head))
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
        if bytes.len() > REQUEST_BYTES_MAX || stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn idempotency_key(head: &str) -> Option<&str> {
    let headers = head.lines().filter_map(|line| line.split_once(':'));
    let mut keys = headers.filter(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
    keys.next().map(|(_, key)| key.trim())
}

#[cfg(test)]
mod tests {
    use super::idempotency_key;

    #[test]
    fn the_key_of_a_request_is_found_among_its_headers() {
        let head = "POST /effects HTTP/1.1\r\nhost: a:1\r\nIdempotency-Key: f00.1\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(idempotency_key(head), Some("f00.1"));
        assert_eq!(idempotency_key("POST / HTTP/1.1\r\n\r\n"), None);
    }
}
