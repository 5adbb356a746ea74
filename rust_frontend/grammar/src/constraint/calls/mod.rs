//! Tool calls that a grammar forces, from the texts of their format.

mod arguments;
mod raw;
mod triggers;
mod values;

use std::collections::BTreeMap;

use serde_json::Value;

use self::arguments::Writer;
use self::triggers::Triggers;
use super::error::ConstraintError;
use super::heads::{Messages, Place};
use super::lark::Specials;
use super::rules::Rules;
use super::schema::{self, SchemaOptions};
use super::sources::{Constraint, Kind};
use crate::format::Format;
use crate::render::Render;
use crate::state::Kind as StateKind;

/// Most calls of one answer where each call is written with its number.
const MAX_NUMBERED: usize = 16;

/// One tool that may be called.
#[derive(Debug, Clone, Copy)]
pub struct GuidedTool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The schema of its arguments.
    pub parameters: Option<&'a Value>,
    /// Whether the schema must be enforced; else a schema that cannot be is read as any object.
    pub strict: bool,
}

impl<'a> GuidedTool<'a> {
    /// Reads a function as clients send it.
    pub fn read(function: &'a Value) -> Option<Self> {
        Some(Self {
            name: function.get("name")?.as_str()?,
            parameters: function
                .get("parameters")
                .filter(|schema| !schema.is_null()),
            strict: function.get("strict") == Some(&Value::Bool(true)),
        })
    }
}

/// Which calls an answer may hold.
#[derive(Debug, Clone, Copy)]
pub struct Guided {
    /// Nothing but calls, at least one; else text, and calls where the format's trigger stands in it.
    pub required: bool,
    /// More than one.
    pub parallel: bool,
    /// Where the answer begins, in formats whose messages have heads.
    pub place: Place,
}

/// Makes the constraint of an answer with calls of these tools. Where messages have heads it has the thoughts before them.
///
/// # Errors
/// The tool whose schema cannot be enforced; a format that no grammar is made for.
pub fn calls(
    format: &Format,
    tools: &[GuidedTool<'_>],
    wanted: Guided,
    specials: &Specials,
) -> Result<Constraint, ConstraintError> {
    let Some(render) = &format.render else {
        return Err(ConstraintError::whole(
            "this output format does not say how calls are written",
        ));
    };
    let mut grammar = Calls {
        format,
        render,
        rules: Rules::new(specials),
        arguments: BTreeMap::new(),
    };
    let start = match Messages::of(format) {
        Some(messages) => grammar.in_messages(&messages, tools, wanted)?,
        None if wanted.required => grammar.section(tools, wanted, "")?,
        None => grammar.in_text(tools, wanted)?,
    };
    Ok(Constraint::raw(Kind::Lark, grammar.rules.grammar(&start)))
}

/// The texts that begin a call inside of thoughts: a grammar that forces calls keeps them out of there.
pub fn call_markers(format: &Format) -> Vec<String> {
    triggers::markers(format)
}

struct Calls<'a> {
    format: &'a Format,
    render: &'a Render,
    rules: Rules<'a>,
    /// Rules of arguments by tool.
    arguments: BTreeMap<String, String>,
}

type Rule = Result<String, ConstraintError>;

