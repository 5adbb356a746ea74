//! `POST /classify`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{Classification, ClassifyRequest};
use octavo_edge::{Refusal, RequestId, warn};
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
    let items = items.map(|(index, pooled)| labelled(index, pooled, &labels));
    let answer = Head::new(id, model, done.tokens).list(items);
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
