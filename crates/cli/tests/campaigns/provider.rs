//! A provider outside of the processes that call it. It counts, takes down when, and answers as a
//! test wants it to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::world::HANGS;

/// A call for one recipient, whether it came alone or with others.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) key: String,
    pub(crate) to: String,
    pub(crate) item: String,
    pub(crate) at: Instant,
    /// When it was answered, if it was.
    pub(crate) answered: Option<Instant>,
}

/// A request: the calls in it, and how often the first of them was called for, this time included.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) calls: Vec<Call>,
    pub(crate) nth: usize,
}

/// What to do about a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Taken,
    /// Taken, and said after so long.
    Late(Duration),
    /// Taken, and said when some are let go.
    Held,
    /// Taken, and the connection is closed after it was said, without a word about that.
    TakenAndClosed,
    /// Whatever became of it is not said: the connection is closed.
    Lost,
    /// Nothing is ever said.
    Silence,
    Busy {
        after_s: u64,
    },
    Status(u16),
    Said(Value),
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// What a provider remembers.
#[derive(Default)]
struct Book {
    calls: Vec<Call>,
    times: BTreeMap<String, usize>,
}

struct Shared {
    book: Mutex<Book>,
    script: Mutex<Arc<Script>>,
    called: watch::Sender<usize>,
    answered: watch::Sender<usize>,
    connections: watch::Sender<usize>,
    /// How many of those that are held may be answered.
    answers: Semaphore,
}

