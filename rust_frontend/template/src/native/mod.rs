//! Prompts of models that come without a chat template: what their authors' own code writes.
//!
//! A [`NativeFormat`] turns a conversation into [`Piece`]s. DeepSeek's and Kimi K2.5's are one text that is tokenized
//! whole; Kimi K3, Harmony and Mistral name their special tokens one by one, and what a user writes can never become one.

mod deepseek;
mod deepseek_text;
mod dumps;
mod harmony;
mod harmony_tools;
mod kimi_k2;
mod kimi_k3;
mod kimi_tools;
mod mistral;
mod pieces;
mod turn;

use serde_json::{Map, Value};

use crate::chat::Conversation;
use crate::clock::Clock;
use crate::error::RenderError;

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text in which special tokens are recognised.
    Text(String),
    /// Text in which nothing is special.
    Ordinary(String),
    /// One special token, by its text.
    Special(String),
}

impl Piece {
    /// What the piece looks like in the text of the prompt.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Ordinary(text) | Self::Special(text) => text,
        }
    }
}

/// The text of a prompt.
pub fn text_of(pieces: &[Piece]) -> String {
    pieces.iter().map(Piece::text).collect()
}

/// A format that is code and no template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeFormat {
    /// DeepSeek V3.2.
    DeepSeekV32,
    /// DeepSeek V4, with reasoning effort.
    DeepSeekV4,
    /// Kimi K2.5: tools as TypeScript.
    KimiK25,
    /// Kimi K3.
    KimiK3,
    /// Harmony, of gpt-oss.
    Harmony,
    /// Mistral's, for a version of its tekken files.
    Mistral(u32),
}

/// Formats by the names of `model_type` in config.json, and by the names that users type.
const NAMES: [(&str, NativeFormat); 9] = [
    ("deepseek_v32", NativeFormat::DeepSeekV32),
    ("deepseek_v4", NativeFormat::DeepSeekV4),
    ("kimi_k25", NativeFormat::KimiK25),
    ("kimi_k2_5", NativeFormat::KimiK25),
    ("kimi_k3", NativeFormat::KimiK3),
    ("gpt_oss", NativeFormat::Harmony),
    ("harmony", NativeFormat::Harmony),
    ("deepseek_v3_2", NativeFormat::DeepSeekV32),
    ("kimi_k2.5", NativeFormat::KimiK25),
];

impl NativeFormat {
    /// The format of a model that has no template: by the version of its tekken file, or by `model_type` in config.json
    /// (of the whole or of its `text_config`). `None` where no format is known.
    ///
    /// # Errors
    /// A version of tekken files whose format is not known, by its number.
    pub fn of_model(
        config: &Map<String, Value>,
        tekken: Option<u32>,
    ) -> Result<Option<Self>, String> {
        match tekken {
            Some(version @ (3 | 7 | 11 | 13)) => return Ok(Some(Self::Mistral(version))),
            Some(version) => {
                return Err(format!(
                    "tekken.json has the version {version}, whose prompts are not supported; supported are 3, 7, 11 and 13"
                ));
            }
            None => {}
        }
        let named = |config: &Map<String, Value>| {
            config
                .get("model_type")
                .and_then(Value::as_str)
                .and_then(Self::named)
        };
        let inner = config.get("text_config").and_then(Value::as_object);
        Ok(named(config).or_else(|| inner.and_then(named)))
    }

    /// The format of a name such as "harmony" or a `model_type`.
    pub fn named(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, format)| *format)
    }

    /// A name for messages and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeepSeekV32 => "deepseek_v32",
            Self::DeepSeekV4 => "deepseek_v4",
            Self::KimiK25 => "kimi_k25",
            Self::KimiK3 => "kimi_k3",
            Self::Harmony => "harmony",
            Self::Mistral(_) => "mistral",
        }
    }

    /// Whether the role `developer` is one of the format's own; else it is given as `system`.
    pub fn knows_developer(self) -> bool {
        self == Self::Harmony
    }

    /// Renders a conversation to the pieces of a prompt. Variables that a format reads are `thinking`, `enable_thinking`,
    /// `reasoning_effort` and the like; others are passed over.
    ///
    /// # Errors
    /// What the format cannot express, with the message's place.
    pub fn render(
        self,
        conversation: &Conversation,
        clock: &Clock,
    ) -> Result<Vec<Piece>, RenderError> {
        match self {
            Self::DeepSeekV32 => deepseek::v32(conversation).map(one),
            Self::DeepSeekV4 => deepseek::v4(conversation).map(one),
            Self::KimiK25 => kimi_k2::render(conversation).map(one),
            Self::KimiK3 => kimi_k3::render(conversation),
            Self::Harmony => harmony::render(conversation, clock),
            Self::Mistral(version) => mistral::render(conversation, version),
        }
    }
}

fn one(text: String) -> Vec<Piece> {
    vec![Piece::Text(text)]
}

/// Cuts the end of a turn off a prompt whose last message is to be continued.
fn reopen(mut prompt: String, end: &str) -> Result<String, RenderError> {
    match prompt.strip_suffix(end).map(str::len) {
        Some(length) => {
            prompt.truncate(length);
            Ok(prompt)
        }
        None => Err(RenderError::Continuation(
            "it is not the assistant's".to_owned(),
        )),
    }
}
