//! Which parsers the answers of a model go through, and how one request uses them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_api::{ApiError, ChatRequest, ToolChoice};
use octavo_grammar::constraint::Messages;
use octavo_grammar::{
    Calls, ChoiceNone, Detected, Format, FormatError, Found, Grammar, RESPONSE_TEMPLATE, Registry,
};
use octavo_parser::{Machine, Specials, Start, Tools};
use octavo_template::TemplateSet;
use octavo_tokenizer::Tokenizer;
use serde_json::Value;

use crate::renderer::LoadError;

/// The name that leaves the choice to us.
const AUTO: &str = "auto";

/// Of a prompt of which nothing is known, so many last bytes say where the answer begins.
const TAIL: usize = 64 << 10;

/// What the server's user chose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParserSettings {
    /// A name of `--tool-call-parser`, or `auto`.
    pub tool: Option<String>,
    /// A name of `--reasoning-parser`, or `auto`.
    pub reasoning: Option<String>,
    /// Whether a request may leave it to the model to call tools.
    pub auto_tool_choice: bool,
    /// Files of further formats; their names win over those that ship.
    pub format_files: Vec<PathBuf>,
}

/// The parsers of one model.
#[derive(Debug, Default)]
pub(crate) struct Parsers {
    tool: Option<Format>,
    auto_tool_choice: bool,
    auto_found_nothing: bool,
    reasons: bool,
    /// None where neither format is chosen: answers are text.
    machines: Option<Machines>,
    specials: Arc<Specials>,
    /// Where messages have heads.
    messages: Option<Messages>,
    /// What was chosen and why, for the log.
    notes: Vec<String>,
}

/// One machine for each thing a request may ask.
#[derive(Debug)]
struct Machines {
    parse: [Arc<Machine>; 2],
    plain: [Arc<Machine>; 2],
}

impl Machines {
    fn new(tool: Option<&Format>, reasoning: Option<&Format>) -> Self {
        let machine = |calls: Calls, thinking: bool| {
            Machine::new(Grammar::compose(tool, reasoning, calls, thinking))
        };
        let both = |calls: Calls| [machine(calls, false), machine(calls, true)];
        let unwanted = match tool.map(|tool| tool.choice_none) {
            Some(ChoiceNone::Drop) => Calls::Drop,
            Some(ChoiceNone::Text) | None => Calls::Text,
        };
        Self {
            parse: both(Calls::Parse),
            plain: both(unwanted),
        }
    }

    fn choose(&self, calls: bool, thinking: bool) -> &Arc<Machine> {
        let pair = if calls { &self.parse } else { &self.plain };
        &pair[usize::from(thinking)]
    }
}

/// How one output is parsed. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ParsePlan {
    pub(crate) machine: Arc<Machine>,
    pub(crate) tools: Tools,
    /// Whether tool calls are looked for.
    pub(crate) calls: bool,
    pub(crate) start: Start,
    pub(crate) parallel: bool,
    pub(crate) counts_reasoning: bool,
    pub(crate) specials: Arc<Specials>,
    /// Where messages have heads.
    pub(crate) messages: Option<Messages>,
}

