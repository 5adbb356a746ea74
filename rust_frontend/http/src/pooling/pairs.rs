//! `POST /score` and `POST /rerank`: by a model that reads both texts, or by the cosine of their embeddings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{
    ApiError, Pair, PooledInput, PoolingOptions, PoolingUsage, RerankAnswer, RerankDocument,
    RerankRequest, RerankResult, ScoreItem, ScoreRequest,
};
use octavo_edge::{Refusal, RequestId, warn};
use octavo_render::{PooledPrompt, Reading};
use octavo_wire::frontend::Pooled;

use super::answer::{self, Head};
use super::model::{self, PoolingModel};
use super::work::{self, Work};
use crate::app::{App, AppState};
use crate::generate::scheduling;
use crate::start::{self, Arrived, arrive, checked};

/// Pairs that are ready for the engine.
struct Ready {
    work: Work,
    /// Of a bi-encoder: which texts make up each pair.
    places: Option<Places>,
}

/// Which texts make up each pair.
type Places = Vec<(usize, usize)>;

/// A text, and the field that it came in.
type Named<'p> = (&'p str, String);

pub(super) async fn score(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let name = id.with_prefix("score");
    let ready = checked(&state, body, move |app, body| {
        let served = start::model(app, &body)?;
        let pools = model::of(app)?;
        let request = ScoreRequest::from_body(body)?;
        let reading = Reading {
            instruction: request.instruction.as_deref(),
            ..pools.reading()
        };
        let ready = prepare(
            app,
            pools,
            name,
            &request.pairs,
            request.options,
            reading,
            request.names,
        )?;
        Ok((served, ready, request.ignored))
    });
    let (model, mut ready, ignored) = ready.await?;
    pinned.apply(&mut ready.work.scheduling)?;
    let id = ready.work.name.clone();
    let (scores, tokens) = scores(&state.app, ready, at).await?;
    let count = scores.len();
    let item = |(index, score)| ScoreItem {
        index,
        object: "score",
        score,
    };
    let items = scores.into_iter().enumerate().map(item);
    let answer = Head::new(id, model, tokens).list(items);
    Ok(warn(answer::json(&state, count, answer).await?, &ignored))
}

pub(super) async fn rerank(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let name = id.with_prefix("rerank");
    let ready = checked(&state, body, move |app, body| {
        let served = start::model(app, &body)?;
        let pools = model::of(app)?;
        let mut request = RerankRequest::from_body(body)?;
        let options = std::mem::take(&mut request.options);
        let pair = |document: &String| Pair {
            first: request.query.clone(),
            second: document.clone(),
        };
        let pairs: Vec<Pair> = request.documents.iter().map(pair).collect();
        let reading = Reading {
            most_second: request.max_tokens_per_doc,
            instruction: request.instruction.as_deref(),
            ..pools.reading()
        };
        let ready = prepare(
            app,
            pools,
            name,
            &pairs,
            options,
            reading,
            ("query", "documents"),
        )?;
        Ok((served, ready, request))
    });
    let (model, mut ready, request) = ready.await?;
    pinned.apply(&mut ready.work.scheduling)?;
    let id = ready.work.name.clone();
    let (scores, tokens) = scores(&state.app, ready, at).await?;
    let count = scores.len();
    let mut order: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    order.sort_by(|one, other| other.1.total_cmp(&one.1));
    order.truncate(request.top_n.unwrap_or(usize::MAX));
    let documents = &request.documents;
    let result = |(index, relevance_score): (usize, f32)| RerankResult {
        index,
        document: request.return_documents.then(|| RerankDocument {
            text: documents[index].clone(),
        }),
        relevance_score,
    };
    let answer = RerankAnswer {
        id,
        model,
        usage: PoolingUsage::new(tokens),
        results: order.into_iter().map(result).collect(),
    };
    let response = answer::json(&state, count, answer).await?;
    Ok(warn(response, &request.ignored))
}

