//! How a model's conversations become prompts: by its template, by one of the request, or by code of the model's own.

use std::path::Path;

use octavo_api::{ApiError, ChatRequest};
use octavo_template::{
    ChatTemplate, Clock, Conversation, NativeFormat, Piece, Rendered, TemplateSet, text_of,
};
use octavo_tokenizer::{Encoding, Tokenizer, TokenizerError};
use serde_json::{Map, Value, json};

use crate::conversation;
use crate::defaults::object;
use crate::format::ContentFormat;
use crate::renderer::LoadError;
use crate::truncate::{Cut, shorten};

/// What renders one model's conversations.
#[derive(Debug)]
pub(crate) struct Prompts {
    templates: TemplateSet,
    /// Used where there is no template.
    native: Option<NativeFormat>,
    /// How the template for conversations without and with tools wants content.
    formats: [ContentFormat; 2],
    /// Special tokens by the names that templates use.
    special: Map<String, Value>,
    clock: Clock,
    /// Whether a request may bring a template.
    trusting: bool,
}

/// A rendered conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChatPrompt {
    /// Tokenized whole.
    Text(String),
    /// Tokenized piece by piece.
    Pieces(Vec<Piece>),
}

/// The template of a request, as it applies.
enum Chosen<'a> {
    Model(&'a ChatTemplate, ContentFormat),
    Request(Box<ChatTemplate>, ContentFormat),
    Native(NativeFormat),
}

impl Prompts {
    /// Finds out how a folder's model is prompted: by these templates, or, where it has none, by the format that its
    /// `model_type` or its tekken file names.
    ///
    /// # Errors
    /// A file that cannot be read; a tekken file of a version whose prompts are not known.
    pub(crate) fn load(
        dir: &Path,
        tokenizer: &Tokenizer,
        templates: TemplateSet,
        clock: &Clock,
    ) -> Result<Self, LoadError> {
        let special = special(tokenizer);
        let config = object(&dir.join("config.json"))?;
        let native = match templates.names().is_empty() {
            true => NativeFormat::of_model(&config, tokenizer.tekken_version())
                .map_err(LoadError::Native)?,
            false => None,
        };
        let format = |tools| {
            let template = templates.choose(tools);
            template.map_or(ContentFormat::Text, |template| {
                ContentFormat::probe(template, &special)
            })
        };
        Ok(Self {
            formats: [format(false), format(true)],
            templates,
            native,
            special,
            clock: clock.clone(),
            trusting: false,
        })
    }

    pub(crate) fn templates(&self) -> &TemplateSet {
        &self.templates
    }

    pub(crate) fn native(&self) -> Option<NativeFormat> {
        self.native
    }

    pub(crate) fn trust(&mut self, trusting: bool) {
        self.trusting = trusting;
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// 400: nothing to render with, a template that the server does not trust, the template's own refusal.
    pub(crate) fn render(&self, request: &ChatRequest) -> Result<ChatPrompt, ApiError> {
        match self.choose(request)? {
            Chosen::Model(template, format) => {
                self.by(template, format, request).map(ChatPrompt::Text)
            }
            Chosen::Request(template, format) => {
                self.by(&template, format, request).map(ChatPrompt::Text)
            }
            Chosen::Native(native) => {
                let conversation =
                    self.conversation(request, ContentFormat::Text, native.knows_developer());
                native
                    .render(&conversation, &self.clock)
                    .map(ChatPrompt::Pieces)
                    .map_err(|error| refused(&error))
            }
        }
    }

    /// The text of a prompt without the head of the answer.
    pub(crate) fn unbegun(&self, request: &ChatRequest) -> Option<String> {
        let mut request = request.clone();
        request.template.add_generation_prompt = false;
        self.render(&request).ok().map(ChatPrompt::text)
    }

    /// Whether what renders a request tells which parts an assistant wrote.
    ///
    /// # Errors
    /// 400: nothing to render with, a template that the server does not trust.
    pub(crate) fn marks_assistant(&self, request: &ChatRequest) -> Result<bool, ApiError> {
        Ok(match self.choose(request)? {
            Chosen::Model(template, _) => template.marks_assistant(),
            Chosen::Request(template, _) => template.marks_assistant(),
            Chosen::Native(_) => false,
        })
    }

    /// Renders a conversation with the parts that an assistant wrote; none are known of native formats.
    ///
    /// # Errors
    /// 400: as [`Self::render`]; a template that does not let the parts be told.
    pub(crate) fn parts(&self, request: &ChatRequest) -> Result<Rendered, ApiError> {
        let by = |template: &ChatTemplate, format| {
            let conversation =
                self.conversation(request, format, knows_developer(template.source()));
            template
                .render_parts(&conversation)
                .map_err(|error| refused(&error))
        };
        match self.choose(request)? {
            Chosen::Model(template, format) => by(template, format),
            Chosen::Request(template, format) => by(&template, format),
            Chosen::Native(_) => Ok(Rendered {
                text: self.render(request)?.text(),
                assistant: Vec::new(),
            }),
        }
    }

    fn by(
        &self,
        template: &ChatTemplate,
        format: ContentFormat,
        request: &ChatRequest,
    ) -> Result<String, ApiError> {
        let conversation = self.conversation(request, format, knows_developer(template.source()));
        template
            .render(&conversation)
            .map_err(|error| refused(&error))
    }

    fn choose(&self, request: &ChatRequest) -> Result<Chosen<'_>, ApiError> {
        if let Some(source) = &request.template.chat_template {
            if !self.trusting {
                let message = "'chat_template' is refused: this server renders with its model's template. Start it with \
                               --trust-request-chat-template if its clients may bring templates, which are programs.";
                return Err(ApiError::unsupported("chat_template", message));
            }
            let template = ChatTemplate::compile("chat_template", source, self.clock.clone())
                .map_err(|error| {
                    ApiError::invalid(
                        "chat_template",
                        format!("'chat_template' cannot be used: {error}."),
                    )
                })?;
            let format = ContentFormat::probe(&template, &self.special);
            return Ok(Chosen::Request(Box::new(template), format));
        }
        let tools = !request.tools.tools.is_empty();
        match (self.templates.choose(tools), self.native) {
            (Some(template), _) => Ok(Chosen::Model(template, self.formats[usize::from(tools)])),
            (None, Some(native)) => Ok(Chosen::Native(native)),
            (None, None) => {
                let message = "This model has no chat template, so that it cannot answer messages. Use /v1/completions, or put a \
                               chat_template.jinja into the model's folder.";
                Err(ApiError::unsupported("messages", message))
            }
        }
    }

