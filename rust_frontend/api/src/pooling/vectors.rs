//! `POST /v1/embeddings` and `POST /pooling`.

use serde_json::{Map, Value};

use super::input::{self, PooledInput, PoolingOptions};
use super::unknown;
use super::wire_format::VectorFormat;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorsRequest {
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

impl VectorsRequest {
    /// Checks a body of `/v1/embeddings`.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn of_embeddings(body: Body) -> Result<Self, ApiError> {
        Self::take(body.fields)
    }

    /// Checks a body of `/pooling`. Returns also the task: "embed", "classify", "`token_embed`" or "`token_classify`";
    /// `None`: the model's first.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn of_pooling(mut body: Body) -> Result<(Option<String>, Self), ApiError> {
        let task = field::string(&mut body.fields, "task")?;
        Ok((task, Self::take(body.fields)?))
    }

    fn take(mut fields: Map<String, Value>) -> Result<Self, ApiError> {
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
