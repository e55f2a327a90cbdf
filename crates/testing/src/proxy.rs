//! TCP proxy to a local server whose connections can be cut repeatedly.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::Error;

/// A proxy on its own loopback port that forwards every connection to a server.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    /// Both ends of every connection that was made since the last cut.
    streams: Arc<Mutex<Vec<TcpStream>>>,
    is_refusing: Arc<AtomicBool>,
}

impl TcpProxy {
    /// Starts a proxy to the server on this port of 127.0.0.1.
    pub fn forward_to(server: u16) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::Port)?;
        let port = listener.local_addr().map_err(Error::Port)?.port();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let is_refusing = Arc::new(AtomicBool::new(false));
        let (open_ends, refuses) = (Arc::clone(&ends), Arc::clone(&is_refusing));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Like a server that is down, the proxy closes the connection.
                if !refuses.load(Ordering::SeqCst) {
                    drop(forward_connection(client, server, &open_ends));
                }
            }
        });
        Ok(Self {
            port,
            streams: ends,
            is_refusing,
        })
    }

    /// The port of the proxy on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Refuses new connections from now on. Existing connections stay open.
    pub fn refuse_connections(&self) {
        self.is_refusing.store(true, Ordering::SeqCst);
    }

    /// Accepts new connections again.
    pub fn accept_connections(&self) {
        self.is_refusing.store(false, Ordering::SeqCst);
    }

    /// Cuts every connection and returns how many there were. New connections are possible.
    pub fn cut_connections(&self) -> usize {
        let ends = std::mem::take(&mut *lock_ignoring_poison(&self.streams));
        let open = ends
            .iter()
            .filter(|end| end.shutdown(Shutdown::Both).is_ok());
        open.count() / 2
    }
}

fn forward_connection(
    client: TcpStream,
    server: u16,
    open_ends: &Mutex<Vec<TcpStream>>,
) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    for (from, to) in [(&client, &server), (&server, &client)] {
        to.set_nodelay(true)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || {
            let copied = io::copy(&mut from, &mut to);
            drop((to.shutdown(Shutdown::Both), copied));
        });
    }
    lock_ignoring_poison(open_ends).extend([client, server]);
    Ok(())
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
