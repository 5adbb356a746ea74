//! One request's tokens on their way from whatever generates them to whoever reads them.
//!
//! The writer never waits: what the reader has not taken yet is merged into one step, so that a slow reader costs no
//! more memory than its own output.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use octavo_wire::frontend::{Finish, Logprobs, Pooled};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{GenerateError, Step};

/// Opens a stream: what is pushed into the sender comes out of the stream, in order, none lost, none twice.
#[must_use]
pub fn channel() -> (StepSender, StepStream) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::default()),
        dropped: Notify::new(),
    });
    (
        StepSender {
            shared: Arc::clone(&shared),
        },
        StepStream {
            shared,
            on_abort: None,
        },
    )
}

/// The writing half. Dropping it before the end fails the stream.
#[derive(Debug)]
pub struct StepSender {
    shared: Arc<Shared>,
}

/// The reading half. Dropping it before the end aborts the request.
pub struct StepStream {
    shared: Arc<Shared>,
    on_abort: Option<Box<dyn FnOnce() + Send + Sync>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The writer may wait here for the reader to leave.
    dropped: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Index of the first token of `tokens`.
    start: usize,
    /// Written, not read.
    tokens: Vec<i32>,
    cached_tokens: Option<u64>,
    queued_us: Option<u64>,
    logprobs: Option<Logprobs>,
    prompt_logprobs: Option<Logprobs>,
    pooled: Option<Pooled>,
    /// The last one that the reader was told of, or is told of next.
    weights: Option<Arc<str>>,
    new_weights: Vec<Arc<str>>,
    end: End,
    paused: bool,
    closed: bool,
    /// Of the reader, while it waits.
    reader: Option<Waker>,
}

/// What one message of the engine brings to a request.
#[derive(Debug, Default)]
pub struct News<'a> {
    /// New token ids.
    pub tokens: &'a [i32],
    /// Prompt tokens found in the prefix cache, once known.
    pub cached_tokens: Option<u64>,
    /// Microseconds that the request waited before it ran, once known.
    pub queued_us: Option<u64>,
    /// Of `tokens`, where they were asked for.
    pub logprobs: Option<Logprobs>,
    /// Of the prompt, where they were asked for.
    pub prompt_logprobs: Option<Logprobs>,
    /// Vectors, where they were asked for instead of tokens; with the end.
    pub pooled: Option<Pooled>,
    /// Set when nothing follows.
    pub finish: Option<Finish>,
    /// Of the weights that made `tokens`, where the engine names it.
    pub weights: Option<&'a Arc<str>>,
}

#[derive(Debug, Default)]
enum End {
    /// More may come.
    #[default]
    Open,
    /// The last step is written.
    Finished(Finish),
    /// There will be no last step.
    Failed(GenerateError),
    /// The reader has taken the end.
    Taken,
}

impl StepSender {
    /// Takes in all that a message brings, so that the reader gets it together. Does nothing after the end. Returns whether
    /// somebody reads.
    pub fn deliver(&self, news: News<'_>) -> bool {
        self.change(|state| {
            state.tokens.extend_from_slice(news.tokens);
            state.cached_tokens = news.cached_tokens.or(state.cached_tokens);
            state.queued_us = state.queued_us.or(news.queued_us);
            if news.logprobs.is_some() || news.prompt_logprobs.is_some() {
                state.add_logprobs(news.logprobs, news.prompt_logprobs);
            }
            state.pooled = news.pooled.or_else(|| state.pooled.take());
            if let Some(weights) = news.weights.filter(|_| !news.tokens.is_empty()) {
                state.made_by(weights);
            }
            if let Some(finish) = news.finish {
                state.end = End::Finished(finish);
            }
        })
    }

    /// Appends tokens. What is known of `cached_tokens` goes out with them. Does nothing after the end.
    pub fn push(&self, tokens: &[i32], cached_tokens: Option<u64>) {
        self.deliver(News {
            tokens,
            cached_tokens,
            ..News::default()
        });
    }

    /// Ends the stream; tokens pushed before are still read. Does nothing after the end.
    pub fn finish(&self, finish: Finish) {
        self.deliver(News {
            finish: Some(finish),
            ..News::default()
        });
    }

    /// Ends the stream with an error, which is read after the tokens pushed before. Does nothing after the end.
    pub fn fail(&self, error: GenerateError) {
        self.change(|state| state.end = End::Failed(error));
    }

    /// Says whether the engine is away, so that the reader knows why nothing comes.
    pub fn set_paused(&self, paused: bool) {
        self.shared.state.lock().paused = paused;
    }

