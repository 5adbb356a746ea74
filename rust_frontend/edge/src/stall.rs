//! Disconnects clients that stop reading.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Pieces of no more bytes than this together are written as one, such as a chunk's size, an event and the chunk's end: to
/// copy them costs less than what the system does more for several.
const SMALL: usize = 1024;

/// Copies the pieces one behind the other; `None`: there is one alone, or they are not small.
fn join(bufs: &[io::IoSlice<'_>], joined: &mut [u8; SMALL]) -> Option<usize> {
    let length: usize = bufs.iter().map(|part| part.len()).sum();
    if bufs.len() < 2 || length > SMALL {
        return None;
    }
    let mut rest = &mut joined[..];
    for part in bufs {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    Some(length)
}

/// A connection whose writes fail when the peer takes nothing for `limit`.
#[derive(Debug)]
pub(crate) struct StallGuard<T> {
    inner: T,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// Whether a write waits, and the timer with it.
    waiting: bool,
}

impl<T> StallGuard<T> {
    pub(crate) fn new(inner: T, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            timer: Box::pin(tokio::time::sleep(limit)),
            waiting: false,
        }
    }

    fn watch<R>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if progress.is_ready() {
            self.waiting = false;
            return progress;
        }
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut joined = [0; SMALL];
        let progress = match join(bufs, &mut joined) {
            Some(length) => Pin::new(&mut self.inner).poll_write(cx, &joined[..length]),
            None => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
        };
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_takes_fails() {
        let (ours, _theirs) = tokio::io::duplex(4);
        let mut guard = StallGuard::new(ours, Duration::from_secs(60));
        let error = guard.write_all(b"more than four").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn small_pieces_are_one_write_and_large_ones_stay_as_they_are() {
        for size in [1, SMALL - 6, SMALL] {
            let (ours, mut theirs) = tokio::io::duplex(2 * SMALL);
            let mut guard = StallGuard::new(ours, Duration::from_secs(60));
            let middle = vec![b'x'; size];
            let parts = [&b"abc"[..], &middle, b"def"].map(io::IoSlice::new);
            let count = guard.write_vectored(&parts).await.unwrap();
            let all = [b"abc", &middle[..], b"def"].concat();
            drop(guard);
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, all[..count]);
            assert!(size == SMALL || count == all.len(), "{count} of {size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_makes_progress_stays() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut guard = StallGuard::new(ours, Duration::from_secs(60));
        let writer = tokio::spawn(async move { guard.write_all(b"twelve bytes").await });
        let mut got = Vec::new();
        while got.len() < 12 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            let mut part = [0; 4];
            let count = theirs.read(&mut part).await.unwrap();
            got.extend_from_slice(&part[..count]);
        }
        assert_eq!(got, b"twelve bytes");
        writer.await.unwrap().unwrap();
    }
}
