//! The control service: the operations of HTTP's control routes, with messages for arguments and answers.
//!
//! What an operation may do when is the engine's to say.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_api::ApiError;
use octavo_edge::RETRY_S;
use octavo_http::AppState;
use serde_json::{Value, json};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::deadline::{deadline, within};
use crate::fields::parsed;
use crate::proto::control_service_server::ControlService;
use crate::proto::*;
use crate::status::status;

type Map = BTreeMap<String, String>;
type Answer<T> = Result<Response<T>, Status>;

/// The service.
pub(crate) struct Control {
    state: Arc<AppState>,
}

impl Control {
    pub(crate) fn new(state: Arc<AppState>) -> Self {
        Self { state }
    }

    /// Asks the engine for an operation, for as long as the client waits.
    async fn ask(&self, metadata: &MetadataMap, op: &str, args: Args) -> Result<Map, Status> {
        let asked = async {
            let limit = deadline(metadata)?;
            within(limit, self.state.control(op, args.0?)).await
        };
        asked.await.map_err(|error| status(&error))
    }

    /// An operation without arguments.
    async fn plain<T>(&self, request: &Request<T>, op: &str) -> Result<Map, Status> {
        self.ask(request.metadata(), op, Args::none()).await
    }

    /// All that there is to know.
    async fn info(&self, metadata: &MetadataMap) -> Result<Value, Status> {
        let asked = async {
            let limit = deadline(metadata)?;
            within(limit, async { Ok(self.state.server_info().await) }).await
        };
        asked.await.map_err(|error| status(&error))
    }
}

/// Arguments of an operation, or what is wrong with them.
struct Args(Result<Map, ApiError>);

impl Args {
    fn none() -> Self {
        Self(Ok(Map::new()))
    }

    /// Adds an argument that is set.
    fn with(self, name: &str, value: Option<impl ToString>) -> Self {
        Self(self.0.map(|mut args| {
            if let Some(value) = value {
                args.insert(name.to_owned(), value.to_string());
            }
            args
        }))
    }

    /// Adds a text that is not empty.
    fn text(self, name: &str, value: String) -> Self {
        self.with(name, Some(value).filter(|value| !value.is_empty()))
    }

    /// Adds what happens to requests that run.
    fn mode(self, number: i32) -> Self {
        let word = match PauseMode::try_from(number) {
            Ok(PauseMode::Unspecified) => Ok(None),
            Ok(PauseMode::Abort) => Ok(Some("abort")),
            Ok(PauseMode::Wait) => Ok(Some("wait")),
            Ok(PauseMode::Keep) => Ok(Some("keep")),
            Err(_) => Err(ApiError::invalid(
                "mode",
                format!("'mode' must be one of PauseMode; got {number}."),
            )),
        };
        match word {
            Ok(word) => self.with("mode", word),
            Err(error) => Self(self.0.and(Err(error))),
        }
    }

    /// Adds an object, which comes as a text of JSON in the field `from`.
    fn object(self, name: &str, from: &str, text: &str) -> Self {
        let object = parsed(from, text).and_then(|value| match value {
            Value::Object(_) => Ok(value.to_string()),
            _ => Err(ApiError::invalid(
                from,
                format!("'{from}' must be a JSON object."),
            )),
        });
        match object {
            Ok(text) => self.with(name, Some(text)),
            Err(error) => Self(self.0.and(Err(error))),
        }
    }
}

fn flag(result: &Map, name: &str) -> bool {
    result.get(name).is_some_and(|word| word == "true")
}

fn word(result: &Map, name: &str) -> String {
    result.get(name).cloned().unwrap_or_default()
}

/// What octavo does not have.
fn missing<T>(what: &str) -> Answer<T> {
    let message = format!("octavo does not serve {what} yet.");
    Err(status(&ApiError::not_implemented(message)))
}

/// The sockets of events, as the engine tells of them.
fn sources(info: &Value) -> Vec<KvEventSource> {
    let text = |source: &Value, name: &str| source[name].as_str().unwrap_or_default().to_owned();
    let told = info["engine"]["kv_events"].as_array();
    told.into_iter()
        .flatten()
        .map(|source| KvEventSource {
            endpoint: text(source, "endpoint"),
            replay_endpoint: text(source, "replay_endpoint"),
            topic: text(source, "topic"),
        })
        .collect()
}

