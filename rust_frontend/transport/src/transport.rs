//! What a transport does: frames to and from named peers.

use std::future::Future;

use bytes::Bytes;

/// The name under which a peer connected.
pub type Peer = Bytes;

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Message {
        /// Who sent it.
        peer: Peer,
        /// Its frames, in order.
        frames: Vec<Bytes>,
    },
    /// A peer's connection has ended. A hint that may fail to come; all that the peer sent has come before.
    Left(Peer),
}

/// The side that peers connect to. One task owns it.
pub trait Transport: Send + 'static {
    /// Waits for what comes next. Cancel safe: nothing is taken unless it is returned. What is not received waits with its
    /// sender.
    ///
    /// # Errors
    /// `Closed` when no message can come any more.
    fn receive(&mut self) -> impl Future<Output = Result<Incoming, TransportError>> + Send;

    /// Hands a message over. That it was taken does not mean that it arrives.
    ///
    /// # Errors
    /// `NotConnected` if the peer is gone, `Full` if it takes nothing: the message is lost.
    fn send(
        &mut self,
        peer: &Peer,
        frames: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;
}

/// Why frames do not travel.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The endpoint is of a kind that does not work, or is not an endpoint.
    #[error("{0}")]
    Endpoint(String),
    /// Binding failed.
    #[error("cannot listen on {endpoint}: {reason}")]
    Bind {
        /// Where.
        endpoint: String,
        /// Why, and what to do about it.
        reason: String,
    },
    /// Nobody of that name is connected.
    #[error("the peer is not connected")]
    NotConnected,
    /// The peer's queue is full.
    #[error("the peer takes no messages")]
    Full,
    /// No message can come any more.
    #[error("the transport is closed")]
    Closed,
}
