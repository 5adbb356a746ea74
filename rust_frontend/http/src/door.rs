//! What another door than HTTP needs: the fields of a request in, what its outputs gain out. It is the way that HTTP's own
//! requests go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_api::{ApiError, Body, PromptLogprobs, Usage};
use octavo_edge::{BodyReader, Keys, PerCaller, Settings, Shutdown, stopping, unix_seconds};
use octavo_parser::Event;
use octavo_render::{Renderer, TokenLogprobs};
use octavo_telemetry::{Metrics, TraceParent};
use octavo_wire::frontend::EngineInfo;

use crate::app::AppState;
use crate::envelope::Identity;
use crate::generate::{GRAMMAR, Ready, prepare, submit};
use crate::logprobs::Shown;
use crate::output::{End, Output, Piece};
use crate::outputs::Outputs;
use crate::refusal::of_generate;
use crate::route::Route;

/// Whose fields a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

/// A request that came through another door.
pub struct Asked {
    /// As clients and logs name it.
    pub id: String,
    /// The span of the caller, where it has one.
    pub parent: Option<TraceParent>,
    /// When it came.
    pub arrival: Instant,
    /// How long its client waits; `None`: as long as it takes.
    pub limit: Option<Duration>,
    /// Whose fields it has.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: usize,
    /// Whether the answer must follow a grammar, which takes time to compile.
    pub guided: bool,
}

/// What one output gained.
#[derive(Debug)]
pub struct Gained {
    /// Of the output, from 0.
    pub index: u32,
    /// New text; may be empty.
    pub text: String,
    /// What the parser makes of it, where the output is parsed; then there is no text.
    pub events: Vec<Event>,
    /// New token ids; empty unless the request asked for them.
    pub tokens: Vec<i32>,
    /// Of the tokens whose text this completes.
    pub logprobs: Vec<TokenLogprobs>,
    /// Of the prompt, once, where the request asked for them.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Set in the last one of an output.
    pub end: Option<End>,
}

/// A request whose outputs come. Dropping it aborts it.
pub struct Running {
    outputs: Outputs,
    model: String,
    reasoning: bool,
    prompt_ids: Option<Vec<i32>>,
}

impl Running {
    /// The served name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether the answer carries thoughts.
    pub fn shows_reasoning(&self) -> bool {
        self.reasoning
    }

    /// The prompt's token ids, once, if the request asked for token ids.
    pub fn take_prompt_ids(&mut self) -> Option<Vec<i32>> {
        self.prompt_ids.take()
    }

    /// Waits for what comes next; `None` after the last. Cancel safe.
    ///
    /// # Errors
    /// An output failed, or the server ends. Then nothing more may be asked for.
    pub async fn next(&mut self) -> Result<Option<Gained>, ApiError> {
        if self.outputs.open() == 0 {
            return Ok(None);
        }
        let mut piece = Piece::default();
        let index = self.outputs.next(&mut piece).await?;
        Ok(Some(Gained {
            index,
            text: piece.text,
            events: piece.events,
            tokens: piece.tokens,
            logprobs: match piece.logprobs {
                Some(Shown::Bare(tokens)) => tokens,
                _ => Vec::new(),
            },
            prompt_logprobs: piece.prompt_logprobs,
            end: piece.end,
        }))
    }

    /// Versions of the weights that made the tokens, when all outputs have ended; empty where those are the checkpoint's own.
    pub fn weight_versions(&self) -> Vec<String> {
        let ended = self.outputs.open() == 0;
        let versions = ended.then(|| self.outputs.weight_versions());
        versions.flatten().unwrap_or_default()
    }

    /// Tokens counted, when all outputs have ended.
    pub fn usage(&self) -> Option<Usage> {
        (self.outputs.open() == 0).then(|| self.outputs.usage())
    }
}

impl AppState {
    /// Checks a request, whose fields are those of a body of HTTP, and hands it to the engine. `fields` is called where it
    /// holds up no other request.
    ///
    /// # Errors
    /// What HTTP would refuse it with.
    pub async fn start(
        self: &Arc<Self>,
        asked: Asked,
        fields: impl FnOnce() -> Result<Body, ApiError> + Send + 'static,
    ) -> Result<Running, ApiError> {
        if !self.app.shutdown.accepting() {
            return Err(stopping());
        }
        let route = match asked.kind {
            Kind::Chat => Route::Chat,
            Kind::Completion => Route::Completion,
        };
        let effort = asked.size.max(if asked.guided { GRAMMAR } else { 0 });
        let worker = Arc::clone(self);
        let job = move || prepare(&worker.app, route, fields()?);
        let ready: Ready = self.compute.run(effort, job).await?;
        let identity = Identity {
            route,
            id: asked.id,
            created: unix_seconds(),
            model: ready.model,
            parent: asked.parent,
        };
        let outputs = submit(&self.app, &identity, ready.order, asked.arrival)?;
        let mut outputs: Vec<Output> = outputs
            .into_iter()
            .map(|output| output.with_bare_logprobs().no_later(asked.limit))
            .collect();
        Ok(Running {
            prompt_ids: outputs.first_mut().and_then(Output::take_prompt_ids),
            outputs: Outputs::new(outputs),
            model: identity.model,
            reasoning: ready.reasoning.include,
        })
    }

    /// Asks the engine for an operation.
    ///
    /// # Errors
    /// What the engine refuses, with the status that its kind has; 503 where no engine is there.
    pub async fn control(
        &self,
        op: &str,
        args: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ApiError> {
        let done = self.app.generate.control(op, args).await;
        done.map_err(of_generate)
    }

    /// What is known of the engine; `None` until one was ready.
    pub fn engine(&self) -> Option<Arc<EngineInfo>> {
        self.app.generate.info()
    }

    /// How often the engine has come back as a new process.
    pub fn engine_restarts(&self) -> u64 {
        self.app.generate.restarts()
    }

    /// The names that clients may ask for; the first is the model's main name.
    pub fn model_names(&self) -> &[String] {
        &self.app.model_names
    }

    /// Unix time in seconds at which this server began.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// When to end.
    pub fn shutdown(&self) -> &Shutdown {
        &self.app.shutdown
    }

    /// Makes text from tokens.
    pub fn renderer(&self) -> &Arc<Renderer> {
        &self.app.renderer
    }

    /// Reads bodies, within limits that hold for all doors together.
    pub fn bodies(&self) -> &BodyReader {
        &self.bodies
    }

    /// Limits and time-outs.
    pub fn settings(&self) -> &Settings {
        &self.app.settings
    }

    /// Who may come in.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.app.keys
    }

    /// Requests that each caller has open.
    pub fn callers(&self) -> &Arc<PerCaller> {
        &self.callers
    }

    /// Counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.app.metrics
    }
}