impl Parsers {
    /// Reads format files and finds the formats that were chosen.
    ///
    /// # Errors
    /// A file that cannot be read or is no format; a name that no format has.
    pub(crate) fn load(
        settings: &ParserSettings,
        own: Option<Result<Format, FormatError>>,
        templates: &TemplateSet,
        tokenizer: &Tokenizer,
    ) -> Result<Self, LoadError> {
        let mut registry = registry(settings)?;
        let mut notes = Vec::new();
        let template = own_template(settings, own, &mut notes)?;
        let detected = detect(&registry, templates, tokenizer);
        let own = template.map(|template| registry.insert(template));
        let own = own.map(|own| (!own.tool.is_empty(), !own.reasoning.is_empty()));
        let (calls, thinks) = own.unwrap_or_default();
        let tool = match settings.tool.as_deref() {
            Some(AUTO) => found(&mut notes, "tool call", detected.tool, calls),
            given => given.map(str::to_owned),
        };
        let reasoning = match settings.reasoning.as_deref() {
            Some(AUTO) => found(&mut notes, "reasoning", detected.reasoning, thinks),
            given => given.map(str::to_owned),
        };
        let tool = tool.map(|name| registry.find_tool(&name)).transpose()?;
        let reasoning = reasoning
            .map(|name| registry.find_reasoning(&name))
            .transpose()?;
        let chosen = tool.is_some() || reasoning.is_some();
        Ok(Self {
            tool: tool.cloned(),
            auto_tool_choice: settings.auto_tool_choice,
            auto_found_nothing: settings.tool.is_some() && tool.is_none(),
            reasons: reasoning.is_some(),
            machines: chosen.then(|| Machines::new(tool, reasoning)),
            specials: Arc::new(Specials::new(tokenizer.special_texts())),
            messages: reasoning.or(tool).and_then(Messages::of),
            notes,
        })
    }

    /// What was chosen and why, one line each.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether answers are parsed at all.
    pub(crate) fn any(&self) -> bool {
        self.machines.is_some()
    }

    /// The format of calls, where one is chosen.
    pub(crate) fn tool(&self) -> Option<&Format> {
        self.tool.as_ref()
    }

    /// Checks that calls which a request wants can be read.
    ///
    /// # Errors
    /// 400: there is no parser, or the server does not leave calls to the model.
    pub(crate) fn permit(&self, request: &ChatRequest) -> Result<(), ApiError> {
        if !request.tools.wants_calls() {
            return Ok(());
        }
        if self.tool.is_none() {
            let why = if self.auto_found_nothing {
                "--tool-call-parser auto found no format that it knows in the model's chat template and tokens. Name one by \
                 --tool-call-parser NAME or describe it in a --format-file"
            } else {
                "this server was started without a parser for the model's tool calls. Start it with \
                 --enable-auto-tool-choice --tool-call-parser NAME (or auto)"
            };
            let message =
                format!("'tools' cannot be used here: {why}, or send \"tool_choice\": \"none\".");
            return Err(ApiError::unsupported("tools", message));
        }
        if request.tools.choice == ToolChoice::Auto && !self.auto_tool_choice {
            let message = "'tool_choice' \"auto\" cannot be used here: this server was started without \
                           --enable-auto-tool-choice. Start it with that flag, or send \"required\", \"none\" or the name \
                           of a tool.";
            return Err(ApiError::unsupported("tool_choice", message));
        }
        Ok(())
    }

    /// Returns how the answer to a prompt is parsed; `None`: it is text. `unbegun` renders the prompt without the head of
    /// the answer; it is asked where no known turn stands in the prompt.
    pub(crate) fn plan(
        &self,
        request: &ChatRequest,
        prompt: &str,
        unbegun: impl FnOnce() -> Option<String>,
    ) -> Option<ParsePlan> {
        let machines = self.machines.as_ref()?;
        let calls = request.tools.wants_calls();
        let machine = machines.choose(calls, thinking(request));
        Some(ParsePlan {
            machine: Arc::clone(machine),
            tools: Tools::from_json(&request.tools.tools),
            calls,
            start: Start::After(tail(machine.grammar(), prompt, unbegun).to_owned()),
            parallel: request.tools.parallel || !calls,
            counts_reasoning: self.reasons,
            specials: Arc::clone(&self.specials),
            messages: self.messages.clone(),
        })
    }
}

/// The formats that a model's templates and tokens speak of.
pub(crate) fn detect(
    registry: &Registry,
    templates: &TemplateSet,
    tokenizer: &Tokenizer,
) -> Detected {
    let source: String = templates
        .iter()
        .map(|(_, template)| template.source())
        .collect();
    registry.detect(&source, |text| tokenizer.token_to_id(text).is_some())
}

