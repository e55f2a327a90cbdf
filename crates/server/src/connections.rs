//! Accepts and serves connections within limits of number, time and size, and shuts down
//! gracefully.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use onward_api::problem::{Code, PROBLEM_JSON, Problem};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

use crate::guarded_stream::GuardedStream;
use crate::keyed_slots::KeyedSlots;

/// Delay before the next accept when the system cannot accept a connection, for example because it
/// is out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum size in bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Limits of the connections of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum number of open connections; further ones get status 503.
    pub max_total: usize,
    /// Maximum number of open connections of one peer address.
    pub max_per_peer: usize,
    /// Time that a connection has to send the complete head of its next request.
    pub header_timeout: Duration,
    /// Time after which a connection is closed if its client takes no byte of a response.
    pub write_timeout: Duration,
}

/// What handlers know about the connection of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    /// Address by which the peer is counted: the client, or the proxy in front of the server.
    pub(crate) peer: IpAddr,
    /// Whether a head with both `Content-Length` and `Transfer-Encoding` has arrived.
    pub(crate) has_conflicting_length: bool,
}

/// Number of leading bits of an IPv6 address that identify a peer: a client usually has all
/// addresses of its network.
const IPV6_PEER_BITS: u32 = 64;

/// Returns the address by which a peer is counted.
fn peer_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) >> (128 - IPV6_PEER_BITS) << (128 - IPV6_PEER_BITS);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 => v4,
    }
}

/// Accepts connections until `stopped` completes, then finishes the requests in flight.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stopped: impl Future<Output = ()> + Send,
) {
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(HEAD_BYTES_MAX);
    let slots = KeyedSlots::new(limits.max_total, limits.max_per_peer);
    let mut stopped = pin!(stopped);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept_connection(&listener) => accepted,
            () = &mut stopped => break,
        };
        let peer = peer_key(peer);
        let Some(slot) = slots.take_slot(peer) else {
            refuse_connection(stream);
            continue;
        };
        let stream = GuardedStream::new(stream, limits.write_timeout, slot);
        let conflicting_length = stream.conflicting_length_flag();
        let router = router.clone();
        let respond = service_fn(move |mut request: Request<Incoming>| {
            let mut router = router.clone();
            request.extensions_mut().insert(RequestOrigin {
                peer,
                has_conflicting_length: conflicting_length.load(Ordering::Relaxed),
            });
            async move { router.call(request).await }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), respond));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended with an error");
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Accepts the next connection, and retries after errors.
async fn accept_connection(listener: &TcpListener) -> (TcpStream, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Most responses are one small packet, which must be sent without delay.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not disable the send delay of a connection (TCP_NODELAY)");
                }
                return (stream, peer.ip());
            }
            // The client closed the connection before it was accepted.
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection; retrying");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Sends status 503 to a connection for which there is no slot, as far as that is possible without
/// waiting, and closes it.
fn refuse_connection(stream: TcpStream) {
    let problem = Problem::new(
        Code::Unavailable,
        "the server has too many open connections: close some, or retry later",
    );
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_JSON}\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // A connection that was just accepted has room for a small response, so this does not block.
    let sent = stream
        .into_std()
        .and_then(|mut stream| stream.write_all(response.as_bytes()));
    if let Err(error) = sent {
        tracing::debug!(%error, "a connection without a slot was closed without a response");
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionAborted | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::peer_key;

    #[test]
    fn addresses_of_one_client_are_one_peer() {
        let key = |text: &str| peer_key(text.parse().expect("an address"));
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), key("2001:db8:1:2::1"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
    }
}
