//! A proxy in front of the database that blocks at a chosen point: just before a request, or just
//! after it and before its response.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::harness::wait_until;

/// Where the proxy blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockPoint {
    /// The request does not reach the database.
    Before,
    /// The request reaches the database, and the response is held back.
    After,
}

#[derive(Default)]
struct ProxyState {
    /// Block once a connection has sent these texts in this order.
    trigger: Option<(&'static [&'static str], BlockPoint)>,
    /// Number of triggers set so far.
    triggers: usize,
    blocked: Option<BlockPoint>,
    ends: Vec<TcpStream>,
}

#[derive(Default)]
struct ProxyShared {
    state: Mutex<ProxyState>,
    changed: Condvar,
}

/// A proxy with a port of its own, which forwards connections to the database until it blocks.
pub(crate) struct DatabaseProxy {
    port: u16,
    shared: Arc<ProxyShared>,
}

impl DatabaseProxy {
    pub(crate) fn in_front_of(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ProxyShared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                connect(&client, server, &accepting);
            }
        });
        Self { port, shared }
    }

    /// Returns the URL of the database through this proxy.
    pub(crate) fn url(&self, url: &str, server: u16) -> String {
        url.replace(&format!(":{server}/"), &format!(":{}/", self.port))
    }

    /// Blocks all connections once one of them has sent these texts in this order.
    pub(crate) fn block_at(&self, texts: &'static [&'static str], point: BlockPoint) {
        let mut state = self.shared.state.lock().unwrap();
        state.trigger = Some((texts, point));
        state.triggers += 1;
    }

    pub(crate) async fn wait_until_blocked(&self) {
        wait_until("the proxy does not block", async || {
            self.shared.state.lock().unwrap().blocked.is_some()
        })
        .await;
    }

    /// Forwards again.
    pub(crate) fn unblock(&self) {
        self.shared.state.lock().unwrap().blocked = None;
        self.shared.changed.notify_all();
    }

    /// Closes all connections; requests that were held back are lost.
    pub(crate) fn cut(&self) {
        for end in std::mem::take(&mut self.shared.state.lock().unwrap().ends) {
            drop(end.shutdown(Shutdown::Both));
        }
    }
}

fn connect(client: &TcpStream, server: u16, shared: &Arc<ProxyShared>) {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
    for (from, to, direction) in [
        (client, &server, Direction::ToDatabase),
        (&server, client, Direction::ToClient),
    ] {
        to.set_nodelay(true).unwrap();
        let (from, to, shared) = (
            from.try_clone().unwrap(),
            to.try_clone().unwrap(),
            Arc::clone(shared),
        );
        thread::spawn(move || forward(from, to, direction, &shared));
    }
    let ends = [client.try_clone().unwrap(), server];
    shared.state.lock().unwrap().ends.extend(ends);
}

/// The direction of a half of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToDatabase,
    ToClient,
}

fn forward(mut from: TcpStream, mut to: TcpStream, direction: Direction, shared: &ProxyShared) {
    let mut chunk = vec![0; 64 * 1_024];
    // Data sent since the trigger was set.
    let (mut sent, mut triggers): (Vec<u8>, usize) = (Vec::new(), 0);
    while let Ok(count) = from.read(&mut chunk) {
        if count == 0 {
            break;
        }
        let mut state = shared.state.lock().unwrap();
        if direction == Direction::ToDatabase && state.trigger.is_some() {
            if std::mem::replace(&mut triggers, state.triggers) != state.triggers {
                sent.clear();
            }
            sent.extend_from_slice(&chunk[..count]);
            if let Some((_, point)) = state
                .trigger
                .take_if(|(texts, _)| contains_in_order(&sent, texts))
            {
                state.blocked = Some(point);
            }
        }
        let is_open = |blocked: Option<BlockPoint>| match blocked {
            None => true,
            Some(point) => direction == Direction::ToDatabase && point == BlockPoint::After,
        };
        let _open = shared
            .changed
            .wait_while(state, |state| !is_open(state.blocked))
            .unwrap();
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

/// Whether the data contains the texts one after the other.
fn contains_in_order(data: &[u8], texts: &[&str]) -> bool {
    let mut rest = data;
    texts.iter().all(|text| {
        let found = rest
            .windows(text.len())
            .position(|part| part == text.as_bytes());
        found.is_some_and(|place| {
            rest = &rest[place + text.len()..];
            true
        })
    })
}
