//! One format file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{FormatError, line_at};
use crate::render::Render;
use crate::state::{MarkerText, State};
use crate::validate::validate;

/// What follows a call that stood inside of thoughts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCall {
    /// The answer: a call ends the thoughts.
    #[default]
    Content,
    /// The thoughts go on, as nothing has closed them.
    ResumePrevious,
}

/// What a call of a tool that the request does not have becomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownTool {
    /// A call all the same.
    #[default]
    Pass,
    /// Text.
    Text,
    /// Nothing; reported as malformed.
    Drop,
}

/// What a call becomes under `tool_choice: none`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceNone {
    /// Content, as the model wrote it.
    #[default]
    Text,
    /// Nothing.
    Drop,
}

/// Ids of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdPolicy {
    /// `call_` and 24 letters and digits.
    #[default]
    Random24,
    /// 9 letters and digits.
    Mistral9,
    /// The id that the model wrote; `random_24` where it wrote none.
    ModelVerbatim,
}

/// Values of parameters without a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Untyped {
    /// Text.
    #[default]
    String,
    /// JSON where the text is JSON, else text.
    Json,
}

/// How arguments in markers become JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// Values without a schema.
    #[serde(default)]
    pub untyped: Untyped,
    /// Names of a parameter that holds all arguments as an object, where the tool has no such parameter.
    #[serde(default)]
    pub unwrap: Vec<String>,
    /// Whether parameters that the tool does not have are left out.
    #[serde(default)]
    pub drop_unknown: bool,
    /// Whether `&amp;` and the like stand for characters in names and keys.
    #[serde(default)]
    pub entities: bool,
    /// Whether `<![CDATA[...]]>` may wrap a value.
    #[serde(default)]
    pub cdata: bool,
}

/// One output format, checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Format {
    /// The format's own name.
    pub name: String,
    /// Names for `--tool-call-parser`.
    #[serde(default)]
    pub tool: Vec<String>,
    /// Names for `--reasoning-parser`.
    #[serde(default)]
    pub reasoning: Vec<String>,
    /// What it is, for people.
    pub doc: String,
    /// Texts in a chat template or vocabulary that say that the model calls tools so: all of one list.
    #[serde(default)]
    pub detect_tool: Vec<Vec<String>>,
    /// Likewise for its thoughts.
    #[serde(default)]
    pub detect_reasoning: Vec<Vec<String>>,
    /// The state of the first character where the prompt does not say.
    pub start: String,
    /// What follows a call that stood inside of thoughts.
    #[serde(default)]
    pub after_call: AfterCall,
    /// Calls of unknown tools.
    #[serde(default)]
    pub unknown_tool: UnknownTool,
    /// Calls under `tool_choice: none`.
    #[serde(default)]
    pub choice_none: ChoiceNone,
    /// Ids of calls.
    #[serde(default)]
    pub ids: IdPolicy,
    /// Whether a call that begins inside of thoughts is one.
    #[serde(default = "yes")]
    pub interrupts_reasoning: bool,
    /// Whether markers of thoughts mean nothing when the request turns thinking off.
    #[serde(default)]
    pub off_is_text: bool,
    /// Text that is shown before everything else.
    #[serde(default)]
    pub preface: String,
    /// Texts that begin the model's turn in a prompt.
    #[serde(default)]
    pub turns: Vec<String>,
    /// How arguments become JSON.
    #[serde(default)]
    pub arguments: Arguments,
    /// Markers by name.
    pub markers: BTreeMap<String, MarkerText>,
    /// States by name.
    pub states: BTreeMap<String, State>,
    /// How a message is written.
    #[serde(default)]
    pub render: Option<Render>,
}

fn yes() -> bool {
    true
}

impl Format {
    /// Read and check a format file.
    ///
    /// `file` names it in errors; nothing is opened.
    ///
    /// # Errors
    /// What is wrong with the text, with file, key and line.
    pub fn parse(file: &str, text: &str) -> Result<Self, FormatError> {
        let format: Self = toml::from_str(text).map_err(|error| FormatError {
            file: file.to_owned(),
            line: error.span().map_or(1, |span| line_at(text, span.start)),
            key: "file".to_owned(),
            message: error.message().to_owned(),
        })?;
        validate(file, text, &format)?;
        Ok(format)
    }
}
