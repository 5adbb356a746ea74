//! A bounded place for work that would hold up the I/O threads.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Jobs over fewer bytes than this take less time than handing them to another thread is worth.
const INLINE_BYTES: usize = 4 << 10;

/// Jobs from so many bytes on have threads of their own, so that they hold up only each other.
const LARGE_BYTES: usize = 1 << 20;

/// Runs jobs on blocking threads, so many at a time; the others wait in order.
#[derive(Debug, Clone)]
pub struct Compute {
    usual: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Compute {
    /// Makes room for `threads` jobs, and for half as many large ones; at least one of each.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            usual: Arc::new(Semaphore::new(threads.max(1))),
            large: Arc::new(Semaphore::new((threads / 2).max(1))),
        }
    }

    /// Runs a job over `bytes` bytes of input. A panic in the job goes on in the caller.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes < INLINE_BYTES {
            return job();
        }
        let permits = if bytes < LARGE_BYTES {
            &self.usual
        } else {
            &self.large
        };
        // The semaphore is never closed. The permit goes with the job, which outlives a caller that is dropped.
        let permit = Arc::clone(permits).acquire_owned().await.ok();
        let handle = tokio::task::spawn_blocking(move || {
            let result = job();
            drop(permit);
            result
        });
        match handle.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Blocking tasks are cancelled only when the runtime ends, and this task with them.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_jobs_leave_the_thread_and_small_ones_stay() {
        let compute = Compute::new(1);
        let here = std::thread::current().id();
        assert_eq!(compute.run(10, || std::thread::current().id()).await, here);
        assert_ne!(
            compute.run(1 << 20, || std::thread::current().id()).await,
            here
        );
    }

    #[tokio::test]
    async fn no_more_jobs_run_than_there_are_permits_and_large_ones_wait_apart() {
        let compute = Compute::new(1);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let compute = compute.clone();
            async move { compute.run(LARGE_BYTES, move || held.recv().is_ok()).await }
        });
        while compute.large.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let mut second = std::pin::pin!(compute.run(LARGE_BYTES, || 2));
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!(compute.run(LARGE_BYTES - 1, || 1).await, 1);
        release.send(()).unwrap();
        assert!(first.await.unwrap());
        assert_eq!(second.await, 2);
    }

    #[tokio::test]
    async fn a_panic_goes_on_in_the_caller() {
        let compute = Compute::new(1);
        let task = tokio::spawn(async move { compute.run(1 << 20, || panic!("boom")).await });
        let error = task.await.map(|(): ()| ()).unwrap_err();
        assert!(error.is_panic());
    }
}
