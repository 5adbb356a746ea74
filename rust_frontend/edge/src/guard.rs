//! Stands around every handler: the request id, panics, the count of responses, answers where there is no route.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::Method;
use http_body::Body as _;
use octavo_api::ApiError;
use octavo_telemetry::Metrics;

use crate::access_log::Entry;
use crate::caller::Caller;
use crate::contain::contain;
use crate::held::{HeldBody, Watch as _};
use crate::peer::Peer;
use crate::refusal::{Refusal, defect};
use crate::request_id::{HEADER, RequestId};

#[derive(Clone)]
struct Guard {
    metrics: Arc<Metrics>,
    access_log: bool,
}

/// Puts the guard around all routes: ids, panics that end one request alone, counts, the access log where it is wanted; and
/// the errors of the API for paths and methods that are none.
pub fn guarded(router: Router, metrics: Arc<Metrics>, access_log: bool) -> Router {
    let state = Guard {
        metrics,
        access_log,
    };
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(state, guard))
}

async fn unknown_route(request: Request) -> Refusal {
    Refusal(ApiError::no_route(request.uri().path()))
}

async fn wrong_method(request: Request) -> Refusal {
    Refusal(ApiError::method_not_allowed(
        request.method().as_str(),
        request.uri().path(),
    ))
}

/// Runs the handler. A panic in it is a 500 for this request alone.
async fn guard(State(state): State<Guard>, mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let method = method_name(request.method());
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path
        .as_ref()
        .map_or("unknown", MatchedPath::as_str)
        .to_owned();
    let start = Instant::now();
    let entry = state.access_log.then(|| {
        let peer = request.extensions().get::<Peer>();
        Entry::new(id.clone(), method, path.clone(), peer)
    });

    let mut response = contain(id.as_str(), next.run(request))
        .await
        .unwrap_or_else(|| Refusal(defect()).into_response());
    if let Some(value) = id.header() {
        response.headers_mut().insert(HEADER, value);
    }
    let status = response.status().as_u16();
    state.metrics.http_response(&path, method, status);
    tracing::debug!(
        "request {}: {method} {path} {status} after {:?}",
        id.as_str(),
        start.elapsed()
    );
    let Some(mut entry) = entry else {
        return response;
    };
    entry.answered(status, response.extensions_mut().remove::<Caller>());
    if response.body().is_end_stream() {
        entry.ended();
    }
    response.map(|body| Body::new(HeldBody::new(body, entry)))
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
