//! What `strftime_now` reads.

use jiff::ZonedDateTime;
use jiff::civil::DateTime;

/// The time that templates see.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Local time, when the template asks.
    System,
    /// Always this time, for tests.
    Fixed(DateTime),
}

impl Clock {
    /// Reads a time of the form `2026-03-04T05:06:07`; `None` where it is none.
    pub fn fixed(time: &str) -> Option<Self> {
        time.parse().ok().map(Self::Fixed)
    }

    /// Formats the time as C's `strftime` does.
    pub(crate) fn format(&self, format: &str) -> Result<String, String> {
        let now = match self {
            Self::System => ZonedDateTime::now().datetime(),
            Self::Fixed(time) => *time,
        };
        jiff::fmt::strtime::format(format, now).map_err(|error| error.to_string())
    }
}
