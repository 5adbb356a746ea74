//! What ends a request from outside while it waits for tokens: the end of the server, the end of its time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use octavo_edge::Armed;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Why a request ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Interruption {
    /// The server does not wait any longer.
    Stopping,
    /// The answer was not complete after so many seconds.
    Overdue(f64),
}

/// Waits for either.
#[derive(Debug)]
pub(crate) struct Interrupt {
    cut: CancellationToken,
    cutting: Pin<Box<WaitForCancellationFutureOwned>>,
    limit: Option<(Pin<Box<Sleep>>, Duration)>,
    armed: Armed,
}

impl Interrupt {
    /// Ends with the token.
    pub(crate) fn new(cut: CancellationToken) -> Self {
        Self {
            cutting: Box::pin(cut.clone().cancelled_owned()),
            cut,
            limit: None,
            armed: Armed::default(),
        }
    }

    /// Ends after this time too, counted from now.
    pub(crate) fn within(&mut self, limit: Option<Duration>) {
        self.limit = limit.map(|limit| (Box::pin(sleep(limit)), limit));
        self.armed.disarm();
    }

    /// As [`Self::within`], where that is less than the limit that holds already.
    pub(crate) fn no_later(&mut self, limit: Option<Duration>) {
        let set = self.limit.as_ref().map(|(_, limit)| *limit);
        if limit.is_some_and(|limit| set.is_none_or(|set| limit < set)) {
            self.within(limit);
        }
    }

    /// Ready when the request must end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Interruption> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Interruption::Stopping);
        }
        let late = |(timer, _): &(Pin<Box<Sleep>>, Duration)| timer.is_elapsed();
        if self.armed.wakes(cx) && !self.limit.as_ref().is_some_and(late) {
            return Poll::Pending;
        }
        self.armed.arm(cx);
        if self.cutting.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Interruption::Stopping);
        }
        if let Some((timer, limit)) = &mut self.limit
            && timer.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Interruption::Overdue(limit.as_secs_f64()));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_time_and_of_the_server_are_told_apart() {
        let cut = CancellationToken::new();
        let mut timed = Interrupt::new(cut.clone());
        timed.within(Some(Duration::from_secs(5)));
        let overdue = poll_fn(|cx| timed.poll(cx)).await;
        assert_eq!(overdue, Interruption::Overdue(5.0));

        let mut waiting = Interrupt::new(cut.clone());
        let wait = tokio::time::timeout(Duration::from_secs(1), poll_fn(|cx| waiting.poll(cx)));
        assert!(wait.await.is_err());
        let moved = tokio::spawn(async move { poll_fn(|cx| waiting.poll(cx)).await });
        tokio::task::yield_now().await;
        cut.cancel();
        assert_eq!(moved.await.unwrap(), Interruption::Stopping);
    }
}
