//! A way to the database that stops where a test wants it to: just before something is asked, or
//! just after it, before the answer.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::world::until;

/// Where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It is not asked.
    Before,
    /// It is asked, and the answer does not come.
    After,
}

#[derive(Default)]
struct State {
    /// Where to stop: when one connection has said this, one word after the other.
    stop: Option<(&'static [&'static str], Side)>,
    /// How often it was said where to stop.
    stops: usize,
    stopped: Option<Side>,
    ends: Vec<TcpStream>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A port of its own; whoever connects to it is connected to the server until it stops.
pub(crate) struct Valve {
    port: u16,
    shared: Arc<Shared>,
}

impl Valve {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                connect(&client, server, &accepting);
            }
        });
        Self { port, shared }
    }

    /// The URL of the database through this.
    pub(crate) fn url(&self, url: &str, server: u16) -> String {
        url.replace(&format!(":{server}/"), &format!(":{}/", self.port))
    }

    /// Stops everything when one connection has said these words from now on, one after the other.
    pub(crate) fn stop_at(&self, words: &'static [&'static str], side: Side) {
        let mut state = self.shared.state.lock().unwrap();
        state.stop = Some((words, side));
        state.stops += 1;
    }

    pub(crate) async fn until_stopped(&self) {
        until("the words are not said", async || {
            self.shared.state.lock().unwrap().stopped.is_some()
        })
        .await;
    }

    /// Goes on as if nothing had been.
    pub(crate) fn go_on(&self) {
        self.shared.state.lock().unwrap().stopped = None;
        self.shared.changed.notify_all();
    }

    /// Ends every connection: what was not asked yet is not asked any more.
    pub(crate) fn cut(&self) {
        for end in std::mem::take(&mut self.shared.state.lock().unwrap().ends) {
            drop(end.shutdown(Shutdown::Both));
        }
    }
}

fn connect(client: &TcpStream, server: u16, shared: &Arc<Shared>) {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
    for (from, to, is_asking) in [(client, &server, true), (&server, client, false)] {
        to.set_nodelay(true).unwrap();
        let (from, to, shared) = (
            from.try_clone().unwrap(),
            to.try_clone().unwrap(),
            Arc::clone(shared),
        );
        thread::spawn(move || pass(from, to, is_asking, &shared));
    }
    let ends = [client.try_clone().unwrap(), server];
    shared.state.lock().unwrap().ends.extend(ends);
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_asking: bool, shared: &Shared) {
    let mut chunk = vec![0; 64 * 1_024];
    // What was said since it was said where to stop.
    let (mut said, mut stops): (Vec<u8>, usize) = (Vec::new(), 0);
    while let Ok(count) = from.read(&mut chunk) {
        if count == 0 {
            break;
        }
        let mut state = shared.state.lock().unwrap();
        if is_asking && state.stop.is_some() {
            if std::mem::replace(&mut stops, state.stops) != state.stops {
                said.clear();
            }
            said.extend_from_slice(&chunk[..count]);
            if let Some((_, side)) = state.stop.take_if(|(words, _)| are_said(&said, words)) {
                state.stopped = Some(side);
            }
        }
        let is_open = |stopped: Option<Side>| match stopped {
            None => true,
            Some(side) => is_asking && side == Side::After,
        };
        let _open = shared
            .changed
            .wait_while(state, |state| !is_open(state.stopped))
            .unwrap();
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

fn are_said(said: &[u8], words: &[&str]) -> bool {
    let mut rest = said;
    words.iter().all(|word| {
        let found = rest
            .windows(word.len())
            .position(|part| part == word.as_bytes());
        found.is_some_and(|place| {
            rest = &rest[place + word.len()..];
            true
        })
    })
}
