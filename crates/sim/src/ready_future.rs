//! The store in memory never waits, so its futures are ready at once.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The value of a future that is ready.
///
/// # Panics
///
/// If it is not.
pub(crate) fn poll_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the store in memory does not wait"),
    }
}
