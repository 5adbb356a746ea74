//! Errors in the shape of the API that was called, wherever they arose.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue, header};
use octavo_api::ApiError;

/// Routes of Anthropic's API begin with it.
const ANTHROPIC: &str = "/v1/messages";

/// The header that Anthropic's clients read a request's id from.
const REQUEST_ID: &str = "request-id";

/// Gives answers on Anthropic's routes the shape that its clients read.
pub(crate) async fn shaped(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let anthropic = path
        .strip_prefix(ANTHROPIC)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut response = next.run(request).await;
    if !anthropic {
        return response;
    }
    let id = response.headers().get("x-request-id").cloned();
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let text = id.as_ref().and_then(|id| id.to_str().ok());
        let body = error.anthropic(text.map(str::to_owned));
        // An error body is strings alone, which serialise.
        *response.body_mut() = Body::from(serde_json::to_vec(&body).unwrap_or_default());
        let json = HeaderValue::from_static("application/json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, json);
        headers.remove(header::CONTENT_LENGTH);
    }
    if let Some(id) = id {
        let name = HeaderName::from_static(REQUEST_ID);
        response.headers_mut().insert(name, id);
    }
    response
}
