//! Stands around every handler: the request id, panics, the count of responses.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Method;
use octavo_telemetry::Metrics;

use crate::contain::contain;
use crate::refusal::{Refusal, defect};
use crate::request_id::{HEADER, RequestId};

/// Runs the handler. A panic in it is a 500 for this request alone.
pub(crate) async fn guard(
    State(metrics): State<Arc<Metrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let method = method_name(request.method());
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path
        .as_ref()
        .map_or("unknown", MatchedPath::as_str)
        .to_owned();
    let start = Instant::now();

    let mut response = contain(id.as_str(), next.run(request))
        .await
        .unwrap_or_else(|| Refusal(defect()).into_response());
    if let Some(value) = id.header() {
        response.headers_mut().insert(HEADER, value);
    }
    let status = response.status().as_u16();
    metrics.http_response(&path, method, status);
    tracing::debug!(
        "request {}: {method} {path} {status} after {:?}",
        id.as_str(),
        start.elapsed()
    );
    response
}

/// The method as a label: one of a fixed set, whatever the client sent.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "OTHER",
    }
}
