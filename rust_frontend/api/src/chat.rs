//! `POST /v1/chat/completions`.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::body::Body;
use crate::error::ApiError;
use crate::field;
use crate::generate::{StreamOptions, request_id};
use crate::message::{Content, Message};
use crate::reasoning::ReasoningFields;
use crate::sampling::SamplingFields;
use crate::scheduling::SchedulingFields;
use crate::shared::SharedMessage;
use crate::structured::StructuredFields;
use crate::tools::ToolFields;
use crate::unsupported::{self, Route};

/// Fields that shape the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateFields {
    /// Whether the prompt ends with the head of an assistant's turn. Default true.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open, to be continued. Default false; excludes the other.
    pub continue_final_message: bool,
    /// Whether the tokenizer adds its own special tokens; templates bring theirs. Default false.
    pub add_special_tokens: bool,
    /// Further variables of the template.
    pub kwargs: Map<String, Value>,
    /// Documents for retrieval templates.
    pub documents: Option<Vec<Value>>,
    /// Given to the template, which may or may not know it.
    pub reasoning_effort: Option<String>,
    /// A template of the request's own, which a server may refuse.
    pub chat_template: Option<String>,
}

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The model, where one is named.
    pub model: Option<String>,
    /// At least one.
    pub messages: Vec<Arc<SharedMessage>>,
    /// Fields that shape the prompt.
    pub template: TemplateFields,
    /// The last message's text, where that is an assistant's and `echo` wants it in front of the answer.
    pub echo: Option<String>,
    /// Tools, and which calls are wanted.
    pub tools: ToolFields,
    /// What the answer must be.
    pub structured: StructuredFields,
    /// How the answer carries thoughts.
    pub reasoning: ReasoningFields,
    /// How to sample.
    pub sampling: SamplingFields,
    /// When to serve it, and beside whom.
    pub scheduling: SchedulingFields,
    /// Whether to answer as a stream of events.
    pub stream: bool,
    /// Whether the stream's last chunk carries the usage.
    pub include_usage: bool,
    /// Whether every chunk carries the usage so far.
    pub continuous_usage: bool,
    /// Whether the answer carries the token ids of prompt and output.
    pub return_token_ids: bool,
    /// Whoever the client says is behind it; for logs.
    pub user: Option<String>,
    /// What the client calls the request; names the answer, behind a prefix.
    pub request_id: Option<String>,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl ChatRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        unsupported::refuse(Route::Chat, &fields)?;
        let messages = match body.messages {
            Some(messages) => messages,
            None => Message::take_all(&mut fields)?,
        };
        let echo = field::boolean(&mut fields, "echo")?.unwrap_or(false);
        let template = template(&mut fields)?;
        let tools = ToolFields::take(&mut fields)?;
        let structured = StructuredFields::take(&mut fields)?;
        if structured.structure.is_some() && tools.wants_calls() {
            let message = "'response_format' and 'structured_outputs' cannot be combined with calls of tools. Leave \
                           'tools' out, or send \"tool_choice\": \"none\".";
            return Err(ApiError::invalid(structured.param, message));
        }
        let reasoning = ReasoningFields::take(&mut fields)?;
        let mut sampling =
            SamplingFields::take(&mut fields, &["max_completion_tokens", "max_tokens"])?;
        sampling.extras.take_chat_logprobs(&mut fields)?;
        sampling.extras.take_truncation(&mut fields)?;
        let (stream, options) = stream(&mut fields)?;
        sampling.extras.check_stream(stream)?;
        Ok(Self {
            model: field::string(&mut fields, "model")?,
            echo: echo.then(|| begun(&messages)).flatten(),
            messages,
            template,
            tools,
            structured,
            reasoning,
            sampling,
            scheduling: SchedulingFields::take(&mut fields)?,
            stream,
            include_usage: options.include_usage,
            continuous_usage: options.continuous_usage_stats,
            return_token_ids: field::boolean(&mut fields, "return_token_ids")?.unwrap_or(false),
            user: field::string(&mut fields, "user")?,
            request_id: request_id(&mut fields)?,
            ignored: unsupported::unknown(Route::Chat, fields),
        })
    }
}

/// Most conversations of a request, as of prompts.
const MAX_CONVERSATIONS: usize = 1024;

