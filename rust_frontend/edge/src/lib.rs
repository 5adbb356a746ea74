//! The HTTP edge: an accept loop of our own, TLS, limits, request bodies, request ids, refusals, the orderly end.
//!
//! Charter: nothing that a client sends or leaves undone may stop the server, hold up others or take unbounded memory.
//! No route lives here; the crates above bring a router and hand it to [`serve`].

mod access_log;
mod admission;
mod apart;
mod armed;
mod authorize;
mod body;
mod caller;
mod compute;
mod contain;
mod failure;
mod guard;
mod held;
mod keys;
mod layer;
mod listener;
mod path_text;
mod peer;
mod refusal;
mod reload;
mod request_id;
mod roles;
mod server;
mod settings;
mod shutdown;
mod signals;
mod stall;
mod tls;
mod tls_store;
mod waiting;
mod warning;

pub use admission::{Lag, PerCaller, TokenBudget, TokenTicket};
pub use apart::Apart;
pub use armed::Armed;
pub use authorize::{Access, AccessTable, authorized};
pub use body::{BodyLimits, BodyReader, JsonBody};
pub use caller::Caller;
pub use compute::Compute;
pub use contain::{contain, contain_call};
pub use failure::Failure;
pub use guard::guarded;
pub use keys::{KeyRing, Keys};
pub use listener::{Listener, Place, Protocol};
pub use path_text::PathText;
pub use peer::{Peer, San};
pub use refusal::{RETRY_S, Refusal, defect, error_json, stopping};
pub use reload::{Reload, watch};
pub use request_id::RequestId;
pub use roles::{Role, Roles};
pub use server::{serve, serve_apart};
pub use settings::{Settings, unix_seconds};
pub use shutdown::Shutdown;
pub use signals::Signals;
pub use tls::{ClientCertificates, TlsError, TlsFiles};
pub use tls_store::Tls;
pub use warning::warn;
