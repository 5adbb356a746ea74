//! Schemas of what clients send and get, for the OpenAPI document: JSON Schema 2020-12, made from types.
//!
//! Answers are the types that are written out. Bodies are read field by field, so each has a type here that only
//! describes it; `tests` holds these against the readers, both ways.

#![expect(
    dead_code,
    reason = "types that describe bodies exist for their schemas"
)]

mod chat;
mod completion;
mod generating;
mod messages;
mod pooling;
mod responses;
mod sampling;
#[cfg(test)]
mod tests;
mod text;

pub use chat::{ChatBatchBody, ChatBody};
pub use completion::{CompletionBody, GenerateBody};
pub use messages::{CountBody, MessagesBody};
pub use pooling::{
    ClassifyBody, CohereBody, EmbedBody, LikelihoodBody, PoolBody, RerankBody, ScoreBody,
};
pub use responses::ResponsesBody;
pub use text::{
    DerenderChatBody, DerenderCompletionBody, DetokenizeBody, RenderChatBody, RenderCompletionBody,
    TokenizeBody,
};

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// Where a document keeps the schemas that others refer to.
const COMPONENTS: &str = "/components/schemas";

/// Makes schemas, and keeps those that several of them share.
#[derive(Debug)]
pub struct Schemas {
    bodies: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Default for Schemas {
    fn default() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = COMPONENTS.into();
                settings.meta_schema = None;
            })
        };
        Self {
            bodies: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }
}

impl Schemas {
    /// The schema of what clients send: what may be left out is not required.
    pub fn body<T: JsonSchema>(&mut self) -> Value {
        self.bodies.subschema_for::<T>().to_value()
    }

    /// The schema of what clients get: what is always there is required.
    pub fn answer<T: JsonSchema>(&mut self) -> Value {
        self.answers.subschema_for::<T>().to_value()
    }

    /// What the schemas refer to, by name.
    #[must_use]
    pub fn components(mut self) -> Map<String, Value> {
        let mut all = self.bodies.take_definitions(true);
        all.extend(self.answers.take_definitions(true));
        all
    }
}

/// A token id.
struct TokenId;

impl JsonSchema for TokenId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TokenId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "integer", "minimum": 0, "maximum": i32::MAX})
    }
}

/// An object whose fields are not described.
type Object = Map<String, Value>;

/// `stream_options`.
#[derive(JsonSchema)]
struct StreamOptionsBody {
    /// Whether the last chunk carries the usage.
    include_usage: Option<bool>,
    /// Whether every chunk carries the usage so far.
    continuous_usage_stats: Option<bool>,
}
