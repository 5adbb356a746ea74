//! Frames between processes: ZeroMQ, in memory; sessions that notice loss.
//!
//! No send is trusted: a [`Transport`] may lose what it was given when a connection breaks. A [`Session`] notices, and its
//! owner sends again what still matters.

pub mod memory;
pub mod session;
mod transport;
mod zmq;

pub use session::{Kind, Role, Session, Verdict};
pub use transport::{Incoming, Peer, Transport, TransportError};
pub use zmq::ZmqRouter;
