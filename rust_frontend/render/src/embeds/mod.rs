//! Prompts of vectors: `prompt_embeds`, files of one tensor as `torch.save` and safetensors write them.
//!
//! Nothing in a file is run and nothing in it decides how much memory is taken: a tensor is never larger than the bytes
//! that it came in.

mod archive;
mod numbers;
mod pickle;
mod safetensors;
mod tensor;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use octavo_api::{ApiError, CompletionRequest};
use octavo_hash::root;
use octavo_wire::Blob;
use octavo_wire::frontend::Embeds;

use crate::prepared::{GivenPrompt, Limits, Prepared};
use crate::renderer::Renderer;
use crate::truncate::Cut;
use tensor::Tensor;

const NAME: &str = "prompt_embeds";
/// How every zip archive begins that has a file in it.
const ZIP: &[u8] = b"PK\x03\x04";

impl Renderer {
    /// Lets prompts be vectors.
    #[must_use]
    pub fn with_prompt_embeds(mut self, taken: bool) -> Self {
        self.takes_embeds = taken;
        self
    }

    /// Prepares a prompt of vectors.
    ///
    /// # Errors
    /// 400: a server that takes none, a file that cannot be read, a tensor of another form or longer than the context.
    pub(crate) fn embedded(
        &self,
        encoded: &str,
        request: &CompletionRequest,
        cut: Option<Cut>,
        limits: Limits,
    ) -> Result<Prepared, ApiError> {
        if !self.takes_embeds {
            let message = format!(
                "'{NAME}' is refused: this server does not take vectors for prompts. Start it with --enable-prompt-embeds."
            );
            return Err(ApiError::unsupported(NAME, message));
        }
        let wrong = |why: String| ApiError::invalid(NAME, format!("'{NAME}' {why}."));
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|error| wrong(format!("is not valid base64: {error}")))?;
        let tensor = parse(&bytes).map_err(wrong)?;
        let (rows, width) = tensor.matrix().map_err(wrong)?;
        let kept = cut.map_or(0..rows, |cut| cut.range(rows));
        if kept.len() >= limits.max_model_len {
            return Err(ApiError::too_long(NAME, rows, limits.max_model_len));
        }
        let mut values = tensor.values().map_err(wrong)?;
        numbers::check(tensor.dtype, &values, width).map_err(wrong)?;
        let row = values.len() / rows.max(1);
        values.truncate(kept.end * row);
        values.drain(..kept.start * row);
        let mut prepared = self.prepare(vec![0; kept.len()], &request.sampling, limits, NAME)?;
        // What is written goes on behind a text that nobody can read: as behind any other.
        let before = self.tokenizer().encode("a", false).unwrap_or_default();
        prepared.output.context = self.tokenizer().context(&before).into();
        prepared.grammar = self.grammar(&request.structured, limits)?;
        prepared.given = Some(given(tensor.dtype.name(), width, values)?);
        Ok(prepared)
    }
}

fn parse(bytes: &[u8]) -> Result<Tensor<'_>, String> {
    if bytes.starts_with(ZIP) {
        pickle::read(bytes)
    } else {
        safetensors::read(bytes)
    }
}

fn given(dtype: &str, width: usize, values: Vec<u8>) -> Result<GivenPrompt, ApiError> {
    let failed = |error: String| ApiError::internal(format!("'{NAME}' has no content id: {error}"));
    let width = u32::try_from(width).map_err(|error| failed(error.to_string()))?;
    let size = width.to_le_bytes();
    let fields: [(&str, &[u8]); 3] = [
        ("embeds.dtype", dtype.as_bytes()),
        ("embeds.width", &size),
        ("embeds.values", &values),
    ];
    let key = root(&fields).map_err(|error| failed(error.to_string()))?;
    Ok(GivenPrompt {
        embeds: Arc::new(Embeds {
            width,
            dtype: dtype.to_owned(),
            values: Blob(values),
        }),
        content_id: key.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}
