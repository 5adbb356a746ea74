//! `POST /classify`, and `POST /pooling` for whatever a model pools.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{
    Classification, ClassifyAnswer, ClassifyRequest, PooledAnswer, PooledItem, PoolingRequest,
    PoolingUsage,
};
use octavo_edge::{Refusal, RequestId, unix_seconds, warn};
use octavo_wire::frontend::Pooled;

use super::answer::{self, Head};
use super::model;
use super::work::{self, Work};
use crate::app::AppState;
use crate::generate::scheduling;
use crate::start::{self, Arrived, arrive, checked};

pub(super) async fn classify(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let name = id.with_prefix("classify");
    let ready = checked(&state, body, move |app, body| {
        let served = start::model(app, &body)?;
        let pools = model::of(app)?;
        let request = ClassifyRequest::from_body(body)?;
        pools.does("classify")?;
        let reading = pools.reading();
        let work = Work {
            name,
            task: "classify".to_owned(),
            dimensions: 0,
            prompts: work::prompts(app, &request.inputs, &request.options, reading, "input")?,
            activate: request.options.activate,
            scheduling: scheduling(app, request.options.scheduling)?,
        };
        Ok((served, work, pools.labels.clone(), request.ignored))
    });
    let (model, mut work, labels, ignored) = ready.await?;
    pinned.apply(&mut work.scheduling)?;
    let id = work.name.clone();
    let done = work::run(&state.app, work, at).await?;
    let numbers = answer::numbers(&done.vectors);
    let items = done.vectors.into_iter().enumerate();
    let answer = ClassifyAnswer {
        id,
        object: "list",
        created: unix_seconds(),
        model,
        data: items
            .map(|(index, pooled)| labelled(index, pooled, &labels))
            .collect(),
        usage: PoolingUsage::new(done.tokens),
    };
    Ok(warn(answer::json(&state, numbers, answer).await?, &ignored))
}

/// The values of one text, and the label with the largest.
fn labelled(index: usize, pooled: Pooled, labels: &[String]) -> Classification {
    let probs = pooled.values.0;
    let mut best = 0;
    for (place, value) in probs.iter().enumerate() {
        if *value > probs[best] {
            best = place;
        }
    }
    Classification {
        index,
        label: labels.get(best).cloned(),
        num_classes: probs.len(),
        probs,
    }
}

pub(super) async fn pooling(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let name = id.with_prefix("pool");
    let ready = checked(&state, body, move |app, body| {
        let served = start::model(app, &body)?;
        let pools = model::of(app)?;
        let request = PoolingRequest::from_body(body)?;
        answer::describable(request.format, request.inputs.len())?;
        let reading = pools.reading();
        let work = Work {
            name,
            task: pools.task(request.task)?,
            dimensions: pools.cut(request.dimensions, "dimensions")?,
            prompts: work::prompts(app, &request.inputs, &request.options, reading, "input")?,
            activate: request.options.activate,
            scheduling: scheduling(app, request.options.scheduling)?,
        };
        Ok((served, work, request.format, request.ignored))
    });
    let (model, mut work, format, ignored) = ready.await?;
    pinned.apply(&mut work.scheduling)?;
    let single = !work.task.starts_with("token_");
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
    let answer = PooledAnswer {
        id: head.id,
        object: "list",
        created: head.created,
        model: head.model,
        data: items
            .map(|(index, pooled)| PooledItem {
                index,
                object: "pooling",
                data: answer::data(pooled, single, format),
            })
            .collect(),
        usage: head.usage,
    };
    Ok(warn(answer::json(&state, numbers, answer).await?, &ignored))
}
