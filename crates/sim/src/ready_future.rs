//! Polls the futures of the in-memory store, which are always ready at once.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Returns the value of a future that is ready.
///
/// # Panics
///
/// Panics if the future is pending.
pub(crate) fn poll_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the in-memory store does not wait"),
    }
}
