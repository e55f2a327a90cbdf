//! A provider in the test process that records each call with its time and responds as the test
//! configures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::TIMEOUT;

/// A send to one recipient, single or part of a batch.
#[derive(Debug, Clone)]
pub(crate) struct ProviderCall {
    pub(crate) key: String,
    pub(crate) to: String,
    pub(crate) item: String,
    pub(crate) at: Instant,
    /// When the provider responded, if it did.
    pub(crate) responded_at: Option<Instant>,
}

/// A request: its calls, and how often the first of them has been received, including this time.
#[derive(Debug)]
pub(crate) struct ProviderRequest {
    pub(crate) calls: Vec<ProviderCall>,
    pub(crate) nth: usize,
}

/// How the provider responds to a request.
#[derive(Debug, Clone)]
pub(crate) enum ProviderReply {
    Accepted,
    /// Accepts, and responds after this time.
    Delayed(Duration),
    /// Accepts, and responds when the test releases a response.
    Held,
    /// Accepts, responds, and closes the connection without announcing it.
    AcceptedThenClosed,
    /// Closes the connection without a response.
    Dropped,
    /// Never responds.
    Unanswered,
    Throttled {
        retry_after_s: u64,
    },
    Status(u16),
    Body(Value),
}

type ReplyScript = dyn Fn(&ProviderRequest) -> ProviderReply + Send + Sync;

/// The calls that a provider has received.
#[derive(Default)]
struct CallLog {
    calls: Vec<ProviderCall>,
    times: BTreeMap<String, usize>,
}

struct ProviderShared {
    log: Mutex<CallLog>,
    script: Mutex<Arc<ReplyScript>>,
    called: watch::Sender<usize>,
    answered: watch::Sender<usize>,
    connections: watch::Sender<usize>,
    /// Number of held responses that may be sent.
    released: Semaphore,
}

/// A provider that serves until the test ends.
pub(crate) struct RecordingProvider {
    port: u16,
    shared: Arc<ProviderShared>,
}

impl RecordingProvider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ProviderShared {
            log: Mutex::default(),
            script: Mutex::new(Arc::new(|_: &ProviderRequest| ProviderReply::Accepted)),
            called: watch::Sender::new(0),
            answered: watch::Sender::new(0),
            connections: watch::Sender::new(0),
            released: Semaphore::new(0),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                shared.connections.send_modify(|count| *count += 1);
                tokio::spawn(async move {
                    shared.serve_connection(stream).await;
                    shared.connections.send_modify(|count| *count -= 1);
                });
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/send", self.port)
    }

    /// Sets the response to requests from now on.
    pub(crate) fn set_reply(
        &self,
        script: impl Fn(&ProviderRequest) -> ProviderReply + Send + Sync + 'static,
    ) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Releases this many held responses, now or later.
    pub(crate) fn release_held(&self, count: usize) {
        self.shared.released.add_permits(count);
    }

    pub(crate) fn calls(&self) -> Vec<ProviderCall> {
        self.shared.log().calls.clone()
    }

    /// Number of calls by idempotency key.
    pub(crate) fn calls_by_key(&self) -> BTreeMap<String, usize> {
        self.shared.log().times.clone()
    }

    /// Number of calls by recipient address.
    pub(crate) fn calls_by_recipient(&self) -> BTreeMap<String, usize> {
        let mut reached = BTreeMap::new();
        for call in &self.shared.log().calls {
            *reached.entry(call.to.clone()).or_insert(0) += 1;
        }
        reached
    }

    pub(crate) fn call_count(&self) -> usize {
        *self.shared.called.borrow()
    }

    /// Waits until the provider has received this many calls.
    pub(crate) async fn wait_until_called(&self, count: usize) {
        Self::wait_for_count(&self.shared.called, "missing calls; received", |calls| {
            *calls >= count
        })
        .await;
    }

    pub(crate) fn response_count(&self) -> usize {
        *self.shared.answered.borrow()
    }

    /// Waits until the provider has responded to this many calls.
    pub(crate) async fn wait_until_answered(&self, count: usize) {
        Self::wait_for_count(&self.shared.answered, "missing responses; sent", |calls| {
            *calls >= count
        })
        .await;
    }

    /// Waits until all connections are closed, so that all requests have been read.
    pub(crate) async fn wait_until_disconnected(&self) {
        Self::wait_for_count(&self.shared.connections, "connections stay open", |count| {
            *count == 0
        })
        .await;
    }

    async fn wait_for_count(
        counter: &watch::Sender<usize>,
        failure: &str,
        condition: impl FnMut(&usize) -> bool,
    ) {
        let mut counter = counter.subscribe();
        let waited = timeout(TIMEOUT, counter.wait_for(condition))
            .await
            .map(drop);
        assert!(waited.is_ok(), "{failure}: {}", *counter.borrow());
    }

    /// Asserts that no idempotency key and no recipient was called twice.
    pub(crate) fn assert_called_once(&self) {
        let twice: Vec<_> = self
            .calls_by_key()
            .into_iter()
            .filter(|(_, times)| *times > 1)
            .collect();
        assert!(twice.is_empty(), "called more than once: {twice:?}");
        let twice: Vec<_> = self
            .calls_by_recipient()
            .into_iter()
            .filter(|(_, times)| *times > 1)
            .collect();
        assert!(twice.is_empty(), "reached more than once: {twice:?}");
    }
}

