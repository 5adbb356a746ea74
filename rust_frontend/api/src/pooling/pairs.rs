//! `POST /score` and `POST /rerank`: how much two texts have to do with each other.

use serde_json::{Map, Value};

use super::input::{self, PoolingOptions};
use super::unknown;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;

/// Names under which the two sides of pairs come.
const SIDES: [(&str, &str); 4] = [
    ("queries", "documents"),
    ("queries", "items"),
    ("data_1", "data_2"),
    ("text_1", "text_2"),
];

/// Two texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The query.
    pub first: String,
    /// The document.
    pub second: String,
}

/// A checked request for scores.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRequest {
    /// At least one, in the order of the answer.
    pub pairs: Vec<Pair>,
    /// The names of the fields with the first and the second texts, for errors.
    pub names: (&'static str, &'static str),
    /// What a template of pairs is told to judge.
    pub instruction: Option<String>,
    /// What all routes of vectors take.
    pub options: PoolingOptions,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl ScoreRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
        let sides = SIDES.iter().find(|(one, other)| has(one) && has(other));
        let Some(&(one, other)) = sides else {
            let absent = SIDES
                .iter()
                .find_map(|(one, other)| match (has(one), has(other)) {
                    (true, _) => Some(*other),
                    (_, true) => Some(*one),
                    _ => None,
                });
            return Err(ApiError::missing(absent.unwrap_or("queries")));
        };
        let (firsts, seconds) = (texts(&mut fields, one)?, texts(&mut fields, other)?);
        if firsts.len() != 1 && firsts.len() != seconds.len() {
            let message = format!(
                "'{one}' has {} texts and '{other}' {}: send one, or as many.",
                firsts.len(),
                seconds.len()
            );
            return Err(ApiError::invalid(one, message));
        }
        let firsts = firsts.iter().cycle();
        let pairs = firsts.zip(seconds).map(|(first, second)| Pair {
            first: first.clone(),
            second,
        });
        Ok(Self {
            pairs: pairs.collect(),
            names: (one, other),
            instruction: instruction(&mut fields)?,
            options: PoolingOptions::take(&mut fields)?,
            ignored: unknown(fields),
        })
    }
}

/// A checked request for documents in order.
#[derive(Debug, Clone, PartialEq)]
pub struct RerankRequest {
    /// What documents are held against.
    pub query: String,
    /// At least one.
    pub documents: Vec<String>,
    /// Documents in the answer; `None`: all.
    pub top_n: Option<usize>,
    /// Whether the answer repeats the documents. Default true.
    pub return_documents: bool,
    /// Tokens of a document that count; `None`: all.
    pub max_tokens_per_doc: Option<usize>,
    /// What a template of pairs is told to judge.
    pub instruction: Option<String>,
    /// What all routes of vectors take.
    pub options: PoolingOptions,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl RerankRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        let query = field::take(&mut fields, "query").ok_or_else(|| ApiError::missing("query"))?;
        let query = text("query", query)?;
        if let Some(most) = count(&mut fields, "max_tokens_per_query")? {
            let message =
                format!("'max_tokens_per_query' is not supported; got {most}. Leave it out.");
            return Err(ApiError::unsupported("max_tokens_per_query", message));
        }
        Ok(Self {
            query,
            documents: texts(&mut fields, "documents")?,
            top_n: count(&mut fields, "top_n")?,
            return_documents: field::boolean(&mut fields, "return_documents")?.unwrap_or(true),
            max_tokens_per_doc: count(&mut fields, "max_tokens_per_doc")?,
            instruction: instruction(&mut fields)?,
            options: PoolingOptions::take(&mut fields)?,
            ignored: unknown(fields),
        })
    }
}

/// An empty one is none.
fn instruction(fields: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    let given = field::string(fields, "instruction")?;
    Ok(given.filter(|text| !text.is_empty()))
}

/// Takes a count of which 0 means all.
fn count(fields: &mut Map<String, Value>, name: &str) -> Result<Option<usize>, ApiError> {
    let given = field::integer(fields, name, 0, "a number of at least 1, or 0 for all")?;
    Ok(given
        .filter(|value| *value > 0)
        .map(|value| usize::try_from(value).unwrap_or(usize::MAX)))
}

/// Takes one text or a list of them.
fn texts(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<String>, ApiError> {
    match field::take(fields, name).ok_or_else(|| ApiError::missing(name))? {
        Value::Array(items) if items.is_empty() => Err(ApiError::invalid(
            name,
            format!("'{name}' must hold at least one text; got an empty list."),
        )),
        Value::Array(items) => {
            input::few(name, items.len())?;
            let one = |(index, item)| text(&format!("{name}.{index}"), item);
            items.into_iter().enumerate().map(one).collect()
        }
        other => Ok(vec![text(name, other)?]),
    }
}

/// A string, or an object with one under `text`.
fn text(name: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(mut fields) => match fields.remove("text") {
            Some(Value::String(text)) => Ok(text),
            _ => {
                let message = format!(
                    "'{name}' must be a string, or an object with 'text'; media are not supported."
                );
                Err(ApiError::invalid(name, message))
            }
        },
        other => Err(field::wrong(name, "a string", &other)),
    }
}
