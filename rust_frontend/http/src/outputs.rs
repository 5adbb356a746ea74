//! The outputs of one request: `n` for each prompt, whose pieces come in any order.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use octavo_api::{ApiError, Usage};

use crate::output::{Output, Piece};

type Next = BoxFuture<'static, (Box<Output>, Result<Piece, ApiError>)>;

/// Running outputs. Dropping them aborts what has not ended.
pub(crate) struct Outputs {
    /// The one output of most requests.
    single: Option<Box<Output>>,
    many: FuturesUnordered<Next>,
    open: usize,
    usage: Total,
}

/// Tokens of all outputs that have ended.
#[derive(Debug, Default)]
struct Total {
    prompt: usize,
    completion: usize,
    cached: Option<usize>,
    reasoning: Option<usize>,
}

impl Outputs {
    /// Takes at least one output.
    pub(crate) fn new(mut outputs: Vec<Output>) -> Self {
        let open = outputs.len();
        let single = if open == 1 { outputs.pop() } else { None };
        Self {
            single: single.map(Box::new),
            many: outputs.into_iter().map(Box::new).map(next).collect(),
            open,
            usage: Total::default(),
        }
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

    /// Tokens of the outputs that have ended: those of a prompt count once, whatever `n` is.
    pub(crate) fn usage(&self) -> Usage {
        let Total {
            prompt,
            completion,
            cached,
            reasoning,
        } = self.usage;
        Usage::new(prompt, completion, cached).with_reasoning(reasoning)
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
        let (index, first) = if let Some(output) = self.single.as_mut() {
            ready!(output.poll_next(cx, piece))?;
            let place = (output.index(), output.is_first());
            if piece.end.is_some() {
                self.single = None;
            }
            place
        } else {
            let (output, next_piece) = ready!(self.many.poll_next_unpin(cx))
                .ok_or_else(|| ApiError::internal("An output was waited for that has ended."))?;
            *piece = next_piece?;
            let place = (output.index(), output.is_first());
            if piece.end.is_none() {
                self.many.push(next(output));
            }
            place
        };
        if let Some(end) = &piece.end {
            self.open -= 1;
            self.usage.add(&end.usage, first);
        }
        Poll::Ready(Ok(index))
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
        }
    }
}

fn next(mut output: Box<Output>) -> Next {
    Box::pin(async move {
        let piece = output.next().await;
        (output, piece)
    })
}
