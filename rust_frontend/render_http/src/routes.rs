//! The routes over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use axum::routing::post;
use http::{HeaderValue, header};
use octavo_edge::{
    BodyReader, Compute, Refusal, RequestId, Shutdown, stopping, unix_seconds, warn,
};

use crate::service::{Asked, TextRoute, TextService};

/// What the handlers stand on; readers and threads are shared with the other routes of the server.
pub struct TextState {
    /// Answers.
    pub service: TextService,
    /// Reads bodies within the limits.
    pub bodies: BodyReader,
    /// Does the work.
    pub compute: Compute,
    /// When to end.
    pub shutdown: Shutdown,
}

/// Makes the router of all [`TextRoute`]s.
pub fn text_routes(state: Arc<TextState>) -> Router {
    let mut router = Router::new();
    for route in TextRoute::ALL {
        let handler =
            move |State(state): State<Arc<TextState>>,
                  Extension(id): Extension<RequestId>,
                  request: Request| handle(state, route, id, request);
        router = router.route(route.path(), post(handler));
    }
    router.with_state(state)
}

async fn handle(
    state: Arc<TextState>,
    route: TextRoute,
    id: RequestId,
    request: Request,
) -> Result<Response, Refusal> {
    if !state.shutdown.accepting() {
        return Err(stopping().into());
    }
    let body = state.bodies.read(request).await?;
    let asked = Asked {
        id: id.as_str().to_owned(),
        now: unix_seconds(),
    };
    let worker = Arc::clone(&state);
    let length = body.bytes.len();
    let job = move || worker.service.answer(route, &body.bytes, &asked);
    let answer = state.compute.run(length, job).await?;
    let mut response = Response::new(Body::from(answer.body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(warn(response, &answer.ignored))
}
