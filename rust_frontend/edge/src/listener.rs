//! Where connections come from: an inherited TCP socket; TLS wraps what `accept` returns, in the connection's own task.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// After an error such as "too many open files" the next accept waits so long, while connections end.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Takes over a bound and listening socket. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The descriptor is not a TCP socket.
    pub fn new(socket: StdListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            address,
            tls: None,
        })
    }

    /// Speaks TLS with all clients.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsAcceptor) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether clients must speak TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What greets clients that speak TLS.
    pub(crate) fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.clone()
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection. Cancel safe.
    ///
    /// # Errors
    /// The socket does not listen, so that no connection will ever come.
    pub(crate) async fn accept(&self) -> io::Result<TcpStream> {
        let mut failed = false;
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    // Tokens are small writes that must not wait for the acknowledgement of the one before.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
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
