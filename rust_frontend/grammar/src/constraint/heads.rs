//! Formats whose messages have heads: which messages may stand before the one that is constrained.

use super::lark::Specials;
use super::rules::Rules;
use super::sources::{Constraint, Kind};
use crate::format::Format;
use crate::state::Kind as StateKind;

/// Where the answer begins, in formats whose messages have heads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// At the head of a message.
    #[default]
    Head,
    /// In thoughts that the prompt has begun.
    Reasoning,
    /// In an answer that the prompt has begun.
    Content,
}

/// The texts before and after the body of each kind of message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Messages {
    pub(crate) thought: (String, String),
    pub(crate) answer: (String, String),
    pub(crate) preamble: Option<(String, String)>,
}

impl Messages {
    /// Those of a format; none where its messages have no heads.
    pub fn of(format: &Format) -> Option<Self> {
        let start = format.states.get(&format.start)?;
        if start.kind != StateKind::Header {
            return None;
        }
        let render = format.render.as_ref()?;
        let around = |template: &str| {
            template
                .split_once("{text}")
                .map(|(before, after)| (before.to_owned(), after.to_owned()))
        };
        Some(Self {
            thought: around(&render.reasoning)?,
            answer: around(&render.content)?,
            preamble: around(&render.preamble),
        })
    }

    /// A rule for one message of thoughts.
    pub(crate) fn thought(&self, rules: &mut Rules<'_>) -> String {
        message(rules, &self.thought)
    }

    /// A rule for one message before a call.
    pub(crate) fn preamble(&self, rules: &mut Rules<'_>) -> Option<String> {
        self.preamble.as_ref().map(|around| message(rules, around))
    }

    /// The rest of the message that the prompt has begun, where that is thoughts.
    pub(crate) fn begun(&self, rules: &mut Rules<'_>, place: Place) -> String {
        match place {
            Place::Reasoning => rules.until(&self.thought.1, &[], None),
            Place::Head | Place::Content => String::new(),
        }
    }

    /// The rest of an answer that the prompt has begun, up to the next head.
    pub(crate) fn said(&self, rules: &mut Rules<'_>) -> String {
        rules.until(&self.answer.1, &[], None)
    }
}

fn message(rules: &mut Rules<'_>, around: &(String, String)) -> String {
    let body = rules.until(&around.1, &[], None);
    let open = rules.specials.expression(&around.0);
    rules.rule(&format!("{open} {body}"))
}

impl Constraint {
    /// The same constraint as the answer, with its head and thoughts before it where they are not begun.
    #[must_use]
    pub fn as_answer(&self, messages: &Messages, place: Place, specials: &Specials) -> Self {
        let mut rules = Rules::new(specials);
        let body = rules.rule(&self.as_rule());
        let start = if place == Place::Content {
            body
        } else {
            let begun = messages.begun(&mut rules, place);
            let thought = messages.thought(&mut rules);
            let open = specials.expression(&messages.answer.0);
            format!("{begun} {thought}* {open} {body}")
        };
        Self::raw(Kind::Lark, rules.grammar(&start))
    }
}
