//! What is told of a request where its caller follows traces; how it is sent is the sink's.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::request::Outcome;

/// The span of a caller, from the header `traceparent` as W3C describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Never 0.
    pub trace_id: u128,
    /// Never 0.
    pub span_id: u64,
    /// The lowest bit: the caller records this trace.
    pub flags: u8,
}

impl TraceParent {
    /// Reads a header's value. `None` for what is not one: then a trace begins here.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32).filter(|id| *id != 0)?;
        let span_id = hex(parts.next()?, 16).filter(|id| *id != 0)?;
        let flags = hex(parts.next()?, 2)?;
        // Later versions may add parts; 255 is forbidden.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        Some(Self {
            trace_id,
            span_id: u64::try_from(span_id).ok()?,
            flags: u8::try_from(flags).ok()?,
        })
    }
}

/// So many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let sane = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(sane) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

/// What a request asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// Outputs of its prompt.
    pub n: u32,
    /// Tokens of each at most.
    pub max_tokens: u64,
    /// 0: greedy.
    pub temperature: f64,
    /// Share of the probability mass that is kept.
    pub top_p: f64,
}

/// One output from its request to its end. Times count from `arrival`.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced<'a> {
    /// Of the caller.
    pub parent: Option<TraceParent>,
    /// As the client and the log know the output.
    pub name: &'a str,
    /// What it asked for.
    pub asked: Asked,
    /// When the request began to come.
    pub arrival: SystemTime,
    /// The engine ran the first row of the prompt; `None`: the engine did not say.
    pub started: Option<Duration>,
    /// The first token was there; `None`: there was none.
    pub first_token: Option<Duration>,
    /// The last was.
    pub end: Duration,
    /// Of the prompt.
    pub prompt_tokens: u64,
    /// Generated.
    pub generated_tokens: u64,
    /// Why it ended.
    pub outcome: Outcome,
}

/// Sends traces to whoever collects them.
pub trait TraceSink: Debug + Send + Sync {
    /// Takes one output, at its end. Must not wait.
    fn tell(&self, traced: &Traced<'_>);
}

/// What one request keeps for its trace.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    sink: Arc<dyn TraceSink>,
    parent: Option<TraceParent>,
    asked: Asked,
}

/// What the clock and the counts of a request say at its end.
pub(crate) struct Life<'a> {
    pub(crate) name: &'a str,
    pub(crate) arrival: Instant,
    pub(crate) queued: Option<Duration>,
    pub(crate) first_token: Option<Instant>,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) outcome: Outcome,
}

impl Trace {
    pub(crate) fn new(
        sink: &Arc<dyn TraceSink>,
        parent: Option<TraceParent>,
        asked: Asked,
    ) -> Self {
        Self {
            sink: Arc::clone(sink),
            parent,
            asked,
        }
    }

    /// Tells of a request that ends now.
    pub(crate) fn tell(&self, life: &Life<'_>) {
        let end = life.arrival.elapsed();
        let first_token = life
            .first_token
            .map(|first| first.duration_since(life.arrival));
        self.sink.tell(&Traced {
            parent: self.parent,
            name: life.name,
            asked: self.asked,
            arrival: SystemTime::now()
                .checked_sub(end)
                .unwrap_or(SystemTime::UNIX_EPOCH),
            started: life
                .queued
                .map(|queued| queued.min(first_token.unwrap_or(end))),
            first_token,
            end,
            prompt_tokens: life.prompt_tokens,
            generated_tokens: life.generated_tokens,
            outcome: life.outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_as_w3c_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = TraceParent {
            trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span_id: 0xb7ad_6b71_6920_3331,
            flags: 1,
        };
        assert_eq!(TraceParent::parse(text), Some(parent));
        let later = text.replacen("00", "cc", 1) + "-more";
        assert_eq!(TraceParent::parse(&later), Some(parent));
    }

    #[test]
    fn what_is_no_parent_begins_a_trace() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for text in [
            "",
            "00",
            &good[..54],
            &format!("{good}-more"),
            &format!("ff{}", &good[2..]),
            &good.to_uppercase(),
            &good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &good.replace("b7ad6b7169203331", &"0".repeat(16)),
            &good.replace("0af7", "+af7"),
            &good.replace('-', "_"),
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }
}
