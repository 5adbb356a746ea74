//! The HTTP edge: an accept loop of our own, TLS, limits, request bodies, request ids, refusals, the orderly end.
//!
//! Charter: nothing that a client sends or leaves undone may stop the server, hold up others or take unbounded memory.
//! No route lives here; the crates above bring a router and hand it to [`serve`].

mod authorize;
mod body;
mod compute;
mod contain;
mod failure;
mod guard;
mod keys;
mod listener;
mod refusal;
mod request_id;
mod roles;
mod server;
mod settings;
mod shutdown;
mod signals;
mod stall;
mod tls;

pub use authorize::{Access, AccessTable, Caller, authorized};
pub use body::{BodyReader, JsonBody};
pub use compute::Compute;
pub use contain::contain;
pub use failure::Failure;
pub use guard::guarded;
pub use keys::{KeyRing, Keys};
pub use listener::Listener;
pub use refusal::{RETRY_S, Refusal, defect, error_json, stopping};
pub use request_id::RequestId;
pub use roles::{Role, Roles};
pub use server::serve;
pub use settings::{Settings, unix_seconds};
pub use shutdown::Shutdown;
pub use signals::Signals;
pub use tls::{ClientCertificates, TlsError, TlsFiles};
