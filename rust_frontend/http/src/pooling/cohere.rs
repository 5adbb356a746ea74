//! `POST /v2/embed`: Cohere's API.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use octavo_api::{
    ApiError, CohereEmbedAnswer, CohereEmbedRequest, CohereEmbeddings, CohereMeta, CohereType,
    CohereUnits, CohereVersion, PooledInput, VectorFormat,
};
use octavo_edge::{Refusal, RequestId, warn};
use octavo_render::Reading;
use octavo_wire::frontend::Pooled;

use super::answer;
use super::model::{self, PoolingModel};
use super::work::{self, Work};
use crate::app::AppState;
use crate::generate::scheduling;
use crate::start::{self, Arrived, arrive, checked};

/// What Cohere calls a text's purpose, and what sentence-transformers calls the prompt for it.
const PURPOSES: [(&str, &[&str]); 4] = [
    ("search_query", &["search_query", "query"]),
    (
        "search_document",
        &["search_document", "document", "passage"],
    ),
    ("classification", &["classification"]),
    ("clustering", &["clustering"]),
];

pub(super) async fn embed(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let name = id.with_prefix("embd");
    let ready = checked(&state, body, move |app, body| {
        start::model(app, &body)?;
        let pools = model::of(app)?;
        let request = CohereEmbedRequest::from_body(body)?;
        pools.does("embed")?;
        let texts = request.texts.iter().cloned();
        let inputs: Vec<PooledInput> = texts.map(PooledInput::Text).collect();
        let reading = Reading {
            prefix: prefix(pools, request.input_type.as_deref())?,
            ..pools.reading()
        };
        let work = Work {
            name,
            task: "embed".to_owned(),
            dimensions: pools.cut(request.dimensions, "output_dimension")?,
            prompts: work::prompts(app, &inputs, &request.options, reading, "texts")?,
            activate: None,
            scheduling: scheduling(app, request.options.scheduling.clone())?,
        };
        Ok((work, request))
    });
    let (mut work, request) = ready.await?;
    pinned.apply(&mut work.scheduling)?;
    let id = work.name.clone();
    let done = work::run(&state.app, work, at).await?;
    let numbers = answer::numbers(&done.vectors) * request.types.len();
    let answer = CohereEmbedAnswer {
        id,
        embeddings: by_type(&done.vectors, &request.types),
        texts: request.texts,
        meta: CohereMeta {
            api_version: CohereVersion { version: "2" },
            billed_units: CohereUnits {
                input_tokens: done.tokens,
            },
        },
        response_type: "embeddings_by_type",
    };
    let response = answer::json(&state, numbers, answer).await?;
    Ok(warn(response, &request.ignored))
}

/// What stands in front of texts for a purpose: what the model's own files have for it, where they have something.
fn prefix<'m>(pools: &'m PoolingModel, purpose: Option<&str>) -> Result<&'m str, ApiError> {
    let Some(purpose) = purpose else {
        return Ok("");
    };
    let known = PURPOSES.iter().find(|(name, _)| *name == purpose);
    let (_, names) = known.ok_or_else(|| {
        let names: Vec<&str> = PURPOSES.iter().map(|(name, _)| *name).collect();
        let shown: String = purpose.chars().take(60).collect();
        let message = format!(
            "'input_type' must be one of {}; got {shown:?}.",
            names.join(", ")
        );
        ApiError::invalid("input_type", message)
    })?;
    let found = names.iter().find_map(|name| pools.prompts.get(*name));
    Ok(found.map_or("", String::as_str))
}

fn by_type(vectors: &[Pooled], types: &[CohereType]) -> CohereEmbeddings {
    let mut embeddings = CohereEmbeddings::default();
    let each = || vectors.iter().map(|pooled| pooled.values.0.as_slice());
    for kind in types {
        match kind {
            CohereType::Float => embeddings.float = Some(each().map(<[f32]>::to_vec).collect()),
            CohereType::Base64 => {
                let bytes = |values| STANDARD.encode(VectorFormat::default().bytes(values));
                embeddings.base64 = Some(each().map(bytes).collect());
            }
            CohereType::Ubinary => embeddings.ubinary = Some(each().map(signs).collect()),
            CohereType::Binary => {
                let shifted = |values| {
                    let bytes = signs(values).into_iter();
                    bytes.map(|byte| (byte ^ 0x80).cast_signed()).collect()
                };
                embeddings.binary = Some(each().map(shifted).collect());
            }
        }
    }
    embeddings
}

/// One bit a number, the first in the highest: 1 where it is more than 0.
fn signs(values: &[f32]) -> Vec<u8> {
    let byte = |part: &[f32]| {
        let bits = part.iter().enumerate();
        bits.fold(0, |byte, (place, value)| {
            byte | (u8::from(*value > 0.0) << (7 - place))
        })
    };
    values.chunks(8).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_wire::Floats;

    #[test]
    fn signs_are_packed_from_the_highest_bit() {
        let pooled = Pooled {
            width: 9,
            values: Floats(vec![0.5, -0.5, 1.0, 0.0, 0.1, -1.0, -1.0, 2.0, 0.3]),
        };
        let types = [CohereType::Binary, CohereType::Ubinary];
        let embeddings = by_type(&[pooled], &types);
        assert_eq!(
            embeddings.ubinary,
            Some(vec![vec![0b1010_1001, 0b1000_0000]])
        );
        assert_eq!(embeddings.binary, Some(vec![vec![41, 0]]));
        assert!(embeddings.float.is_none() && embeddings.base64.is_none());
    }
}
