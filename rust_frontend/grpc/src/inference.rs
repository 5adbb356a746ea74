//! Generate and GenerateStream.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use octavo_api::{ApiError, checked_request_id};
use octavo_edge::{RequestId, contain, defect};
use octavo_http::{AppState, Asked, Kind, Running};
use octavo_render::Renderer;
use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::answer::{Style, add, gained, of_prompt, usage};
use crate::deadline::deadline;
use crate::fields::{fields, kind_of, located, rank};
use crate::proto::generate_request::Prompt;
use crate::proto::inference_service_server::InferenceService;
use crate::proto::{GenerateRequest, GenerateResponse, GenerateStreamResponse, PromptInfo};
use crate::status::status;

/// What names of requests begin with, where the client gives none.
const PREFIX: &str = "generate";

/// The service.
pub(crate) struct Inference {
    state: Arc<AppState>,
}

impl Inference {
    pub(crate) fn new(state: Arc<AppState>) -> Self {
        Self { state }
    }

    /// Checks a request and hands it to the engine.
    async fn start(&self, request: Request<GenerateRequest>) -> Result<Call, ApiError> {
        let arrival = Instant::now();
        let limit = deadline(request.metadata())?;
        let rank = rank(request.metadata())?;
        let drawn = request.extensions().get::<RequestId>().cloned();
        let parent = drawn.as_ref().and_then(RequestId::parent);
        let request = request.into_inner();
        let id = name(&request, drawn)?;
        let origin = Origin::of(&request);
        let options = request.output_options.unwrap_or_default();
        let sampling = request.sampling_params.as_ref();
        let ranked = sampling.is_none_or(|given| given.logprob_token_ids.is_empty());
        let asked = Asked {
            id: id.clone(),
            parent,
            arrival,
            limit,
            kind: origin.kind,
            size: request.encoded_len(),
            guided: guided(&request),
        };
        let running = self.state.start(asked, move || fields(request, rank)).await;
        let mut running = running.map_err(|error| origin.located(error))?;
        let ids = running.take_prompt_ids();
        Ok(Call {
            renderer: Arc::clone(self.state.renderer()),
            prompt_ids: ids.filter(|_| options.prompt_token_ids),
            style: Style {
                token_ids: options.token_ids,
                reasoning: running.shows_reasoning(),
                ranked,
            },
            running,
            id,
            origin,
        })
    }
}

/// What fields a request was made of, for errors.
#[derive(Debug, Clone, Copy)]
struct Origin {
    kind: Kind,
    /// The field of the prompt.
    prompt: &'static str,
}

impl Origin {
    fn of(request: &GenerateRequest) -> Self {
        let (kind, prompt) = kind_of(request.prompt.as_ref());
        Self { kind, prompt }
    }

    fn located(self, error: ApiError) -> ApiError {
        located(error, self.prompt)
    }
}

/// Whether the answer must follow a grammar, which takes time to compile.
fn guided(request: &GenerateRequest) -> bool {
    let tools =
        |prompt: &Prompt| matches!(prompt, Prompt::Conversation(told) if !told.tools.is_empty());
    request.structured_outputs.is_some() || request.prompt.as_ref().is_some_and(tools)
}

/// The request's name: the client's own, or one made of the call's.
fn name(request: &GenerateRequest, drawn: Option<RequestId>) -> Result<String, ApiError> {
    if !request.request_id.is_empty() {
        return checked_request_id(&request.request_id);
    }
    let drawn = drawn.ok_or_else(defect)?;
    Ok(drawn.with_prefix(PREFIX))
}

/// A call whose outputs come. Dropping it aborts its request.
struct Call {
    renderer: Arc<Renderer>,
    id: String,
    origin: Origin,
    style: Style,
    /// Until they are told.
    prompt_ids: Option<Vec<i32>>,
    running: Running,
}

impl Call {
    /// Waits for the next message; `None` after the last one.
    async fn next(&mut self) -> Result<Option<GenerateStreamResponse>, ApiError> {
        loop {
            let next = self.running.next().await;
            let Some(mut piece) = next.map_err(|error| self.origin.located(error))? else {
                return Ok(None);
            };
            let logprobs = piece.prompt_logprobs.take();
            let prompt = (logprobs.is_some() || self.prompt_ids.is_some()).then(|| PromptInfo {
                token_ids: self.prompt_ids.take().unwrap_or_default(),
                logprobs: logprobs.map_or_else(Vec::new, |told| of_prompt(&self.renderer, told)),
            });
            let output = gained(piece, self.style);
            if prompt.is_none() && output.is_none() {
                continue;
            }
            return Ok(Some(GenerateStreamResponse {
                request_id: self.id.clone(),
                model: self.running.model().to_owned(),
                output,
                prompt,
                usage: self.running.usage().as_ref().map(usage),
                weight_versions: self.running.weight_versions(),
            }));
        }
    }

    /// Waits for all of it.
    async fn whole(mut self) -> Result<GenerateResponse, ApiError> {
        let mut answer = GenerateResponse {
            request_id: self.id.clone(),
            model: self.running.model().to_owned(),
            ..GenerateResponse::default()
        };
        while let Some(message) = self.next().await? {
            add(&mut answer, message);
        }
        Ok(answer)
    }

    /// The messages; an error is the last. A defect ends this stream alone.
    fn messages(self) -> BoxStream<'static, Result<GenerateStreamResponse, Status>> {
        let next = |call: Option<Self>| async move {
            let mut call = call?;
            let id = call.id.clone();
            let next = contain(&id, call.next()).await;
            match next.unwrap_or_else(|| Err(defect())) {
                Ok(message) => Some((Ok(message?), Some(call))),
                Err(error) => Some((Err(status(&error)), None)),
            }
        };
        futures::stream::unfold(Some(self), next).boxed()
    }
}

#[tonic::async_trait]
impl InferenceService for Inference {
    type GenerateStreamStream = BoxStream<'static, Result<GenerateStreamResponse, Status>>;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<GenerateResponse>, Status> {
        let answer = async { self.start(request).await?.whole().await };
        answer
            .await
            .map(Response::new)
            .map_err(|error| status(&error))
    }

    async fn generate_stream(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStreamStream>, Status> {
        match self.start(request).await {
            Ok(call) => Ok(Response::new(call.messages())),
            Err(error) => Err(status(&error)),
        }
    }
}
