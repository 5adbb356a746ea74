//! The part of a path that names something.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use octavo_api::ApiError;

use crate::refusal::Refusal;

/// The one named part of a route's path, decoded. What cannot be decoded is refused as other errors are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathText(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(text) = Path::from_request_parts(parts, state).await.map_err(|_| {
            let message = "The path holds a %-escape that is no UTF-8. Send the name as UTF-8.";
            Refusal(ApiError::invalid("path", message))
        })?;
        Ok(Self(text))
    }
}