/// A provider that is there as long as the test.
pub(crate) struct Provider {
    port: u16,
    shared: Arc<Shared>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            book: Mutex::default(),
            script: Mutex::new(Arc::new(|_: &Request| Reply::Taken)),
            called: watch::Sender::new(0),
            answered: watch::Sender::new(0),
            connections: watch::Sender::new(0),
            answers: Semaphore::new(0),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                shared.connections.send_modify(|count| *count += 1);
                tokio::spawn(async move {
                    shared.serve(stream).await;
                    shared.connections.send_modify(|count| *count -= 1);
                });
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/send", self.port)
    }

    /// What is done about requests from now on.
    pub(crate) fn reply(&self, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Answers so many of those that are held, now or later.
    pub(crate) fn let_go(&self, count: usize) {
        self.shared.answers.add_permits(count);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.shared.book().calls.clone()
    }

    /// How often it was called, by key.
    pub(crate) fn times(&self) -> BTreeMap<String, usize> {
        self.shared.book().times.clone()
    }

    /// How often it was called, by recipient.
    pub(crate) fn reached(&self) -> BTreeMap<String, usize> {
        let mut reached = BTreeMap::new();
        for call in &self.shared.book().calls {
            *reached.entry(call.to.clone()).or_insert(0) += 1;
        }
        reached
    }

    pub(crate) fn count(&self) -> usize {
        *self.shared.called.borrow()
    }

    /// Waits until it was called so often.
    pub(crate) async fn until_called(&self, count: usize) {
        Self::until(&self.shared.called, "it is not called", |called| {
            *called >= count
        })
        .await;
    }

    pub(crate) fn answered(&self) -> usize {
        *self.shared.answered.borrow()
    }

    /// Waits until it has answered so often.
    pub(crate) async fn until_answered(&self, count: usize) {
        Self::until(&self.shared.answered, "it does not answer", |answered| {
            *answered >= count
        })
        .await;
    }

    /// Waits until nobody is connected: all that was sent to it has been heard.
    pub(crate) async fn until_alone(&self) {
        Self::until(
            &self.shared.connections,
            "somebody stays connected",
            |count| *count == 0,
        )
        .await;
    }

    async fn until(
        told: &watch::Sender<usize>,
        otherwise: &str,
        is_so: impl FnMut(&usize) -> bool,
    ) {
        let mut told = told.subscribe();
        let waited = timeout(HANGS, told.wait_for(is_so)).await.map(drop);
        assert!(waited.is_ok(), "{otherwise}: {}", *told.borrow());
    }

    /// Nobody was called twice, by whichever name.
    pub(crate) fn expect_once(&self) {
        let twice: Vec<_> = self
            .times()
            .into_iter()
            .filter(|(_, times)| *times > 1)
            .collect();
        assert!(twice.is_empty(), "called more than once: {twice:?}");
        let twice: Vec<_> = self
            .reached()
            .into_iter()
            .filter(|(_, times)| *times > 1)
            .collect();
        assert!(twice.is_empty(), "reached more than once: {twice:?}");
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Answers one request after the other until the connection ends.
    async fn serve(&self, mut stream: TcpStream) {
        let mut heard = Vec::new();
        while let Some((head, body)) = read_request(&mut stream, &mut heard).await {
            let (request, first) = self.take_down(&head, &body);
            let script = Arc::clone(&*self.script.lock().unwrap());
            let reply = script(&request);
            let is_last = matches!(reply, Reply::TakenAndClosed);
            let Some(answer) = self.answer(reply, &mut stream).await else {
                return;
            };
            // Whoever hears it can be told apart from whoever was answered: it is counted before.
            let count = request.calls.len();
            let now = Instant::now();
            self.book().calls[first..first + count]
                .iter_mut()
                .for_each(|call| call.answered = Some(now));
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            self.answered.send_modify(|answered| *answered += count);
            if is_last {
                return;
            }
        }
    }

    /// Writes a request into the book; tells where in it.
    fn take_down(&self, head: &str, body: &[u8]) -> (Request, usize) {
        let body: Value = serde_json::from_slice(body).unwrap();
        let header = head
            .lines()
            .find_map(|line| line.strip_prefix("idempotency-key: "))
            .map(str::to_owned);
        let entries = body["items"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![body.clone()]);
        let word = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let at = Instant::now();
        let call = |entry: &Value| Call {
            key: header.clone().unwrap_or_else(|| word(entry, "key")),
            to: word(entry, "to"),
            item: word(entry, "item"),
            at,
            answered: None,
        };
        let calls: Vec<Call> = entries.iter().map(call).collect();
        let mut book = self.book();
        for call in &calls {
            *book.times.entry(call.key.clone()).or_insert(0) += 1;
        }
        let (nth, first) = (book.times[&calls[0].key], book.calls.len());
        book.calls.extend(calls.iter().cloned());
        drop(book);
        self.called.send_modify(|called| *called += calls.len());
        (Request { calls, nth }, first)
    }

    /// What to say, if anything.
    async fn answer(&self, reply: Reply, stream: &mut TcpStream) -> Option<String> {
        let (status, headers, body) = match reply {
            Reply::Taken | Reply::TakenAndClosed => (200, String::new(), "{}".to_owned()),
            Reply::Late(wait) => {
                sleep(wait).await;
                (200, String::new(), "{}".to_owned())
            }
            Reply::Held => {
                tokio::select! {
                    biased;
                    () = gone(stream) => return None,
                    answer = self.answers.acquire() => answer.unwrap().forget(),
                }
                (200, String::new(), "{}".to_owned())
            }
            Reply::Lost => return None,
            Reply::Silence => {
                gone(stream).await;
                return None;
            }
            Reply::Busy { after_s } => {
                (429, format!("retry-after: {after_s}\r\n"), "{}".to_owned())
            }
            Reply::Status(status) => (status, String::new(), "{}".to_owned()),
            Reply::Said(body) => (200, String::new(), body.to_string()),
        };
        let length = body.len();
        Some(format!(
            "HTTP/1.1 {status} Told\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        ))
    }
}

/// The next request of a connection, if it comes to its end. One of which a part is missing is
/// none.
async fn read_request(stream: &mut TcpStream, heard: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head = loop {
        if let Some(end) = heard.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let rest = heard.split_off(end + 4);
            break String::from_utf8(std::mem::replace(heard, rest))
                .unwrap()
                .to_ascii_lowercase();
        }
        hear(stream, heard).await?;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let length: usize = length.trim().parse().unwrap();
    while heard.len() < length {
        hear(stream, heard).await?;
    }
    let rest = heard.split_off(length);
    Some((head, std::mem::replace(heard, rest)))
}

async fn hear(stream: &mut TcpStream, heard: &mut Vec<u8>) -> Option<()> {
    stream
        .read_buf(heard)
        .await
        .ok()
        .filter(|count| *count > 0)
        .map(drop)
}

/// Waits until whoever called is gone.
async fn gone(stream: &mut TcpStream) {
    let mut ignored = [0; 64];
    while stream.read(&mut ignored).await.is_ok_and(|count| count > 0) {}
}