fn prepare(
    app: &App,
    pools: &PoolingModel,
    name: String,
    pairs: &[Pair],
    options: PoolingOptions,
    reading: Reading<'_>,
    fields: (&str, &str),
) -> Result<Ready, ApiError> {
    let (task, activate, prompts, places) = if pools.is_cross_encoder() {
        let prompts = joined(app, pairs, &options, reading, fields.1)?;
        ("classify", options.activate, prompts, None)
    } else if pools.has("embed") {
        for (name, given) in [
            ("instruction", reading.instruction.is_some()),
            ("max_tokens_per_doc", reading.most_second.is_some()),
        ] {
            if given {
                let message =
                    format!("'{name}' needs a model that reads both texts at once. Leave it out.");
                return Err(ApiError::unsupported(name, message));
            }
        }
        let limits = work::limits(app)?;
        let (texts, places) = distinct(pairs, fields);
        let mut prompts = Vec::with_capacity(texts.len());
        for (text, field) in texts {
            let input = PooledInput::Text(text.to_owned());
            let prompt = app
                .renderer
                .pooled(&input, &options, reading, limits, &field);
            prompts.push(prompt?);
        }
        ("embed", Some(true), prompts, Some(places))
    } else {
        let message = format!(
            "Scores need a model that embeds, or one with a single label; this one does {} with {} labels.",
            pools.tasks.join(", "),
            pools.labels.len()
        );
        return Err(ApiError::unsupported("model", message));
    };
    Ok(Ready {
        work: Work {
            name,
            task: task.to_owned(),
            prompts,
            activate,
            dimensions: 0,
            scheduling: scheduling(app, options.scheduling)?,
        },
        places,
    })
}

/// Pairs as a model reads them that reads both texts at once.
fn joined(
    app: &App,
    pairs: &[Pair],
    options: &PoolingOptions,
    reading: Reading<'_>,
    field: &str,
) -> Result<Vec<PooledPrompt>, ApiError> {
    let limits = work::limits(app)?;
    let one = |(index, pair): (usize, &Pair)| {
        let place = match pairs.len() {
            1 => field.to_owned(),
            _ => format!("{field}.{index}"),
        };
        app.renderer
            .pooled_pair(pair, options, reading, limits, &place)
    };
    pairs.iter().enumerate().map(one).collect()
}

/// Each text of pairs once, with the field that it came in first, and where those of each pair are.
fn distinct<'p>(pairs: &'p [Pair], (one, other): (&str, &str)) -> (Vec<Named<'p>>, Places) {
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut texts = Vec::new();
    let mut place = |text: &'p str, field: &str, index: usize| {
        *known.entry(text).or_insert_with(|| {
            let field = match pairs.len() {
                1 => field.to_owned(),
                _ => format!("{field}.{index}"),
            };
            texts.push((text, field));
            texts.len() - 1
        })
    };
    let alone = pairs.windows(2).all(|two| two[0].first == two[1].first);
    let mut places = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        places.push((
            place(&pair.first, one, index),
            place(&pair.second, other, index),
        ));
    }
    if let Some((_, field)) = texts.first_mut().filter(|_| alone) {
        one.clone_into(field);
    }
    (texts, places)
}

/// A score for each pair, and the tokens of all.
async fn scores(app: &App, ready: Ready, at: Instant) -> Result<(Vec<f32>, usize), ApiError> {
    let done = work::run(app, ready.work, at).await?;
    let value = |pooled: &Pooled| pooled.values.0.first().copied().unwrap_or(f32::NAN);
    let scores = match ready.places {
        None => done.vectors.iter().map(value).collect(),
        Some(places) => places
            .into_iter()
            .map(|(one, other)| cosine(&done.vectors[one].values.0, &done.vectors[other].values.0))
            .collect(),
    };
    Ok((scores, done.tokens))
}

/// The cosine of the angle between two vectors.
#[allow(clippy::cast_possible_truncation, reason = "from -1 to 1")]
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 {
        (dot(one, other) / lengths) as f32
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_embedded_once() {
        let pair = |first: &str, second: &str| Pair {
            first: first.to_owned(),
            second: second.to_owned(),
        };
        let pairs = [pair("q", "a"), pair("q", "q"), pair("q", "b")];
        let (texts, places) = distinct(&pairs, ("query", "documents"));
        let named = |text, field: &str| (text, field.to_owned());
        assert_eq!(
            texts,
            [
                named("q", "query"),
                named("a", "documents.0"),
                named("b", "documents.2")
            ]
        );
        assert_eq!(places, [(0, 1), (0, 0), (0, 2)]);
        let pairs = [pair("x", "a"), pair("y", "a")];
        let (texts, _) = distinct(&pairs, ("text_1", "text_2"));
        assert_eq!(texts[2], named("y", "text_1.1"));
    }

    #[test]
    fn cosines_do_not_depend_on_lengths() {
        assert!((cosine(&[1.0, 0.0], &[3.0, 3.0]) - 0.707_106_77).abs() < 1e-7);
        assert!((cosine(&[0.5, 0.0], &[-2.0, 0.0]) + 1.0).abs() < 1e-7);
        assert!(cosine(&[0.0], &[1.0]).abs() < 1e-7);
    }
}