fn registry(settings: &ParserSettings) -> Result<Registry, LoadError> {
    let mut registry = Registry::builtin()?;
    for path in &settings.format_files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| LoadError::FormatFile(path.clone(), error.to_string()))?;
        registry.add(&path.display().to_string(), &text)?;
    }
    Ok(registry)
}

/// The response template in the model's `tokenizer_config.json` as a format; `None` where it has none.
pub(crate) fn response_template(dir: &Path) -> Option<Result<Format, FormatError>> {
    let path = dir.join("tokenizer_config.json");
    let text = std::fs::read_to_string(&path).ok()?;
    let config: Value = serde_json::from_str(&text).ok()?;
    let template = config
        .get(RESPONSE_TEMPLATE)
        .filter(|value| !value.is_null())?;
    Some(Format::from_response_template(
        &path.display().to_string(),
        template,
    ))
}

/// The model's own template where it is wanted. One that cannot be read matters only where it is asked for by name.
fn own_template(
    settings: &ParserSettings,
    own: Option<Result<Format, FormatError>>,
    notes: &mut Vec<String>,
) -> Result<Option<Format>, LoadError> {
    let asked = [&settings.tool, &settings.reasoning].map(Option::as_deref);
    let by_name = asked.contains(&Some(RESPONSE_TEMPLATE));
    if !by_name && !asked.contains(&Some(AUTO)) {
        return Ok(None);
    }
    match own {
        None if by_name => {
            let why = format!("it has no {RESPONSE_TEMPLATE}");
            Err(LoadError::FormatFile("tokenizer_config.json".into(), why))
        }
        None => Ok(None),
        Some(Ok(format)) => Ok(Some(format)),
        Some(Err(error)) if by_name => Err(error.into()),
        Some(Err(error)) => {
            notes.push(format!(
                "the model's response template is not used: {error}"
            ));
            Ok(None)
        }
    }
}

/// Notes what `auto` found, and returns its name. `template`: the model's response template says it, too.
fn found(
    notes: &mut Vec<String>,
    what: &str,
    found: Option<Found>,
    template: bool,
) -> Option<String> {
    let Some(found) = found else {
        if template {
            notes.push(format!(
                "{what} parser auto: {RESPONSE_TEMPLATE}, from the model's tokenizer_config.json"
            ));
            return Some(RESPONSE_TEMPLATE.to_owned());
        }
        notes.push(format!(
            "{what} parser auto: the model's chat template and tokens match no known format; none is used. Name one, or \
             describe the format in a --format-file"
        ));
        return None;
    };
    let because: Vec<String> = found
        .because
        .iter()
        .map(|text| format!("{text:?}"))
        .collect();
    notes.push(format!(
        "{what} parser auto: {}, as the model's chat template or tokens have {}",
        found.name,
        because.join(", ")
    ));
    Some(found.name)
}

/// Whether the request leaves thinking on, by the names that templates know.
fn thinking(request: &ChatRequest) -> bool {
    ["enable_thinking", "thinking"]
        .iter()
        .all(|name| request.template.kwargs.get(*name) != Some(&Value::Bool(false)))
}

/// The part of a prompt that says where the answer begins: from the head of the last turn, or what the template wrote
/// behind the last message. What stands in messages says nothing.
fn tail<'a>(
    grammar: &Grammar,
    prompt: &'a str,
    unbegun: impl FnOnce() -> Option<String>,
) -> &'a str {
    let turns = grammar.turns.iter();
    if let Some(at) = turns.filter_map(|turn| prompt.rfind(turn.as_str())).max() {
        return &prompt[at..];
    }
    let head = unbegun().and_then(|unbegun| prompt.strip_prefix(unbegun.as_str()));
    head.filter(|head| !head.is_empty())
        .unwrap_or_else(|| &prompt[prompt.floor_char_boundary(prompt.len().saturating_sub(TAIL))..])
}
