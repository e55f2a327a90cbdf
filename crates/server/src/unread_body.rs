//! Reads the rest of a request body that the handler refused, before the response is sent. If the
//! connection were closed while the client still sends, the client would report a broken connection
//! and never read why the server refused the request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Maximum number of bytes to discard: the size of the largest request that the server accepts.
const DISCARDED_BYTES_MAX: u64 = 64 << 20;

/// Maximum time for which the server discards.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the server waits for the next part. A client that sends nothing may be waiting for the
/// response.
const DISCARD_IDLE_TIMEOUT: Duration = Duration::from_millis(250);

/// Middleware that discards what the handler left of the request body, within limits.
pub(crate) async fn drain_unread_body(request: Request, next: Next) -> Response {
    // A client that waits for `100 Continue` sends no body that is refused.
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let shared = SharedBody(Arc::new(Mutex::new(body)));
    let rest = SharedBody(Arc::clone(&shared.0));
    let response = next
        .run(Request::from_parts(parts, Body::new(shared)))
        .await;
    let drained = tokio::time::timeout(DISCARD_TIMEOUT, rest.discard_rest()).await;
    if drained.is_err() {
        tracing::debug!("a refused request body took too long to arrive");
    }
    response
}

/// A body that the handler and the middleware share, one after the other.
struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    /// Discards what the client still sends, up to [`DISCARDED_BYTES_MAX`].
    async fn discard_rest(mut self) {
        let mut bytes = 0;
        while bytes < DISCARDED_BYTES_MAX && !self.is_end_stream() {
            let next = std::future::poll_fn(|context| Pin::new(&mut self).poll_frame(context));
            let next = tokio::time::timeout(DISCARD_IDLE_TIMEOUT, next).await;
            let Ok(Some(Ok(frame))) = next else {
                return;
            };
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    }

    fn with_body<T>(&self, read: impl FnOnce(&mut Body) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl hyper::body::Body for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.with_body(|body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.with_body(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with_body(|body| body.size_hint())
    }
}
