//! Where a model keeps its templates.

use std::path::Path;

use serde_json::{Map, Value};

use crate::chat::ChatTemplate;
use crate::clock::Clock;
use crate::error::LoadError;

/// The name of the template that is used where no other fits.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// The templates of a model, by name.
#[derive(Debug, Default)]
pub struct TemplateSet {
    templates: Vec<(String, ChatTemplate)>,
}

impl TemplateSet {
    /// Finds and compiles a model's templates. Files (`chat_template.jinja`, `additional_chat_templates/*.jinja`) come
    /// before `chat_template` in `tokenizer_config.json`, which is a text or a list of {name, template}, and that before
    /// the older `chat_template.json`. None at all is no error: the set is empty.
    ///
    /// # Errors
    /// A file that cannot be read, a field of another shape, a template that does not compile.
    pub fn load(
        dir: &Path,
        tokenizer_config: &Map<String, Value>,
        clock: &Clock,
    ) -> Result<Self, LoadError> {
        let mut sources = files(dir)?;
        if sources.is_empty() {
            sources = listed(tokenizer_config.get("chat_template"))?;
        }
        if sources.is_empty() {
            sources = older(dir)?;
        }
        let compiled = sources.into_iter().map(|(name, source)| {
            let template = ChatTemplate::compile(&name, &source, clock.clone())?;
            Ok((name, template.remembering()))
        });
        Ok(Self {
            templates: compiled.collect::<Result<_, LoadError>>()?,
        })
    }

    /// A set of one template, which is used for all conversations.
    ///
    /// # Errors
    /// A template that does not compile.
    pub fn of(source: &str, clock: &Clock) -> Result<Self, LoadError> {
        let template = ChatTemplate::compile(DEFAULT, source, clock.clone())?;
        Ok(Self {
            templates: vec![(DEFAULT.to_owned(), template.remembering())],
        })
    }

    /// The template for a conversation: `tool_use` where there are tools and the model has one, else `default`.
    pub fn choose(&self, tools: bool) -> Option<&ChatTemplate> {
        let named = |wanted: &str| {
            self.templates
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, template)| template)
        };
        named(TOOL_USE).filter(|_| tools).or_else(|| named(DEFAULT))
    }

    /// The names of all templates.
    pub fn names(&self) -> Vec<&str> {
        self.templates
            .iter()
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// All templates.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ChatTemplate)> {
        self.templates
            .iter()
            .map(|(name, template)| (name.as_str(), template))
    }
}

fn files(dir: &Path) -> Result<Vec<(String, String)>, LoadError> {
    let mut found = Vec::new();
    if let Some(source) = read(&dir.join("chat_template.jinja"))? {
        found.push((DEFAULT.to_owned(), source));
    }
    let folder = dir.join("additional_chat_templates");
    if folder.is_dir() {
        let unreadable = |error| LoadError::Unreadable(folder.clone(), error);
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .map(str::to_owned);
            let jinja = path
                .extension()
                .is_some_and(|extension| extension == "jinja");
            if let (true, Some(name), Some(source)) = (jinja, name, read(&path)?) {
                found.push((name, source));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads `chat_template.json`, an object with one field, which multimodal models once had.
fn older(dir: &Path) -> Result<Vec<(String, String)>, LoadError> {
    let path = dir.join("chat_template.json");
    let Some(text) = read(&path)? else {
        return Ok(Vec::new());
    };
    let fields: Value =
        serde_json::from_str(&text).map_err(|error| LoadError::Shape(error.to_string()))?;
    listed(fields.get("chat_template"))
}

fn read(path: &Path) -> Result<Option<String>, LoadError> {
    match std::fs::read_to_string(path) {
        Ok(source) => Ok(Some(source)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LoadError::Unreadable(path.to_owned(), error)),
    }
}

fn listed(field: Option<&Value>) -> Result<Vec<(String, String)>, LoadError> {
    let shape =
        |what: &Value| LoadError::Shape(what.to_string().chars().take(80).collect::<String>());
    match field {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(source)) => Ok(vec![(DEFAULT.to_owned(), source.clone())]),
        Some(Value::Array(entries)) => entries
            .iter()
            .map(|entry| {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                text("name")
                    .zip(text("template"))
                    .ok_or_else(|| shape(entry))
            })
            .collect(),
        Some(other) => Err(shape(other)),
    }
}
