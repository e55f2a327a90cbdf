//! A wire between store and server that can be cut at a chosen moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// When to cut, seen from the words that are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never hears them.
    BeforePassingOn,
    /// The server hears them; its answer is not passed on.
    AfterPassingOn,
}

/// A wire to a server on this machine.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    waiting_for: Mutex<Option<(&'static str, Cut)>>,
    cuts: AtomicUsize,
    stays_closed: AtomicBool,
}

impl Proxy {
    /// Listens on a port of its own, and passes everything on.
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.stays_closed.load(Ordering::SeqCst)
                    && shared.cuts.load(Ordering::SeqCst) > 0
                {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(pass_on(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, state }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the connection on which `words` are sent next.
    pub(crate) fn cut_next(&self, words: &'static str, cut: Cut) {
        *self
            .state
            .waiting_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((words, cut));
    }

    /// Refuses connections from the cut on.
    pub(crate) fn stay_closed_after_the_cut(&self) {
        self.state.stays_closed.store(true, Ordering::SeqCst);
    }

    /// How often the wire was cut.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

async fn pass_on(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_cut = Arc::new(AtomicBool::new(false));
    let back = tokio::spawn(back(from_server, to_client, Arc::clone(&is_cut)));
    there(from_client, to_server, &state, &is_cut).await;
    if is_cut.load(Ordering::SeqCst) {
        // Until the server has dealt with it and hangs up. Whoever asks it afterwards finds it
        // done.
        back.await.unwrap();
    } else {
        back.abort();
    }
}

/// Passes on what the server says, until the wire is cut.
async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_cut: Arc<AtomicBool>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !is_cut.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Passes on what the client says, until the words come.
async fn there(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    is_cut: &AtomicBool,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let said = &buffer[..count];
        match state.comes_now(said) {
            None => {}
            Some(Cut::BeforePassingOn) => return,
            Some(Cut::AfterPassingOn) => {
                is_cut.store(true, Ordering::SeqCst);
                to.write_all(said).await.unwrap();
                to.shutdown().await.unwrap();
                return;
            }
        }
        if to.write_all(said).await.is_err() {
            return;
        }
    }
}

impl State {
    /// Whether the words that are waited for are among what is said.
    fn comes_now(&self, said: &[u8]) -> Option<Cut> {
        let mut waiting_for = self
            .waiting_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (words, cut) = (*waiting_for)?;
        if !said
            .windows(words.len())
            .any(|part| part == words.as_bytes())
        {
            return None;
        }
        *waiting_for = None;
        self.cuts.fetch_add(1, Ordering::SeqCst);
        Some(cut)
    }
}
