//! HTTP: axum routes over an accept loop of our own, and the SSE writer.
//!
//! Charter: turn bytes from strangers into submissions, and steps into bytes. Rendering, tokenizing and detokenizing
//! belong to `octavo-render`, scheduling and replay to whatever implements `octavo_engine::Generate`. Nothing that a
//! client sends or leaves undone may stop the server, hold up others or take unbounded memory.
//!
//! A request is one future, owned by its connection: when the client leaves, it is dropped, with it the `StepStream`,
//! and so the request is aborted.

mod app;
mod body;
mod compute;
mod contain;
mod envelope;
mod generate;
mod guard;
mod listener;
mod output;
mod refusal;
mod request_id;
mod route;
mod server;
mod settings;
mod shutdown;
mod sse;
mod stall;
mod status;
mod whole;

pub use app::App;
pub use listener::Listener;
pub use server::serve;
pub use settings::Settings;
pub use shutdown::Shutdown;
