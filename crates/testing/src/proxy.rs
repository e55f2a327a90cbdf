//! A wire to a server on this machine that can be cut, again and again.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::Error;

/// A port of its own; whoever connects to it is connected to the server.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    /// Both ends of every connection that was made since the last cut.
    streams: Arc<Mutex<Vec<TcpStream>>>,
    is_refusing: Arc<AtomicBool>,
}

impl TcpProxy {
    /// A wire to the server on this port.
    pub fn forward_to(server: u16) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::Port)?;
        let port = listener.local_addr().map_err(Error::Port)?.port();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let is_shut = Arc::new(AtomicBool::new(false));
        let (kept, shut) = (Arc::clone(&ends), Arc::clone(&is_shut));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is not there hangs up; so does this.
                if !shut.load(Ordering::SeqCst) {
                    drop(forward_connection(client, server, &kept));
                }
            }
        });
        Ok(Self {
            port,
            streams: ends,
            is_refusing: is_shut,
        })
    }

    /// Where to connect to.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether nobody can connect. Connections that are there stay.
    pub fn set_refusing(&self, is_shut: bool) {
        self.is_refusing.store(is_shut, Ordering::SeqCst);
    }

    /// Cuts every connection, and tells how many there were. New ones can be made.
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
    kept: &Mutex<Vec<TcpStream>>,
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
    lock_ignoring_poison(kept).extend([client, server]);
    Ok(())
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
