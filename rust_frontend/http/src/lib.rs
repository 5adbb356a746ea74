//! axum routes and the SSE writer
