//! Headers that say which engine core serves a request, and when. They go before the fields of the body.

use http::{HeaderMap, HeaderName, HeaderValue};
use octavo_api::{ApiError, SchedulingFields};

use crate::app::App;

const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");
const SESSION: HeaderName = HeaderName::from_static("x-session-id");
const PRIORITY: HeaderName = HeaderName::from_static("x-vllm-priority");

/// The values of those that came.
pub(crate) struct Pinned {
    rank: Option<HeaderValue>,
    session: Option<HeaderValue>,
    priority: Option<HeaderValue>,
    /// Whether requests may name a priority.
    priorities: bool,
}

impl Pinned {
    pub(crate) fn of(app: &App, headers: &HeaderMap) -> Self {
        let given = |name| headers.get(name).cloned();
        Self {
            rank: given(RANK),
            session: given(SESSION),
            priority: given(PRIORITY),
            priorities: app.priorities,
        }
    }

    /// # Errors
    /// A value that is no rank, no name of a session or no priority, or a priority where there are none.
    pub(crate) fn apply(&self, scheduling: &mut SchedulingFields) -> Result<(), ApiError> {
        scheduling.pin(bytes(self.rank.as_ref()))?;
        scheduling.join(bytes(self.session.as_ref()))?;
        scheduling.prefer(bytes(self.priority.as_ref()))?;
        in_turn(self.priorities, scheduling.priority)
    }
}

fn bytes(value: Option<&HeaderValue>) -> Option<&[u8]> {
    value.map(HeaderValue::as_bytes)
}

/// Refuses a priority where requests are served in the order of their arrival.
pub(crate) fn in_turn(priorities: bool, priority: i64) -> Result<(), ApiError> {
    if priority == 0 || priorities {
        return Ok(());
    }
    let message = format!(
        "'priority' is {priority}, and this server serves in the order of arrival (--scheduling-policy fcfs). Leave it out, or \
         start the server with --scheduling-policy priority."
    );
    Err(ApiError::invalid("priority", message))
}
