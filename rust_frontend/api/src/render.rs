//! Fields of the render routes beside those of the request that they render.

use serde_json::{Map, Value};

use crate::body::Body;
use crate::error::ApiError;
use crate::field;
use crate::generate::request_id;

/// What the caller wants of a rendered prompt, and what goes on to the engine untouched.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderFields {
    /// Whether to say which characters each token stands for.
    pub offsets: bool,
    /// Whether to say which tokens the assistant said.
    pub assistant_mask: bool,
    /// Whether to give the prompt's text.
    pub prompt_text: bool,
    /// The name of the request.
    pub request_id: Option<String>,
    /// Fields of `/inference/v1/generate` that rendering does not read, checked in form.
    pub passed: Map<String, Value>,
    /// Fields of `sampling_params` that octavo's own engine does not know, as they came.
    pub sampling: Map<String, Value>,
}

/// Fields of `sampling_params` that engines other than octavo's read.
const SAMPLING: [&str; 1] = ["spaces_between_special_tokens"];

impl RenderFields {
    /// Takes the fields out of a body, which is then that of a chat or a completion.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn take(body: &mut Body) -> Result<Self, ApiError> {
        let fields = &mut body.fields;
        let flag = |fields: &mut Map<String, Value>, name: &str| {
            Ok::<_, ApiError>(field::boolean(fields, name)?.unwrap_or(false))
        };
        Ok(Self {
            offsets: flag(fields, "return_token_offsets")?,
            assistant_mask: flag(fields, "return_assistant_tokens_mask")?,
            prompt_text: flag(fields, "return_prompt_text")?,
            request_id: request_id(fields)?,
            passed: passed(fields)?,
            sampling: SAMPLING
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), field::take(fields, name)?)))
                .collect(),
        })
    }
}

fn passed(fields: &mut Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let mut passed = Map::new();
    for name in ["kv_transfer_params", "ec_transfer_params"] {
        if let Some(params) = field::object(fields, name)? {
            passed.insert(name.to_owned(), params.into());
        }
    }
    Ok(passed)
}
