//! Routes that change the engine's state, with vLLM's names: pause, sleep, weights, caches. All need the role admin.
//!
//! They are a table. What an operation may do when is the engine's to say; here arguments are read and answers worded.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::routing::{MethodFilter, on};
use axum::{Json, Router};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use octavo_api::{ApiError, Body};
use octavo_edge::Refusal;
use serde_json::{Value, json};

use crate::app::AppState;
use crate::refusal::of_generate;

type Map = BTreeMap<String, String>;

/// A field of a body.
#[derive(Clone, Copy)]
enum Field {
    /// An object that must be there, passed on as JSON.
    Object(&'static str),
    /// A list that may be there, passed on as JSON.
    List(&'static str),
    /// A string that may be there.
    Text(&'static str),
}

/// One route.
struct Operation {
    path: &'static str,
    reads: bool,
    /// Of the engine.
    op: &'static str,
    /// Names that the query may hold; a name that comes several times is a list.
    query: &'static [&'static str],
    body: &'static [Field],
    answer: fn(&Map) -> Value,
}

const fn post(path: &'static str, op: &'static str, answer: fn(&Map) -> Value) -> Operation {
    Operation {
        path,
        reads: false,
        op,
        query: &[],
        body: &[],
        answer,
    }
}

const fn get(path: &'static str, op: &'static str, answer: fn(&Map) -> Value) -> Operation {
    Operation {
        reads: true,
        ..post(path, op, answer)
    }
}

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    Operation { query: &["mode", "clear_cache"], ..post("/pause", "pause", |_| json!({"status": "paused"})) },
    post("/resume", "resume", |_| json!({"status": "resumed"})),
    get("/is_paused", "is_paused", |result| flag(result, "is_paused")),
    Operation { query: &["level", "mode"], ..post("/sleep", "sleep", |_| json!({"status": "sleeping"})) },
    Operation { query: &["tags"], ..post("/wake_up", "wake_up", |_| json!({"status": "awake"})) },
    get("/is_sleeping", "is_sleeping", |result| flag(result, "is_sleeping")),
    Operation { body: &[Field::List("request_ids")], ..post("/abort_requests", "abort_requests", aborted) },
    Operation {
        body: &[Field::Object("init_info")],
        ..post("/init_weight_transfer_engine", "init_weight_transfer_engine", texts)
    },
    post("/start_weight_update", "start_weight_update", texts),
    post("/start_draft_weight_update", "start_draft_weight_update", texts),
    Operation { body: &[Field::Object("update_info")], ..post("/update_weights", "update_weights", texts) },
    Operation { body: &[Field::Text("weight_version")], ..post("/finish_weight_update", "finish_weight_update", texts) },
    post("/abort_weight_update", "abort_weight_update", texts),
    Operation { body: &[Field::Text("new_version")], ..post("/update_weight_version", "update_weight_version", renamed) },
    get("/weight_info", "weight_info", texts),
    Operation { query: &["include_dp"], ..get("/get_world_size", "server_info", world_size) },
    Operation {
        query: &["reset_running_requests", "reset_external"],
        ..post("/reset_prefix_cache", "reset_prefix_cache", |_| json!({"success": true}))
    },
    post("/reset_mm_cache", "reset_mm_cache", texts),
    post("/reset_encoder_cache", "reset_encoder_cache", texts),
];

/// An operation as clients see it.
pub(crate) struct Described {
    pub(crate) path: &'static str,
    pub(crate) reads: bool,
    pub(crate) summary: String,
    pub(crate) query: &'static [&'static str],
    /// The schema of the body, and whether there must be one.
    pub(crate) body: Option<(Value, bool)>,
    /// The schema of the answer.
    pub(crate) answer: Value,
}

/// Describes all operations. What an answer looks like is seen in the one that it would be if the engine said nothing.
pub(crate) fn described() -> impl Iterator<Item = Described> {
    OPERATIONS.iter().map(|operation| {
        let words = operation.path.trim_start_matches('/').replace('_', " ");
        Described {
            path: operation.path,
            reads: operation.reads,
            summary: format!("Control: {words}."),
            query: operation.query,
            body: body_schema(operation.body),
            answer: answer_schema(&(operation.answer)(&Map::new())),
        }
    })
}

fn body_schema(fields: &[Field]) -> Option<(Value, bool)> {
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for field in fields {
        let (name, schema) = match *field {
            Field::Object(name) => {
                required.push(name);
                (name, json!({"type": "object"}))
            }
            Field::List(name) => (name, json!({"type": ["array", "null"]})),
            Field::Text(name) => (name, json!({"type": ["string", "null"]})),
        };
        properties.insert(name.to_owned(), schema);
    }
    let schema = json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": {"type": "null"},
    });
    (!fields.is_empty()).then_some((schema, !required.is_empty()))
}