    /// Whether the reader is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().closed
    }

    /// Waits until the reader is gone.
    pub async fn closed(&self) {
        while !self.is_closed() {
            self.shared.dropped.notified().await;
        }
    }

    /// Returns whether somebody reads.
    fn change(&self, apply: impl FnOnce(&mut State)) -> bool {
        let mut state = self.shared.state.lock();
        if state.closed {
            return false;
        }
        if matches!(state.end, End::Open) {
            apply(&mut state);
            let reader = if state.has_news() {
                state.reader.take()
            } else {
                None
            };
            drop(state);
            if let Some(reader) = reader {
                reader.wake();
            }
        }
        true
    }
}

impl State {
    /// Whether the reader has something to take.
    fn has_news(&self) -> bool {
        !self.tokens.is_empty() || !matches!(self.end, End::Open)
    }

    fn made_by(&mut self, weights: &Arc<str>) {
        if self.weights.as_ref() != Some(weights) {
            self.new_weights.push(Arc::clone(weights));
            self.weights = Some(Arc::clone(weights));
        }
    }

    fn add_logprobs(&mut self, logprobs: Option<Logprobs>, of_prompt: Option<Logprobs>) {
        match (&mut self.logprobs, logprobs) {
            (Some(known), Some(more)) => known.append(&more),
            (known, more) => *known = more.or_else(|| known.take()),
        }
        self.prompt_logprobs = of_prompt.or_else(|| self.prompt_logprobs.take());
    }

    /// Moves what is written into `step`, whose buffer of tokens is filled next. `None`: nothing is.
    fn take(&mut self, step: &mut Step) -> Option<Option<Result<(), GenerateError>>> {
        let finished = matches!(self.end, End::Finished(_));
        if self.tokens.is_empty() && !finished {
            if matches!(self.end, End::Open) {
                return None;
            }
            return match std::mem::replace(&mut self.end, End::Taken) {
                End::Failed(error) => Some(Some(Err(error))),
                _ => Some(None),
            };
        }
        step.tokens.clear();
        std::mem::swap(&mut step.tokens, &mut self.tokens);
        step.start = self.start;
        self.start += step.tokens.len();
        step.cached_tokens = self.cached_tokens.take();
        step.queued_us = self.queued_us.take();
        step.logprobs = self.logprobs.take();
        step.prompt_logprobs = self.prompt_logprobs.take();
        step.pooled = self.pooled.take();
        step.weights.clear();
        step.weights.append(&mut self.new_weights);
        step.finish = None;
        if finished && let End::Finished(finish) = std::mem::replace(&mut self.end, End::Taken) {
            step.finish = Some(finish);
        }
        Some(Some(Ok(())))
    }
}

impl Drop for StepSender {
    fn drop(&mut self) {
        self.fail(GenerateError::Failed {
            message: "the engine client stopped before the request was done".to_owned(),
        });
    }
}

impl StepStream {
    /// Runs `hook` if the stream is dropped before its writer has ended it.
    #[must_use]
    pub fn on_abort(mut self, hook: impl FnOnce() + Send + Sync + 'static) -> Self {
        self.on_abort = Some(Box::new(hook));
        self
    }

    /// Waits for news: all tokens written since the last call in one step. `None` after the last step or the error.
    ///
    /// Cancel safe: nothing is taken unless it is returned.
    pub async fn next(&mut self) -> Option<Result<Step, GenerateError>> {
        let mut step = Step::default();
        let news = poll_fn(|cx| self.poll_next(cx, &mut step)).await?;
        Some(news.map(|()| step))
    }

    /// As [`StepStream::next`], into a step whose memory is used again: what it held is gone.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        step: &mut Step,
    ) -> Poll<Option<Result<(), GenerateError>>> {
        let mut state = self.shared.state.lock();
        if let Some(news) = state.take(step) {
            return Poll::Ready(news);
        }
        match &state.reader {
            Some(reader) if reader.will_wake(cx.waker()) => {}
            _ => state.reader = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Whether the engine is away and the request waits for it to come back.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.shared.state.lock().paused
    }
}

impl Drop for StepStream {
    fn drop(&mut self) {
        let open = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            state.reader = None;
            matches!(state.end, End::Open)
        };
        self.shared.dropped.notify_one();
        if let Some(hook) = self.on_abort.take().filter(|_| open) {
            hook();
        }
    }
}

