//! An engine that does what the test says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use octavo_engine::{
    ControlFuture, Generate, GenerateError, StepSender, StepStream, Submission, channel,
};
use octavo_wire::frontend::{EngineInfo, Finish, Stats};
use tokio::sync::{Notify, oneshot};

use super::model;

/// A request as the engine has it.
pub struct Call {
    pub request: Submission,
    pub steps: StepSender,
    /// Resolves when the client's side was dropped before the end.
    pub aborted: oneshot::Receiver<()>,
}

impl Call {
    /// Pushes the tokens of a text.
    pub fn say(&self, text: &str) {
        self.steps.push(&model::tokens(text), None);
    }

    /// The prompt as text.
    pub fn prompt(&self) -> String {
        let shown = |id: &i32| match *id {
            model::TURN => "<|im_start|>".to_owned(),
            model::END => "<|im_end|>".to_owned(),
            id => char::from(u8::try_from(id).unwrap()).to_string(),
        };
        self.request.prompt.iter().map(shown).collect()
    }

    pub fn finish(&self, reason: &str) {
        self.steps.finish(Finish::new(reason));
    }
}

pub struct Script {
    calls: Mutex<VecDeque<Call>>,
    arrived: Notify,
    pub ready: AtomicBool,
    pub alive: AtomicBool,
    pub known: AtomicBool,
    pub panics: AtomicBool,
    /// Operations that were asked for.
    pub controls: Mutex<Vec<(String, BTreeMap<String, String>)>>,
    /// What the next submissions fail with.
    pub refusal: Mutex<Option<GenerateError>>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            arrived: Notify::new(),
            ready: AtomicBool::new(true),
            alive: AtomicBool::new(true),
            known: AtomicBool::new(true),
            panics: AtomicBool::new(false),
            controls: Mutex::default(),
            refusal: Mutex::default(),
        }
    }
}

impl Script {
    /// Answers the next request with these tokens, so many a step, after a prompt of which so much was cached.
    pub async fn play(&self, ids: &[i32], step: usize, cached: u64, finish: &str) -> Call {
        let call = self.call().await;
        for part in ids.chunks(step) {
            call.steps.push(part, Some(cached));
            tokio::task::yield_now().await;
        }
        call.finish(finish);
        call
    }

    /// Waits for the next request.
    pub async fn call(&self) -> Call {
        loop {
            if let Some(call) = self.calls.lock().unwrap().pop_front() {
                return call;
            }
            self.arrived.notified().await;
        }
    }
}

impl Generate for Script {
    fn submit(&self, request: Submission) -> Result<StepStream, GenerateError> {
        assert!(!self.panics.load(Ordering::SeqCst), "the script says so");
        if let Some(error) = self.refusal.lock().unwrap().clone() {
            return Err(error);
        }
        let (steps, stream) = channel();
        let (abort, aborted) = oneshot::channel();
        let stream = stream.on_abort(move || {
            let _ = abort.send(());
        });
        self.calls.lock().unwrap().push_back(Call {
            request,
            steps,
            aborted,
        });
        self.arrived.notify_one();
        Ok(stream)
    }

    fn info(&self) -> Option<Arc<EngineInfo>> {
        self.known.load(Ordering::SeqCst).then(|| {
            Arc::new(EngineInfo {
                model: "test".to_owned(),
                max_model_len: 4096,
                vocab_size: model::VOCAB,
                num_blocks: 1,
                block_tokens: 16,
                max_num_seqs: 1,
                world_size: 1,
                dtype: "float32".to_owned(),
                startup_ms: 0,
                prefix_caching: true,
                model_state: None,
                cache_model: String::new(),
            })
        })
    }

    fn ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    fn alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    fn stats(&self) -> Option<Stats> {
        None
    }

    fn control(&self, op: &str, args: BTreeMap<String, String>) -> ControlFuture {
        self.controls.lock().unwrap().push((op.to_owned(), args));
        let refusal = self.refusal.lock().unwrap().clone();
        Box::pin(async move { refusal.map_or(Ok(BTreeMap::new()), Err) })
    }
}