impl ProviderShared {
    fn log(&self) -> MutexGuard<'_, CallLog> {
        self.log.lock().unwrap()
    }

    /// Serves the requests of a connection until it is closed.
    async fn serve_connection(&self, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        while let Some((head, body)) = read_request(&mut stream, &mut buffer).await {
            let (request, first) = self.record_request(&head, &body);
            let script = Arc::clone(&*self.script.lock().unwrap());
            let reply = script(&request);
            let is_last = matches!(reply, ProviderReply::AcceptedThenClosed);
            let Some(response) = self.build_response(reply, &mut stream).await else {
                return;
            };
            // The time is recorded before the response is sent, so that later calls follow it.
            let count = request.calls.len();
            let now = Instant::now();
            self.log().calls[first..first + count]
                .iter_mut()
                .for_each(|call| call.responded_at = Some(now));
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
            self.answered.send_modify(|responses| *responses += count);
            if is_last {
                return;
            }
        }
    }

    /// Adds a request to the log. Returns it and the position of its first call.
    fn record_request(&self, head: &str, body: &[u8]) -> (ProviderRequest, usize) {
        let body: Value = serde_json::from_slice(body).unwrap();
        let header = head
            .lines()
            .find_map(|line| line.strip_prefix("idempotency-key: "))
            .map(str::to_owned);
        let entries = body["items"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![body.clone()]);
        let field = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let at = Instant::now();
        let call = |entry: &Value| ProviderCall {
            key: header.clone().unwrap_or_else(|| field(entry, "key")),
            to: field(entry, "to"),
            item: field(entry, "item"),
            at,
            responded_at: None,
        };
        let calls: Vec<ProviderCall> = entries.iter().map(call).collect();
        let mut log = self.log();
        for call in &calls {
            *log.times.entry(call.key.clone()).or_insert(0) += 1;
        }
        let (nth, first) = (log.times[&calls[0].key], log.calls.len());
        log.calls.extend(calls.iter().cloned());
        drop(log);
        self.called.send_modify(|called| *called += calls.len());
        (ProviderRequest { calls, nth }, first)
    }

    /// Builds the response, if there is one.
    async fn build_response(&self, reply: ProviderReply, stream: &mut TcpStream) -> Option<String> {
        let (status, headers, body) = match reply {
            ProviderReply::Accepted | ProviderReply::AcceptedThenClosed => {
                (200, String::new(), "{}".to_owned())
            }
            ProviderReply::Delayed(wait) => {
                sleep(wait).await;
                (200, String::new(), "{}".to_owned())
            }
            ProviderReply::Held => {
                tokio::select! {
                    biased;
                    () = wait_for_disconnect(stream) => return None,
                    permit = self.released.acquire() => permit.unwrap().forget(),
                }
                (200, String::new(), "{}".to_owned())
            }
            ProviderReply::Dropped => return None,
            ProviderReply::Unanswered => {
                wait_for_disconnect(stream).await;
                return None;
            }
            ProviderReply::Throttled { retry_after_s } => (
                429,
                format!("retry-after: {retry_after_s}\r\n"),
                "{}".to_owned(),
            ),
            ProviderReply::Status(status) => (status, String::new(), "{}".to_owned()),
            ProviderReply::Body(body) => (200, String::new(), body.to_string()),
        };
        let length = body.len();
        Some(format!(
            "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        ))
    }
}

/// Reads the next request of a connection; `None` if the connection ends before its end.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            break String::from_utf8(std::mem::replace(buffer, rest))
                .unwrap()
                .to_ascii_lowercase();
        }
        read_more(stream, buffer).await?;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let length: usize = length.trim().parse().unwrap();
    while buffer.len() < length {
        read_more(stream, buffer).await?;
    }
    let rest = buffer.split_off(length);
    Some((head, std::mem::replace(buffer, rest)))
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    stream
        .read_buf(buffer)
        .await
        .ok()
        .filter(|count| *count > 0)
        .map(drop)
}

/// Waits until the client has closed the connection.
async fn wait_for_disconnect(stream: &mut TcpStream) {
    let mut ignored = [0; 64];
    while stream.read(&mut ignored).await.is_ok_and(|count| count > 0) {}
}
