//! `POST /v1/embeddings`: OpenAI's API.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{EmbeddingAnswer, EmbeddingItem, EmbeddingRequest, PoolingUsage};
use octavo_edge::{Refusal, RequestId, unix_seconds, warn};

use super::answer::{self, Head};
use super::model;
use super::work::{self, Work};
use crate::app::AppState;
use crate::generate::scheduling;
use crate::start::{self, Arrived, arrive, checked};

pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let name = id.with_prefix("embd");
    let ready = checked(&state, body, move |app, body| {
        let served = start::model(app, &body)?;
        let pools = model::of(app)?;
        let request = EmbeddingRequest::from_body(body)?;
        pools.does("embed")?;
        answer::describable(request.format, request.inputs.len())?;
        let work = Work {
            name,
            task: "embed".to_owned(),
            dimensions: pools.cut(request.dimensions, "dimensions")?,
            prompts: work::prompts(
                app,
                &request.inputs,
                &request.options,
                pools.reading(),
                "input",
            )?,
            activate: request.options.activate,
            scheduling: scheduling(app, request.options.scheduling)?,
        };
        Ok((served, work, request.format, request.ignored))
    });
    let (model, mut work, format, ignored) = ready.await?;
    pinned.apply(&mut work.scheduling)?;
    let mut head = Head {
        id: work.name.clone(),
        created: unix_seconds(),
        model,
        usage: PoolingUsage::default(),
    };
    let done = work::run(&state.app, work, at).await?;
    head.usage = PoolingUsage::new(done.tokens);
    if answer::is_bytes(format) {
        return Ok(warn(answer::bytes(&done.vectors, format, &head), &ignored));
    }
    let numbers = answer::numbers(&done.vectors);
    let items = done.vectors.into_iter().enumerate();
    let answer = EmbeddingAnswer {
        id: head.id,
        object: "list",
        created: head.created,
        model: head.model,
        data: items
            .map(|(index, pooled)| EmbeddingItem {
                index,
                object: "embedding",
                embedding: answer::data(pooled, true, format),
            })
            .collect(),
        usage: head.usage,
    };
    Ok(warn(answer::json(&state, numbers, answer).await?, &ignored))
}
