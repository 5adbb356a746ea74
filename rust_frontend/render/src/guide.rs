//! What an output must be, from the fields of a request to the grammar that the engine follows.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use octavo_api::{ApiError, Structure, StructuredFields, ToolChoice, ToolFields};
use octavo_grammar::constraint::{
    self, Constraint, ConstraintError, Guided, GuidedTool, SchemaOptions, Specials, Thoughts,
    Vocabulary,
};
use octavo_grammar::{Edge, Format, Kind, Target};
use octavo_parser::{Machine, Start};
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
        self.finish(&constraint, parse, words, fields.param)
            .map(Some)
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
        let Some(render) = &format.render else {
            let message =
                "calls cannot be forced in this model's output format, which has no [render]";
            return Err(refusal("tool_choice", &ConstraintError::whole(message)));
        };
        let words = self.words(model);
        let wanted = Guided {
            required,
            parallel: tools.parallel && !matches!(tools.choice, ToolChoice::Named(_)),
        };
        let constraint = constraint::calls(render, &guided, wanted, &words.specials)
            .map_err(|error| refusal("tools", &error))?;
        self.finish(&constraint, parse, words, "tools").map(Some)
    }

    /// Puts thoughts in front and compiles.
    fn finish(
        &self,
        constraint: &Constraint,
        parse: Option<&ParsePlan>,
        words: &Words,
        param: &str,
    ) -> Result<Grammar, ApiError> {
        let refused = |error: &ConstraintError| refusal(param, error);
        let thoughts = match parse {
            Some(plan) => thoughts(&plan.machine, &plan.start).map_err(|error| refused(&error))?,
            None => None,
        };
        let whole = match &thoughts {
            Some(thoughts) => constraint.behind(thoughts, &words.specials),
            None => constraint.clone(),
        };
        self.validate(&whole, words)
            .map_err(|error| refused(&error))?;
        Ok(Grammar {
            kind: whole.kind().name().to_owned(),
            text: whole.text().to_owned(),
        })
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
            specials: vocabulary::specials(model.tokenizer),
        })
    }
}

/// How thoughts stand before what is constrained: `None` where the model writes none.
fn thoughts(machine: &Machine, start: &Start) -> Result<Option<Thoughts>, ConstraintError> {
    let grammar = machine.grammar();
    let at = match start {
        Start::After(tail) => grammar
            .start_after(tail)
            .unwrap_or_else(|| grammar.unopened()),
        Start::Content => grammar.content,
        Start::Reasoning => grammar.reasoning.unwrap_or(grammar.start),
        Start::Default => grammar.start,
    };
    if grammar.nodes[at].state.kind == Kind::Header {
        let message = "is not supported with this model's output format, whose messages have heads";
        return Err(ConstraintError::whole(message));
    }
    let Some(reasoning) = grammar.reasoning else {
        return Ok(None);
    };
    let leading = |from: usize, to: usize| {
        let edges = grammar.nodes[from].edges.iter();
        edges
            .filter(|edge: &&Edge| edge.target == Target::Node(to) && !edge.keep)
            .map(|edge| edge.text.clone())
            .next()
    };
    let Some(close) = leading(reasoning, grammar.content) else {
        return Ok(None);
    };
    if at == reasoning {
        return Ok(Some(Thoughts {
            open: String::new(),
            close,
        }));
    }
    let open = leading(grammar.content, reasoning);
    Ok(open.map(|open| Thoughts { open, close }))
}

fn refusal(param: &str, error: &ConstraintError) -> ApiError {
    ApiError::invalid(param, format!("'{param}' cannot be enforced: {error}."))
}