#[tonic::async_trait]
impl ControlService for Control {
    async fn get_server_info(
        &self,
        request: Request<GetServerInfoRequest>,
    ) -> Answer<GetServerInfoResponse> {
        let info = self.info(request.metadata()).await?;
        Ok(Response::new(GetServerInfoResponse {
            version: octavo_wire::VERSION.to_owned(),
            models: self.state.model_names().to_vec(),
            created: self.state.created(),
            ready: self.state.ready().is_ok(),
            engine_restarts: self.state.engine_restarts(),
            info_json: info.to_string(),
        }))
    }

    async fn get_model_info(
        &self,
        _request: Request<GetModelInfoRequest>,
    ) -> Answer<GetModelInfoResponse> {
        let Some(info) = self.state.engine() else {
            let error = ApiError::unavailable("No engine is ready yet. Try again soon.", RETRY_S);
            return Err(status(&error));
        };
        let state = info.model_state.as_ref();
        Ok(Response::new(GetModelInfoResponse {
            model: self
                .state
                .model_names()
                .first()
                .cloned()
                .unwrap_or_default(),
            max_model_len: info.max_model_len,
            vocab_size: info.vocab_size,
            dtype: info.dtype.clone(),
            block_size: info.block_tokens,
            num_blocks: info.num_blocks,
            max_num_seqs: info.max_num_seqs,
            world_size: info.world_size,
            weight_version: state
                .map_or("0", |state| state.weight_version.as_str())
                .to_owned(),
            state: state
                .map_or("running", |state| state.state.as_str())
                .to_owned(),
        }))
    }

    async fn get_kv_event_sources(
        &self,
        request: Request<GetKvEventSourcesRequest>,
    ) -> Answer<GetKvEventSourcesResponse> {
        let info = self.info(request.metadata()).await?;
        Ok(Response::new(GetKvEventSourcesResponse {
            sources: sources(&info),
        }))
    }

    async fn abort(&self, request: Request<AbortRequest>) -> Answer<AbortResponse> {
        let (metadata, _, asked) = request.into_parts();
        let ids = Some(asked.request_ids).filter(|ids| !ids.is_empty());
        let args = Args::none().with("request_ids", ids.map(|ids| json!(ids)));
        let result = self.ask(&metadata, "abort_requests", args).await?;
        let aborted = word(&result, "aborted").parse().unwrap_or_default();
        Ok(Response::new(AbortResponse { aborted }))
    }

