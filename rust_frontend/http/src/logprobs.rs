//! Log probabilities of one output: they wait until the text of their tokens is out.

use std::collections::VecDeque;
use std::sync::Arc;

use octavo_api::{ChatLogprob, ChatLogprobs, CompletionLogprobs};
use octavo_engine::Step;
use octavo_render::{LogprobText, Renderer, TokenLogprobs, completion_logprobs};
use serde::Serialize;

use crate::route::Route;

/// Log probabilities in the shape of their route.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Shown {
    Chat(ChatLogprobs),
    Completion(CompletionLogprobs),
    /// As they are; no route of HTTP writes them.
    #[serde(skip)]
    Bare(Vec<TokenLogprobs>),
}

impl Shown {
    /// Appends those of further tokens of the same output.
    pub(crate) fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Chat(all), Self::Chat(more)) => all.content.extend(more.content),
            (Self::Completion(all), Self::Completion(more)) => all.extend(more),
            (Self::Bare(all), Self::Bare(more)) => all.extend(more),
            _ => {}
        }
    }
}

/// What an output's tokens come with.
pub(crate) struct Told {
    route: Route,
    /// Whether they keep no shape of a route.
    bare: bool,
    renderer: Arc<Renderer>,
    text: LogprobText,
    waiting: VecDeque<TokenLogprobs>,
    given: usize,
}

impl Told {
    pub(crate) fn new(route: Route, renderer: Arc<Renderer>, text: LogprobText) -> Self {
        Self {
            route,
            bare: false,
            renderer,
            text,
            waiting: VecDeque::new(),
            given: 0,
        }
    }

    /// Gives them as they are, in no shape of a route.
    pub(crate) fn bare(&mut self) {
        self.bare = true;
    }

    /// Says that so many characters stand before the output.
    pub(crate) fn begin_at(&mut self, characters: usize) {
        self.text.begin_at(characters);
    }

    /// Takes a step; returns what belongs to the first `settled` tokens of the output and was not returned before.
    pub(crate) fn take(&mut self, step: &Step, settled: usize) -> Option<Shown> {
        if let Some(logprobs) = &step.logprobs {
            let tokens = self
                .text
                .push(self.renderer.tokenizer(), &step.tokens, logprobs);
            self.waiting.extend(tokens);
        }
        let count = settled.saturating_sub(self.given).min(self.waiting.len());
        if count == 0 {
            return None;
        }
        self.given += count;
        let tokens: Vec<TokenLogprobs> = self.waiting.drain(..count).collect();
        if self.bare {
            return Some(Shown::Bare(tokens));
        }
        Some(match self.route {
            Route::Chat => Shown::Chat(ChatLogprobs {
                content: tokens.into_iter().map(ChatLogprob::from).collect(),
            }),
            Route::Completion => Shown::Completion(completion_logprobs(&tokens)),
        })
    }
}
