//! The one log of all processes: `HH:MM:SS.mmm LEVEL   process   message` on stderr, in local time.

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The names of the log levels, as all processes take them.
pub const LEVELS: [&str; 4] = ["debug", "info", "warning", "error"];

/// The log could not be set up.
#[derive(Debug, PartialEq, Eq)]
pub enum LogError {
    /// The level is none of `LEVELS`.
    Level(String),
    /// A subscriber is set already.
    Twice,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(got) => write!(
                f,
                "log level {got:?} is unknown; use one of {}",
                LEVELS.join(", ")
            ),
            Self::Twice => f.write_str("the log is set up already"),
        }
    }
}

impl std::error::Error for LogError {}

/// Sends this process's log records to stderr, each line with the clock, the level and the process name.
///
/// octavo's own records from `level` on are written; those of libraries from "warning" on.
///
/// # Errors
/// The level is unknown, or the log was set up before.
pub fn setup(process: &'static str, level: &str) -> Result<(), LogError> {
    let own = parse_level(level)?;
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("octavo", own)
        // It warns of socket files that are gone already.
        .with_target("zeromq", LevelFilter::ERROR);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .event_format(LineFormat::new(process));
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()
        .map_err(|_| LogError::Twice)
}

fn parse_level(level: &str) -> Result<LevelFilter, LogError> {
    match level {
        "debug" => Ok(LevelFilter::DEBUG),
        "info" => Ok(LevelFilter::INFO),
        "warning" => Ok(LevelFilter::WARN),
        "error" => Ok(LevelFilter::ERROR),
        other => Err(LogError::Level(other.to_owned())),
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

struct LineFormat {
    process: &'static str,
    zone: TimeZone,
}

impl LineFormat {
    fn new(process: &'static str) -> Self {
        Self {
            process,
            zone: TimeZone::system(),
        }
    }

    /// Writes the message, a head before each of its lines.
    fn write(
        &self,
        out: &mut dyn fmt::Write,
        at: Timestamp,
        level: Level,
        message: &str,
    ) -> fmt::Result {
        let clock = self.zone.to_datetime(at);
        let mut lines = message.lines();
        let mut line = lines.next().unwrap_or_default();
        loop {
            writeln!(
                out,
                "{:02}:{:02}:{:02}.{:03} {:<7} {:<9} {line}",
                clock.hour(),
                clock.minute(),
                clock.second(),
                clock.millisecond(),
                level_name(level),
                self.process,
            )?;
            match lines.next() {
                Some(next) => line = next,
                None => return Ok(()),
            }
        }
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = Text::default();
        event.record(&mut text);
        text.message.push_str(&text.fields);
        self.write(
            &mut writer,
            Timestamp::now(),
            *event.metadata().level(),
            &text.message,
        )
    }
}

/// The message of an event, and its other fields as ` name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str, level: Level) -> String {
        let format = LineFormat {
            process: "frontend",
            zone: TimeZone::UTC,
        };
        let mut out = String::new();
        let at = Timestamp::from_millisecond(1_700_000_000_042).unwrap();
        format.write(&mut out, at, level, message).unwrap();
        out
    }

    #[test]
    fn a_line_has_clock_level_process_and_message() {
        assert_eq!(
            line("hello", Level::INFO),
            "22:13:20.042 INFO    frontend  hello\n"
        );
        assert_eq!(line("", Level::WARN), "22:13:20.042 WARNING frontend  \n");
    }

    #[test]
    fn each_line_of_a_message_has_a_head() {
        let text = line("one\ntwo", Level::ERROR);
        assert_eq!(
            text,
            "22:13:20.042 ERROR   frontend  one\n22:13:20.042 ERROR   frontend  two\n"
        );
    }

    #[test]
    fn an_unknown_level_is_refused_by_name() {
        let error = setup("frontend", "loud").unwrap_err();
        assert_eq!(
            error.to_string(),
            "log level \"loud\" is unknown; use one of debug, info, warning, error"
        );
        for level in LEVELS {
            assert!(parse_level(level).is_ok(), "{level}");
        }
    }
}
