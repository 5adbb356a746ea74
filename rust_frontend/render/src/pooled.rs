//! Texts, conversations and pairs as the engine gets them where vectors are asked for.

use std::borrow::Cow;

use octavo_api::{ApiError, Body, ChatRequest, Pair, PooledInput, PoolingOptions};
use serde_json::{Map, Value, json};

use crate::check;
use crate::prepared::Limits;
use crate::renderer::{Renderer, unusable};
use crate::truncate::{Cut, readable, shorten};

/// How a model reads texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading<'a> {
    /// What stands in front of each.
    pub prefix: &'a str,
    /// Whether they are made lower case.
    pub lower_case: bool,
    /// Whether the tokenizer joins pairs; otherwise they are one text.
    pub pairs: bool,
    /// Tokens of a pair's second text that count; `None`: all.
    pub most_second: Option<usize>,
    /// What a template of pairs is told to judge.
    pub instruction: Option<&'a str>,
}

/// A text as the engine gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PooledPrompt {
    /// Token ids, at least one, at most as many as the model takes.
    pub ids: Vec<i32>,
    /// Where the second text of a pair begins in the model's eyes; 0 where it makes no difference.
    pub second: u32,
}

impl Reading<'_> {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match (self.lower_case, self.prefix.is_empty()) {
            (false, true) => Cow::Borrowed(text),
            (true, _) => Cow::Owned(format!("{}{text}", self.prefix).to_lowercase()),
            (false, false) => Cow::Owned(format!("{}{text}", self.prefix)),
        }
    }
}

impl Renderer {
    /// Turns one text into tokens. `param` is the field that it came in.
    ///
    /// # Errors
    /// 400: a text of no tokens, or of too many where it may not be cut; ids outside of the vocabulary; a conversation that
    /// the template refuses.
    pub fn pooled(
        &self,
        input: &PooledInput,
        options: &PoolingOptions,
        reading: Reading<'_>,
        limits: Limits,
        param: &str,
    ) -> Result<PooledPrompt, ApiError> {
        let cut = Cut::of_text(options.truncation, limits)?;
        let ids = match input {
            PooledInput::Text(text) => {
                let text = reading.text(text);
                self.within(&text, options.add_special_tokens, cut, limits, param)?
            }
            PooledInput::Tokens(ids) => {
                let ids = ids.iter().map(|id| id.cast_unsigned()).collect();
                shorten(ids, cut)
            }
            PooledInput::Chat(chat) => {
                let rendered = self.prompts().render(chat)?;
                self.bound(&rendered.parts(), cut, limits, param)?;
                let special = chat.template.add_special_tokens;
                let ids = rendered
                    .encode(self.tokenizer(), special)
                    .map_err(|error| unusable(param, &error))?;
                shorten(ids, cut)
            }
        };
        check::text(&ids, limits, param)?;
        Ok(PooledPrompt {
            ids: ids.into_iter().map(u32::cast_signed).collect(),
            second: 0,
        })
    }

    /// Turns a pair of texts into tokens. `param` is the field that the second came in.
    ///
    /// # Errors
    /// As [`Self::pooled`].
    pub fn pooled_pair(
        &self,
        pair: &Pair,
        options: &PoolingOptions,
        reading: Reading<'_>,
        limits: Limits,
        param: &str,
    ) -> Result<PooledPrompt, ApiError> {
        let cut = Cut::of_text(options.truncation, limits)?;
        let (first, second) = (reading.text(&pair.first), reading.text(&pair.second));
        let templated = !reading.pairs && self.reads_pairs();
        if reading.instruction.is_some() && !templated {
            let message = "'instruction' needs a chat template that reads the roles query and document, which this model has \
                           not. Leave it out.";
            return Err(ApiError::unsupported("instruction", message));
        }
        if !reading.pairs {
            let second = self.first_tokens(&second, reading.most_second, limits, param)?;
            let input = match templated {
                true => PooledInput::Chat(Box::new(conversation(
                    &first,
                    &second,
                    reading.instruction,
                )?)),
                false => PooledInput::Text(format!("{first}{second}")),
            };
            let plain = Reading::default();
            return self.pooled(&input, options, plain, limits, param);
        }
        let second_cut = |most| Cut { most, left: false };
        let cuts = cut.or(reading.most_second.map(second_cut));
        self.bound(&[&first, &second], cuts, limits, param)?;
        let joined = self
            .tokenizer()
            .encode_pair(
                &first,
                &second,
                cut.map(|cut| cut.most),
                reading.most_second,
            )
            .map_err(|error| unusable(param, &error))?;
        check::text(&joined.ids, limits, param)?;
        Ok(PooledPrompt {
            ids: joined.ids.into_iter().map(u32::cast_signed).collect(),
            second: u32::try_from(joined.second).unwrap_or(0),
        })
    }

    /// Whether the chat template is one for pairs: it compares roles with "query" and "document".
    fn reads_pairs(&self) -> bool {
        let template = self.prompts().templates().choose(false);
        template.is_some_and(|template| {
            let source = template.source();
            let quoted = |word: &str| {
                source.contains(&format!("'{word}'")) || source.contains(&format!("\"{word}\""))
            };
            quoted("query") && quoted("document")
        })
    }

    fn within(
        &self,
        text: &str,
        add_special_tokens: bool,
        cut: Option<Cut>,
        limits: Limits,
        param: &str,
    ) -> Result<Vec<u32>, ApiError> {
        self.bound(&[text], cut, limits, param)?;
        let tokenizer = self.tokenizer();
        let ids = match cut {
            Some(cut) => tokenizer.encode_within(text, add_special_tokens, cut.most, cut.left),
            None => tokenizer.encode(text, add_special_tokens),
        };
        ids.map_err(|error| unusable(param, &error))
    }

    /// The text of the first tokens of a text.
    fn first_tokens<'t>(
        &self,
        text: &'t str,
        most: Option<usize>,
        limits: Limits,
        param: &str,
    ) -> Result<Cow<'t, str>, ApiError> {
        let Some(most) = most else {
            return Ok(Cow::Borrowed(text));
        };
        let cut = Cut { most, left: false };
        self.bound(&[text], Some(cut), limits, param)?;
        let ids = self
            .tokenizer()
            .encode_within(text, false, most, false)
            .map_err(|error| unusable(param, &error))?;
        Ok(Cow::Owned(self.tokenizer().decode(&ids)))
    }

    /// Refuses what cannot fit, or would take long to be cut, before it is encoded: nobody can stop that once it runs.
    fn bound(
        &self,
        parts: &[&str],
        cut: Option<Cut>,
        limits: Limits,
        param: &str,
    ) -> Result<(), ApiError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        readable(bytes, limits, param)?;
        let least = parts
            .iter()
            .map(|part| self.tokenizer().least_tokens(part))
            .sum::<usize>();
        if cut.is_none() && least > limits.max_model_len {
            let length = format!("at least {least}");
            return Err(ApiError::text_too_long(
                param,
                &length,
                limits.max_model_len,
            ));
        }
        Ok(())
    }
}

/// A pair as a conversation of two roles.
fn conversation(
    first: &str,
    second: &str,
    instruction: Option<&str>,
) -> Result<ChatRequest, ApiError> {
    let body = json!({
        "messages": [{"role": "query", "content": first}, {"role": "document", "content": second}],
        "add_generation_prompt": false,
        "chat_template_kwargs": instruction.map(|text| json!({"instruction": text})),
    });
    let fields = match body {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    ChatRequest::from_body(Body::from(fields))
}
