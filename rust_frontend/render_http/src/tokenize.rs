//! Text to token ids and back.

use octavo_api::{
    ApiError, Body, DetokenizeRequest, DetokenizeResponse, TokenizeInput, TokenizeRequest,
    TokenizeResponse,
};

use crate::service::{Answer, TextService, json};

/// Longest text that is tokenized, in bytes: encoding takes time and memory many times the text's, and may well be asked
/// for texts longer than a context.
const MAX_TEXT: usize = 8 << 20;

pub(crate) fn tokenize(service: &TextService, body: Body) -> Result<Answer, ApiError> {
    let request = TokenizeRequest::from_body(body)?;
    let renderer = &service.renderer;
    let tokens = match request.input {
        TokenizeInput::Text {
            text,
            add_special_tokens,
        } => {
            if text.len() > MAX_TEXT {
                let message = format!(
                    "'prompt' is a text of {} bytes; at most {MAX_TEXT} are tokenized at a time. Send it in parts.",
                    text.len()
                );
                return Err(ApiError::invalid("prompt", message));
            }
            renderer
                .tokenizer()
                .encode(&text, add_special_tokens)
                .map_err(|error| {
                    ApiError::invalid("prompt", format!("'prompt' cannot be used: {error}."))
                })?
        }
        TokenizeInput::Chat(chat) => renderer.chat_tokens(&chat, MAX_TEXT, service.limits())?,
    };
    let tokenizer = renderer.tokenizer();
    let token_strs = request.return_token_strs.then(|| {
        let written = |id: &u32| tokenizer.id_to_token(*id).unwrap_or_default();
        tokens.iter().map(written).collect()
    });
    let answer = TokenizeResponse {
        count: tokens.len(),
        max_model_len: service.limits().max_model_len,
        tokens,
        token_strs,
    };
    json(&answer, request.ignored)
}

pub(crate) fn detokenize(service: &TextService, body: Body) -> Result<Answer, ApiError> {
    let request = DetokenizeRequest::from_body(body)?;
    let ids = service
        .renderer
        .known_ids(&request.tokens, "tokens", service.limits())?;
    let tokenizer = service.renderer.tokenizer();
    let prompt = if request.skip_special_tokens {
        tokenizer.decode(&ids)
    } else {
        tokenizer.decode_all(&ids).map_err(|error| {
            ApiError::invalid("tokens", format!("'tokens' cannot be used: {error}."))
        })?
    };
    json(&DetokenizeResponse { prompt }, request.ignored)
}
