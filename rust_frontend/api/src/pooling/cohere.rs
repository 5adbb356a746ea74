//! `POST /v2/embed`, as Cohere's clients call it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::input::{self, PooledInput, PoolingOptions};
use super::unknown;
use super::vectors::dimensions;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;
use crate::scheduling::SchedulingFields;
use crate::truncation::Truncation;

/// A form in which vectors are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CohereType {
    /// Lists of numbers.
    Float,
    /// Base64 of float32.
    Base64,
    /// The signs, eight to a byte from -128 to 127.
    Binary,
    /// The signs, eight to a byte from 0 to 255.
    Ubinary,
}

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct CohereEmbedRequest {
    /// At least one.
    pub texts: Vec<String>,
    /// What the texts are for, such as "`search_query`"; `None`: nothing stands in front of them.
    pub input_type: Option<String>,
    /// Numbers of a vector.
    pub dimensions: Option<u32>,
    /// At least one.
    pub types: Vec<CohereType>,
    /// What all routes of vectors take.
    pub options: PoolingOptions,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl CohereEmbedRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        for name in ["images", "inputs"] {
            if field::list(&mut fields, name)?.is_some_and(|items| !items.is_empty()) {
                let message = format!("'{name}' is not supported: send 'texts'.");
                return Err(ApiError::unsupported(name, message));
            }
        }
        let texts = field::list(&mut fields, "texts")?.ok_or_else(|| ApiError::missing("texts"))?;
        let found = input::texts("texts", Value::Array(texts))?;
        let text = |(index, input)| match input {
            PooledInput::Text(text) => Ok(text),
            _ => Err(ApiError::invalid(
                format!("texts.{index}"),
                "'texts' must hold strings.",
            )),
        };
        let priority = field::integer(&mut fields, "priority", i64::MIN, "an integer")?;
        Ok(Self {
            texts: found
                .into_iter()
                .enumerate()
                .map(text)
                .collect::<Result<_, _>>()?,
            input_type: field::string(&mut fields, "input_type")?,
            dimensions: dimensions(&mut fields, "output_dimension")?,
            types: types(&mut fields)?,
            options: PoolingOptions {
                truncation: truncation(&mut fields)?,
                scheduling: SchedulingFields {
                    priority: priority.unwrap_or(0),
                    ..SchedulingFields::default()
                },
                ..PoolingOptions::default()
            },
            ignored: unknown(fields),
        })
    }
}

fn types(fields: &mut Map<String, Value>) -> Result<Vec<CohereType>, ApiError> {
    const NAME: &str = "embedding_types";
    let known = [
        ("float", CohereType::Float),
        ("base64", CohereType::Base64),
        ("binary", CohereType::Binary),
        ("ubinary", CohereType::Ubinary),
    ];
    let items = field::list(fields, NAME)?.unwrap_or_default();
    let mut types = Vec::with_capacity(items.len());
    for item in items {
        let found = known.iter().find(|(word, _)| item == *word);
        let (_, kind) = found.ok_or_else(|| {
            let wanted = "a list of float, base64, binary, ubinary";
            ApiError::invalid(
                NAME,
                format!("'{NAME}' must be {wanted}; got {}.", field::shown(&item)),
            )
        })?;
        if !types.contains(kind) {
            types.push(*kind);
        }
    }
    if types.is_empty() {
        types.push(CohereType::Float);
    }
    Ok(types)
}

/// Cohere cuts texts unless it is told not to.
fn truncation(fields: &mut Map<String, Value>) -> Result<Option<Truncation>, ApiError> {
    let most = field::integer(fields, "max_tokens", 1, "a number of at least 1")?;
    let tokens = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let word = field::string(fields, "truncate")?.map(|word| word.to_ascii_uppercase());
    let left = match word.as_deref() {
        None | Some("END") => false,
        Some("START") => true,
        Some("NONE") if tokens.is_none() => return Ok(None),
        Some("NONE") => {
            let message = "'max_tokens' cuts texts, and 'truncate' is \"NONE\": leave one out.";
            return Err(ApiError::invalid("max_tokens", message));
        }
        Some(_) => {
            let message = "'truncate' must be \"NONE\", \"START\" or \"END\".";
            return Err(ApiError::invalid("truncate", message));
        }
    };
    Ok(Some(Truncation { tokens, left }))
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CohereEmbedAnswer {
    /// Of the answer.
    pub id: String,
    /// By type, each in the order of the request.
    pub embeddings: CohereEmbeddings,
    /// As they came.
    pub texts: Vec<String>,
    /// What it cost.
    pub meta: CohereMeta,
    /// "`embeddings_by_type`".
    pub response_type: &'static str,
}

/// Vectors in the forms that were asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct CohereEmbeddings {
    /// Lists of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub float: Option<Vec<Vec<f32>>>,
    /// Base64 of float32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<Vec<String>>,
    /// Signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<Vec<Vec<i8>>>,
    /// Signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ubinary: Option<Vec<Vec<u8>>>,
}

/// About the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CohereMeta {
    /// Of the API.
    pub api_version: CohereVersion,
    /// Tokens.
    pub billed_units: CohereUnits,
}

/// Of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CohereVersion {
    /// "2".
    pub version: &'static str,
}

/// Tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CohereUnits {
    /// Of all texts.
    pub input_tokens: usize,
}
