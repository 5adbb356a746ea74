//! One compiled template.

use std::io;
use std::sync::Arc;

use minijinja::Environment;
use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::environment::{self, TEMPLATE};
use crate::error::{LoadError, RenderError};
use crate::growing::Growing;
use crate::spans::{self, Marks, Rendered};
use crate::{continuation, tags, value};

/// Most bytes of a rendered prompt.
pub(crate) const MAX_OUTPUT: usize = 64 << 20;

/// What a template is given. Fields of messages that are absent stay absent; null is None.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Objects with role, content and whatever else the template reads. Those that another conversation shares are known
    /// again without being compared.
    pub messages: Vec<Arc<Value>>,
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
    growing: Option<Growing>,
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
            growing: None,
        })
    }

    /// Lets it remember what it rendered, so that a conversation that begins as an earlier one costs what is new in it. For
    /// templates that render many conversations: it takes memory, which is bounded.
    #[must_use]
    pub fn remembering(mut self) -> Self {
        let source = self.env.get_template(TEMPLATE);
        let source = source.map(|template| template.source().to_owned());
        self.growing = source
            .ok()
            .and_then(|source| Growing::prepare(&mut self.env, &source));
        self
    }

    /// Passes of the template's loops through messages, since it began to remember: those that were left out because what
    /// they write is known, and all.
    pub fn passes(&self) -> (u64, u64) {
        self.growing.as_ref().map_or((0, 0), Growing::passes)
    }

    /// Filters, tests and functions that the template names and nobody defines, with their lines: a conversation that
    /// reaches one is refused.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Bytes that what it remembers takes, about.
    pub fn remembered_bytes(&self) -> usize {
        self.growing.as_ref().map_or(0, Growing::bytes)
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
        let growing = self
            .growing
            .as_ref()
            .filter(|_| !conversation.continue_final_message);
        match growing.and_then(|growing| growing.render(&self.env, conversation)) {
            Some(text) => Ok(text),
            None => self.render_in(&self.env, conversation),
        }
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
        messages
            .iter_mut()
            .for_each(|message| alias_reasoning(Arc::make_mut(message)));
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
    messages: &[Arc<Value>],
) -> Result<String, RenderError> {
    let list = |items: Option<&[Value]>| match items {
        Some(items) => {
            minijinja::Value::from(items.iter().map(value::from_json).collect::<Vec<_>>())
        }
        None => minijinja::Value::from(()),
    };
    let messages: Vec<_> = messages
        .iter()
        .map(|message| value::from_json(message))
        .collect();
    let mut variables: Vec<(&str, minijinja::Value)> = conversation
        .variables
        .iter()
        .map(|(name, json)| (name.as_str(), value::from_json(json)))
        .collect();
    variables.push(("messages", messages.into()));
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

/// The fields of a message with its reasoning under the names that it lacks, as Transformers copies it:
/// `reasoning_content` always, `thinking` where it is absent.
pub(crate) fn aliased(fields: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let named = |name: &&str| fields.get(*name).filter(|value| !value.is_null());
    let given = fields.iter().map(|(name, value)| (name.as_str(), value));
    let Some(reasoning) = REASONING.iter().find_map(named) else {
        return given.collect();
    };
    let [content, thinking, _] = REASONING;
    let first = (thinking, fields.get(thinking).unwrap_or(reasoning));
    let own = given
        .filter(|(name, _)| *name != thinking)
        .map(|(name, value)| (name, if name == content { reasoning } else { value }));
    let last = (!fields.contains_key(content)).then_some((content, reasoning));
    std::iter::once(first).chain(own).chain(last).collect()
}

fn alias_reasoning(message: &mut Value) {
    if let Some(fields) = message.as_object_mut() {
        let copied = aliased(fields).into_iter();
        *fields = copied
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
    }
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
