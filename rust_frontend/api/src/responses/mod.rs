//! `/v1/responses`: its requests read as chats, its objects and the events of its streams.

mod event;
mod items;
mod object;
mod options;
mod tools;

pub use event::{NumberedEvent, Part, ResponseEvent};
pub use items::{carried, id_prefix, referenced};
pub use object::{
    IncompleteDetails, InputItems, InputTokenCount, InputTokensDetails, ItemStatus, OutputItem,
    OutputPart, OutputTokensDetails, ReasoningEcho, ReasoningPart, ResponseDeleted,
    ResponseFailure, ResponseObject, ResponseStatus, ResponseUsage,
};

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::body::Body;
use crate::chat::{ChatRequest, TemplateFields};
use crate::error::ApiError;
use crate::field;
use crate::message::{Content, Message};
use crate::reasoning::ReasoningFields;
use crate::sampling::SamplingFields;
use crate::scheduling::SchedulingFields;
use crate::shared::SharedMessage;

use tools::Tools;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesRequest {
    /// The same as a chat, but for the messages, which [`Self::messages`] gives.
    pub chat: ChatRequest,
    /// Items of this request, each with a type.
    pub input: Vec<Value>,
    /// What a client gets before anything is said; without id and times.
    pub object: ResponseObject,
    /// Whether thoughts go out encoded too.
    pub carries_thoughts: bool,
    /// Whether the oldest items may be left out of a prompt that is too long.
    pub truncates: bool,
    /// Names of fields that have no effect.
    pub ignored: Vec<String>,
}

fn shown_thoughts(fields: &mut Map<String, Value>) -> Result<ReasoningFields, ApiError> {
    Ok(ReasoningFields {
        include: field::boolean(fields, "include_reasoning")?.unwrap_or(true),
        ..ReasoningFields::default()
    })
}

impl ResponsesRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        options::refuse(&fields)?;
        let input = items::take(&mut fields)?;
        items::messages(input.iter(), "input")?;
        let tools = Tools::take(&mut fields)?;
        let text = options::Text::take(&mut fields)?;
        text.fits(&tools.fields)?;
        let mut ignored = text.ignored;
        let reasoning = options::reasoning(&mut fields, &mut ignored)?;
        let mut sampling = SamplingFields::take(&mut fields, &["max_output_tokens"])?;
        let included = options::include(&mut fields)?;
        let top_logprobs = options::top_logprobs(&mut fields)?;
        sampling.extras.logprobs = (included.logprobs || top_logprobs > 0).then_some(top_logprobs);
        let stream = field::boolean(&mut fields, "stream")?.unwrap_or(false);
        let truncates = options::truncates(&mut fields)?;
        let object = ResponseObject {
            tools: tools.shown,
            tool_choice: tools.choice,
            parallel_tool_calls: tools.fields.parallel,
            text: text.shown,
            truncation: Cow::Borrowed(if truncates { "auto" } else { "disabled" }),
            max_output_tokens: sampling.max_tokens,
            temperature: Some(sampling.temperature.unwrap_or(1.0)),
            top_p: Some(sampling.top_p.unwrap_or(1.0)),
            reasoning,
            top_logprobs: top_logprobs.unsigned_abs(),
            ..object(&mut fields)?
        };
        let chat = ChatRequest {
            model: field::string(&mut fields, "model")?,
            messages: Vec::new(),
            template: template(&mut fields, object.reasoning.effort.clone())?,
            tools: tools.fields,
            structured: text.structured,
            reasoning: shown_thoughts(&mut fields)?,
            sampling,
            scheduling: SchedulingFields::take(&mut fields)?,
            stream,
            include_usage: true,
            continuous_usage: false,
            return_token_ids: false,
            user: object.user.clone(),
            echo: None,
            request_id: None,
            ignored: Vec::new(),
        };
        options::quiet(&mut fields)?;
        let unknown = fields.into_iter().filter(|(_, value)| !value.is_null());
        ignored.extend(unknown.map(|(name, _)| name));
        Ok(Self {
            chat,
            input,
            object,
            carries_thoughts: included.thoughts,
            truncates,
            ignored,
        })
    }

    /// The conversation: instructions, what went before without its first `skipped` items, and the input.
    ///
    /// # Errors
    /// 400: an item that was kept cannot be read any more.
    pub fn messages(
        &self,
        before: &[Value],
        skipped: usize,
    ) -> Result<Vec<Arc<SharedMessage>>, ApiError> {
        let items = before.iter().chain(&self.input).skip(skipped);
        let mut messages = items::messages(items, "input")?;
        if let Some(text) = &self.object.instructions {
            let system = Message {
                role: "system".to_owned(),
                content: Some(Content::Text(text.clone())),
                rest: Map::new(),
            };
            messages.insert(0, Arc::new(system.into()));
        }
        Ok(messages)
    }
}

fn template(
    fields: &mut Map<String, Value>,
    reasoning_effort: Option<String>,
) -> Result<TemplateFields, ApiError> {
    let mut kwargs = field::object(fields, "chat_template_kwargs")?.unwrap_or_default();
    if reasoning_effort.as_deref() == Some("none") {
        let thinking = kwargs.entry("enable_thinking");
        thinking.or_insert(Value::Bool(false));
    }
    Ok(TemplateFields {
        add_generation_prompt: true,
        continue_final_message: false,
        add_special_tokens: false,
        kwargs,
        documents: None,
        reasoning_effort,
        chat_template: None,
    })
}

/// The object of a response of which nothing is said yet, with the fields that are only told back.
fn object(fields: &mut Map<String, Value>) -> Result<ResponseObject, ApiError> {
    let wanted = "an integer of at least 1";
    let calls = field::integer(fields, "max_tool_calls", 1, wanted)?;
    let background = field::boolean(fields, "background")?.unwrap_or(false);
    let store = field::boolean(fields, "store")?.unwrap_or(true);
    if background && !store {
        let message = "'background' needs 'store': what runs without its client is found by its id. Leave 'store' out.";
        return Err(ApiError::invalid("background", message));
    }
    Ok(ResponseObject {
        id: String::new(),
        object: Cow::Borrowed(ResponseObject::OBJECT),
        created_at: 0,
        completed_at: None,
        status: ResponseStatus::InProgress,
        background,
        error: None,
        incomplete_details: None,
        instructions: field::string(fields, "instructions")?,
        max_output_tokens: None,
        max_tool_calls: calls.and_then(|calls| u64::try_from(calls).ok()),
        metadata: options::metadata(fields)?,
        model: String::new(),
        output: Vec::new(),
        parallel_tool_calls: true,
        previous_response_id: field::string(fields, "previous_response_id")?,
        prompt_cache_key: field::string(fields, "prompt_cache_key")?,
        reasoning: ReasoningEcho::default(),
        safety_identifier: field::string(fields, "safety_identifier")?,
        service_tier: Cow::Borrowed("default"),
        store,
        temperature: None,
        text: json!({"format": {"type": "text"}}),
        tool_choice: Value::from("auto"),
        tools: Vec::new(),
        top_logprobs: 0,
        top_p: None,
        truncation: Cow::Borrowed("disabled"),
        usage: None,
        user: field::string(fields, "user")?,
    })
}
