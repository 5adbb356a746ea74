//! Holds the types that describe bodies against the readers of bodies.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::*;
use crate::field::ASKED;
use crate::{
    ApiError, BeamFields, Body, ChatRequest, ClassifyRequest, CohereEmbedRequest,
    CompletionRequest, DerenderRequest, DetokenizeRequest, GenerateRequest,
    GenerativeScoringRequest, MessagesRequest, RenderFields, RerankRequest, ResponsesRequest,
    ScoreRequest, TokenizeRequest, VectorsRequest,
};

/// What a reader made of a body: the names of fields that it does not know.
type Read = fn(Body) -> Result<Vec<String>, ApiError>;

/// A body's type and the reader of such bodies.
struct Row {
    name: &'static str,
    schema: Value,
    least: Value,
    read: Read,
}

fn row<T: JsonSchema>(schemas: &mut Schemas, name: &'static str, least: Value, read: Read) -> Row {
    let schema = schemas.body::<T>();
    Row {
        name,
        schema,
        least,
        read,
    }
}

fn rows() -> (Vec<Row>, Map<String, Value>) {
    let all = &mut Schemas::default();
    let says = json!([{"role": "user", "content": "hi"}]);
    let chat = json!({"messages": says});
    let messages = json!({"messages": says, "max_tokens": 9});
    let mut rows = vec![
        row::<ChatBody>(all, "chat", chat.clone(), |mut body| {
            BeamFields::take(&mut body)?;
            ChatRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<ChatBatchBody>(
            all,
            "batch",
            json!({"messages": [says, says]}),
            |mut body| {
                BeamFields::take(&mut body)?;
                let requests = ChatRequest::batch(body)?;
                assert_eq!(requests.len(), 2);
                Ok(requests[0].ignored.clone())
            },
        ),
        row::<CompletionBody>(all, "completion", json!({"prompt": "hi"}), |mut body| {
            BeamFields::take(&mut body)?;
            CompletionRequest::batch(body).map(|requests| requests[0].ignored.clone())
        }),
        row::<MessagesBody>(all, "messages", messages.clone(), |body| {
            MessagesRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<CountBody>(all, "count", chat, |body| {
            MessagesRequest::for_count(body).map(|request| request.ignored)
        }),
        row::<ResponsesBody>(all, "responses", json!({"input": "hi"}), |body| {
            ResponsesRequest::from_body(body).map(|request| request.ignored)
        }),
    ];
    rows.extend(text_rows(all));
    rows.extend(pooling_rows(all));
    (rows, std::mem::take(all).components())
}

/// The rows of the routes between text and token ids.
fn text_rows(all: &mut Schemas) -> Vec<Row> {
    let chat = json!({"messages": [{"role": "user", "content": "hi"}]});
    let generated = json!({"choices": []});
    vec![
        row::<GenerateBody>(all, "generate", json!({"token_ids": [1]}), |body| {
            GenerateRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<TokenizeBody>(all, "tokenize text", json!({"prompt": "hi"}), |body| {
            TokenizeRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<DetokenizeBody>(all, "detokenize", json!({"tokens": [1]}), |body| {
            DetokenizeRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<RenderChatBody>(all, "render chat", chat, |mut body| {
            RenderFields::take(&mut body)?;
            ChatRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<RenderCompletionBody>(
            all,
            "render completion",
            json!({"prompt": "hi"}),
            |mut body| {
                RenderFields::take(&mut body)?;
                CompletionRequest::from_body(body).map(|request| request.ignored)
            },
        ),
        row::<DerenderChatBody>(
            all,
            "derender chat",
            json!({"generate_response": generated}),
            |body| DerenderRequest::chat(body).map(|request| request.ignored),
        ),
        row::<DerenderCompletionBody>(
            all,
            "derender completion",
            json!({"generate_responses": [generated]}),
            |body| DerenderRequest::completion(body).map(|request| request.ignored),
        ),
    ]
}

/// The rows of the routes of vectors, labels and scores.
fn pooling_rows(all: &mut Schemas) -> Vec<Row> {
    let input = json!({"input": "hi"});
    let pairs = json!({"queries": "a", "documents": "b"});
    let likelihood = json!({"query": "a", "items": ["b"], "label_token_ids": [1]});
    vec![
        row::<EmbedBody>(all, "pool embed", input.clone(), |body| {
            VectorsRequest::of_embeddings(body).map(|request| request.ignored)
        }),
        row::<ClassifyBody>(all, "pool classify", input.clone(), |body| {
            ClassifyRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<PoolBody>(all, "pool", input, |body| {
            VectorsRequest::of_pooling(body).map(|(_, request)| request.ignored)
        }),
        row::<CohereBody>(all, "cohere", json!({"texts": ["hi"]}), |body| {
            CohereEmbedRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<ScoreBody>(all, "score", pairs, |body| {
            ScoreRequest::from_body(body).map(|request| request.ignored)
        }),
        row::<RerankBody>(
            all,
            "rerank",
            json!({"query": "a", "documents": ["b"]}),
            |body| RerankRequest::from_body(body).map(|request| request.ignored),
        ),
        row::<LikelihoodBody>(all, "likelihood", likelihood, |body| {
            GenerativeScoringRequest::from_body(body).map(|request| request.ignored)
        }),
    ]
}

/// Follows references.
fn resolved<'a>(schema: &'a Value, components: &'a Map<String, Value>) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => resolved(&components[path.rsplit('/').next().unwrap()], components),
        None => schema,
    }
}

/// The properties of a body; of one of several shapes, the first's.
fn properties<'a>(schema: &'a Value, components: &'a Map<String, Value>) -> &'a Map<String, Value> {
    let schema = resolved(schema, components);
    match schema["properties"].as_object() {
        Some(properties) => properties,
        None => properties_of_first(schema, components),
    }
}

fn properties_of_first<'a>(
    schema: &'a Value,
    components: &'a Map<String, Value>,
) -> &'a Map<String, Value> {
    properties(&schema["anyOf"][0], components)
}

/// A small value that a schema allows.
fn sample(schema: &Value, components: &Map<String, Value>) -> Value {
    let schema = resolved(schema, components);
    for key in ["anyOf", "oneOf"] {
        if let Some(first) = schema[key].get(0) {
            return sample(first, components);
        }
    }
    if let Some(word) = schema["enum"].get(0) {
        return word.clone();
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    let kind = schema["type"]
        .as_str()
        .or_else(|| schema["type"][0].as_str());
    match kind {
        Some("boolean") => json!(false),
        Some("integer") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("number") => json!(0.5),
        Some("array") => match schema.get("items") {
            Some(items) => json!([sample(items, components)]),
            None => json!([]),
        },
        Some("object") => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let fields = required.iter().map(|name| {
                let name = name.as_str().unwrap();
                let value = sample(&schema["properties"][name], components);
                (name.to_owned(), value)
            });
            Value::Object(fields.collect())
        }
        _ => json!("a"),
    }
}

fn with(least: &Value, name: &str, value: Value) -> Body {
    let mut fields = least.as_object().unwrap().clone();
    fields.insert(name.to_owned(), value);
    Body::from(fields)
}

/// Whether a reader knows a field: it takes it, or refuses a body that it reads without the field.
fn known(row: &Row, name: &str, value: Value) -> bool {
    match (row.read)(with(&row.least, name, value)) {
        Ok(ignored) => !ignored.iter().any(|left| left == name),
        Err(_) => true,
    }
}

#[test]
fn the_least_bodies_are_read() {
    for row in rows().0 {
        let body = Body::from(row.least.as_object().unwrap().clone());
        assert_eq!(
            (row.read)(body).unwrap(),
            Vec::<String>::new(),
            "{}",
            row.name
        );
    }
}

#[test]
fn every_field_of_a_schema_is_read() {
    let (rows, components) = rows();
    for row in &rows {
        for (name, schema) in properties(&row.schema, &components) {
            let value = sample(schema, &components);
            assert!(
                known(row, name, value.clone()),
                "{} {name}: {value}",
                row.name
            );
        }
    }
}

/// What another route knows is unknown to one whose schema lacks it, or is refused by name.
#[test]
fn a_field_that_a_schema_lacks_is_not_read() {
    let (rows, components) = rows();
    for row in &rows {
        let own = properties(&row.schema, &components);
        for other in &rows {
            for (name, schema) in properties(&other.schema, &components) {
                if own.contains_key(name) || shapes(row, name) || neutral(name) {
                    continue;
                }
                let value = sample(schema, &components);
                let read = (row.read)(with(&row.least, name, value.clone()));
                let refused = matches!(&read, Err(error) if error.code == "unsupported_parameter");
                let left = matches!(&read, Ok(ignored) if ignored.iter().any(|left| left == name));
                assert!(refused || left, "{} {name}: {value}: {read:?}", row.name);
            }
        }
    }
}

/// Fields that are refused, but not where they ask for nothing, as samples do.
fn neutral(name: &str) -> bool {
    crate::unsupported::names().any(|known| known == name) || name == "n"
}

/// Fields by which a body of a route takes another shape, whose schema stands beside.
fn shapes(row: &Row, name: &str) -> bool {
    ((row.name == "tokenize text" || row.name.starts_with("pool")) && name == "messages")
        || (row.name.starts_with("derender") && name == "stream")
}

#[test]
fn every_field_that_a_reader_asks_for_stands_in_some_schema() {
    let (rows, components) = rows();
    ASKED.with(|asked| asked.borrow_mut().clear());
    for row in &rows {
        let body = Body::from(row.least.as_object().unwrap().clone());
        (row.read)(body).unwrap();
    }
    let asked = ASKED.with(|asked| asked.borrow().clone());
    assert!(asked.len() > 80, "{}", asked.len());
    let mut described = BTreeSet::new();
    for schema in components.values() {
        names(schema, &mut described);
    }
    // Of objects that are only told to be objects, and refused in any case.
    let quiet = [
        "mm_processor_kwargs",
        "media_io_kwargs",
        "data",
        "images",
        "inputs",
        "max_tokens_per_query",
        "container",
        "mcp_servers",
        "fallbacks",
        "conversation",
        "context_management",
        "previous_input_messages",
        "enable_response_messages",
    ];
    let missing: Vec<&String> = asked
        .iter()
        .filter(|name| !described.contains(*name) && !quiet.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no schema describes {missing:?}");
}

/// All names of properties in a schema.
fn names(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let ("properties", Value::Object(properties)) = (key.as_str(), value) {
                    found.extend(properties.keys().cloned());
                }
                names(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        _ => {}
    }
}

#[test]
fn answers_require_what_is_always_there() {
    let mut schemas = Schemas::default();
    schemas.answer::<crate::ChatCompletion>();
    schemas.body::<ChatBody>();
    let components = schemas.components();
    let required = |name: &str| components[name]["required"].clone();
    assert_eq!(
        required("ChatCompletion"),
        json!(["id", "object", "created", "model", "choices", "usage"])
    );
    assert_eq!(required("ChatBody"), json!(["messages"]));
    assert_eq!(
        components["ChatChoice"]["properties"]["logprobs"]["anyOf"][1],
        json!({"type": "null"})
    );
}
