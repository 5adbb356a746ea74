//! One request's tokens on their way from whatever generates them to whoever reads them.
//!
//! The writer never waits: what the reader has not taken yet is merged into one step, so that a slow reader costs no
//! more memory than its own output.

use std::fmt;
use std::sync::Arc;

use octavo_wire::frontend::{Finish, Logprobs};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{GenerateError, Step};

/// Opens a stream: what is pushed into the sender comes out of the stream, in order, none lost, none twice.
#[must_use]
pub fn channel() -> (StepSender, StepStream) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::default()),
        filled: Notify::new(),
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
    /// The reader waits here.
    filled: Notify,
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
    end: End,
    paused: bool,
    closed: bool,
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
    /// Appends tokens. What is known of `cached_tokens` goes out with them. Does nothing after the end.
    pub fn push(&self, tokens: &[i32], cached_tokens: Option<u64>) {
        self.change(|state| {
            state.tokens.extend_from_slice(tokens);
            state.cached_tokens = cached_tokens.or(state.cached_tokens);
        });
    }

    /// Says how long the request waited before it ran; goes out with the next tokens.
    pub fn queued(&self, queued_us: u64) {
        self.shared.state.lock().queued_us.get_or_insert(queued_us);
    }

    /// Adds log probabilities of tokens that are pushed next, and of the prompt. Does nothing after the end.
    pub fn push_logprobs(&self, logprobs: Option<Logprobs>, of_prompt: Option<Logprobs>) {
        if logprobs.is_none() && of_prompt.is_none() {
            return;
        }
        let mut state = self.shared.state.lock();
        if !matches!(state.end, End::Open) || state.closed {
            return;
        }
        match (&mut state.logprobs, logprobs) {
            (Some(known), Some(more)) => known.append(&more),
            (known, more) => *known = more.or_else(|| known.take()),
        }
        state.prompt_logprobs = of_prompt.or_else(|| state.prompt_logprobs.take());
    }

    /// Ends the stream; tokens pushed before are still read. Does nothing after the end.
    pub fn finish(&self, finish: Finish) {
        self.push_last(&[], None, finish);
    }

    /// Appends tokens and ends the stream, so that the reader gets the two together. Does nothing after the end.
    pub fn push_last(&self, tokens: &[i32], cached_tokens: Option<u64>, finish: Finish) {
        self.change(|state| {
            state.tokens.extend_from_slice(tokens);
            state.cached_tokens = cached_tokens.or(state.cached_tokens);
            state.end = End::Finished(finish);
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

    fn change(&self, apply: impl FnOnce(&mut State)) {
        let mut state = self.shared.state.lock();
        if matches!(state.end, End::Open) && !state.closed {
            apply(&mut state);
            drop(state);
            self.shared.filled.notify_one();
        }
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
        loop {
            if let Some(news) = self.take() {
                return news;
            }
            self.shared.filled.notified().await;
        }
    }

    /// Whether the engine is away and the request waits for it to come back.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.shared.state.lock().paused
    }

    /// What [`StepStream::next`] returns, or `None` if there is no news.
    fn take(&self) -> Option<Option<Result<Step, GenerateError>>> {
        let mut state = self.shared.state.lock();
        let finished = matches!(state.end, End::Finished(_));
        if state.tokens.is_empty() && !finished {
            return match std::mem::replace(&mut state.end, End::Taken) {
                End::Open => {
                    state.end = End::Open;
                    None
                }
                End::Failed(error) => Some(Some(Err(error))),
                End::Finished(_) | End::Taken => Some(None),
            };
        }
        let tokens = std::mem::take(&mut state.tokens);
        let start = state.start;
        state.start += tokens.len();
        let cached_tokens = state.cached_tokens.take();
        let logprobs = state.logprobs.take();
        let prompt_logprobs = state.prompt_logprobs.take();
        let queued_us = state.queued_us.take();
        let finish = if finished {
            match std::mem::replace(&mut state.end, End::Taken) {
                End::Finished(finish) => Some(finish),
                _ => None,
            }
        } else {
            None
        };
        Some(Some(Ok(Step {
            start,
            tokens,
            finish,
            cached_tokens,
            queued_us,
            logprobs,
            prompt_logprobs,
        })))
    }
}

impl Drop for StepStream {
    fn drop(&mut self) {
        let open = {
            let mut state = self.shared.state.lock();
            state.closed = true;
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
            finish: None,
            cached_tokens: None,
            queued_us: None,
            logprobs: None,
            prompt_logprobs: None,
        }
    }

    #[tokio::test]
    async fn steps_merge_while_nobody_reads() {
        let (sender, mut stream) = channel();
        sender.queued(90);
        sender.push(&[1, 2], Some(7));
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
