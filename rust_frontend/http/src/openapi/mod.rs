//! `/openapi.json`: an OpenAPI 3.1 document of all routes, made from the table of routes and the types of bodies and answers;
//! and `/docs`, a page that shows it without anything from elsewhere.

mod operations;

use std::sync::LazyLock;

use axum::response::{Html, IntoResponse};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use octavo_api::{AnthropicErrorBody, ErrorBody, Schemas};
use octavo_edge::Access;
use serde_json::{Map, Value, json};

use crate::app::ACCESS;
use operations::{Operation, Parameter};

static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(document(octavo_wire::VERSION).to_string()));

/// A header: its name, what it says, and its schema.
type Header = (&'static str, &'static str, fn() -> Value);

/// Headers that go before fields of bodies.
const HEADERS: [Header; 3] = [
    (
        "x-data-parallel-rank",
        "The engine core that must serve the request, from 0; goes before `data_parallel_rank`.",
        || json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
    ),
    (
        "x-session-id",
        "The session that the request belongs to; goes before `session_id`.",
        || json!({"type": "string", "minLength": 1, "maxLength": 256}),
    ),
    (
        "x-vllm-priority",
        "Lower is served earlier; goes before `priority`.",
        || json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}),
    ),
];

/// The document.
pub(crate) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

/// The page.
pub(crate) async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

const ABOUT: &str = "An LLM serving engine with the routes of OpenAI, Anthropic and vLLM. docs/api.md says what each field \
                     does. Fields that no schema names change nothing; the header x-octavo-warning names them.";

/// Makes the document of a server of this version.
#[must_use]
pub fn document(version: &str) -> Value {
    let mut schemas = Schemas::default();
    let errors = (
        schemas.answer::<ErrorBody>(),
        schemas.answer::<AnthropicErrorBody>(),
    );
    let mut paths = Map::new();
    for operation in operations::all(&mut schemas) {
        let anthropic = operation.path.starts_with("/v1/messages");
        let error = if anthropic { &errors.1 } else { &errors.0 };
        let path = operation.path.replace("{*", "{");
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[operation.method] = described(&operation, error);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "octavo", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    })
}

fn described(operation: &Operation, error: &Value) -> Value {
    let access = ACCESS.iter().find(|(path, _)| *path == operation.path);
    let access = access.map(|(_, access)| *access);
    let mut all = json!({
        "summary": operation.summary,
        "operationId": operation_id(operation),
        "tags": [operation.kind.tag()],
        "responses": responses(operation, access, error),
        "security": security(access),
    });
    let parameters = parameters(operation);
    if !parameters.is_empty() {
        all["parameters"] = parameters.into();
    }
    if let Some(body) = &operation.body {
        let mut content = json!({"schema": body.schema});
        if let Some(example) = &body.example {
            content["example"] = example.clone();
        }
        all["requestBody"] =
            json!({"required": body.required, "content": {"application/json": content}});
    }
    all
}

/// The path in one word: `post_v1_chat_completions`.
fn operation_id(operation: &Operation) -> String {
    let words = operation.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let words: Vec<&str> = std::iter::once(operation.method).chain(words).collect();
    words.join("_")
}

/// Where keys are configured: any of these. Where none are, every route is open.
fn security(access: Option<Access>) -> Value {
    match access {
        Some(Access::Open) => json!([]),
        _ => json!([{}, {"bearer": []}, {"key": []}]),
    }
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let in_path = operation.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.trim_start_matches('*'))
    });
    let in_path = in_path.map(|name| {
        let schema = json!({"type": "string", "minLength": 1});
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    let in_header = HEADERS.iter().filter(|_| operation.queued());
    let in_header = in_header.map(|(name, told, schema)| {
        json!({"name": name, "in": "header", "required": false, "description": told, "schema": schema()})
    });
    let in_query = operation.query.iter().map(|Parameter { name, schema }| {
        json!({"name": name, "in": "query", "required": false, "schema": schema})
    });
    in_path.chain(in_query).chain(in_header).collect()
}

fn responses(operation: &Operation, access: Option<Access>, error: &Value) -> Map<String, Value> {
    let mut responses = Map::new();
    let text = json!({"schema": {"type": "string"}});
    let mut content = match &operation.answer {
        Some(schema) => json!({"application/json": {"schema": schema}}),
        None => json!({operation.kind.text_type(): text}),
    };
    if let Some(event) = &operation.event {
        let told = "Server-sent events. The data of each is one JSON object (x-event); the routes of OpenAI and vLLM end \
                    with `data: [DONE]`.";
        content["text/event-stream"] =
            json!({"schema": {"type": "string", "description": told}, "x-event": event});
    }
    if operation.bytes {
        content["application/octet-stream"] =
            json!({"schema": {"type": "string", "format": "binary"}});
    }
    let mut done = json!({"description": "Done.", "content": content});
    if operation.body.is_some() {
        let told = "Names the fields that have no effect.";
        done["headers"] =
            json!({"x-octavo-warning": {"description": told, "schema": {"type": "string"}}});
    }
    responses.insert("200".to_owned(), done);
    let open = access == Some(Access::Open);
    for (status, why) in operation.refusals(open) {
        let mut refusal =
            json!({"description": why, "content": {"application/json": {"schema": error}}});
        if ["429", "503"].contains(&status) {
            let told = "Seconds after which to try again.";
            refusal["headers"] =
                json!({"retry-after": {"description": told, "schema": {"type": "integer"}}});
        }
        responses.insert(status.to_owned(), refusal);
    }
    responses
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The table of routes, and the document beside it; methods of gRPC are described by its own protocol.
    #[test]
    fn every_route_of_the_table_is_described_and_no_other() {
        let document = document("0");
        let described: BTreeSet<String> = document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        let listed: BTreeSet<String> = ACCESS
            .iter()
            .filter(|(path, _)| !path.ends_with("/{method}"))
            .map(|(path, _)| path.replace("{*", "{"))
            .collect();
        let missing: Vec<_> = listed.difference(&described).collect();
        assert!(missing.is_empty(), "add to operations.rs: {missing:?}");
        let unknown: Vec<_> = described.difference(&listed).collect();
        assert!(unknown.is_empty(), "no such routes: {unknown:?}");
    }

    #[test]
    fn references_lead_somewhere() {
        fn follow(value: &Value, components: &Map<String, Value>) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(path)) = fields.get("$ref") {
                        let name = path.strip_prefix("#/components/schemas/").unwrap();
                        assert!(components.contains_key(name), "{path}");
                    }
                    fields.values().for_each(|value| follow(value, components));
                }
                Value::Array(items) => items.iter().for_each(|item| follow(item, components)),
                _ => {}
            }
        }
        let document = document("0");
        follow(
            &document,
            document["components"]["schemas"].as_object().unwrap(),
        );
    }

    /// `OCTAVO_WRITE_OPENAPI=1 cargo test -p octavo-http openapi` writes the file.
    #[test]
    fn the_document_in_docs_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let text = serde_json::to_string_pretty(&document(octavo_wire::VERSION)).unwrap() + "\n";
        if std::env::var_os("OCTAVO_WRITE_OPENAPI").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "docs/openapi.json is old: OCTAVO_WRITE_OPENAPI=1 cargo test -p octavo-http openapi"
        );
    }
}
