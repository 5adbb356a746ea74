//! `POST /classify`.

use super::input::{self, PooledInput, PoolingOptions};
use super::unknown;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;

/// A checked request.
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
