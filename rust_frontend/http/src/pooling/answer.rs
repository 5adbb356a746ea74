//! Vectors into the bodies of answers.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, header};
use octavo_api::{ApiError, Encoding, PooledData, PoolingList, PoolingUsage, VectorFormat};
use octavo_edge::{defect, unix_seconds};
use octavo_wire::frontend::Pooled;
use serde::Serialize;
use serde_json::json;

use crate::app::AppState;

/// Texts whose vectors a header can describe.
const MOST_DESCRIBED: usize = 256;

/// What a number costs to write, in bytes of plain text.
const NUMBER: usize = 12;

/// The header that describes vectors which come as bytes.
const METADATA: HeaderName = HeaderName::from_static("metadata");

/// What stands in an answer besides vectors.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) usage: PoolingUsage,
}

impl Head {
    /// Of an answer that is given now, to prompts of so many tokens.
    pub(super) fn new(id: String, model: String, tokens: usize) -> Self {
        Self {
            id,
            created: unix_seconds(),
            model,
            usage: PoolingUsage::new(tokens),
        }
    }

    /// The answer with these items.
    pub(super) fn list<T>(self, items: impl Iterator<Item = T>) -> PoolingList<T> {
        PoolingList {
            id: self.id,
            object: "list",
            created: self.created,
            model: self.model,
            data: items.collect(),
            usage: self.usage,
        }
    }
}

/// What stands for the vectors of one text: one vector where `single`, else a list of them.
pub(super) fn data(pooled: Pooled, single: bool, format: VectorFormat) -> PooledData {
    match format.encoding {
        Encoding::Base64 => PooledData::Base64(STANDARD.encode(format.bytes(&pooled.values.0))),
        _ if single => PooledData::Vector(pooled.values.0),
        _ => PooledData::Vectors(pooled.vectors().map(<[f32]>::to_vec).collect()),
    }
}

/// Numbers in so many vectors.
pub(super) fn numbers(vectors: &[Pooled]) -> usize {
    vectors.iter().map(|pooled| pooled.values.0.len()).sum()
}

/// Writes an answer with so many numbers where that does not hold up others.
pub(super) async fn json(
    state: &Arc<AppState>,
    numbers: usize,
    answer: impl Serialize + Send + 'static,
) -> Result<Response, ApiError> {
    let write = move || serde_json::to_vec(&answer);
    let written = state.compute.run(numbers * NUMBER, write).await;
    let mut response = Response::new(Body::from(written.map_err(|_| defect())?));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// Refuses more texts than a header can describe.
pub(super) fn describable(format: VectorFormat, texts: usize) -> Result<(), ApiError> {
    if format.encoding != Encoding::Bytes || texts <= MOST_DESCRIBED {
        return Ok(());
    }
    let message = format!(
        "'encoding_format' \"bytes\" describes {MOST_DESCRIBED} texts at most; got {texts}. Send fewer, or ask for \
         \"bytes_only\"."
    );
    Err(ApiError::invalid("encoding_format", message))
}

/// Answers with the bytes of all vectors, one after the other, and says in a header which are whose.
pub(super) fn bytes(vectors: &[Pooled], format: VectorFormat, head: &Head) -> Response {
    let mut body = Vec::with_capacity(numbers(vectors) * format.dtype.size());
    let mut items = Vec::new();
    for (index, pooled) in vectors.iter().enumerate() {
        let start = body.len();
        body.extend(format.bytes(&pooled.values.0));
        let width = pooled.width as usize;
        let rows = pooled.values.0.len() / width.max(1);
        let shape = if rows == 1 {
            json!([width])
        } else {
            json!([rows, width])
        };
        items.push(json!({
            "index": index,
            "embed_dtype": format.dtype.name(),
            "endianness": if format.endianness.is_big() { "big" } else { "little" },
            "start": start,
            "end": body.len(),
            "shape": shape,
        }));
    }
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    if format.encoding == Encoding::Bytes {
        let metadata = json!({
            "id": head.id,
            "created": head.created,
            "model": head.model,
            "data": items,
            "usage": head.usage,
        });
        if let Ok(value) = HeaderValue::from_bytes(metadata.to_string().as_bytes()) {
            headers.insert(METADATA, value);
        }
    }
    response
}

/// Whether an answer is bytes alone.
pub(super) fn is_bytes(format: VectorFormat) -> bool {
    matches!(format.encoding, Encoding::Bytes | Encoding::BytesOnly)
}
