//! The formats that ship.

use crate::error::FormatError;
use crate::format::Format;

macro_rules! formats {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("formats/", $name, ".toml"), include_str!(concat!("../formats/", $name, ".toml")))),*]
    };
}

/// File name and text of each.
const FILES: &[(&str, &str)] = formats![
    "apertus",
    "cohere_command3",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
    "dots",
    "ernie45",
    "functiongemma",
    "gemma4",
    "gigachat3",
    "glm45",
    "granite",
    "granite-20b-fc",
    "granite4",
    "harmony",
    "hermes",
    "hunyuan_a13b",
    "hy_v3",
    "inkling",
    "internlm",
    "jamba",
    "json_list",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "llama3_json",
    "llama4_pythonic",
    "longcat",
    "minicpm5",
    "minimax_m2",
    "minimax_m3",
    "minimax_m3_think",
    "mistral",
    "muse_glimmer",
    "olmo3",
    "phi4_mini_json",
    "pythonic",
    "qwen3_coder",
    "seed_oss",
    "step3",
    "step3p5",
    "think",
    "think_append",
    "think_optional",
    "think_phrases",
    "xlam",
];

/// All formats of a server, by name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    formats: Vec<Format>,
}

impl Registry {
    /// Read the formats that ship.
    ///
    /// # Errors
    /// Never for a released build: a test reads them all.
    pub fn builtin() -> Result<Self, FormatError> {
        let mut registry = Self::default();
        for (file, text) in FILES {
            registry.add(file, text)?;
        }
        Ok(registry)
    }

    /// Add a format from its text, which is TOML, or JSON for a response template; its names win over those of earlier
    /// formats.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn add(&mut self, file: &str, text: &str) -> Result<&Format, FormatError> {
        let format = if text.trim_start().starts_with('{') {
            let value = serde_json::from_str(text).map_err(|error| FormatError {
                file: file.to_owned(),
                line: error.line(),
                key: "file".to_owned(),
                message: error.to_string(),
            })?;
            Format::from_response_template(file, &value)?
        } else {
            Format::parse(file, text)?
        };
        Ok(self.insert(format))
    }

    /// Add a format; its names win over those of earlier formats.
    pub fn insert(&mut self, format: Format) -> &Format {
        self.formats.insert(0, format);
        &self.formats[0]
    }

    /// Return the format behind a name of `--tool-call-parser`.
    pub fn tool(&self, name: &str) -> Option<&Format> {
        self.formats
            .iter()
            .find(|format| format.tool.iter().any(|known| known == name))
    }

    /// Return the format behind a name of `--reasoning-parser`.
    pub fn reasoning(&self, name: &str) -> Option<&Format> {
        self.formats
            .iter()
            .find(|format| format.reasoning.iter().any(|known| known == name))
    }

    /// All formats.
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }
}
