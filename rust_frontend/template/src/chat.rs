//! One compiled template.

use std::io;

use minijinja::Environment;
use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::environment::{self, TEMPLATE};
use crate::error::{LoadError, RenderError};
use crate::spans::{self, Marks, Rendered};
use crate::{continuation, tags, value};

/// Most bytes of a rendered prompt.
const MAX_OUTPUT: usize = 64 << 20;

/// What a template is given. Fields of messages that are absent stay absent; null is None.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Objects with role, content and whatever else the template reads.
    pub messages: Vec<Value>,
    /// Tools as the client sent them; `None` where there are none.
    pub tools: Option<Vec<Value>>,
    /// Documents as the client sent them.
    pub documents: Option<Vec<Value>>,
    /// Whether to end with the head of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether to end inside the last message.
    pub continue_final_message: bool,
    /// Special tokens and further variables, by name.
    pub variables: Map<String, Value>,
}

/// A compiled template. Shared between threads.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    unknown: Vec<String>,
    marks_assistant: bool,
}

impl ChatTemplate {
    /// Compiles a template; `name` is for messages.
    ///
    /// # Errors
    /// Syntax, or a construct that is not supported, with its line.
    pub fn compile(name: &str, source: &str, clock: Clock) -> Result<Self, LoadError> {
        let (env, unknown) = environment::compile(name, source, clock)?;
        Ok(Self {
            env,
            source: source.to_owned(),
            unknown,
            marks_assistant: tags::rewrite(source).contains(spans::FILTER),
        })
    }

    /// Filters, tests and functions that the template names and nobody defines, with their lines: a conversation that
    /// reaches one is refused.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The template as it came.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template says which parts an assistant wrote (`{% generation %}`).
    pub fn marks_assistant(&self) -> bool {
        self.marks_assistant
    }

    /// Renders a conversation to the text of a prompt.
    ///
    /// # Errors
    /// The template's own refusal, a failure in it, or more work than is allowed.
    pub fn render(&self, conversation: &Conversation) -> Result<String, RenderError> {
        self.render_in(&self.env, conversation)
    }

    /// Renders a conversation, and says which parts of the prompt an assistant wrote: none where the template does not
    /// mark them. Renders twice.
    ///
    /// # Errors
    /// As [`Self::render`]; a template that changes what stands between its generation tags.
    pub fn render_parts(&self, conversation: &Conversation) -> Result<Rendered, RenderError> {
        let plain = self.render(conversation)?;
        if !self.marks_assistant {
            return Ok(Rendered {
                text: plain,
                assistant: Vec::new(),
            });
        }
        let marks = Marks::new(&plain);
        let mut env = self.env.clone();
        env.add_global(spans::GLOBAL, marks.value());
        marks.take_out(&self.render_in(&env, conversation)?, &plain)
    }

    fn render_in(
        &self,
        env: &Environment<'static>,
        conversation: &Conversation,
    ) -> Result<String, RenderError> {
        let thought = conversation
            .messages
            .iter()
            .any(|message| reasoning(message).is_some());
        if !thought && !conversation.continue_final_message {
            return run(env, conversation, &conversation.messages);
        }
        let mut messages = conversation.messages.clone();
        messages.iter_mut().for_each(alias_reasoning);
        let continued = match conversation.continue_final_message {
            true => Some(continuation::mark(&mut messages, &self.source)?),
            false => None,
        };
        let rendered = run(env, conversation, &messages)?;
        match continued {
            Some(text) => continuation::cut(rendered, &text),
            None => Ok(rendered),
        }
    }
}

fn run(
    env: &Environment<'static>,
    conversation: &Conversation,
    messages: &[Value],
) -> Result<String, RenderError> {
    let list = |items: Option<&[Value]>| match items {
        Some(items) => {
            minijinja::Value::from(items.iter().map(value::from_json).collect::<Vec<_>>())
        }
        None => minijinja::Value::from(()),
    };
    let mut variables: Vec<(&str, minijinja::Value)> = conversation
        .variables
        .iter()
        .map(|(name, json)| (name.as_str(), value::from_json(json)))
        .collect();
    variables.push(("messages", list(Some(messages))));
    variables.push(("tools", list(conversation.tools.as_deref())));
    variables.push(("documents", list(conversation.documents.as_deref())));
    variables.push((
        "add_generation_prompt",
        conversation.add_generation_prompt.into(),
    ));
    let context = minijinja::Value::from_pairs(variables);
    let mut out = Bounded { bytes: Vec::new() };
    let template = env
        .get_template(TEMPLATE)
        .map_err(|error| RenderError::from_jinja(&error))?;
    template
        .render_captured_to(context, &mut out)
        .map_err(|error| RenderError::from_jinja(&error))?;
    String::from_utf8(out.bytes).map_err(|error| RenderError::Failed(error.to_string()))
}

/// The names under which templates read what the model thought; the first that is set holds.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// What a message's author thought.
fn reasoning(message: &Value) -> Option<&Value> {
    let mut named = REASONING.iter().filter_map(|name| message.get(*name));
    named.find(|value| !value.is_null())
}

/// Copies a message's reasoning to the names that it lacks, as Transformers does: `reasoning_content` always, `thinking`
/// where it is absent.
fn alias_reasoning(message: &mut Value) {
    let Some(reasoning) = reasoning(message).cloned() else {
        return;
    };
    let Some(fields) = message.as_object_mut() else {
        return;
    };
    let mut aliased = Map::with_capacity(fields.len() + 2);
    aliased.insert("thinking".to_owned(), reasoning.clone());
    aliased.extend(std::mem::take(fields));
    aliased.insert("reasoning_content".to_owned(), reasoning);
    *fields = aliased;
}

/// Collects output up to a limit.
struct Bounded {
    bytes: Vec<u8>,
}

impl io::Write for Bounded {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + text.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!(
                "the prompt has more than {MAX_OUTPUT} bytes"
            )));
        }
        self.bytes.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
