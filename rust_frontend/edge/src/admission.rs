//! How much may be going on at a time: tokens of open requests, requests of one caller, and none while the server lags.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_api::ApiError;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::held::Watch;

/// Seconds after which a client that was refused may ask again.
const RETRY: u32 = 1;

/// Tokens, prompt and possible output, that open requests may have together.
#[derive(Debug)]
pub struct TokenBudget {
    limit: Option<u64>,
    used: AtomicU64,
}

impl TokenBudget {
    /// `None`: no limit.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Tokens of the open requests.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Lets a request of so many tokens in, until what is returned is dropped. One that is larger than the limit is let
    /// in alone.
    ///
    /// # Errors
    /// 429 where the open requests leave no room.
    pub fn enter(self: &Arc<Self>, tokens: u64) -> Result<TokenTicket, ApiError> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let add = |used: u64| {
            let sum = used.checked_add(tokens)?;
            (used == 0 || sum <= limit).then_some(sum)
        };
        match self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
        {
            Ok(_) => Ok(TokenTicket(Arc::clone(self), tokens)),
            Err(used) => Err(ApiError::overloaded(
                format!(
                    "The open requests have {used} of {limit} tokens, and this one asks for {tokens} (prompt and max_tokens). \
                     Try again later, or ask for fewer."
                ),
                RETRY,
            )),
        }
    }
}

/// The tokens of one open request.
#[derive(Debug)]
pub struct TokenTicket(Arc<TokenBudget>, u64);

impl Drop for TokenTicket {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// Requests that each caller has open, at all doors together.
#[derive(Debug, Default)]
pub struct PerCaller {
    limit: Option<usize>,
    open: Mutex<HashMap<Caller, usize>>,
}

impl PerCaller {
    /// A caller may have so many open; `None`: any number.
    #[must_use]
    pub fn new(limit: Option<usize>) -> Self {
        Self {
            limit,
            open: Mutex::default(),
        }
    }

    /// Counts a request of the caller, until what is returned is dropped. `Ok(None)`: there is no limit.
    pub(crate) fn enter(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<Option<CallerTicket>, ApiError> {
        let Some(limit) = self.limit else {
            return Ok(None);
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(caller.clone()).or_default();
        if *count >= limit {
            let message = format!(
                "This key has {limit} requests open, which is the limit for one key. Try again later."
            );
            return Err(ApiError::overloaded(message, RETRY));
        }
        *count += 1;
        Ok(Some(CallerTicket(Arc::clone(self), caller.clone())))
    }

    fn leave(&self, caller: &Caller) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(caller);
            }
        }
    }
}

/// One open request of a caller.
#[derive(Debug)]
pub(crate) struct CallerTicket(Arc<PerCaller>, Caller);

impl Watch for Option<CallerTicket> {}

impl Drop for CallerTicket {
    fn drop(&mut self) {
        self.0.leave(&self.1);
    }
}

/// How late the I/O threads come to what is due: a canary that sees a server choke before its clients do.
#[derive(Debug, Default)]
pub struct Lag(AtomicU64);

impl Lag {
    const TICK: Duration = Duration::from_millis(100);

    /// A lag from which on no new work is taken.
    pub const TOO_MUCH: Duration = Duration::from_secs(1);

    /// Measures for as long as the server runs.
    pub async fn measure(self: Arc<Self>) {
        loop {
            let due = Instant::now() + Self::TICK;
            tokio::time::sleep_until(due).await;
            self.set(due.elapsed());
        }
    }

    fn set(&self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros, Ordering::Relaxed);
    }

    /// What was measured last.
    #[must_use]
    pub fn last(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Refuses new work while the server lags.
    ///
    /// # Errors
    /// 503.
    pub fn check(&self) -> Result<(), ApiError> {
        let lag = self.last();
        if lag < Self::TOO_MUCH {
            return Ok(());
        }
        let message = format!(
            "The server is {:.1} s late. Try again later.",
            lag.as_secs_f64()
        );
        Err(ApiError::unavailable(message, RETRY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_open_requests_are_bounded_and_come_back() {
        let budget = Arc::new(TokenBudget::new(Some(100)));
        let first = budget.enter(60).unwrap();
        let error = budget.enter(41).unwrap_err();
        assert!(error.status() == 429 && error.retry_after_s == Some(RETRY));
        assert!(error.message.contains("60 of 100") && error.message.contains("41"));
        let second = budget.enter(40).unwrap();
        drop(first);
        assert_eq!(budget.used(), 40);
        drop(second);
        let alone = budget.enter(1000).unwrap();
        assert!(budget.enter(1).is_err());
        drop(alone);
        assert_eq!(budget.used(), 0);
        let unbounded = Arc::new(TokenBudget::new(None));
        let _held = unbounded.enter(u64::MAX - 1).unwrap();
        assert!(unbounded.enter(2).is_err(), "no overflow");
    }

    #[test]
    fn a_caller_is_bounded_and_the_others_are_not() {
        let callers = Arc::new(PerCaller::new(Some(2)));
        let (one, two) = (Caller::of_key("one"), Caller::of_key("two"));
        let held: Vec<_> = (0..2).map(|_| callers.enter(&one).unwrap()).collect();
        assert_eq!(callers.enter(&one).unwrap_err().status(), 429);
        assert!(callers.enter(&two).is_ok());
        drop(held);
        assert!(callers.enter(&one).is_ok());
        assert!(callers.open.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_is_held_up_shows() {
        let lag = Arc::new(Lag::default());
        let measure = tokio::spawn(Arc::clone(&lag).measure());
        tokio::time::sleep(3 * Lag::TICK).await;
        assert!(lag.check().is_ok());
        tokio::time::advance(2 * Lag::TOO_MUCH).await;
        tokio::task::yield_now().await;
        assert!(lag.check().unwrap_err().message.contains("late"));
        tokio::time::sleep(3 * Lag::TICK).await;
        assert!(lag.check().is_ok());
        measure.abort();
    }
}
