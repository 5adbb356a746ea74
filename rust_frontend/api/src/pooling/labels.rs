//! `POST /classify` and `POST /pooling`.

use super::embeddings::dimensions;
use super::input::{self, PooledInput, PoolingOptions};
use super::unknown;
use super::wire_format::VectorFormat;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;

/// A checked request for labels.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassifyRequest {
    /// At least one.
    pub inputs: Vec<PooledInput>,
    /// What all routes of vectors take.
    pub options: PoolingOptions,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl ClassifyRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        Ok(Self {
            inputs: input::inputs(&mut fields)?,
            options: PoolingOptions::take(&mut fields)?,
            ignored: unknown(fields),
        })
    }
}

/// A checked request for what a model pools.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolingRequest {
    /// "embed", "classify", "`token_embed`" or "`token_classify`"; `None`: the model's first.
    pub task: Option<String>,
    /// At least one.
    pub inputs: Vec<PooledInput>,
    /// Numbers of a vector, where fewer than the model's are wanted.
    pub dimensions: Option<u32>,
    /// How vectors are written.
    pub format: VectorFormat,
    /// What all routes of vectors take.
    pub options: PoolingOptions,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl PoolingRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        Ok(Self {
            task: field::string(&mut fields, "task")?,
            inputs: input::inputs(&mut fields)?,
            dimensions: dimensions(&mut fields, "dimensions")?,
            format: VectorFormat::take(&mut fields)?,
            options: PoolingOptions::take(&mut fields)?,
            ignored: unknown(fields),
        })
    }
}
