//! One request's answer as it comes: steps in, pieces of text out. Streams and whole answers are folds over it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use octavo_api::{ApiError, FinishReason, PromptLogprobs, StopReason, Usage};
use octavo_edge::{TokenTicket, stopping};
use octavo_engine::{Step, StepStream};
use octavo_parser::Event;
use octavo_render::{OutputText, Prepared, Renderer, Update, prompt_logprobs};
use octavo_telemetry::{Outcome, RequestMetrics, Timing};
use octavo_wire::frontend::EngineInfo;
use tokio_util::sync::CancellationToken;

use crate::interrupt::{Interrupt, Interruption};
use crate::logprobs::{Shown, Told};
use crate::refusal::of_generate;

/// What a step brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Piece {
    /// New text; may be empty.
    pub(crate) text: String,
    /// What the parser makes of it, where the output is parsed; then there is no text.
    pub(crate) events: Vec<Event>,
    /// The new token ids; empty unless the request asked for them.
    pub(crate) tokens: Vec<i32>,
    /// Of the tokens whose text this completes.
    pub(crate) logprobs: Option<Shown>,
    /// Of the prompt, once, where the request asked for them.
    pub(crate) prompt_logprobs: Option<PromptLogprobs>,
    /// Set in the last piece, and only there.
    pub(crate) end: Option<End>,
}

impl Piece {
    /// Whether there is something besides events and the end.
    pub(crate) fn shows_something(&self) -> bool {
        !self.text.is_empty() || !self.tokens.is_empty() || self.logprobs.is_some()
    }
}

/// How an answer ended.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: FinishReason,
    /// What of the request's stops ended it.
    pub stop: Option<StopReason>,
    /// Tokens of prompt and output.
    pub usage: Usage,
    /// When its tokens came.
    pub timing: Timing,
    /// Versions of the weights that made its tokens, in order.
    pub weights: Vec<Arc<str>>,
}

/// The token ids of a request that asked for them.
#[derive(Debug)]
pub(crate) struct TokenIds {
    prompt: Option<Vec<i32>>,
    given: usize,
}

impl TokenIds {
    pub(crate) fn new(prompt: Vec<i32>) -> Self {
        Self {
            prompt: Some(prompt),
            given: 0,
        }
    }

    /// Adds the ids of a step, without those behind the end: a stop string may end the output within a step.
    fn give(&mut self, tokens: &[i32], end: Option<&End>, given: &mut Vec<i32>) {
        let counted = end.map_or(usize::MAX, |end| end.usage.completion_tokens);
        let left = counted.saturating_sub(self.given);
        self.given += tokens.len();
        given.extend_from_slice(&tokens[..left.min(tokens.len())]);
    }
}

/// Where an output stands among those of its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Of its choice.
    pub(crate) index: u32,
    /// Whether it is the first of its prompt.
    pub(crate) first: bool,
}

/// A prompt that stands before its output.
pub(crate) struct Echo {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) renderer: Arc<Renderer>,
    /// Whether nothing follows it.
    pub(crate) alone: bool,
}

/// What an output has besides text.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) ids: Option<TokenIds>,
    pub(crate) told: Option<Told>,
    pub(crate) echo: Option<Echo>,
    /// Who writes the prompt's log probabilities, where they are asked for.
    pub(crate) of_prompt: Option<Arc<Renderer>>,
}

/// A running request. Dropping it aborts the request.
pub(crate) struct Output {
    steps: StepStream,
    text: OutputText,
    metrics: RequestMetrics,
    interrupt: Interrupt,
    prompt_tokens: usize,
    place: Place,
    extras: Extras,
    cached_tokens: Option<usize>,
    /// Versions of the weights that made its tokens, in order.
    weights: Vec<Arc<str>>,
    /// Tokens of the prompt that stand in the cache once it is computed, where there is one.
    kept: Option<usize>,
    begun: bool,
    /// The error that comes after the last text.
    failed: Option<ApiError>,
    /// The step, while nobody works on it, and the text: their memory serves all of them.
    step: Option<Box<Step>>,
    update: Update,
    _ticket: Option<Arc<TokenTicket>>,
}

impl Output {
    pub(crate) fn new(
        steps: StepStream,
        text: OutputText,
        prompt_tokens: usize,
        place: Place,
        extras: Extras,
        metrics: RequestMetrics,
        cut: CancellationToken,
    ) -> Self {
        Self {
            steps,
            text,
            metrics,
            interrupt: Interrupt::new(cut),
            prompt_tokens,
            place,
            extras,
            cached_tokens: None,
            weights: Vec::new(),
            kept: None,
            begun: false,
            failed: None,
            step: None,
            update: Update::default(),
            _ticket: None,
        }
    }

