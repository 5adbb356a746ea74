//! What outputs must be: grammars for octavo's engine, and `structured_outputs` for any.

use octavo_api::{ApiError, ChatRequest, StructuredFields};
use octavo_wire::frontend::Grammar;
use serde_json::{Value, json};

use crate::parsers::ParsePlan;
use crate::prepared::Limits;
use crate::renderer::Renderer;

impl Renderer {
    /// What the output of a chat must be.
    pub(crate) fn chat_grammar(
        &self,
        request: &ChatRequest,
        parse: Option<&ParsePlan>,
        limits: Limits,
    ) -> Result<Option<Grammar>, ApiError> {
        let model = self.model(limits);
        match self
            .parsers()
            .tool()
            .filter(|_| request.tools.wants_calls())
        {
            Some(format) => self.guide().calls(&request.tools, format, parse, &model),
            None => self.guide().structured(&request.structured, parse, &model),
        }
    }

    /// What the output of a chat must be, as `structured_outputs` of `sampling_params`: as the client said it, or, where
    /// thoughts or calls are in it, as a grammar of the whole output. `text` is the prompt's.
    ///
    /// # Errors
    /// 400: as [`Self::chat`].
    pub(crate) fn chat_form(
        &self,
        request: &ChatRequest,
        text: impl FnOnce() -> Result<String, ApiError>,
        limits: Limits,
    ) -> Result<Option<Value>, ApiError> {
        if request.structured.structure.is_none() && !request.tools.wants_calls() {
            return Ok(None);
        }
        let unbegun = || self.prompts().unbegun(request);
        let parse = self.parsers().plan(request, &text()?, unbegun);
        let Some(grammar) = self.chat_grammar(request, parse.as_ref(), limits)? else {
            return Ok(None);
        };
        if Some(&grammar) == self.grammar(&request.structured, limits)?.as_ref() {
            return Ok(request.structured.outputs().map(Value::Object));
        }
        Ok(Some(json!({ "grammar": grammar.text })))
    }

    /// What an output must be of which nothing is thoughts or calls.
    ///
    /// # Errors
    /// 400 that names the field and what of it is not supported.
    pub(crate) fn grammar(
        &self,
        fields: &StructuredFields,
        limits: Limits,
    ) -> Result<Option<Grammar>, ApiError> {
        self.guide().structured(fields, None, &self.model(limits))
    }
}
