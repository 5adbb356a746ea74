//! `POST /v1/embeddings`, OpenAI's API, and `POST /pooling` for whatever a model pools.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{ApiError, Body, EmbeddingItem, PooledData, PooledItem, VectorsRequest};
use octavo_edge::{Refusal, RequestId, warn};
use serde::Serialize;

use super::answer::{self, Head};
use super::model::{self, PoolingModel};
use super::work::{self, Work};
use crate::app::{App, AppState};
use crate::generate::scheduling;
use crate::start::{self, Arrived, arrive, checked};

pub(super) async fn embeddings(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let read = |pools: &PoolingModel, body: Body| {
        let request = VectorsRequest::of_embeddings(body)?;
        pools.does("embed")?;
        Ok(("embed".to_owned(), request))
    };
    let item = |index, embedding| EmbeddingItem {
        index,
        object: "embedding",
        embedding,
    };
    answer(&state, request, id.with_prefix("embd"), read, item).await
}

pub(super) async fn pooling(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let read = |pools: &PoolingModel, body: Body| {
        let (task, request) = VectorsRequest::of_pooling(body)?;
        Ok((pools.task(task)?, request))
    };
    let item = |index, data| PooledItem {
        index,
        object: "pooling",
        data,
    };
    answer(&state, request, id.with_prefix("pool"), read, item).await
}

/// Reads a body, for a model that pools: the task, and what is asked for.
type Read = fn(&PoolingModel, Body) -> Result<(String, VectorsRequest), ApiError>;

/// Answers with a vector of each text, or of each of its tokens: as bytes, or in a list of what `item` makes of them.
async fn answer<T: Serialize + Send + 'static>(
    state: &Arc<AppState>,
    request: Request,
    name: String,
    read: Read,
    item: fn(usize, PooledData) -> T,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(state, request).await?;
    let ready = checked(state, body, move |app, body| ask(app, body, name, read));
    let (model, mut work, request) = ready.await?;
    pinned.apply(&mut work.scheduling)?;
    let (id, format) = (work.name.clone(), request.format);
    let single = !work.task.starts_with("token_");
    let done = work::run(&state.app, work, at).await?;
    let head = Head::new(id, model, done.tokens);
    let response = if answer::is_bytes(format) {
        answer::bytes(&done.vectors, format, &head)
    } else {
        let numbers = answer::numbers(&done.vectors);
        let items = done.vectors.into_iter().enumerate();
        let items = items.map(|(index, one)| item(index, answer::data(one, single, format)));
        answer::json(state, numbers, head.list(items)).await?
    };
    Ok(warn(response, &request.ignored))
}

/// Checks a body. Returns the name of the model, what the engine is asked for, and the request.
fn ask(
    app: &App,
    body: Body,
    name: String,
    read: Read,
) -> Result<(String, Work, VectorsRequest), ApiError> {
    let served = start::model(app, &body)?;
    let pools = model::of(app)?;
    let (task, request) = read(pools, body)?;
    answer::describable(request.format, request.inputs.len())?;
    let (inputs, options) = (&request.inputs, &request.options);
    let work = Work {
        name,
        task,
        dimensions: pools.cut(request.dimensions, "dimensions")?,
        prompts: work::prompts(app, inputs, options, pools.reading(), "input")?,
        activate: options.activate,
        scheduling: scheduling(app, options.scheduling.clone())?,
    };
    Ok((served, work, request))
}