impl Calls<'_> {
    /// Text, and calls behind the format's triggers.
    fn in_text(&mut self, tools: &[GuidedTool<'_>], wanted: Guided) -> Rule {
        let triggers = Triggers::of(self.format, self.render, tools)?;
        let without = triggers.all();
        let mut options = Vec::new();
        for (trigger, callable) in triggers.callable(tools) {
            let apart: Vec<String> = without
                .iter()
                .filter(|text| **text != trigger)
                .cloned()
                .collect();
            let text = self.rules.until(&trigger, &apart, None);
            let section = self.section(&callable, wanted, &trigger)?;
            options.push(self.rules.rule(&format!("{text} {section}")));
        }
        let text = self.rules.free_text(&without);
        let repeat = if wanted.parallel { "*" } else { "?" };
        Ok(format!("({}){repeat} {text}", options.join(" | ")))
    }

    /// Messages with heads: thoughts, then calls or an answer.
    fn in_messages(
        &mut self,
        messages: &Messages,
        tools: &[GuidedTool<'_>],
        wanted: Guided,
    ) -> Rule {
        let section = self.section(tools, wanted, "")?;
        let section = self.rules.rule(&section);
        let thought = messages.thought(&mut self.rules);
        if wanted.required {
            let begun = messages.begun(&mut self.rules, wanted.place);
            return Ok(format!("{begun} {thought}* {section}"));
        }
        let before = match messages.preamble(&mut self.rules) {
            Some(preamble) => format!("({thought} | {preamble})*"),
            None => format!("{thought}*"),
        };
        let without = triggers::markers(self.format);
        let text = self.rules.free_text(&without);
        if wanted.place == Place::Content {
            let said = messages.said(&mut self.rules);
            return Ok(format!("{text} | {said} {before} {section}"));
        }
        let begun = messages.begun(&mut self.rules, wanted.place);
        let open = self.rules.specials.expression(&messages.answer.0);
        Ok(format!("{begun} {before} ({section} | {open} {text})"))
    }

    /// One call or several, with the texts around them, less what `said` has written.
    fn section(&mut self, tools: &[GuidedTool<'_>], wanted: Guided, said: &str) -> Rule {
        let shapes = || tools.iter().map(|tool| tool.name);
        let numbered =
            shapes().any(|name| self.render.shape(name, 0) != self.render.shape(name, 1));
        let first = self.one_of(tools, 0, said)?;
        // A call that ends with an end token is the last.
        let last = shapes()
            .filter_map(|name| self.render.shape(name, 0))
            .any(|shape| self.rules.specials.without_end(&shape.end) != shape.end);
        let more = if !wanted.parallel || last {
            String::new()
        } else if numbered {
            let mut tail = String::new();
            for index in (1..MAX_NUMBERED).rev() {
                let call = self.one_of(tools, index, "")?;
                tail = self.rules.rule(&format!("({call} {tail})?"));
            }
            tail
        } else {
            let again = self.one_of(tools, 1, "")?;
            format!("{again}*")
        };
        let close = self.rules.specials.without_end(&self.render.close);
        let close = self.rules.specials.expression(close);
        Ok(format!("{first} {more} {close}"))
    }

    /// One call of any tool: the first with the opening before it, others behind the join.
    fn one_of(&mut self, tools: &[GuidedTool<'_>], index: usize, said: &str) -> Rule {
        let mut options = Vec::new();
        for tool in tools {
            let shape = self
                .render
                .shape(tool.name, index)
                .ok_or_else(|| ConstraintError::whole("this output format has no calls"))?;
            let before = if index == 0 { &shape.open } else { &shape.join };
            let begin = format!("{before}{}", shape.begin);
            let begin = begin.strip_prefix(said).unwrap_or(&begin);
            let arguments = self.arguments(tool)?;
            let end = self.rules.specials.without_end(&shape.end);
            options.push(format!(
                "{} {arguments} {}",
                self.rules.specials.expression(begin),
                self.rules.specials.expression(end)
            ));
        }
        Ok(self.rules.rule(&options.join(" | ")))
    }

    fn arguments(&mut self, tool: &GuidedTool<'_>) -> Rule {
        if let Some(rule) = self.arguments.get(tool.name) {
            return Ok(rule.clone());
        }
        let values = self.format.states.values();
        let markers: Vec<String> = values
            .filter(|state| state.kind == StateKind::Value)
            .flat_map(|state| state.on.keys())
            .filter_map(|name| self.format.markers.get(name))
            .flat_map(|marker| marker.texts().0.iter().cloned())
            .collect();
        let mut writer = Writer {
            rules: &mut self.rules,
            render: self.render,
            markers: &markers,
        };
        let rule = writer
            .write(tool)
            .map_err(|error| error.within(tool.name))?;
        self.arguments.insert(tool.name.to_owned(), rule.clone());
        Ok(rule)
    }
}

/// A schema as it is enforced; where it cannot be and need not, `loose` in its place.
fn enforced(schema: &Value, strict: bool, loose: &Value) -> Result<Value, ConstraintError> {
    let options = SchemaOptions {
        closed: strict,
        ..SchemaOptions::default()
    };
    match schema::lower(schema, &options).and_then(|lowered| {
        schema::compiles(&lowered)?;
        Ok(lowered)
    }) {
        Err(error) if strict => Err(error.within("parameters")),
        Err(_) => schema::lower(loose, &SchemaOptions::default()),
        Ok(lowered) => Ok(lowered),
    }
}
