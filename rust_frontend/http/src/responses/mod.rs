//! `/v1/responses`: OpenAI's newer API as a projection of the same outputs, with a store behind it.

mod count;
mod create;
mod events;
mod job;
mod prepare;
mod references;
mod routes;
mod store;
mod tell;
mod writer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use octavo_api::{ApiError, ErrorKind};
use octavo_edge::Caller;

pub(crate) use count::input_tokens;
pub(crate) use create::create;
pub(crate) use routes::{cancel, delete, input_items, retrieve};
pub use store::{ResponseStore, StoreLimits};
#[cfg(test)]
pub(crate) use writer::Writer;

use job::Job;
use store::{Record, on};

/// What the routes share.
pub(crate) struct Responses {
    /// `None`: nothing is kept.
    pub(crate) store: Option<Arc<ResponseStore>>,
    /// What runs in the background, by id.
    running: Mutex<HashMap<String, Arc<Job>>>,
}

impl Responses {
    pub(crate) fn new(store: Option<Arc<ResponseStore>>) -> Self {
        Self {
            store,
            running: Mutex::default(),
        }
    }

    /// Finds a response that this caller may see.
    async fn find(&self, id: &str, caller: &Caller) -> Result<Option<Record>, ApiError> {
        let Some(store) = &self.store else {
            return Ok(None);
        };
        let (id, caller) = (id.to_owned(), caller.clone());
        on(store, move |store| store.get(&id, &caller)).await
    }

    /// Keeps a response, where anything is kept.
    async fn keep(&self, record: Record) -> Result<(), ApiError> {
        match &self.store {
            Some(store) => on(store, move |store| store.put(&record)).await,
            None => Ok(()),
        }
    }

    fn job(&self, id: &str, caller: &Caller) -> Option<Arc<Job>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(id).filter(|job| job.owner == *caller).cloned()
    }

    fn run(&self, id: &str, job: &Arc<Job>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(id.to_owned(), Arc::clone(job));
    }

    fn done(&self, id: &str) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(id);
    }
}

/// 404 for a response that is not there, not kept any more, or another's.
fn missing(id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    ApiError {
        kind: ErrorKind::NotFound,
        code: "response_not_found",
        ..ApiError::invalid(
            "response_id",
            format!(
                "There is no response {shown:?}: it was not stored, is too old, or belongs to another key."
            ),
        )
    }
}
