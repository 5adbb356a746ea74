//! The header that names the engine core which must serve a request.

use http::{HeaderMap, HeaderName, HeaderValue};
use octavo_api::{ApiError, SchedulingFields};

const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// The header's value, if it came; it goes before the field of the body.
pub(crate) struct Pinned(Option<HeaderValue>);

impl Pinned {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(RANK).cloned())
    }

    /// # Errors
    /// A value that is no rank.
    pub(crate) fn apply(&self, scheduling: &mut SchedulingFields) -> Result<(), ApiError> {
        scheduling.pin(self.0.as_ref().map(HeaderValue::as_bytes))
    }
}
