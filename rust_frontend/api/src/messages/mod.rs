//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's requests read as chats, and its answers, events and
//! errors.

mod answer;
mod conversation;
mod error;
mod tools;

pub use answer::{
    BlockDelta, ContentBlock, EndReason, MessageAnswer, MessageDelta, MessageEvent, MessagesUsage,
    TokenCount,
};
pub use error::{AnthropicError, AnthropicErrorBody};

use serde_json::{Map, Value};

use crate::body::Body;
use crate::chat::{ChatRequest, TemplateFields};
use crate::error::ApiError;
use crate::extras::ThinkingFields;
use crate::field::{self, wrong};
use crate::reasoning::ReasoningFields;
use crate::sampling::SamplingFields;
use crate::scheduling::SchedulingFields;
use crate::structured::{Structure, StructuredFields};

use conversation::Conversation;

/// Sampling fields that bear the same names as in a chat.
const SHARED: [&str; 5] = ["max_tokens", "temperature", "top_p", "top_k", "seed"];

/// Fields that ask for something which octavo does not do, unless they are empty.
const REFUSED: [&str; 5] = [
    "container",
    "mcp_servers",
    "kv_transfer_params",
    "ec_transfer_params",
    "fallbacks",
];

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest {
    /// The same as a chat.
    pub chat: ChatRequest,
    /// Names of fields that have no effect.
    pub ignored: Vec<String>,
}

impl MessagesRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        if !body.has("max_tokens") {
            return Err(ApiError::missing("max_tokens"));
        }
        Self::read(body)
    }

    /// Checks a body of which only the prompt matters: `max_tokens` may be absent.
    ///
    /// # Errors
    /// As [`Self::from_body`].
    pub fn for_count(body: Body) -> Result<Self, ApiError> {
        Self::read(body)
    }

    fn read(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        refuse(&fields)?;
        let Conversation {
            messages,
            prefilled,
        } = Conversation::take(&mut fields)?;
        let tools = tools::take(&mut fields)?;
        let (structured, effort) = output(&mut fields)?;
        if structured.structure.is_some() && tools.wants_calls() {
            let message = "'output_config.format' cannot be combined with calls of tools. Leave 'tools' out, or send \
                           \"tool_choice\": {\"type\": \"none\"}.";
            return Err(ApiError::invalid(structured.param, message));
        }
        let mut sampling = sampling(&mut fields)?;
        let thinking = Thinking::take(&mut fields, sampling.max_tokens)?;
        sampling.extras.thinking = thinking.budget();
        let mut kwargs = field::object(&mut fields, "chat_template_kwargs")?.unwrap_or_default();
        thinking.tell(&mut kwargs);
        let chat = ChatRequest {
            model: field::string(&mut fields, "model")?,
            messages,
            template: TemplateFields {
                add_generation_prompt: !prefilled,
                continue_final_message: prefilled,
                add_special_tokens: false,
                kwargs,
                documents: None,
                reasoning_effort: effort,
                chat_template: None,
            },
            tools,
            structured,
            reasoning: ReasoningFields {
                include: thinking.shown,
                ..ReasoningFields::default()
            },
            sampling,
            scheduling: SchedulingFields::take(&mut fields)?,
            stream: field::boolean(&mut fields, "stream")?.unwrap_or(false),
            include_usage: true,
            continuous_usage: false,
            return_token_ids: false,
            user: user(&mut fields)?,
            echo: None,
            request_id: None,
            ignored: Vec::new(),
        };
        quiet(&mut fields)?;
        let unknown = fields.into_iter().filter(|(_, value)| !value.is_null());
        let ignored = unknown.map(|(name, _)| name).collect();
        Ok(Self { chat, ignored })
    }
}

/// Refuses fields that ask for what octavo does not do.
fn refuse(fields: &Map<String, Value>) -> Result<(), ApiError> {
    let asks = |value: &&Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
        _ => true,
    };
    for name in REFUSED {
        if let Some(value) = fields.get(name).filter(asks) {
            let message = format!(
                "'{name}' is not supported; got {}. Leave it out.",
                field::shown(value)
            );
            return Err(ApiError::unsupported(name, message));
        }
    }
    Ok(())
}

/// Takes fields that need no effect here: caching is automatic, and there is one tier of service.
fn quiet(fields: &mut Map<String, Value>) -> Result<(), ApiError> {
    field::object(fields, "cache_control")?;
    field::string(fields, "service_tier")?;
    for name in REFUSED {
        field::take(fields, name);
    }
    Ok(())
}

