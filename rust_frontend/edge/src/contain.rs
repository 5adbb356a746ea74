//! Panics end the work in which they happen, and nothing else.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt as _;

/// Runs the work of one request. `None`: it panicked; what it was changing must not be used any more.
pub async fn contain<T>(id: &str, work: impl Future<Output = T>) -> Option<T> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    if result.is_err() {
        tracing::error!("request {id}: a defect ended it; the panic is described above");
    }
    result.ok()
}

/// As [`contain`], for work that does not wait.
pub fn contain_call<T>(id: &str, work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work));
    if result.is_err() {
        tracing::error!("request {id}: a defect ended it; the panic is described above");
    }
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_the_end_of_the_work_alone() {
        assert_eq!(contain("a", async { 1 }).await, Some(1));
        let late = async {
            tokio::task::yield_now().await;
            panic!("late")
        };
        assert_eq!(contain::<()>("b", late).await, None);
        assert_eq!(contain_call("c", || 2), Some(2));
        assert_eq!(contain_call::<()>("d", || panic!("at once")), None);
    }
}
