//! The stream of a connection: writes without progress time out, and the heads that arrive are
//! scanned.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::head_scanner::HeadScanner;
use crate::keyed_slots::KeyedSlot;

/// A connection of a client; holds its slot until it is closed.
pub(crate) struct GuardedStream {
    stream: TcpStream,
    write_timeout: Duration,
    /// Runs while the client does not take the bytes that are to be written.
    stalled: Option<Pin<Box<Sleep>>>,
    scanner: HeadScanner,
    has_conflicting_length: Arc<AtomicBool>,
    _slot: KeyedSlot<IpAddr>,
}

impl GuardedStream {
    pub(crate) fn new(stream: TcpStream, write_timeout: Duration, slot: KeyedSlot<IpAddr>) -> Self {
        Self {
            stream,
            write_timeout,
            stalled: None,
            scanner: HeadScanner::default(),
            has_conflicting_length: Arc::default(),
            _slot: slot,
        }
    }

    /// Set as soon as a head with two body lengths has arrived.
    pub(crate) fn conflicting_length_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_conflicting_length)
    }

    /// Passes on the outcome of a write; a write without progress for the write timeout fails.
    fn check_progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read the response",
        )))
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.scanner.scan_bytes(&buffer.filled()[before..]);
        if self.scanner.has_conflict() {
            self.has_conflicting_length.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
