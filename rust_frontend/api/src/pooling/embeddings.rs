//! `POST /v1/embeddings`.

use serde_json::{Map, Value};

use super::input::{self, PooledInput, PoolingOptions};
use super::unknown;
use super::wire_format::VectorFormat;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingRequest {
    /// At least one.
    pub inputs: Vec<PooledInput>,
    /// Numbers of a vector, where fewer than the model's are wanted; at least 1.
    pub dimensions: Option<u32>,
    /// How vectors are written.
    pub format: VectorFormat,
    /// What all routes of vectors take.
    pub options: PoolingOptions,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl EmbeddingRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        Ok(Self {
            inputs: input::inputs(&mut fields)?,
            dimensions: dimensions(&mut fields, "dimensions")?,
            format: VectorFormat::take(&mut fields)?,
            options: PoolingOptions::take(&mut fields)?,
            ignored: unknown(fields),
        })
    }
}

/// Takes a number of dimensions.
pub(crate) fn dimensions(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<u32>, ApiError> {
    let given = field::integer(fields, name, 1, "a number of at least 1")?;
    Ok(given.map(|value| u32::try_from(value).unwrap_or(u32::MAX)))
}