    fn conversation(
        &self,
        request: &ChatRequest,
        format: ContentFormat,
        developer: bool,
    ) -> Conversation {
        let fields = &request.template;
        let mut variables = self.special.clone();
        if let Some(effort) = &fields.reasoning_effort {
            variables.insert("reasoning_effort".to_owned(), json!(effort));
        }
        variables.extend(fields.kwargs.clone());
        Conversation {
            messages: conversation::prepare(&request.messages, format, developer),
            tools: Some(&request.tools.tools)
                .filter(|tools| !tools.is_empty())
                .cloned(),
            documents: fields.documents.clone(),
            add_generation_prompt: fields.add_generation_prompt,
            continue_final_message: fields.continue_final_message,
            variables,
        }
    }
}

impl ChatPrompt {
    /// The text of the prompt.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Pieces(pieces) => text_of(&pieces),
        }
    }

    /// Bytes that become tokens at the tokenizer's own cost.
    pub(crate) fn parts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Pieces(pieces) => pieces.iter().map(Piece::text).collect(),
        }
    }

    /// Tokenizes the prompt.
    ///
    /// # Errors
    /// What the tokenizer cannot express; a special token of the format that it has not.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        around: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let pieces = match self {
            Self::Text(text) => return tokenizer.encode(text, around),
            Self::Pieces(pieces) => pieces,
        };
        let mut ids = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => ids.extend(tokenizer.encode(text, false)?),
                Piece::Ordinary(text) => ids.extend(tokenizer.encode_ordinary(text)?),
                Piece::Special(token) => ids.push(special_id(tokenizer, token)?),
            }
        }
        Ok(ids)
    }

    /// Tokenizes the prompt, with the places of its tokens in its text where they are asked for, and cuts it.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub(crate) fn encode_cut(
        &self,
        tokenizer: &Tokenizer,
        around: bool,
        offsets: bool,
        cut: Option<Cut>,
    ) -> Result<Encoding, TokenizerError> {
        let whole = if offsets {
            self.encode_with_offsets(tokenizer, around)?
        } else {
            Encoding {
                ids: self.encode(tokenizer, around)?,
                offsets: Vec::new(),
            }
        };
        match (self, cut) {
            (Self::Text(text), Some(cut)) if around => {
                Ok(tokenizer.cut(text, whole, cut.most, cut.left)?.0)
            }
            _ => Ok(Encoding {
                ids: shorten(whole.ids, cut),
                offsets: shorten(whole.offsets, cut),
            }),
        }
    }

    /// Tokenizes the prompt with the places of its tokens in its text.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub(crate) fn encode_with_offsets(
        &self,
        tokenizer: &Tokenizer,
        around: bool,
    ) -> Result<Encoding, TokenizerError> {
        let pieces = match self {
            Self::Text(text) => return tokenizer.encode_with_offsets(text, around),
            Self::Pieces(pieces) => pieces,
        };
        let mut whole = Encoding::default();
        let mut begin = 0;
        for piece in pieces {
            let characters = piece.text().chars().count();
            let part = match piece {
                Piece::Text(text) => tokenizer.encode_with_offsets(text, false)?,
                Piece::Ordinary(text) => tokenizer.encode_ordinary_with_offsets(text)?,
                Piece::Special(token) => Encoding {
                    ids: vec![special_id(tokenizer, token)?],
                    offsets: vec![(0, characters)],
                },
            };
            whole.ids.extend(part.ids);
            whole.offsets.extend(
                part.offsets
                    .into_iter()
                    .map(|(start, end)| (begin + start, begin + end)),
            );
            begin += characters;
        }
        Ok(whole)
    }
}

fn special_id(tokenizer: &Tokenizer, token: &str) -> Result<u32, TokenizerError> {
    tokenizer.token_to_id(token).ok_or_else(|| {
        TokenizerError::Encode(format!(
            "the model's format needs the token {token}, and its tokenizer has none"
        ))
    })
}

fn refused(error: &octavo_template::RenderError) -> ApiError {
    ApiError::invalid("messages", error.to_string())
}

/// Whether a template compares a role with "developer".
fn knows_developer(source: &str) -> bool {
    source.contains("'developer'") || source.contains("\"developer\"")
}

/// Special tokens as template variables.
fn special(tokenizer: &Tokenizer) -> Map<String, Value> {
    let special = tokenizer.special();
    let mut variables: Map<String, Value> = special
        .named()
        .map(|(name, text)| (name.to_owned(), json!(text)))
        .collect();
    if !special.additional().is_empty() {
        variables.insert(
            "additional_special_tokens".to_owned(),
            json!(special.additional()),
        );
    }
    variables
}