    async fn pause_generation(
        &self,
        request: Request<PauseGenerationRequest>,
    ) -> Answer<PauseGenerationResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none()
            .mode(asked.mode)
            .with("clear_cache", asked.clear_cache);
        self.ask(&metadata, "pause", args).await?;
        Ok(Response::new(PauseGenerationResponse {}))
    }

    async fn resume_generation(
        &self,
        request: Request<ResumeGenerationRequest>,
    ) -> Answer<ResumeGenerationResponse> {
        self.plain(&request, "resume").await?;
        Ok(Response::new(ResumeGenerationResponse {}))
    }

    async fn is_paused(&self, request: Request<IsPausedRequest>) -> Answer<IsPausedResponse> {
        let result = self.plain(&request, "is_paused").await?;
        let is_paused = flag(&result, "is_paused");
        Ok(Response::new(IsPausedResponse { is_paused }))
    }

    async fn sleep(&self, request: Request<SleepRequest>) -> Answer<SleepResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none().with("level", asked.level).mode(asked.mode);
        self.ask(&metadata, "sleep", args).await?;
        Ok(Response::new(SleepResponse {}))
    }

    async fn wake_up(&self, request: Request<WakeUpRequest>) -> Answer<WakeUpResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none().text("tags", asked.tags.join(","));
        self.ask(&metadata, "wake_up", args).await?;
        Ok(Response::new(WakeUpResponse {}))
    }

    async fn is_sleeping(&self, request: Request<IsSleepingRequest>) -> Answer<IsSleepingResponse> {
        let result = self.plain(&request, "is_sleeping").await?;
        let is_sleeping = flag(&result, "is_sleeping");
        Ok(Response::new(IsSleepingResponse { is_sleeping }))
    }

    async fn init_weight_transfer_engine(
        &self,
        request: Request<InitWeightTransferEngineRequest>,
    ) -> Answer<InitWeightTransferEngineResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none().object("init_info", "init_info_json", &asked.init_info_json);
        self.ask(&metadata, "init_weight_transfer_engine", args)
            .await?;
        Ok(Response::new(InitWeightTransferEngineResponse {}))
    }

    async fn start_weight_update(
        &self,
        request: Request<StartWeightUpdateRequest>,
    ) -> Answer<StartWeightUpdateResponse> {
        self.plain(&request, "start_weight_update").await?;
        Ok(Response::new(StartWeightUpdateResponse {}))
    }

    async fn start_draft_weight_update(
        &self,
        request: Request<StartDraftWeightUpdateRequest>,
    ) -> Answer<StartDraftWeightUpdateResponse> {
        self.plain(&request, "start_draft_weight_update").await?;
        Ok(Response::new(StartDraftWeightUpdateResponse {}))
    }

    async fn update_weights(
        &self,
        request: Request<UpdateWeightsRequest>,
    ) -> Answer<UpdateWeightsResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none().object("update_info", "update_info_json", &asked.update_info_json);
        self.ask(&metadata, "update_weights", args).await?;
        Ok(Response::new(UpdateWeightsResponse {}))
    }

    async fn finish_weight_update(
        &self,
        request: Request<FinishWeightUpdateRequest>,
    ) -> Answer<FinishWeightUpdateResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none().text("weight_version", asked.weight_version);
        let result = self.ask(&metadata, "finish_weight_update", args).await?;
        Ok(Response::new(FinishWeightUpdateResponse {
            weight_version: word(&result, "weight_version"),
        }))
    }

    async fn abort_weight_update(
        &self,
        request: Request<AbortWeightUpdateRequest>,
    ) -> Answer<AbortWeightUpdateResponse> {
        self.plain(&request, "abort_weight_update").await?;
        Ok(Response::new(AbortWeightUpdateResponse {}))
    }

    async fn update_weight_version(
        &self,
        request: Request<UpdateWeightVersionRequest>,
    ) -> Answer<UpdateWeightVersionResponse> {
        let (metadata, _, asked) = request.into_parts();
        let args = Args::none().text("new_version", asked.new_version);
        let result = self.ask(&metadata, "update_weight_version", args).await?;
        Ok(Response::new(UpdateWeightVersionResponse {
            new_version: word(&result, "new_version"),
        }))
    }

    async fn get_weight_version(
        &self,
        request: Request<GetWeightVersionRequest>,
    ) -> Answer<GetWeightVersionResponse> {
        let result = self.plain(&request, "weight_info").await?;
        Ok(Response::new(GetWeightVersionResponse {
            weight_version: word(&result, "weight_version"),
        }))
    }

    async fn reset_prefix_cache(
        &self,
        request: Request<ResetPrefixCacheRequest>,
    ) -> Answer<ResetPrefixCacheResponse> {
        let (metadata, _, asked) = request.into_parts();
        let running = asked.reset_running_requests.then_some(true);
        let args = Args::none().with("reset_running_requests", running);
        self.ask(&metadata, "reset_prefix_cache", args).await?;
        Ok(Response::new(ResetPrefixCacheResponse {}))
    }

    async fn reset_mm_cache(
        &self,
        request: Request<ResetMmCacheRequest>,
    ) -> Answer<ResetMmCacheResponse> {
        self.plain(&request, "reset_mm_cache").await?;
        Ok(Response::new(ResetMmCacheResponse {}))
    }

    async fn reset_encoder_cache(
        &self,
        request: Request<ResetEncoderCacheRequest>,
    ) -> Answer<ResetEncoderCacheResponse> {
        self.plain(&request, "reset_encoder_cache").await?;
        Ok(Response::new(ResetEncoderCacheResponse {}))
    }

    async fn load_lora(&self, _request: Request<LoadLoraRequest>) -> Answer<LoadLoraResponse> {
        missing("LoRA adapters")
    }

    async fn unload_lora(
        &self,
        _request: Request<UnloadLoraRequest>,
    ) -> Answer<UnloadLoraResponse> {
        missing("LoRA adapters")
    }

    async fn list_loras(&self, _request: Request<ListLorasRequest>) -> Answer<ListLorasResponse> {
        missing("LoRA adapters")
    }

    async fn shutdown(&self, _request: Request<ShutdownRequest>) -> Answer<ShutdownResponse> {
        self.state.shutdown().ask();
        Ok(Response::new(ShutdownResponse {}))
    }
}
