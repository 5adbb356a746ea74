//! The outputs of one request: `n` for each prompt, whose pieces come in any order.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use octavo_api::{ApiError, RequestTiming, Usage};
use octavo_engine::BASE_VERSION;
use octavo_telemetry::Timing;

use crate::output::{Output, Piece};

type Next = BoxFuture<'static, (Box<Output>, Result<Piece, ApiError>)>;

/// Running outputs. Dropping them aborts what has not ended.
pub(crate) struct Outputs {
    /// The one output of most requests.
    single: Option<Box<Output>>,
    many: FuturesUnordered<Next>,
    open: usize,
    /// Of each output, by its index: whether it is the first of its prompt, and its tokens so far; those of a single one
    /// when it has ended.
    counts: Vec<(bool, Usage)>,
    /// Of the first output, when it has ended.
    timing: Option<Timing>,
    /// Versions of the weights that made tokens of outputs that have ended, each once.
    weights: Vec<Arc<str>>,
}

/// Tokens of several outputs.
#[derive(Debug, Default)]
struct Total {
    prompt: usize,
    completion: usize,
    cached: Option<usize>,
    created: Option<usize>,
    reasoning: Option<usize>,
}

impl Outputs {
    /// Takes at least one output.
    pub(crate) fn new(mut outputs: Vec<Output>) -> Self {
        let open = outputs.len();
        let counts = outputs
            .iter()
            .map(|output| (output.is_first(), output.usage()))
            .collect();
        let single = if open == 1 { outputs.pop() } else { None };
        Self {
            single: single.map(Box::new),
            many: outputs.into_iter().map(Box::new).map(next).collect(),
            open,
            counts,
            timing: None,
            weights: Vec::new(),
        }
    }

    /// Takes the one output of a request.
    pub(crate) fn of(output: Output) -> Self {
        Self::new(vec![output])
    }

    /// When the tokens of the first output came; `None` until it has ended.
    pub(crate) fn timing(&self) -> Option<RequestTiming> {
        self.timing.as_ref().map(told)
    }

    /// Versions of the weights that made the tokens, oldest first; `None` where those are the checkpoint's own.
    pub(crate) fn weight_versions(&self) -> Option<Vec<String>> {
        let updated = self
            .weights
            .iter()
            .any(|version| **version != *BASE_VERSION);
        updated.then(|| {
            self.weights
                .iter()
                .map(|version| version.to_string())
                .collect()
        })
    }

    /// Whether the engine is away and the request waits for it.
    pub(crate) fn paused(&self) -> bool {
        self.single.as_ref().is_some_and(|output| output.paused())
    }

    /// Whether pieces of several outputs may be ready at a time.
    pub(crate) fn several(&self) -> bool {
        self.many.len() > 1
    }

    /// How many outputs have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Tokens so far: those of a prompt count once, whatever `n` is.
    pub(crate) fn usage(&self) -> Usage {
        let mut total = Total::default();
        match &self.single {
            Some(output) => total.add(&output.usage(), output.is_first()),
            None => {
                for (first, usage) in &self.counts {
                    total.add(usage, *first);
                }
            }
        }
        Usage::new(total.prompt, total.completion, total.cached)
            .with_created(total.created)
            .with_reasoning(total.reasoning)
    }

    /// Waits for the next piece of any output, and says which; an output is dropped with its last piece. Cancel safe.
    ///
    /// # Errors
    /// An output failed, or the server ends. Then nothing more may be asked for.
    pub(crate) async fn next(&mut self, piece: &mut Piece) -> Result<u32, ApiError> {
        poll_fn(|cx| self.poll_next(cx, piece)).await
    }

    /// As [`Outputs::next`]. What the piece held is gone.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        piece: &mut Piece,
    ) -> Poll<Result<u32, ApiError>> {
        if let Some(output) = self.single.as_mut() {
            ready!(output.poll_next(cx, piece))?;
            let index = output.index();
            if piece.end.is_some() {
                self.single = None;
            }
            self.ended(index, piece);
            return Poll::Ready(Ok(index));
        }
        let (output, next_piece) = ready!(self.many.poll_next_unpin(cx))
            .ok_or_else(|| ApiError::internal("An output was waited for that has ended."))?;
        *piece = next_piece?;
        let index = output.index();
        if piece.end.is_none() {
            self.note(index, output.usage());
            self.many.push(next(output));
        }
        self.ended(index, piece);
        Poll::Ready(Ok(index))
    }

    /// Takes over the figures of an output whose last piece this is, if it is.
    fn ended(&mut self, index: u32, piece: &Piece) {
        let Some(end) = &piece.end else {
            return;
        };
        self.open -= 1;
        if index == 0 {
            self.timing = Some(end.timing);
        }
        self.note(index, end.usage.clone());
        for version in &end.weights {
            if !self.weights.contains(version) {
                self.weights.push(Arc::clone(version));
            }
        }
    }

    fn note(&mut self, index: u32, usage: Usage) {
        if let Some((_, count)) = self.counts.get_mut(index as usize) {
            *count = usage;
        }
    }
}

impl Total {
    fn add(&mut self, usage: &Usage, first: bool) {
        let plus = |sum: &mut Option<usize>, more: Option<usize>| {
            *sum = more.map(|more| sum.unwrap_or(0) + more).or(*sum);
        };
        self.completion += usage.completion_tokens;
        let thoughts = usage.completion_tokens_details.as_ref();
        plus(
            &mut self.reasoning,
            thoughts.map(|details| details.reasoning_tokens),
        );
        if first {
            self.prompt += usage.prompt_tokens;
            let found = usage.prompt_tokens_details.as_ref();
            plus(&mut self.cached, found.map(|details| details.cached_tokens));
            let created = found.and_then(|details| details.created_cache_tokens);
            plus(&mut self.created, created);
        }
    }
}

/// A timing as clients read it.
fn told(timing: &Timing) -> RequestTiming {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let began = timing.first.is_some();
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts are far below 2^53"
    )]
    let tokens = timing.tokens as f64;
    let whole = timing.first.unwrap_or_default() + timing.generation;
    RequestTiming {
        time_to_first_token_ms: timing.first.map(ms),
        generation_time_ms: began.then(|| ms(timing.generation)),
        queue_time_ms: Some(ms(timing.queued)),
        mean_itl_ms: (timing.tokens > 1).then(|| ms(timing.generation) / (tokens - 1.0)),
        tokens_per_second: (began && !whole.is_zero()).then(|| tokens / whole.as_secs_f64()),
    }
}

fn next(mut output: Box<Output>) -> Next {
    Box::pin(async move {
        let mut piece = Piece::default();
        let came = output.next(&mut piece).await;
        (output, came.map(|()| piece))
    })
}
