//! A body in, a body out.

use std::sync::Arc;

use octavo_api::{ApiError, Body, served_name};
use octavo_render::{Limits, Renderer};
use serde::Serialize;

use crate::{derender, render, tokenize};

/// A route between text and token ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRoute {
    /// A chat to a body of `/inference/v1/generate`.
    RenderChat,
    /// A completion to a list of such bodies.
    RenderCompletion,
    /// An answer of `/inference/v1/generate` to that of a chat.
    DerenderChat,
    /// Answers of `/inference/v1/generate` to that of a completion.
    DerenderCompletion,
    /// A text or a conversation to token ids.
    Tokenize,
    /// Token ids to a text.
    Detokenize,
}

impl TextRoute {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::RenderChat,
        Self::RenderCompletion,
        Self::DerenderChat,
        Self::DerenderCompletion,
        Self::Tokenize,
        Self::Detokenize,
    ];

    /// The path, which is posted to.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::RenderChat => "/v1/chat/completions/render",
            Self::RenderCompletion => "/v1/completions/render",
            Self::DerenderChat => "/v1/chat/completions/derender",
            Self::DerenderCompletion => "/v1/completions/derender",
            Self::Tokenize => "/tokenize",
            Self::Detokenize => "/detokenize",
        }
    }

    /// The route that a body is for.
    fn of(body: &mut Body) -> Result<Self, ApiError> {
        if let Some(url) = body.take_string("url")? {
            let found = Self::ALL.into_iter().find(|route| route.path() == url);
            return found.ok_or_else(|| {
                let paths: Vec<&str> = Self::ALL.into_iter().map(Self::path).collect();
                let message = format!("'url' must be one of {}; got \"{url}\".", paths.join(", "));
                ApiError::invalid("url", message)
            });
        }
        let found = BY_FIELD.iter().find(|(name, _)| body.has(name));
        found.map(|(_, route)| *route).ok_or_else(|| {
            let message = "The line is for no route: it has no 'url', 'messages', 'prompt', 'tokens', 'generate_response' or \
                           'generate_responses'.";
            ApiError::invalid("url", message)
        })
    }
}

/// Fields of which each tells the route, the first that a body has.
const BY_FIELD: [(&str, TextRoute); 8] = [
    ("generate_response", TextRoute::DerenderChat),
    ("generate_responses", TextRoute::DerenderCompletion),
    ("completion_request", TextRoute::DerenderCompletion),
    ("chat_request", TextRoute::DerenderChat),
    ("generate_chunk", TextRoute::DerenderChat),
    ("messages", TextRoute::RenderChat),
    ("prompt", TextRoute::RenderCompletion),
    ("tokens", TextRoute::Detokenize),
];

/// Who asks, and when.
#[derive(Debug, Clone)]
pub struct Asked {
    /// An id for the request where the body brings none.
    pub id: String,
    /// Unix seconds.
    pub now: u64,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// JSON.
    pub body: Vec<u8>,
    /// Names of the request's fields that have no effect.
    pub ignored: Vec<String>,
}

/// Answers for one model. Shared between threads.
pub struct TextService {
    pub(crate) renderer: Arc<Renderer>,
    model_names: Vec<String>,
    limits: Box<dyn Fn() -> Limits + Send + Sync>,
}

impl TextService {
    /// Stands on a renderer. `limits` is asked for each request: what the engine says may become known later.
    pub fn new(
        renderer: Arc<Renderer>,
        model_names: Vec<String>,
        limits: impl Fn() -> Limits + Send + Sync + 'static,
    ) -> Self {
        Self {
            renderer,
            model_names,
            limits: Box::new(limits),
        }
    }

    /// The served names; the first is the main one.
    #[must_use]
    pub fn model_names(&self) -> &[String] {
        &self.model_names
    }

    /// What a prompt is held against now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        (self.limits)()
    }

    /// Answers a body.
    ///
    /// # Errors
    /// What is wrong with the body: 404 for a model that is not served, else 400.
    pub fn answer(&self, route: TextRoute, body: &[u8], asked: &Asked) -> Result<Answer, ApiError> {
        let body = match route {
            TextRoute::RenderChat => Body::parse_chat(body, self.renderer.seen()),
            _ => Body::parse(body),
        };
        self.answer_body(route, body?, asked)
    }

    /// Answers, as JSON, a body whose `url`, or else whose fields say which route it is for.
    ///
    /// # Errors
    /// As [`Self::answer`]; a body that is for no route.
    pub fn answer_line(&self, line: &[u8], asked: &Asked) -> Result<Vec<u8>, ApiError> {
        let mut body = Body::parse(line)?;
        let route = TextRoute::of(&mut body)?;
        Ok(self.answer_body(route, body, asked)?.body)
    }

    fn answer_body(&self, route: TextRoute, body: Body, asked: &Asked) -> Result<Answer, ApiError> {
        let model = served_name(&self.model_names, body.model()?)?;
        match route {
            TextRoute::RenderChat => render::chat(self, body, model, asked),
            TextRoute::RenderCompletion => render::completion(self, body, &model, asked),
            TextRoute::DerenderChat => derender::chat(self, body, model, asked),
            TextRoute::DerenderCompletion => derender::completion(self, body, model, asked),
            TextRoute::Tokenize => tokenize::tokenize(self, body),
            TextRoute::Detokenize => tokenize::detokenize(self, body),
        }
    }
}

/// Writes an answer.
pub(crate) fn json(answer: &impl Serialize, ignored: Vec<String>) -> Result<Answer, ApiError> {
    let body = serde_json::to_vec(answer)
        .map_err(|error| ApiError::internal(format!("The answer cannot be written: {error}.")))?;
    Ok(Answer { body, ignored })
}
