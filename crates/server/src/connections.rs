//! Accepts and serves connections, closes idle ones, and shuts down gracefully.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

/// Delay before the next accept when the system cannot accept a connection, for example because it
/// is out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts connections until `stopped` completes, then finishes the requests in flight.
///
/// A connection is closed if it does not send the complete head of its next request within
/// `header_timeout`.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    header_timeout: Duration,
    stopped: impl Future<Output = ()> + Send,
) {
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    let mut stopped = pin!(stopped);
    loop {
        let stream = tokio::select! {
            stream = accept_connection(&listener) => stream,
            () = &mut stopped => break,
        };
        let router = router.clone();
        let respond = service_fn(move |request: Request<Incoming>| {
            let mut router = router.clone();
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
async fn accept_connection(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Most responses are one small packet, which must be sent without delay.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not disable the send delay of a connection (TCP_NODELAY)");
                }
                return stream;
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

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionAborted | ConnectionReset
    )
}