/// Reads `output_config` (and `output_format`, its older form): the form of the output and how hard to think.
fn output(fields: &mut Map<String, Value>) -> Result<(StructuredFields, Option<String>), ApiError> {
    const EFFORTS: &str = "\"low\", \"medium\", \"high\", \"xhigh\" or \"max\"";
    let older = field::object(fields, "output_format")?;
    let mut config = field::object(fields, "output_config")?.unwrap_or_default();
    let within = |error: ApiError| error.inside("output_config");
    let effort = field::string(&mut config, "effort").map_err(within)?;
    if let Some(word) = &effort
        && !["low", "medium", "high", "xhigh", "max"].contains(&word.as_str())
    {
        return Err(wrong(
            "output_config.effort",
            EFFORTS,
            &Value::from(word.as_str()),
        ));
    }
    let newer = field::object(&mut config, "format").map_err(within)?;
    let structured = match (newer, older) {
        (Some(_), Some(_)) => {
            let message =
                "'output_format' and 'output_config.format' are the same field; send the latter.";
            return Err(ApiError::invalid("output_format", message));
        }
        (Some(format), None) => json_schema(
            format,
            "output_config.format",
            "output_config.format.schema",
        )?,
        (None, Some(format)) => json_schema(format, "output_format", "output_format.schema")?,
        (None, None) => StructuredFields::default(),
    };
    Ok((structured, effort))
}

fn json_schema(
    mut format: Map<String, Value>,
    path: &str,
    param: &'static str,
) -> Result<StructuredFields, ApiError> {
    match format.get("type") {
        Some(Value::String(kind)) if kind == "json_schema" => {}
        None => return Err(ApiError::missing(&format!("{path}.type"))),
        Some(other) => return Err(wrong(&format!("{path}.type"), "\"json_schema\"", other)),
    }
    let schema = field::take(&mut format, "schema").ok_or_else(|| ApiError::missing(param))?;
    Ok(StructuredFields {
        structure: Some(Structure::JsonSchema(schema)),
        param,
        ..StructuredFields::default()
    })
}

fn sampling(fields: &mut Map<String, Value>) -> Result<SamplingFields, ApiError> {
    let mut shared = Map::new();
    for name in SHARED {
        if let Some(value) = field::take(fields, name) {
            shared.insert(name.to_owned(), value);
        }
    }
    if let Some(stop) = field::list(fields, "stop_sequences")? {
        shared.insert("stop".to_owned(), Value::Array(stop));
    }
    SamplingFields::take(&mut shared, &["max_tokens"]).map_err(|error| {
        match error.param.as_deref() {
            Some("stop") => ApiError {
                message: error.message.replace("'stop'", "'stop_sequences'"),
                ..error.on("stop_sequences")
            },
            _ => error,
        }
    })
}

fn user(fields: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    let mut metadata = field::object(fields, "metadata")?.unwrap_or_default();
    field::string(&mut metadata, "user_id").map_err(|error| error.inside("metadata"))
}

/// What a request says about thoughts.
struct Thinking {
    /// Whether templates are told to let the model think; `None`: it is left to them.
    on: Option<bool>,
    /// Whether the answer carries thoughts.
    shown: bool,
    /// Most tokens of thoughts.
    tokens: Option<i64>,
}

impl Thinking {
    fn take(fields: &mut Map<String, Value>, max_tokens: Option<usize>) -> Result<Self, ApiError> {
        const WANTED: &str = "\"enabled\", \"adaptive\" or \"disabled\"";
        let Some(mut thinking) = field::object(fields, "thinking")? else {
            return Ok(Self {
                on: None,
                shown: true,
                tokens: None,
            });
        };
        let within = |error: ApiError| error.inside("thinking");
        let kind = field::string(&mut thinking, "type").map_err(within)?;
        let display = field::string(&mut thinking, "display").map_err(within)?;
        let wanted = "an integer of at least 1";
        let budget = field::integer(&mut thinking, "budget_tokens", 1, wanted).map_err(within)?;
        let on = match kind.as_deref() {
            Some("enabled") => {
                let budget = budget.ok_or_else(|| ApiError::missing("thinking.budget_tokens"))?;
                check_budget(budget, max_tokens)?;
                true
            }
            Some("adaptive") => true,
            Some("disabled") => false,
            None => return Err(ApiError::missing("thinking.type")),
            Some(other) => return Err(wrong("thinking.type", WANTED, &Value::from(other))),
        };
        Ok(Self {
            on: Some(on),
            shown: on && display.as_deref() != Some("omitted"),
            tokens: budget.filter(|_| on),
        })
    }

    fn budget(&self) -> Option<ThinkingFields> {
        let budget = u64::try_from(self.tokens?).ok()?;
        Some(ThinkingFields {
            budget,
            start: Vec::new(),
            end: Vec::new(),
        })
    }

    /// Sets the variables by which templates know it, where the request does not.
    fn tell(&self, kwargs: &mut Map<String, Value>) {
        for name in ["enable_thinking", "thinking"] {
            if let Some(on) = self.on.filter(|_| !kwargs.contains_key(name)) {
                kwargs.insert(name.to_owned(), Value::Bool(on));
            }
        }
    }
}

fn check_budget(budget: i64, max_tokens: Option<usize>) -> Result<(), ApiError> {
    let most = max_tokens.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
    if budget < most {
        return Ok(());
    }
    let message = format!(
        "'thinking.budget_tokens' must be less than 'max_tokens', which is {most}; got {budget}."
    );
    Err(ApiError::invalid("thinking.budget_tokens", message))
}
