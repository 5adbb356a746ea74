//! What one request adds to the metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::{CallLabels, FinishLabels, RequestHandles, SourceLabels};
use crate::trace::{Asked, Life, Trace, TraceParent, TraceSink};

/// Why a request ended, as the label `finished_reason` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A stop token or a stop string.
    Stop,
    /// `max_tokens` or the context length.
    Length,
    /// The output turned in circles.
    Repetition,
    /// The client went away, or the server was stopped.
    Abort,
    /// The engine failed or refused.
    Error,
}

impl Outcome {
    /// The name of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Repetition => "repetition",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
        }
    }
}

/// Whose output is searched for tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// As the label `request_type` names it, such as "chat_completions".
    pub request_type: &'static str,
    /// Whether the answer is streamed.
    pub stream: bool,
}

/// When the tokens of a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Until the engine began with it.
    pub queued: Duration,
    /// From then until its first token; `None`: there was none.
    pub first: Option<Duration>,
    /// From the first token to the last.
    pub generation: Duration,
    /// How many tokens.
    pub tokens: u64,
}

/// The clock and the counts of one request; the outcome is recorded once, at the latest when this is dropped.
#[derive(Debug)]
pub struct RequestMetrics {
    handles: Arc<RequestHandles>,
    name: String,
    arrival: Instant,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    queued: Option<Duration>,
    prompt: u64,
    generated: u64,
    outcome: Option<Outcome>,
    traces: Option<Arc<dyn TraceSink>>,
    trace: Option<Box<Trace>>,
    /// Who wants to know of tool calls, and whether there was one.
    calls: Option<(Caller, bool)>,
}

impl RequestMetrics {
    pub(crate) fn new(
        handles: Arc<RequestHandles>,
        name: String,
        arrival: Instant,
        traces: Option<Arc<dyn TraceSink>>,
    ) -> Self {
        handles.open.inc();
        Self {
            handles,
            name,
            arrival,
            first_token: None,
            last_token: None,
            queued: None,
            prompt: 0,
            generated: 0,
            outcome: None,
            traces,
            trace: None,
            calls: None,
        }
    }

    /// Notes that the output is searched for tool calls.
    pub fn searched(&mut self, caller: Caller) {
        self.calls = Some((caller, false));
    }

    /// Notes that the output has a tool call.
    pub fn called(&mut self) {
        if let Some((_, called)) = &mut self.calls {
            *called = true;
        }
    }

    /// Follows the request in its caller's trace, where traces go anywhere.
    pub fn trace(&mut self, parent: Option<TraceParent>, asked: Asked) {
        let sink = self.traces.as_ref();
        self.trace = sink.map(|sink| Box::new(Trace::new(sink, parent, asked)));
    }

    /// Records that the engine began to answer a prompt of so many tokens.
    pub fn prompt(&mut self, tokens: u64) {
        self.prompt = tokens;
        self.handles.prompt_tokens.inc_by(tokens);
        self.handles.request_prompt_tokens.observe(as_f64(tokens));
    }

    /// Notes the prompt of a further output: its tokens were recorded with the first.
    pub fn same_prompt(&mut self, tokens: u64) {
        self.prompt = tokens;
    }

    /// Records what the request asked for.
    pub fn params(&self, n: u64, max_tokens: u64) {
        self.handles.params_n.observe(as_f64(n));
        self.handles.params_max_tokens.observe(as_f64(max_tokens));
    }

    /// Records how many of the prompt's tokens were found in the prefix cache, after `prompt`.
    pub fn cached(&self, tokens: u64) {
        self.handles.cached_tokens.inc_by(tokens);
        let computed = self.prompt.saturating_sub(tokens);
        self.handles.computed_tokens.observe(as_f64(computed));
        for (source, count) in [("local_cache_hit", tokens), ("local_compute", computed)] {
            let labels = SourceLabels { source };
            self.handles.by_source.get_or_create(&labels).inc_by(count);
        }
    }

    /// Records how long the request waited in the engine before it ran.
    pub fn queued(&mut self, waited: Duration) {
        self.queued = Some(waited);
    }

    /// Tokens recorded so far.
    #[must_use]
    pub fn generated(&self) -> u64 {
        self.generated
    }

    /// Records the arrival of `count` new tokens, now.
    pub fn tokens(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => {
                self.first_token = Some(now);
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

    /// Tells when the tokens so far came. Queue and first token add up to the time since the arrival.
    #[must_use]
    pub fn timing(&self) -> Timing {
        let first = self.first_token.map(|at| at.duration_since(self.arrival));
        let last = self.last_token.map(|at| at.duration_since(self.arrival));
        let queued = self.queued.unwrap_or_default();
        let queued = queued.min(first.unwrap_or(queued));
        Timing {
            queued,
            first: first.map(|first| first.saturating_sub(queued)),
            generation: last
                .unwrap_or_default()
                .saturating_sub(first.unwrap_or_default()),
            tokens: self.generated,
        }
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
            self.observe_phases();
            self.count_calls();
        }
        if let Some(trace) = self.trace.take() {
            trace.tell(&Life {
                name: &self.name,
                arrival: self.arrival,
                queued: self.queued,
                first_token: self.first_token,
                prompt_tokens: self.prompt,
                generated_tokens: self.generated,
                outcome,
            });
        }
    }

    fn count_calls(&self) {
        let Some((caller, called)) = self.calls else {
            return;
        };
        let labels = CallLabels {
            mode: ["non_streaming", "streaming"][usize::from(caller.stream)],
            outcome: ["no_tool_call", "tool_call"][usize::from(called)],
            request_type: caller.request_type,
        };
        self.handles.calls.get_or_create(&labels).inc();
    }

    /// Observes the times of a request that came to its end; queue, prefill and decode add up to the whole.
    fn observe_phases(&self) {
        let now = Instant::now();
        let whole = now.duration_since(self.arrival);
        let first = self.first_token.unwrap_or(now).duration_since(self.arrival);
        let queue = self.queued.unwrap_or_default().min(first);
        let decode = whole.saturating_sub(first);
        let handles = &self.handles;
        for (histogram, time) in [
            (&handles.e2e, whole),
            (&handles.queue, queue),
            (&handles.prefill, first.saturating_sub(queue)),
            (&handles.decode, decode),
            (&handles.inference, whole.saturating_sub(queue)),
        ] {
            histogram.observe(time.as_secs_f64());
        }
        if self.generated > 1 {
            let each = decode.as_secs_f64() / as_f64(self.generated - 1);
            handles.per_output_token.observe(each);
        }
        handles
            .request_generation_tokens
            .observe(as_f64(self.generated));
        handles
            .max_generation_tokens
            .observe(as_f64(self.generated));
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
