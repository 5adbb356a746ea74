//! A scripted engine over the real wire: what a frontend hears from it is known beforehand.
//!
//! A [`Mock`] speaks an engine core's side of the link: it asks for a session, takes requests, and answers them step by
//! step as its [`Script`] says. It computes nothing, so that a measured cost is the frontend's, and it fails where the
//! script says so.

mod engine;
mod fault;
mod link;
mod mock;
mod output;
mod script;
mod socket;

pub use engine::Engine;
pub use fault::{Condition, Fault, Mishap, Reject};
pub use mock::{Ending, Mock, MockError};
pub use output::{Output, Rule};
pub use script::Script;
