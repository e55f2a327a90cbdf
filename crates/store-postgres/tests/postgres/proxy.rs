//! A proxy between store and server that cuts a connection when a chosen text is sent.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// When to cut the connection, relative to the chosen text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionCut {
    /// The server does not receive the text.
    BeforeForwarding,
    /// The server receives the text; its answer is not forwarded.
    AfterForwarding,
}

/// A proxy to a server on this machine.
pub(crate) struct CuttingProxy {
    port: u16,
    state: Arc<CuttingProxyState>,
}

#[derive(Default)]
struct CuttingProxyState {
    waiting_for: Mutex<Option<(&'static str, ConnectionCut)>>,
    cuts: AtomicUsize,
    refuses_after_cut: AtomicBool,
}

impl CuttingProxy {
    /// Listens on its own port and forwards everything.
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(CuttingProxyState::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.refuses_after_cut.load(Ordering::SeqCst)
                    && shared.cuts.load(Ordering::SeqCst) > 0
                {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(forward_connection(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, state }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the connection on which `text` is sent next.
    pub(crate) fn cut_next(&self, text: &'static str, cut: ConnectionCut) {
        *self
            .state
            .waiting_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((text, cut));
    }

    /// Refuses new connections after the cut.
    pub(crate) fn refuse_connections_after_cut(&self) {
        self.state.refuses_after_cut.store(true, Ordering::SeqCst);
    }

    /// The number of cuts.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

async fn forward_connection(client: TcpStream, server: TcpStream, state: Arc<CuttingProxyState>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_cut = Arc::new(AtomicBool::new(false));
    let answers = tokio::spawn(forward_to_client(
        from_server,
        to_client,
        Arc::clone(&is_cut),
    ));
    forward_to_server(from_client, to_server, &state, &is_cut).await;
    if is_cut.load(Ordering::SeqCst) {
        // Waits until the server has processed the text and closes the connection, so that later
        // queries see its effect.
        answers.await.unwrap();
    } else {
        answers.abort();
    }
}

/// Forwards the server's data until the connection is cut.
async fn forward_to_client(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_cut: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !is_cut.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Forwards the client's data until the chosen text is sent.
async fn forward_to_server(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &CuttingProxyState,
    is_cut: &AtomicBool,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let data = &buffer[..count];
        match state.find_cut(data) {
            None => {}
            Some(ConnectionCut::BeforeForwarding) => return,
            Some(ConnectionCut::AfterForwarding) => {
                is_cut.store(true, Ordering::SeqCst);
                to.write_all(data).await.unwrap();
                to.shutdown().await.unwrap();
                return;
            }
        }
        if to.write_all(data).await.is_err() {
            return;
        }
    }
}

impl CuttingProxyState {
    /// Returns the cut if `data` contains the chosen text.
    fn find_cut(&self, data: &[u8]) -> Option<ConnectionCut> {
        let mut waiting_for = self
            .waiting_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (text, cut) = (*waiting_for)?;
        if !data.windows(text.len()).any(|part| part == text.as_bytes()) {
            return None;
        }
        *waiting_for = None;
        self.cuts.fetch_add(1, Ordering::SeqCst);
        Some(cut)
    }
}
