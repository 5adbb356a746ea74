//! A DEALER that connects: the zeromq crate's does not reconnect, so that a lost one is replaced by a new one.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use zeromq::util::PeerIdentity;
use zeromq::{
    DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv, SocketSend, ZmqMessage,
};

/// Between two tries to connect.
const RETRY: Duration = Duration::from_millis(50);
/// Of one try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connected socket.
pub(crate) struct Dealer {
    socket: DealerSocket,
    events: mpsc::Receiver<SocketEvent>,
}

impl Dealer {
    /// Connects under a name, however long it takes until somebody listens.
    pub(crate) async fn connect(endpoint: &str, name: &str) -> Self {
        loop {
            match tokio::time::timeout(CONNECT_TIMEOUT, Self::try_connect(endpoint, name)).await {
                Ok(Ok(dealer)) => return dealer,
                Ok(Err(error)) => tracing::debug!("cannot connect to {endpoint}: {error}"),
                Err(_) => tracing::debug!("nobody answers at {endpoint}"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn try_connect(endpoint: &str, name: &str) -> Result<Self, String> {
        let identity = PeerIdentity::try_from(Bytes::copy_from_slice(name.as_bytes()))
            .map_err(|error| error.to_string())?;
        let mut options = SocketOptions::default();
        options.peer_identity(identity);
        options.connect_timeout(CONNECT_TIMEOUT);
        let mut socket = DealerSocket::with_options(options);
        let events = socket.monitor();
        socket
            .connect(endpoint)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self { socket, events })
    }

    /// Waits for a message; `None` when the connection has ended. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Option<Vec<Bytes>> {
        loop {
            tokio::select! {
                biased;
                message = self.socket.recv() => {
                    return message.ok().map(|message| message.into_vecdeque().into());
                }
                event = self.events.next() => match event {
                    Some(SocketEvent::Disconnected(_)) | None => return None,
                    Some(_) => {}
                }
            }
        }
    }

    /// Hands a message to the socket. It may be lost; the session notices.
    pub(crate) async fn send(&mut self, header: Vec<u8>, body: Vec<u8>) {
        let mut message = ZmqMessage::from(header);
        message.push_back(Bytes::from(body));
        if let Err(error) = self.socket.send(message).await {
            tracing::debug!("a message is lost: {error}");
        }
    }
}