    /// The number of its choice.
    pub(crate) fn index(&self) -> u32 {
        self.place.index
    }

    /// Whether it is the first output of its prompt.
    pub(crate) fn is_first(&self) -> bool {
        self.place.first
    }

    /// Ends with an error what is not complete by then.
    pub(crate) fn within(mut self, limit: Option<Duration>) -> Self {
        self.interrupt.within(limit);
        self
    }

    /// As [`Self::within`], where that is less than the limit that holds already.
    pub(crate) fn no_later(mut self, limit: Option<Duration>) -> Self {
        self.interrupt.no_later(limit);
        self
    }

    /// Gives log probabilities as they are, in no shape of a route.
    pub(crate) fn with_bare_logprobs(mut self) -> Self {
        if let Some(told) = &mut self.extras.told {
            told.bare();
        }
        self
    }

    /// Counts what the prompt leaves in the cache of an engine: full blocks before the last token, which is always computed.
    pub(crate) fn caching(mut self, engine: Option<&EngineInfo>) -> Self {
        let engine = engine.filter(|engine| engine.prefix_caching && engine.block_tokens > 0);
        self.kept = engine.map(|engine| {
            let block = usize::try_from(engine.block_tokens).unwrap_or(usize::MAX);
            self.prompt_tokens.saturating_sub(1) / block * block
        });
        self
    }

    /// Gives the ticket, which the outputs of a request share, back when they are over.
    pub(crate) fn holding(mut self, ticket: Arc<TokenTicket>) -> Self {
        self._ticket = Some(ticket);
        self
    }

    /// Whether the engine is away and the request waits for it.
    pub(crate) fn paused(&self) -> bool {
        self.steps.paused()
    }

    /// Tokens so far.
    pub(crate) fn usage(&self) -> Usage {
        self.counted(usize::try_from(self.metrics.generated()).unwrap_or(usize::MAX))
    }

    /// The usage with so many tokens of output.
    fn counted(&self, completion_tokens: usize) -> Usage {
        let cached = self.cached_tokens;
        let created = self
            .kept
            .map(|kept| kept.saturating_sub(cached.unwrap_or(0)));
        Usage::new(self.prompt_tokens, completion_tokens, cached).with_created(created)
    }

    /// The prompt's token ids, once, if the request asked for them.
    pub(crate) fn take_prompt_ids(&mut self) -> Option<Vec<i32>> {
        self.extras.ids.as_mut()?.prompt.take()
    }

    /// Waits for the next piece; what `piece` held is gone, its memory is used again. Cancel safe. Must not be called after
    /// the last piece or an error.
    ///
    /// # Errors
    /// The request failed, or the server ends.
    pub(crate) async fn next(&mut self, piece: &mut Piece) -> Result<(), ApiError> {
        poll_fn(|cx| self.poll_next(cx, piece)).await
    }