impl ChatRequest {
    /// Checks a body whose `messages` is a list of conversations. Returns one request for each, in order.
    ///
    /// # Errors
    /// As [`Self::from_body`]; what belongs to one conversation, and more conversations than a request may hold.
    pub fn batch(mut body: Body) -> Result<Vec<Self>, ApiError> {
        let given = field::list(&mut body.fields, "messages")?
            .ok_or_else(|| ApiError::missing("messages"))?;
        if given.is_empty() || given.len() > MAX_CONVERSATIONS {
            let message = format!(
                "'messages' must hold from 1 to {MAX_CONVERSATIONS} conversations; got {}.",
                given.len()
            );
            return Err(ApiError::invalid("messages", message));
        }
        let mut conversations = Vec::with_capacity(given.len());
        for (index, messages) in given.into_iter().enumerate() {
            let path = format!("messages.{index}");
            if !messages.is_array() {
                return Err(field::wrong(&path, "a list of messages", &messages));
            }
            let mut fields = Map::new();
            fields.insert("messages".to_owned(), messages);
            let read = Message::take_all(&mut fields);
            conversations.push(read.map_err(|error| error.of_conversation(index))?);
        }
        if body.fields.get("echo") == Some(&Value::Bool(true)) {
            return Err(Self::not_in_batches("echo"));
        }
        let placeholder = serde_json::json!([{"role": "user", "content": ""}]);
        body.fields.insert("messages".to_owned(), placeholder);
        let asked = Self::from_body(body)?;
        asked.fits_batches()?;
        let request = |messages| Self {
            messages,
            ..asked.clone()
        };
        Ok(conversations.into_iter().map(request).collect())
    }

    /// Refuses what an answer to several conversations has no place for.
    fn fits_batches(&self) -> Result<(), ApiError> {
        let refused = [
            (self.stream, "stream"),
            (!self.tools.tools.is_empty(), "tools"),
            (self.return_token_ids, "return_token_ids"),
            (
                self.sampling.extras.prompt_logprobs.is_some(),
                "prompt_logprobs",
            ),
        ];
        match refused.iter().find(|(asked, _)| *asked) {
            None => Ok(()),
            Some((_, name)) => Err(Self::not_in_batches(name)),
        }
    }

    fn not_in_batches(name: &str) -> ApiError {
        let message = format!(
            "'{name}' is not supported with several conversations. Leave it out, or send one request for each."
        );
        ApiError::unsupported(name, message)
    }
}

/// What the assistant has said already in the turn that the answer belongs to.
fn begun(messages: &[Arc<SharedMessage>]) -> Option<String> {
    let last = messages.last().filter(|last| last.role == "assistant")?;
    Some(match last.content.as_ref()? {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => parts.concat(),
    })
}

fn template(fields: &mut Map<String, Value>) -> Result<TemplateFields, ApiError> {
    let continue_final_message = field::boolean(fields, "continue_final_message")?.unwrap_or(false);
    let add_generation_prompt = field::boolean(fields, "add_generation_prompt")?;
    if continue_final_message && add_generation_prompt == Some(true) {
        return Err(ApiError::invalid(
            "continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' cannot both be true: a turn is continued or a new one begun.",
        ));
    }
    Ok(TemplateFields {
        add_generation_prompt: add_generation_prompt.unwrap_or(!continue_final_message),
        continue_final_message,
        add_special_tokens: field::boolean(fields, "add_special_tokens")?.unwrap_or(false),
        kwargs: field::object(fields, "chat_template_kwargs")?.unwrap_or_default(),
        documents: field::list(fields, "documents")?,
        reasoning_effort: field::string(fields, "reasoning_effort")?,
        chat_template: field::string(fields, "chat_template")?,
    })
}

/// Reads `stream` and `stream_options`.
pub(crate) fn stream(fields: &mut Map<String, Value>) -> Result<(bool, StreamOptions), ApiError> {
    let stream = field::boolean(fields, "stream")?.unwrap_or(false);
    let Some(mut options) = field::object(fields, "stream_options")? else {
        return Ok((stream, StreamOptions::default()));
    };
    if !stream {
        return Err(ApiError::invalid(
            "stream_options",
            "'stream_options' is allowed only when 'stream' is true.",
        ));
    }
    let mut option = |name: &str| match field::boolean(&mut options, name) {
        Ok(given) => Ok(given.unwrap_or(false)),
        Err(error) => Err(error.within("stream_options")),
    };
    let options = StreamOptions {
        include_usage: option("include_usage")?,
        continuous_usage_stats: option("continuous_usage_stats")?,
    };
    Ok((stream, options))
}
