//! ZeroMQ: a ROUTER that binds, peers with a DEALER connect.
//!
//! The zeromq crate's connecting sockets do not reconnect and its sends say no more than that the message is queued
//! (100,000 a peer, without a knob, lost with the socket). So this side binds and libzmq, which reconnects, connects;
//! bounds and the notice of loss are the session's.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use zeromq::{
    Listener, RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketEvent, SocketRecv,
    SocketSend, ZmqMessage,
};

use crate::transport::{Incoming, Peer, Transport, TransportError};

/// A peer's queue is bounded by credit far below its capacity. Should it be full all the same, do not wait for it.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// A bound ROUTER socket.
pub struct ZmqRouter {
    sender: RouterSendHalf,
    receiver: RouterRecvHalf,
    events: mpsc::Receiver<SocketEvent>,
}

impl ZmqRouter {
    /// Binds `ipc://PATH` in a folder that only this user can enter. A socket left there by a dead process is replaced.
    ///
    /// # Errors
    /// `Endpoint` for anything but ipc, `Bind` if the path cannot be bound, or its folder is open to others.
    pub async fn bind(endpoint: &str) -> Result<Self, TransportError> {
        let path = ipc_path(endpoint)?;
        let listener = listen(&path).map_err(|reason| TransportError::Bind {
            endpoint: endpoint.to_owned(),
            reason,
        })?;
        let mut socket = RouterSocket::new();
        socket
            .bind_listener(Listener::Ipc(listener))
            .await
            .map_err(|error| TransportError::Bind {
                endpoint: endpoint.to_owned(),
                reason: error.to_string(),
            })?;
        let events = socket.monitor();
        let (sender, receiver) = socket.split();
        Ok(Self {
            sender,
            receiver,
            events,
        })
    }
}

impl Transport for ZmqRouter {
    async fn receive(&mut self) -> Result<Incoming, TransportError> {
        loop {
            tokio::select! {
                // What a peer sent before it left comes first.
                biased;
                message = self.receiver.recv() => {
                    let mut frames = message.map_err(|_| TransportError::Closed)?.into_vecdeque();
                    let peer = frames.pop_front().unwrap_or_default();
                    return Ok(Incoming::Message { peer, frames: frames.into() });
                }
                Some(event) = self.events.next() => {
                    if let SocketEvent::Disconnected(peer) = event {
                        return Ok(Incoming::Left(peer.into()));
                    }
                }
            }
        }
    }

    async fn send(&mut self, peer: &Peer, frames: Vec<Bytes>) -> Result<(), TransportError> {
        let mut message = ZmqMessage::from(peer.clone());
        for frame in frames {
            message.push_back(frame);
        }
        match tokio::time::timeout(SEND_TIMEOUT, self.sender.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(TransportError::NotConnected),
            Err(_) => Err(TransportError::Full),
        }
    }
}

impl std::fmt::Debug for ZmqRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZmqRouter").finish_non_exhaustive()
    }
}

/// The path of an ipc endpoint.
fn ipc_path(endpoint: &str) -> Result<PathBuf, TransportError> {
    let refuse = |why: &str| {
        Err(TransportError::Endpoint(format!(
            "endpoint {endpoint:?}: {why}"
        )))
    };
    if endpoint.starts_with("tcp://") {
        return refuse(
            "tcp is not supported yet, because it needs a key that proves who connects; use ipc:///path",
        );
    }
    match endpoint.strip_prefix("ipc://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => refuse("expected ipc:// and an absolute path, as in ipc:///run/octavo/frontend.sock"),
    }
}

/// Listens on a socket file that only this user can use. The error says what to do.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mode = fs::metadata(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "{} has mode {:03o}, which lets other users in; use a folder of mode 700",
            folder.display(),
            mode & 0o777
        ));
    }
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => format!(
            "the path has {} bytes, sockets allow 107",
            path.as_os_str().len()
        ),
        _ => error.to_string(),
    })?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|error| error.to_string())?;
    Ok(listener)
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(found) if !found.file_type().is_socket() => {
            Err("a file that is no socket is in the way".to_owned())
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err("another process listens there".to_owned()),
            Err(_) => fs::remove_file(path).map_err(|error| error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(folder: &Path) -> String {
        format!("ipc://{}/f.sock", folder.display())
    }

    fn private() -> tempfile::TempDir {
        tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .unwrap()
    }

    async fn message(result: impl Future<Output = Result<ZmqRouter, TransportError>>) -> String {
        result.await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn only_ipc_with_an_absolute_path() {
        assert!(
            message(ZmqRouter::bind("tcp://127.0.0.1:5555"))
                .await
                .contains("tcp is not supported yet")
        );
        for endpoint in ["ipc://relative", "inproc://x", "", "/a"] {
            let text = message(ZmqRouter::bind(endpoint)).await;
            assert!(
                text.contains(&format!("{endpoint:?}")) && text.contains("ipc:///run"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn the_folder_must_be_private_and_the_socket_is() {
        let folder = private();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let text = message(ZmqRouter::bind(&endpoint(folder.path()))).await;
        assert!(
            text.contains("mode 755") && text.contains("mode 700"),
            "{text}"
        );
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let _router = ZmqRouter::bind(&endpoint(folder.path())).await.unwrap();
        let mode = fs::metadata(folder.path().join("f.sock"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_a_living_one_is_not() {
        let folder = private();
        let path = folder.path().join("f.sock");
        drop(UnixListener::bind(&path).unwrap());
        let _router = ZmqRouter::bind(&endpoint(folder.path())).await.unwrap();
        assert!(
            message(ZmqRouter::bind(&endpoint(folder.path())))
                .await
                .contains("another process listens")
        );
        let other = private();
        fs::write(other.path().join("f.sock"), "data").unwrap();
        assert!(
            message(ZmqRouter::bind(&endpoint(other.path())))
                .await
                .contains("no socket")
        );
    }

    #[tokio::test]
    async fn a_path_too_long_is_named() {
        let folder = private();
        let endpoint = format!("ipc://{}/{}", folder.path().display(), "x".repeat(120));
        assert!(
            message(ZmqRouter::bind(&endpoint))
                .await
                .contains("sockets allow 107")
        );
    }
}
