//! Tells when nothing has come for a while.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use octavo_edge::Armed;
use tokio::time::{Instant, Sleep, sleep_until};

/// So long is for ever.
const MOST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A timer that is set anew when it goes off, not with each token.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    /// When something came last.
    heard: Instant,
    timer: Pin<Box<Sleep>>,
    armed: Armed,
}

impl Silence {
    /// Begins now.
    pub(crate) fn new(limit: Duration) -> Self {
        let (limit, heard) = (limit.min(MOST), Instant::now());
        Self {
            limit,
            heard,
            timer: Box::pin(sleep_until(heard + limit)),
            armed: Armed::default(),
        }
    }

    /// Notes that something came.
    pub(crate) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Ready when nothing has come for the time, counted from then on anew.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.armed.wakes(cx) && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            self.armed.arm(cx);
            ready!(self.timer.as_mut().poll(cx));
            self.armed.disarm();
            let now = Instant::now();
            let silent = now >= self.heard + self.limit;
            if silent {
                self.heard = now;
            }
            self.timer.as_mut().reset(self.heard + self.limit);
            if silent {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn what_comes_puts_it_off_and_silence_comes_again() {
        let began = Instant::now();
        let mut silence = Silence::new(LIMIT);
        for _ in 0..3 {
            let step = tokio::time::sleep(LIMIT - Duration::from_secs(1));
            tokio::select! {
                () = poll_fn(|cx| silence.poll(cx)) => panic!("too early"),
                () = step => {}
            }
            silence.heard();
        }
        poll_fn(|cx| silence.poll(cx)).await;
        assert_eq!(began.elapsed(), 4 * LIMIT - Duration::from_secs(3));
        poll_fn(|cx| silence.poll(cx)).await;
        assert_eq!(began.elapsed(), 5 * LIMIT - Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn another_task_that_takes_it_over_is_woken() {
        let mut silence = Silence::new(LIMIT);
        let first = tokio::time::timeout(Duration::from_secs(1), poll_fn(|cx| silence.poll(cx)));
        assert!(first.await.is_err());
        let began = Instant::now();
        let moved = tokio::spawn(async move { poll_fn(|cx| silence.poll(cx)).await });
        moved.await.unwrap();
        assert_eq!(began.elapsed(), LIMIT - Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_time_is_for_ever() {
        let mut silence = Silence::new(Duration::MAX);
        let wait = tokio::time::timeout(LIMIT, poll_fn(|cx| silence.poll(cx)));
        assert!(wait.await.is_err());
    }
}