impl fmt::Debug for StepStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepStream")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn step(start: usize, tokens: &[i32]) -> Step {
        Step {
            start,
            tokens: tokens.to_vec(),
            ..Step::default()
        }
    }

    #[tokio::test]
    async fn versions_of_weights_come_with_the_first_tokens_that_they_made() {
        let (sender, mut stream) = channel();
        let versions: [Arc<str>; 2] = ["0".into(), "1".into()];
        for (token, version) in [(1, 0), (2, 0), (3, 1)] {
            sender.deliver(News {
                tokens: &[token],
                weights: Some(&versions[version]),
                ..News::default()
            });
        }
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!(first.weights, versions);
        sender.deliver(News {
            tokens: &[4],
            weights: Some(&versions[1]),
            ..News::default()
        });
        assert_eq!(stream.next().await, Some(Ok(step(3, &[4]))));
    }

    #[tokio::test]
    async fn steps_merge_while_nobody_reads() {
        let (sender, mut stream) = channel();
        sender.deliver(News {
            tokens: &[1, 2],
            cached_tokens: Some(7),
            queued_us: Some(90),
            ..News::default()
        });
        sender.push(&[3], None);
        assert_eq!(
            stream.next().await,
            Some(Ok(Step {
                cached_tokens: Some(7),
                queued_us: Some(90),
                ..step(0, &[1, 2, 3])
            }))
        );
        sender.push(&[4], None);
        sender.finish(Finish::new("stop"));
        sender.push(&[5], None);
        assert_eq!(
            stream.next().await,
            Some(Ok(Step {
                finish: Some(Finish::new("stop")),
                ..step(3, &[4])
            }))
        );
        assert_eq!(stream.next().await, None);
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn vectors_come_with_the_end() {
        let (sender, mut stream) = channel();
        let pooled = Pooled {
            width: 2,
            values: octavo_wire::Floats(vec![0.5, 1.5]),
        };
        sender.deliver(News {
            pooled: Some(pooled.clone()),
            finish: Some(Finish::new("stop")),
            ..News::default()
        });
        assert_eq!(
            stream.next().await,
            Some(Ok(Step {
                finish: Some(Finish::new("stop")),
                pooled: Some(pooled),
                ..step(0, &[])
            }))
        );
    }

    #[tokio::test]
    async fn tokens_are_read_before_the_error() {
        let (sender, mut stream) = channel();
        sender.push(&[1], None);
        sender.fail(GenerateError::Failed {
            message: "gone".to_owned(),
        });
        assert_eq!(stream.next().await, Some(Ok(step(0, &[1]))));
        assert_eq!(
            stream.next().await,
            Some(Err(GenerateError::Failed {
                message: "gone".to_owned()
            }))
        );
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let (sender, mut stream) = channel();
        let reader = tokio::spawn(async move { stream.next().await });
        tokio::task::yield_now().await;
        sender.push(&[1], None);
        let read = tokio::time::timeout(Duration::from_secs(5), reader)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(read, Some(Ok(step(0, &[1]))));
    }

    #[test]
    fn a_step_lends_its_memory_to_the_next_and_keeps_nothing() {
        let (sender, mut stream) = channel();
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = Step::default();
        assert!(stream.poll_next(&mut cx, &mut read).is_pending());
        sender.push(&[1, 2, 3], Some(4));
        assert!(stream.poll_next(&mut cx, &mut read).is_ready());
        let first = read.tokens.as_ptr();
        sender.push(&[4], None);
        assert!(stream.poll_next(&mut cx, &mut read).is_ready());
        assert_eq!(read, step(3, &[4]));
        sender.push(&[5], None);
        assert!(stream.poll_next(&mut cx, &mut read).is_ready());
        assert_eq!((&read, read.tokens.as_ptr()), (&step(4, &[5]), first));
    }

    #[tokio::test]
    async fn a_dropped_sender_fails_the_stream() {
        let (sender, mut stream) = channel();
        drop(sender);
        assert!(matches!(
            stream.next().await,
            Some(Err(GenerateError::Failed { .. }))
        ));
    }

    #[tokio::test]
    async fn dropping_the_stream_aborts_once_and_only_before_the_end() {
        let aborts = Arc::new(AtomicUsize::new(0));
        for (finish, expected) in [(false, 1), (true, 1)] {
            let (sender, stream) = channel();
            let count = Arc::clone(&aborts);
            let stream = stream.on_abort(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
            if finish {
                sender.finish(Finish::new("stop"));
            }
            drop(stream);
            tokio::time::timeout(Duration::from_secs(5), sender.closed())
                .await
                .unwrap();
            assert_eq!(aborts.load(Ordering::Relaxed), expected);
        }
    }
}
