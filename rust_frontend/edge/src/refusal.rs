//! Errors as HTTP answers.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use octavo_api::{ApiError, ErrorKind};

/// Seconds after which a client may ask again when the server itself is ending or not there yet.
pub const RETRY_S: u32 = 5;

/// An `ApiError` that answers a request.
#[derive(Debug)]
pub struct Refusal(pub ApiError);

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

/// The error goes along as an extension, for whoever gives it another shape.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(error_json(&self.0)));
        *response.status_mut() =
            StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self.0.clone());
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The error's body, as it stands in an answer and in an event of a stream.
#[must_use]
pub fn error_json(error: &ApiError) -> Vec<u8> {
    // An error body is strings alone, which serialise.
    serde_json::to_vec(&error.body()).unwrap_or_default()
}

/// The request hit a defect of the server, which the log describes.
#[must_use]
pub fn defect() -> ApiError {
    ApiError::internal(
        "The server failed on this request; its log says more under the request's id.",
    )
}

/// The server is going away.
#[must_use]
pub fn stopping() -> ApiError {
    ApiError::unavailable("The server is shutting down. Try again later.", RETRY_S)
}

/// The client took too long to send the body.
pub(crate) fn body_stalled(seconds: u64) -> ApiError {
    ApiError {
        kind: ErrorKind::InvalidRequest,
        message: format!("The body stopped coming for {seconds} s."),
        param: None,
        code: "request_timeout",
        retry_after_s: None,
    }
}

/// The request is not what the route reads.
pub(crate) fn bad_request(message: String) -> ApiError {
    ApiError {
        kind: ErrorKind::InvalidRequest,
        message,
        param: None,
        code: "bad_request",
        retry_after_s: None,
    }
}