    /// As [`Output::next`].
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        piece: &mut Piece,
    ) -> Poll<Result<(), ApiError>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let step = self.step.get_or_insert_default();
        let error = match self.steps.poll_next(cx, step) {
            Poll::Ready(Some(Ok(()))) => {
                self.advance(piece);
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Some(Err(error))) => of_generate(error),
            Poll::Ready(None) => {
                ApiError::internal("The engine ended the request without a reason.")
            }
            Poll::Pending => match ready!(self.interrupt.poll(cx)) {
                Interruption::Stopping => return Poll::Ready(Err(stopping())),
                Interruption::Overdue(seconds) => ApiError::timed_out(seconds),
            },
        };
        self.metrics.finish(Outcome::Error);
        Poll::Ready(Err(error))
    }

    /// Makes a piece of the step that came.
    fn advance(&mut self, piece: &mut Piece) {
        let mut step = self.step.take().unwrap_or_default();
        self.count(&step);
        self.weights.append(&mut step.weights);
        self.text
            .advance_into(&step.tokens, step.finish.as_ref(), &mut self.update);
        std::mem::swap(&mut piece.text, &mut self.update.text);
        std::mem::swap(&mut piece.events, &mut self.update.events);
        let opened = |event: &Event| matches!(event, Event::CallOpen { .. });
        if piece.events.iter().any(opened) {
            self.metrics.called();
        }
        piece.end = self.ended(&step);
        self.add_extras(&step, piece);
        (step.logprobs, step.prompt_logprobs) = (None, None);
        self.step = Some(step);
        if let Some(end) = &piece.end {
            self.metrics.finish(outcome(end.reason));
        }
    }

    /// How the output has ended, if it has; the engine's failure is kept to be told after the last text.
    fn ended(&mut self, step: &Step) -> Option<End> {
        let ended = self.update.end.take()?;
        if ended.reason == FinishReason::Error {
            let message = step
                .finish
                .as_ref()
                .and_then(|finish| finish.message.clone());
            self.failed =
                Some(ApiError::internal(message.unwrap_or_else(|| {
                    "The engine failed on this request.".to_owned()
                })));
            self.metrics.finish(Outcome::Error);
            return None;
        }
        let usage = self.counted(ended.completion_tokens);
        Some(End {
            reason: ended.reason,
            stop: ended.stop_reason,
            usage: usage.with_reasoning(ended.reasoning_tokens),
            timing: self.metrics.timing(),
            weights: std::mem::take(&mut self.weights),
        })
    }

    /// Adds what a piece has besides text, and counts its tokens.
    fn add_extras(&mut self, step: &Step, piece: &mut Piece) {
        piece.tokens.clear();
        if let Some(ids) = &mut self.extras.ids {
            ids.give(&step.tokens, piece.end.as_ref(), &mut piece.tokens);
        }
        let echo = self.take_echo();
        // Behind a stop string nothing counts, as in the usage.
        let delivered = piece.end.as_ref().map_or(step.tokens.len() as u64, |end| {
            (end.usage.completion_tokens as u64).saturating_sub(self.metrics.generated())
        });
        if echo.as_ref().is_none_or(|echo| !echo.alone) {
            self.metrics.tokens(delivered);
        }
        if let Some(end) = &mut piece.end {
            end.timing = self.metrics.timing();
        }
        piece.prompt_logprobs = self.prompt_logprobs(step);
        piece.logprobs = match &mut self.extras.told {
            Some(told) => told.take(step, self.update.settled),
            None => None,
        };
        if let Some(echo) = echo {
            self.put_before(&echo, step, piece);
        }
    }

    /// The prompt to put before the first piece; places in the output count from its beginning.
    fn take_echo(&mut self) -> Option<Echo> {
        let echo = self.extras.echo.take()?;
        if let Some(told) = &mut self.extras.told {
            let text = echo.prepared.echo.as_deref().unwrap_or_default();
            told.begin_at(text.chars().count());
        }
        Some(echo)
    }

    /// The prompt's log probabilities, where this step brings them and they are asked for.
    fn prompt_logprobs(&self, step: &Step) -> Option<PromptLogprobs> {
        let renderer = self.extras.of_prompt.as_ref()?;
        match &step.prompt_logprobs {
            Some(found) => Some(prompt_logprobs(renderer.tokenizer(), found)),
            // There is none for the only token of a prompt.
            None if self.prompt_tokens == 1 && step.start == 0 => Some(vec![None]),
            None => None,
        }
    }

    /// Puts the prompt before the first piece.
    fn put_before(&mut self, echo: &Echo, step: &Step, piece: &mut Piece) {
        let mut text = echo.prepared.echo.clone().unwrap_or_default();
        let logprobs = self.extras.told.is_some().then(|| {
            Shown::Completion(
                echo.renderer
                    .echoed(&echo.prepared, step.prompt_logprobs.as_ref()),
            )
        });
        if echo.alone {
            piece.tokens.clear();
            piece.logprobs = None;
            if let Some(end) = &mut piece.end {
                end.reason = FinishReason::Length;
                end.usage = self.counted(0);
            }
        } else {
            text.push_str(&piece.text);
        }
        piece.text = text;
        piece.logprobs = match (logprobs, piece.logprobs.take()) {
            (Some(mut before), Some(more)) => {
                before.extend(more);
                Some(before)
            }
            (before, more) => before.or(more),
        };
    }

    fn count(&mut self, step: &Step) {
        // A prompt counts once, as in the usage, however many outputs it has.
        let counts = self.place.first;
        if !self.begun {
            self.begun = true;
            let tokens = self.prompt_tokens as u64;
            if counts {
                self.metrics.prompt(tokens);
            } else {
                self.metrics.same_prompt(tokens);
            }
        }
        if let (None, Some(cached)) = (self.cached_tokens, step.cached_tokens) {
            self.cached_tokens = Some(usize::try_from(cached).unwrap_or(usize::MAX));
            if counts {
                self.metrics.cached(cached);
            }
        }
        if let Some(queued_us) = step.queued_us {
            self.metrics.queued(Duration::from_micros(queued_us));
        }
    }
}

fn outcome(reason: FinishReason) -> Outcome {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => Outcome::Stop,
        FinishReason::Length => Outcome::Length,
        FinishReason::Repetition => Outcome::Repetition,
        FinishReason::Abort => Outcome::Abort,
        FinishReason::Error => Outcome::Error,
    }
}
