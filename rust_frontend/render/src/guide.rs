//! What an output must be, from the fields of a request to the grammar that the engine follows.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use octavo_api::{ApiError, Structure, StructuredFields, ToolChoice, ToolFields};
use octavo_grammar::constraint::{
    self, Constraint, ConstraintError, Guided, GuidedTool, Messages, Place, SchemaOptions,
    Specials, Thoughts, Vocabulary,
};
use octavo_grammar::{Edge, Format, Kind, Target};
use octavo_parser::Opening;
use octavo_tokenizer::Tokenizer;
use octavo_wire::frontend::Grammar;

use crate::defaults::Defaults;
use crate::parsers::ParsePlan;
use crate::vocabulary;

/// Grammars that were compiled once; the engine keeps its own.
const MAX_KNOWN: usize = 128;

/// Validates constraints against the model's vocabulary, which is read when the first one comes.
#[derive(Debug, Default)]
pub(crate) struct Guide {
    words: OnceLock<Words>,
    known: Mutex<VecDeque<Constraint>>,
}

#[derive(Debug)]
struct Words {
    vocabulary: Result<Vocabulary, ConstraintError>,
    specials: Specials,
}

/// Where a model's words come from.
pub(crate) struct Model<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) defaults: &'a Defaults,
    pub(crate) width: usize,
}

impl Guide {
    /// Returns the grammar of an output that `response_format` or `structured_outputs` constrain.
    ///
    /// # Errors
    /// 400 that names the field and the part of it that is invalid or not supported.
    pub(crate) fn structured(
        &self,
        fields: &StructuredFields,
        parse: Option<&ParsePlan>,
        model: &Model<'_>,
    ) -> Result<Option<Grammar>, ApiError> {
        let Some(structure) = &fields.structure else {
            return Ok(None);
        };
        let refused = |error: ConstraintError| refusal(fields.param, &error);
        let words = self.words(model);
        let options = SchemaOptions {
            compact: fields.compact,
            whitespace: fields.whitespace.clone(),
            closed: fields.closed,
        };
        let constraint = match structure {
            Structure::JsonSchema(schema) => Constraint::json_schema(schema, &options),
            Structure::JsonObject => Constraint::json_object(&options),
            Structure::Regex(pattern) => Constraint::regex(pattern),
            Structure::Choice(choices) => Constraint::choice(choices),
            Structure::Grammar(text) => Constraint::grammar(text),
            Structure::StructuralTag(tag) => {
                Constraint::structural_tag(tag, &words.specials, &options)
            }
        };
        let constraint = constraint.map_err(refused)?;
        let refused = |error: ConstraintError| refusal(fields.param, &error);
        let whole = match parse {
            Some(plan) => match &plan.messages {
                Some(messages) => {
                    let place = place(plan).map_err(refused)?;
                    constraint.as_answer(messages, place, &words.specials)
                }
                None => behind_thoughts(&constraint, plan, Vec::new(), words),
            },
            None => constraint,
        };
        self.validate(&whole, words).map_err(refused)?;
        Ok(Some(wire(&whole)))
    }

    /// Returns the grammar of an output that must hold calls, or whose calls must fit strict tools.
    ///
    /// # Errors
    /// 400 that names the tool and what of it is not supported.
    pub(crate) fn calls(
        &self,
        tools: &ToolFields,
        format: &Format,
        parse: Option<&ParsePlan>,
        model: &Model<'_>,
    ) -> Result<Option<Grammar>, ApiError> {
        let guided: Vec<GuidedTool<'_>> = tools
            .tools
            .iter()
            .filter_map(|tool| GuidedTool::read(tool.get("function")?))
            .filter(|tool| match &tools.choice {
                ToolChoice::Named(name) => tool.name == name,
                _ => true,
            })
            .collect();
        let required = tools.choice != ToolChoice::Auto;
        if !required && !guided.iter().any(|tool| tool.strict) {
            return Ok(None);
        }
        let words = self.words(model);
        let refused = |error: ConstraintError| refusal("tools", &error);
        let with_heads = parse.filter(|_| Messages::of(format).is_some());
        let wanted = Guided {
            required,
            parallel: tools.parallel && !matches!(tools.choice, ToolChoice::Named(_)),
            place: with_heads
                .map(place)
                .transpose()
                .map_err(refused)?
                .unwrap_or_default(),
        };
        let constraint =
            constraint::calls(format, &guided, wanted, &words.specials).map_err(refused)?;
        let whole = match parse.filter(|_| with_heads.is_none()) {
            Some(plan) => {
                behind_thoughts(&constraint, plan, constraint::call_markers(format), words)
            }
            None => constraint,
        };
        self.validate(&whole, words).map_err(refused)?;
        Ok(Some(wire(&whole)))
    }

    fn validate(&self, constraint: &Constraint, words: &Words) -> Result<(), ConstraintError> {
        let vocabulary = words.vocabulary.as_ref().map_err(Clone::clone)?;
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(constraint) {
            return Ok(());
        }
        constraint::Grammar::compile(constraint, vocabulary)?;
        let mut known = known();
        known.push_back(constraint.clone());
        if known.len() > MAX_KNOWN {
            known.pop_front();
        }
        Ok(())
    }

    fn words(&self, model: &Model<'_>) -> &Words {
        self.words.get_or_init(|| Words {
            vocabulary: vocabulary::of(model.tokenizer, model.defaults, model.width),
            specials: vocabulary::specials(model.tokenizer, model.defaults),
        })
    }
}

fn wire(constraint: &Constraint) -> Grammar {
    Grammar {
        kind: constraint.kind().name().to_owned(),
        text: constraint.text().to_owned(),
    }
}

/// Where the answer begins, in formats whose messages have heads.
///
/// # Errors
/// A prompt that ends inside of a head.
fn place(plan: &ParsePlan) -> Result<Place, ConstraintError> {
    let opening = Opening::of(&plan.machine, &plan.start);
    let grammar = plan.machine.grammar();
    if opening.inside_head {
        let message = "cannot be used with a prompt that ends inside of the head of a message";
        return Err(ConstraintError::whole(message));
    }
    Ok(match grammar.nodes[opening.node].state.kind {
        Kind::Header => Place::Head,
        Kind::Reasoning => Place::Reasoning,
        _ => Place::Content,
    })
}

/// A constraint with thoughts in front, where the model writes any.
fn behind_thoughts(
    constraint: &Constraint,
    plan: &ParsePlan,
    without: Vec<String>,
    words: &Words,
) -> Constraint {
    match thoughts(plan, without) {
        Some(thoughts) => constraint.behind(&thoughts, &words.specials),
        None => constraint.clone(),
    }
}

/// How thoughts stand before what is constrained: `None` where the model writes none.
fn thoughts(plan: &ParsePlan, without: Vec<String>) -> Option<Thoughts> {
    let grammar = plan.machine.grammar();
    let at = Opening::of(&plan.machine, &plan.start).node;
    let reasoning = grammar.reasoning?;
    let leading = |from: usize, to: usize| {
        let edges = grammar.nodes[from].edges.iter();
        edges
            .filter(|edge: &&Edge| edge.target == Target::Node(to) && !edge.keep)
            .map(|edge| edge.text.clone())
            .next()
    };
    let close = leading(reasoning, grammar.content)?;
    let open = if at == reasoning {
        String::new()
    } else {
        leading(grammar.content, reasoning)?
    };
    Some(Thoughts {
        open,
        close,
        without,
    })
}

fn refusal(param: &str, error: &ConstraintError) -> ApiError {
    ApiError::invalid(param, format!("'{param}' cannot be enforced: {error}."))
}
