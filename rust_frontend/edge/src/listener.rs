//! Where connections come from: an inherited socket, TCP or Unix; TLS wraps what `accept` returns, in the connection's own
//! task.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcp};
use std::os::unix::net::UnixListener as StdUnix;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::tls_store::Tls;

/// After an error such as "too many open files" the next accept waits so long, while connections end.
const PAUSE: Duration = Duration::from_millis(100);

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection that nobody has spoken on yet.
pub(crate) enum Arrival {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Host and port.
    Tcp(SocketAddr),
    /// A Unix socket's path.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What the clients of a socket speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 from the first byte, as gRPC does.
    Http2,
}

impl Protocol {
    /// Its name in TLS.
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// A socket that listens.
pub struct Listener {
    socket: Socket,
    place: Place,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Takes over a bound and listening TCP socket. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The descriptor is not a TCP socket.
    pub fn new(socket: StdTcp) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let place = Place::Tcp(socket.local_addr()?);
        Ok(Self::of(Socket::Tcp(socket), place))
    }

    /// Takes over a bound and listening Unix socket. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The descriptor is not a Unix socket.
    pub fn unix(socket: StdUnix) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = UnixListener::from_std(socket)?;
        let address = socket.local_addr()?;
        let place = Place::Unix(address.as_pathname().map(Into::into).unwrap_or_default());
        Ok(Self::of(Socket::Unix(socket), place))
    }

    fn of(socket: Socket, place: Place) -> Self {
        Self {
            socket,
            place,
            protocol: Protocol::Http1,
            tls: None,
        }
    }

    /// Speaks another protocol than HTTP/1.1.
    #[must_use]
    pub fn speaking(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// What clients speak.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Speaks TLS with all clients.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<Tls>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether clients must speak TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What greets the next client that speaks TLS.
    pub(crate) fn tls(&self) -> Option<TlsAcceptor> {
        let tls = self.tls.as_ref()?;
        Some(tls.acceptor(self.protocol))
    }

    /// Where clients connect.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Waits for the next connection. Cancel safe.
    ///
    /// # Errors
    /// The socket does not listen, so that no connection will ever come.
    pub(crate) async fn accept(&self) -> io::Result<Arrival> {
        let mut failed = false;
        loop {
            match self.next().await {
                Ok(arrival) => return Ok(arrival),
                Err(error) if is_of_peer(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!("cannot accept connections for now: {error}");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<Arrival> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, address) = socket.accept().await?;
                // Tokens are small writes that must not wait for the acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                Ok(Arrival::Tcp(stream, address))
            }
            Socket::Unix(socket) => Ok(Arrival::Unix(socket.accept().await?.0)),
        }
    }
}

/// Whether the connection failed before it was accepted, which says nothing about the next one.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
