//! Many texts at once, on a bounded number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;

/// Most threads that help, over all batches of the process.
const MAX_HELPERS: usize = 7;

/// Bytes of text that are worth a thread.
const WORTH: usize = 32 << 10;

/// Helpers that run now.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A place among the helpers of the process; free again when dropped.
struct Place;

impl Place {
    /// Takes a place where one is free: there are as many as cores besides the caller's, and at most [`MAX_HELPERS`].
    fn take() -> Option<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let most = cores.saturating_sub(1).min(MAX_HELPERS);
        RUNNING
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |running| {
                (running < most).then_some(running + 1)
            })
            .is_ok()
            .then(|| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Tokenizer {
    /// Encodes texts, each as [`Self::encode`] does, in their order. Large batches are spread over threads: the caller's
    /// and, while places are free, helpers, of which the whole process has one less than cores and never more than seven.
    ///
    /// # Errors
    /// Of the first text that cannot be encoded.
    pub fn encode_batch<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        add_special_tokens: bool,
    ) -> Result<Vec<Vec<u32>>, TokenizerError> {
        let bytes: usize = texts.iter().map(|text| text.as_ref().len()).sum();
        let wanted = (bytes / WORTH).min(texts.len().saturating_sub(1));
        let places: Vec<Place> = (0..wanted).map_while(|_| Place::take()).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(text) = texts.get(index) else {
                    return done;
                };
                done.push((index, self.encode(text.as_ref(), add_special_tokens)));
            }
        };
        let mut done: Vec<_> = thread::scope(|scope| {
            let helpers: Vec<_> = places
                .into_iter()
                .map(|place| {
                    scope.spawn(|| {
                        let _place = place;
                        work()
                    })
                })
                .collect();
            let mut done = work();
            for helper in helpers {
                match helper.join() {
                    Ok(more) => done.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_unstable_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, ids)| ids).collect()
    }
}
