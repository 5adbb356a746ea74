//! The id of a request: the client's own if it is sane, else a new one.

use http::{HeaderMap, HeaderValue};
use octavo_telemetry::TraceParent;
use uuid::Uuid;

/// The header that carries the id in both directions.
pub(crate) const HEADER: &str = "x-request-id";

const MAX_LENGTH: usize = 64;

/// What names a request in logs, in `X-Request-Id` and, behind a prefix, in the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId {
    id: String,
    parent: Option<TraceParent>,
}

impl RequestId {
    /// Takes the client's id, or draws one where there is none that is fit for logs and headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok());
        let id = match given {
            Some(id) if is_sane(id) => id.to_owned(),
            _ => Uuid::new_v4().simple().to_string(),
        };
        let parent = headers.get("traceparent");
        Self {
            id,
            parent: parent.and_then(|value| TraceParent::parse(value.to_str().ok()?)),
        }
    }

    /// The span of the caller, where it has one.
    #[must_use]
    pub fn parent(&self) -> Option<TraceParent> {
        self.parent
    }

    /// The id of a response object, such as `chatcmpl-…`.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.id)
    }

    /// The bare id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// The id as a header value; `None` never happens for a sane id.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.id).ok()
    }
}

fn is_sane(id: &str) -> bool {
    (1..=MAX_LENGTH).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &[u8]) -> RequestId {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        RequestId::of(&headers)
    }

    #[test]
    fn a_sane_id_is_kept() {
        assert_eq!(of(b"my-Trace_1.2:3").as_str(), "my-Trace_1.2:3");
        assert_eq!(of(b"a").with_prefix("cmpl"), "cmpl-a");
    }

    #[test]
    fn other_ids_are_replaced() {
        let long = [b'a'; 65];
        for value in [&b""[..], b"two words", b"caf\xe9", b"quote\"", &long] {
            let id = of(value);
            assert_eq!(id.as_str().len(), 32, "{value:?}");
        }
        assert_ne!(
            RequestId::of(&HeaderMap::new()),
            RequestId::of(&HeaderMap::new())
        );
    }
}
