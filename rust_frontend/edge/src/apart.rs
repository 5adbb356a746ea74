//! A thread apart from those that work: it accepts connections, and keeps the ones whose first request is light, as probes'
//! are. However much the others have to do, such a request waits for nothing but this thread's turn on a core.
//!
//! A connection stays where its first request took it. Over TLS this thread greets clients before it looks, so that no
//! handshake waits for those that work, nor holds them up. In HTTP/2 no request shows before the connection is served, so
//! that those are never light.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::layer::pass_writes_on;

/// Bytes of a request that are looked at for its path.
const HEAD: usize = 64;
/// A client that says nothing for so long is left to the threads that work.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Apart {
    pub(crate) handle: Handle,
    paths: &'static [&'static str],
    _running: oneshot::Sender<()>,
}

impl Apart {
    /// Starts the thread; requests to `paths` are light. `begin` is what it does first.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(paths: &'static [&'static str], begin: fn()) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(4)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let run = move || {
            begin();
            // Nothing is ever sent: the other half is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("light".to_owned())
            .spawn(run)?;
        Ok(Self {
            handle,
            paths,
            _running: running,
        })
    }

    /// Lets this thread watch the sockets that are opened until what is returned is dropped.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// For connections that are accepted here, while the runtime of the caller works.
    pub(crate) fn fork(&self) -> Fork {
        Fork {
            work: Handle::current(),
            paths: self.paths,
        }
    }
}

/// Where connections go.
#[derive(Debug, Clone)]
pub(crate) struct Fork {
    /// Those with work.
    pub(crate) work: Handle,
    paths: &'static [&'static str],
}

impl Fork {
    /// Waits for the first bytes of a connection and says whether they ask for something light.
    pub(crate) async fn is_light<S: Movable>(&self, stream: &mut Begun<S>) -> bool {
        let mut head = [0; HEAD];
        let Ok(Ok(count)) = timeout(PATIENCE, stream.read(&mut head)).await else {
            return false;
        };
        stream.first = head[..count].to_vec();
        path(&stream.first).is_some_and(|path| self.paths.contains(&path))
    }
}

/// The path in a request's line, if all of it is there.
fn path(head: &[u8]) -> Option<&str> {
    let mut words = head.split(|byte| *byte == b' ');
    let target = words.nth(1)?;
    words.next()?; // without what follows it the path may go on
    let path = target.split(|byte| *byte == b'?').next()?;
    std::str::from_utf8(path).ok()
}

/// A connection that can change the runtime which watches its socket.
pub(crate) trait Movable: AsyncRead + AsyncWrite + Unpin + Send + Sized + 'static {
    /// Lets the runtime of the caller watch it.
    ///
    /// # Errors
    /// The system watches no more sockets.
    fn watched_here(self) -> io::Result<Self>;
}

impl Movable for TcpStream {
    fn watched_here(self) -> io::Result<Self> {
        Self::from_std(self.into_std()?)
    }
}

impl Movable for UnixStream {
    fn watched_here(self) -> io::Result<Self> {
        Self::from_std(self.into_std()?)
    }
}

impl<S: Movable> Movable for TlsStream<Begun<S>> {
    fn watched_here(mut self) -> io::Result<Self> {
        self.get_mut().0.watch_here()?;
        Ok(self)
    }
}

/// A connection of which the first bytes may have been read already; they are read again.
#[derive(Debug)]
pub(crate) struct Begun<S> {
    first: Vec<u8>,
    /// `None`: it could not be moved, and is of no use any more.
    inner: Option<S>,
}

impl<S> Begun<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self {
            first: Vec::new(),
            inner: Some(inner),
        }
    }

    fn below(&mut self) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        let inner = self.inner.as_mut().map(Pin::new);
        inner.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S: Movable> Begun<S> {
    /// As [`Movable::watched_here`], where it stays in its place.
    pub(crate) fn watch_here(&mut self) -> io::Result<()> {
        self.inner = self.inner.take().map(S::watched_here).transpose()?;
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return self.get_mut().below()?.poll_read(cx, buf);
        }
        let count = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..count]);
        self.first = self.first.split_off(count);
        Poll::Ready(Ok(()))
    }
}

pass_writes_on!(Begun);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_when_all_of_it_is_there() {
        for (head, expected) in [
            ("GET /health HTTP/1.1\r\nhost: x", Some("/health")),
            ("HEAD /health?a=b HTTP/1.1", Some("/health")),
            ("GET /health ", Some("/health")),
            ("GET /health", None),
            ("GET ", None),
            ("", None),
            ("PRI * HTTP/2.0\r\n", Some("*")),
        ] {
            assert_eq!(path(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[tokio::test]
    async fn what_was_read_is_read_again_and_nothing_is_lost() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut begun = Begun {
            first: b"first ".to_vec(),
            inner: Some(ours),
        };
        tokio::io::AsyncWriteExt::write_all(&mut theirs, b"and the rest")
            .await
            .unwrap();
        drop(theirs);
        let mut part = [0; 4];
        assert_eq!(begun.read(&mut part).await.unwrap(), 4);
        let mut all = part.to_vec();
        begun.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"first and the rest");
    }
}
