//! What one request adds to the metrics.

use std::time::Instant;

use crate::metrics::{FinishLabels, RequestHandles};

/// Why a request ended, as the label `finished_reason` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A stop token or a stop string.
    Stop,
    /// `max_tokens` or the context length.
    Length,
    /// The client went away, or the server was stopped.
    Abort,
    /// The engine failed or refused.
    Error,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
        }
    }
}

/// The clock and the counts of one request; the outcome is recorded once, at the latest when this is dropped.
#[derive(Debug)]
pub struct RequestMetrics {
    handles: RequestHandles,
    name: String,
    arrival: Instant,
    last_token: Option<Instant>,
    prompt: u64,
    generated: u64,
    outcome: Option<Outcome>,
}

impl RequestMetrics {
    pub(crate) fn new(handles: RequestHandles, name: String, arrival: Instant) -> Self {
        handles.open.inc();
        Self {
            handles,
            name,
            arrival,
            last_token: None,
            prompt: 0,
            generated: 0,
            outcome: None,
        }
    }

    /// Records that the engine began to answer a prompt of so many tokens.
    pub fn prompt(&mut self, tokens: u64) {
        self.prompt = tokens;
        self.handles.prompt_tokens.inc_by(tokens);
        self.handles.request_prompt_tokens.observe(as_f64(tokens));
    }

    /// Records how many of the prompt's tokens were found in the prefix cache.
    pub fn cached(&self, tokens: u64) {
        self.handles.cached_tokens.inc_by(tokens);
    }

    /// Records the arrival of `count` new tokens, now.
    pub fn tokens(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => {
                let waited = now.duration_since(self.arrival);
                self.handles
                    .time_to_first_token
                    .observe(waited.as_secs_f64());
            }
            Some(before) => {
                let each = now.duration_since(before).as_secs_f64() / as_f64(count);
                for _ in 0..count {
                    self.handles.inter_token.observe(each);
                }
            }
        }
        self.generated += count;
        self.handles.generation_tokens.inc_by(count);
    }

    /// Records the end. Later calls change nothing.
    pub fn finish(&mut self, outcome: Outcome) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(outcome);
        self.handles.open.dec();
        let labels = FinishLabels {
            finished_reason: outcome.label(),
        };
        self.handles.finished.get_or_create(&labels).inc();
        tracing::info!(
            "{}: {}, {} + {} tokens, {:.2} s",
            self.name,
            labels.finished_reason,
            self.prompt,
            self.generated,
            self.arrival.elapsed().as_secs_f64()
        );
        if matches!(outcome, Outcome::Stop | Outcome::Length) {
            self.handles
                .e2e
                .observe(self.arrival.elapsed().as_secs_f64());
            self.handles
                .request_generation_tokens
                .observe(as_f64(self.generated));
        }
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        self.finish(Outcome::Abort);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^53"
)]
fn as_f64(count: u64) -> f64 {
    count as f64
}
