//! `POST /tokenize` and `POST /detokenize`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::body::Body;
use crate::chat::ChatRequest;
use crate::error::ApiError;
use crate::field;
use crate::sampling::token_id;

/// What to tokenize.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenizeInput {
    /// A text.
    Text {
        /// May be empty.
        text: String,
        /// Whether the tokenizer adds its own special tokens. Default true.
        add_special_tokens: bool,
    },
    /// A conversation, rendered as a chat's.
    Chat(Box<ChatRequest>),
}

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeRequest {
    /// The model, where one is named.
    pub model: Option<String>,
    /// What to tokenize.
    pub input: TokenizeInput,
    /// Whether to give the tokens as text too.
    pub return_token_strs: bool,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl TokenizeRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn from_body(mut body: Body) -> Result<Self, ApiError> {
        let fields = &mut body.fields;
        let return_token_strs = field::boolean(fields, "return_token_strs")?.unwrap_or(false);
        let model = body.model()?.map(str::to_owned);
        let fields = &mut body.fields;
        let input = if fields.get("messages").is_some_and(|value| !value.is_null()) {
            if fields.get("prompt").is_some_and(|value| !value.is_null()) {
                let message = "'prompt' and 'messages' cannot both be given: send one of them.";
                return Err(ApiError::invalid("prompt", message));
            }
            let mut chat = ChatRequest::from_body(body)?;
            let ignored = std::mem::take(&mut chat.ignored);
            (TokenizeInput::Chat(Box::new(chat)), ignored)
        } else {
            let input = TokenizeInput::Text {
                text: field::string(fields, "prompt")?
                    .ok_or_else(|| ApiError::missing("prompt"))?,
                add_special_tokens: field::boolean(fields, "add_special_tokens")?.unwrap_or(true),
            };
            field::take(fields, "model");
            (input, body.names_left())
        };
        let (input, ignored) = input;
        Ok(Self {
            model,
            input,
            return_token_strs,
            ignored,
        })
    }
}

/// The answer of `/tokenize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TokenizeResponse {
    /// Of tokens.
    pub count: usize,
    /// Tokens of prompt and output together.
    pub max_model_len: usize,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// As the vocabulary writes them.
    pub token_strs: Option<Vec<String>>,
}

/// A checked request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetokenizeRequest {
    /// The model, where one is named.
    pub model: Option<String>,
    /// May be empty.
    pub tokens: Vec<i32>,
    /// Whether special tokens are left out. Default false.
    pub skip_special_tokens: bool,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl DetokenizeRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn from_body(mut body: Body) -> Result<Self, ApiError> {
        let fields = &mut body.fields;
        let items = field::list(fields, "tokens")?.ok_or_else(|| ApiError::missing("tokens"))?;
        Ok(Self {
            model: field::string(fields, "model")?,
            tokens: items
                .iter()
                .map(|item| token_id(item, "tokens"))
                .collect::<Result<_, _>>()?,
            skip_special_tokens: field::boolean(fields, "skip_special_tokens")?.unwrap_or(false),
            ignored: body.names_left(),
        })
    }
}

/// The answer of `/detokenize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DetokenizeResponse {
    /// The text.
    pub prompt: String,
}
