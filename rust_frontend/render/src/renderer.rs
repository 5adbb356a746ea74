//! The renderer of one model.

use std::path::Path;

use octavo_api::{ApiError, ChatRequest, CompletionRequest};

use crate::output::OutputText;
use crate::prepared::{Limits, OutputPlan, Prepared};

/// Why a model folder cannot be rendered for.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {}

/// Turns requests for one model into prompts, and tokens into text. Shared between threads.
#[derive(Debug)]
pub struct Renderer {}

impl Renderer {
    /// Reads tokenizer.json, `tokenizer_config.json`, the chat template, `generation_config.json` and config.json of a folder.
    ///
    /// `seed` starts the generator that requests without a seed draw theirs from; `None`: the system's randomness.
    ///
    /// # Errors
    /// A file that is missing or damaged, by name; a decoder or template construct that is not supported. A folder
    /// without a chat template loads: its chat requests are refused.
    pub fn load(_dir: &Path, _seed: Option<u64>) -> Result<Self, LoadError> {
        Ok(Self {})
    }

    /// What was found and not used while loading (a sampling default that is not supported, an unknown filter in a branch of the template): one line each, for the log.
    pub fn warnings(&self) -> &[String] {
        &[]
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// 400: no template, the template's own refusal, a prompt that is empty or too long, ids outside the vocabulary.
    pub fn chat(&self, _request: &ChatRequest, _limits: Limits) -> Result<Prepared, ApiError> {
        Err(ApiError::internal("not rendered"))
    }

    /// Renders a plain prompt.
    ///
    /// # Errors
    /// 400: a prompt that is empty or too long, ids outside the vocabulary.
    pub fn completion(&self, _request: &CompletionRequest, _limits: Limits) -> Result<Prepared, ApiError> {
        Err(ApiError::internal("not rendered"))
    }

    /// Starts the text of one output.
    pub fn output(&self, _plan: &OutputPlan) -> OutputText {
        OutputText {}
    }
}
