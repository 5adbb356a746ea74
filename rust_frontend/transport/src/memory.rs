//! A transport within the process, for tests and for engines in the same process.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::transport::{Incoming, Peer, Transport, TransportError};

/// Messages that wait in one direction at most.
const CAPACITY: usize = 1024;

type Peers = Arc<Mutex<HashMap<Peer, mpsc::Sender<Vec<Bytes>>>>>;

/// Opens a transport, and the network through which peers reach it.
#[must_use]
pub fn network() -> (MemoryTransport, Network) {
    let (sender, incoming) = mpsc::channel(CAPACITY);
    let peers = Peers::default();
    (
        MemoryTransport {
            incoming,
            peers: Arc::clone(&peers),
        },
        Network { sender, peers },
    )
}

/// The side that peers connect to.
#[derive(Debug)]
pub struct MemoryTransport {
    incoming: mpsc::Receiver<Incoming>,
    peers: Peers,
}

/// Where peers connect.
#[derive(Debug, Clone)]
pub struct Network {
    sender: mpsc::Sender<Incoming>,
    peers: Peers,
}

/// One peer's end. Dropping it loses what it has not received.
#[derive(Debug)]
pub struct MemoryPeer {
    name: Peer,
    outgoing: mpsc::Sender<Incoming>,
    incoming: mpsc::Receiver<Vec<Bytes>>,
}

impl Network {
    /// Connects under a name; a peer that had it before receives nothing more.
    #[must_use]
    pub fn connect(&self, name: &str) -> MemoryPeer {
        let (sender, incoming) = mpsc::channel(CAPACITY);
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.peers.lock().insert(name.clone(), sender);
        MemoryPeer {
            name,
            outgoing: self.sender.clone(),
            incoming,
        }
    }
}

impl MemoryPeer {
    /// Sends a message; waits while the other side's queue is full.
    ///
    /// # Errors
    /// `Closed` if the transport is gone.
    pub async fn send(&self, frames: Vec<Bytes>) -> Result<(), TransportError> {
        let message = Incoming::Message {
            peer: self.name.clone(),
            frames,
        };
        self.outgoing
            .send(message)
            .await
            .map_err(|_| TransportError::Closed)
    }

    /// Waits for a message. Cancel safe.
    ///
    /// # Errors
    /// `Closed` if the transport is gone, or another peer has taken the name.
    pub async fn receive(&mut self) -> Result<Vec<Bytes>, TransportError> {
        self.incoming.recv().await.ok_or(TransportError::Closed)
    }
}

impl Transport for MemoryTransport {
    async fn receive(&mut self) -> Result<Incoming, TransportError> {
        self.incoming.recv().await.ok_or(TransportError::Closed)
    }

    async fn send(&mut self, peer: &Peer, frames: Vec<Bytes>) -> Result<(), TransportError> {
        let mut peers = self.peers.lock();
        let sender = peers.get(peer).ok_or(TransportError::NotConnected)?;
        sender.try_send(frames).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => TransportError::Full,
            mpsc::error::TrySendError::Closed(_) => {
                peers.remove(peer);
                TransportError::NotConnected
            }
        })
    }
}

impl Drop for MemoryPeer {
    fn drop(&mut self) {
        // A full queue swallows it, as a hint may be.
        let _ = self.outgoing.try_send(Incoming::Left(self.name.clone()));
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.peers.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(text: &'static str) -> Vec<Bytes> {
        vec![Bytes::from_static(text.as_bytes())]
    }

    #[tokio::test]
    async fn both_ways_and_the_name_is_taken_over() {
        let (mut transport, network) = network();
        let mut first = network.connect("a");
        first.send(frames("hello")).await.unwrap();
        let peer = Bytes::from_static(b"a");
        let expected = Incoming::Message {
            peer: peer.clone(),
            frames: frames("hello"),
        };
        assert_eq!(transport.receive().await.unwrap(), expected);
        transport.send(&peer, frames("one")).await.unwrap();
        assert_eq!(first.receive().await.unwrap(), frames("one"));
        let mut second = network.connect("a");
        transport.send(&peer, frames("two")).await.unwrap();
        assert!(matches!(first.receive().await, Err(TransportError::Closed)));
        assert_eq!(second.receive().await.unwrap(), frames("two"));
        drop(second);
        assert_eq!(transport.receive().await.unwrap(), Incoming::Left(peer));
    }

    #[tokio::test]
    async fn a_peer_that_left_or_reads_nothing_is_an_error() {
        let (mut transport, network) = network();
        let name = Bytes::from_static(b"a");
        assert!(matches!(
            transport.send(&name, frames("x")).await,
            Err(TransportError::NotConnected)
        ));
        let peer = network.connect("a");
        for _ in 0..CAPACITY {
            transport.send(&name, frames("x")).await.unwrap();
        }
        assert!(matches!(
            transport.send(&name, frames("x")).await,
            Err(TransportError::Full)
        ));
        drop(peer);
        assert!(matches!(
            transport.send(&name, frames("x")).await,
            Err(TransportError::NotConnected)
        ));
    }
}
