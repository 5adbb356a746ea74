//! Prompts of the chat route equal what vLLM's server renders from the same messages (the shared oracle's served rows).
//!
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use octavo_api::{Body, ChatRequest};
use octavo_render::{Clock, Renderer};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Rows where octavo differs on purpose. These templates read a list of parts; vLLM does not notice, joins the parts by
/// newlines and hands over one text. octavo lets the template do it, as Transformers does.
const ON_PURPOSE: [(&str, &str); 2] = [
    ("llamacpp/Kimi-K2-Thinking.jinja", "parts_text"),
    ("other/smg-kimi_k25.jinja", "parts_text"),
];

#[derive(Deserialize)]
struct Row {
    template: String,
    case: String,
    messages: Value,
    tools: Option<Value>,
    documents: Option<Value>,
    add_generation_prompt: bool,
    continue_final_message: bool,
    special: Map<String, Value>,
    chat_template_kwargs: Map<String, Value>,
    now: String,
    expected: Option<String>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    raise_exception: bool,
    message: String,
}

fn shared() -> Option<PathBuf> {
    let root = std::env::var_os("OCTAVO_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join("oracles/templates");
    if !path.is_dir() {
        println!("skipped: {} is absent; set OCTAVO_SHARED", path.display());
        return None;
    }
    Some(path)
}

/// A model folder with this template; the tokenizer knows nothing but its special tokens.
fn load(source: &str, special: &Map<String, Value>, now: &str) -> Renderer {
    let dir = tempfile::tempdir().unwrap();
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": null, "truncation": null, "padding": null,
        "model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"},
    });
    let write = |name: &str, value: &Value| {
        std::fs::write(dir.path().join(name), serde_json::to_vec(value).unwrap()).unwrap()
    };
    write("tokenizer.json", &tokenizer);
    write("tokenizer_config.json", &json!(special));
    std::fs::write(dir.path().join("chat_template.jinja"), source).unwrap();
    Renderer::load_at(dir.path(), Some(0), &Clock::fixed(now).unwrap()).unwrap()
}

fn request(row: &Row) -> ChatRequest {
    let mut body = json!({
        "messages": row.messages,
        "add_generation_prompt": row.add_generation_prompt,
        "continue_final_message": row.continue_final_message,
        "chat_template_kwargs": row.chat_template_kwargs,
    });
    if let Some(documents) = &row.documents {
        body["documents"] = documents.clone();
    }
    if let Some(tools) = &row.tools {
        body["tools"] = tools.clone();
    }
    ChatRequest::from_body(Body::parse(&serde_json::to_vec(&body).unwrap()).unwrap()).unwrap()
}

/// What is wrong with a row.
fn judge(renderer: &Renderer, row: &Row) -> Option<String> {
    match (renderer.chat_text(&request(row)), &row.expected, &row.error) {
        (Ok(text), Some(expected), _) if text == *expected => None,
        (Ok(text), Some(expected), _) => Some(format!("got {text:?}\n  expected {expected:?}")),
        (Err(error), _, Some(wanted))
            if !wanted.raise_exception || error.message == wanted.message =>
        {
            None
        }
        (result, ..) => Some(format!("got {result:?}")),
    }
}

#[test]
fn chats_render_as_served() {
    let Some(root) = shared() else { return };
    let file = std::fs::File::open(root.join("served.jsonl.gz")).unwrap();
    let mut renderers: BTreeMap<String, Renderer> = BTreeMap::new();
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut rows, mut with_tools) = (0, 0);
    for line in BufReader::new(flate2::read::GzDecoder::new(file)).lines() {
        let row: Row = serde_json::from_str(&line.unwrap()).unwrap();
        let tools = row.tools.as_ref().and_then(Value::as_array);
        with_tools += usize::from(tools.is_some_and(|tools| !tools.is_empty()));
        let renderer = renderers.entry(row.template.clone()).or_insert_with(|| {
            let source = std::fs::read_to_string(root.join("jinja").join(&row.template)).unwrap();
            load(&source, &row.special, &row.now)
        });
        rows += 1;
        let fault = judge(renderer, &row);
        if ON_PURPOSE.contains(&(row.template.as_str(), row.case.as_str())) {
            assert!(
                fault.is_some(),
                "{} {} is no longer different",
                row.template,
                row.case
            );
        } else if let Some(fault) = fault {
            wrong
                .entry(row.template.clone())
                .or_default()
                .push(format!("{}: {fault}", row.case));
        }
    }
    for (template, faults) in &wrong {
        println!("{template}\t{}\n  {}", faults.len(), faults[0]);
    }
    let failed: usize = wrong.values().map(Vec::len).sum();
    println!(
        "{} of {rows} rows right; {with_tools} with tools",
        rows - failed
    );
    assert!(wrong.is_empty(), "{failed} rows differ");
}