fn answer_schema(answer: &Value) -> Value {
    let Value::Object(fields) = answer else {
        return json!({});
    };
    if fields.is_empty() {
        return json!({"type": "object", "additionalProperties": {"type": "string"}});
    }
    let kind = |value: &Value| match value {
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        _ => json!({}),
    };
    let properties: serde_json::Map<String, Value> = fields
        .iter()
        .map(|(name, value)| (name.clone(), kind(value)))
        .collect();
    let required: Vec<&String> = fields.keys().collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// Builds the routes.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    OPERATIONS.iter().fold(Router::new(), |router, operation| {
        let method = if operation.reads {
            MethodFilter::GET
        } else {
            MethodFilter::POST
        };
        let handler = move |State(state): State<Arc<AppState>>, request: Request| {
            run(operation, state, request)
        };
        router.route(operation.path, on(method, handler))
    })
}

async fn run(
    operation: &'static Operation,
    state: Arc<AppState>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let mut args = query(request.uri().query().unwrap_or_default(), operation.query)?;
    if !operation.body.is_empty() {
        args.extend(fields(operation.body, &state, request).await?);
    }
    let result = state.app.generate.control(operation.op, args).await;
    Ok(Json((operation.answer)(&result.map_err(of_generate)?)))
}

/// Keys of queries that are true or false, some of which change nothing here.
const FLAGS: [&str; 4] = [
    "clear_cache",
    "reset_running_requests",
    "reset_external",
    "include_dp",
];

/// Reads a query; values are words that need no decoding.
fn query(text: &str, known: &[&str]) -> Result<Map, ApiError> {
    let mut args = Map::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !known.contains(&name) {
            let expected = match known {
                [] => "none".to_owned(),
                _ => known.join(", "),
            };
            let message = format!("'{name}' is no parameter of this route; known: {expected}.");
            return Err(ApiError::invalid(name, message));
        }
        if value.is_empty() {
            let message = format!("'{name}' has no value. Give it one, or leave it out.");
            return Err(ApiError::invalid(name, message));
        }
        let value = match value {
            "True" => "true",
            "False" => "false",
            other => other,
        };
        if FLAGS.contains(&name) && !["true", "false"].contains(&value) {
            let shown: String = value.chars().take(60).collect();
            let message = format!("'{name}' must be true or false; got {shown:?}.");
            return Err(ApiError::invalid(name, message));
        }
        args.entry(name.to_owned())
            .and_modify(|words| {
                words.push(',');
                words.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    Ok(args)
}

/// Reads a body's fields; no body is as good as an empty object.
async fn fields(wanted: &[Field], state: &AppState, request: Request) -> Result<Map, ApiError> {
    let headers = request.headers();
    let empty = headers
        .get(CONTENT_LENGTH)
        .map_or(!headers.contains_key(TRANSFER_ENCODING), |length| {
            length == "0"
        });
    let mut body = if empty {
        Body::from(serde_json::Map::new())
    } else {
        Body::parse(&state.bodies.read(request).await?.bytes)?
    };
    let mut args = Map::new();
    for field in wanted {
        let (name, value) = match *field {
            Field::Object(name) => match body.take(name) {
                Some(value) if value.is_object() => (name, Some(value.to_string())),
                Some(_) => return Err(wrong(name, "an object")),
                None => return Err(ApiError::missing(name)),
            },
            Field::List(name) => match body.take(name) {
                Some(value) if value.is_array() => (name, Some(value.to_string())),
                Some(_) => return Err(wrong(name, "a list")),
                None => (name, None),
            },
            Field::Text(name) => (name, body.take_string(name)?),
        };
        if let Some(value) = value {
            args.insert(name.to_owned(), value);
        }
    }
    match body.left() {
        None => Ok(args),
        Some(name) => Err(ApiError::invalid(
            name,
            format!("'{name}' is no field of this route."),
        )),
    }
}

fn wrong(name: &str, kind: &str) -> ApiError {
    ApiError::invalid(name, format!("'{name}' must be {kind}."))
}

/// All that the engine says, as it is.
fn texts(result: &Map) -> Value {
    json!(result)
}

fn flag(result: &Map, name: &str) -> Value {
    json!({name: result.get(name).is_some_and(|word| word == "true")})
}

fn aborted(result: &Map) -> Value {
    let count: Option<u64> = result.get("aborted").and_then(|text| text.parse().ok());
    json!({"status": "aborted", "aborted": count.unwrap_or_default()})
}

fn renamed(result: &Map) -> Value {
    json!({"success": true, "new_version": result.get("new_version")})
}

/// What the engine says of itself: one text of JSON.
fn info(result: &Map) -> Value {
    let text = result.get("info").map_or("null", String::as_str);
    serde_json::from_str(text).unwrap_or_default()
}

fn world_size(result: &Map) -> Value {
    let workers = info(result)["world_size"].as_u64().unwrap_or_default();
    let cores: Option<u64> = result
        .get("data_parallel_size")
        .and_then(|text| text.parse().ok());
    json!({"world_size": workers * cores.unwrap_or(1)})
}
