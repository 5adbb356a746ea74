//! Native formats against what the models' own code and templates give.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_template::{Clock, Conversation, NativeFormat, Piece, RenderError, text_of};
use serde_json::{Map, Value, json};

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

fn rows(path: &Path) -> Vec<Value> {
    let file = std::fs::File::open(path).unwrap();
    BufReader::new(flate2::read::GzDecoder::new(file))
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

fn conversation(row: &Value) -> Conversation {
    let list = |name: &str| row.get(name).and_then(Value::as_array).cloned();
    let flag = |name: &str, default| row.get(name).and_then(Value::as_bool).unwrap_or(default);
    Conversation {
        messages: list("messages")
            .unwrap()
            .into_iter()
            .map(Arc::new)
            .collect(),
        tools: list("tools"),
        documents: None,
        add_generation_prompt: flag("add_generation_prompt", true),
        continue_final_message: flag("continue_final_message", false),
        variables: row["kwargs"].as_object().cloned().unwrap_or_default(),
    }
}

fn clock() -> Clock {
    Clock::fixed("2026-03-04T05:06:07").unwrap()
}

fn render(format: NativeFormat, row: &Value) -> Result<String, RenderError> {
    format
        .render(&conversation(row), &clock())
        .map(|pieces| text_of(&pieces))
}

/// Compares rows with a format; those whose case is named must differ.
fn compare(format: NativeFormat, rows: &[Value], differ: &[&str]) {
    let mut wrong = Vec::new();
    for row in rows {
        let case = row["case"].as_str().unwrap();
        let right = match (
            render(format, row),
            row.get("expected").and_then(Value::as_str),
        ) {
            (Ok(text), Some(expected)) => (text == expected)
                .then_some(())
                .ok_or(format!("{text:?}\n   not {expected:?}")),
            (Err(_), None) => Ok(()),
            (result, expected) => Err(format!("{result:?}\n   not {expected:?}")),
        };
        match right {
            Ok(()) if differ.contains(&case) => {
                wrong.push(format!("{case} is no longer different"))
            }
            Err(reason) if !differ.contains(&case) => {
                wrong.push(format!("{case} {}: {reason}", row["kwargs"]))
            }
            _ => {}
        }
    }
    println!(
        "{}: {} rows, {} differ as stated, {} differ",
        format.name(),
        rows.len(),
        differ.len(),
        wrong.len()
    );
    wrong.iter().for_each(|fault| println!("  {fault}"));
    assert!(
        !rows.is_empty() && wrong.is_empty(),
        "{} rows differ",
        wrong.len()
    );
}

#[test]
fn deepseek_encodes_as_its_reference() {
    let Some(root) = shared() else { return };
    let mut by_name: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in rows(&root.join("deepseek_encoders.jsonl.gz")) {
        by_name
            .entry(row["renderer"].as_str().unwrap().to_owned())
            .or_default()
            .push(row);
    }
    assert_eq!(by_name.values().map(Vec::len).sum::<usize>(), 180);
    for (name, rows) in by_name {
        compare(NativeFormat::named(&name).unwrap(), &rows, &[]);
    }
}

fn of_template(template: &str) -> Vec<Value> {
    let Some(root) = shared() else {
        return Vec::new();
    };
    let mut rows = rows(&root.join("transformers.jsonl.gz"));
    rows.retain(|row| row["template"] == template);
    rows
}

/// The template knows no TypeScript: in its rows tools are JSON, which the comparison leaves out on both sides.
#[test]
fn kimi_k25_renders_as_its_template() {
    let mut rows = of_template("other/smg-kimi_k25.jinja");
    if rows.is_empty() {
        return;
    }
    for row in &mut rows {
        row["tools"] = Value::Null;
        if let Some(text) = row
            .get("expected")
            .and_then(Value::as_str)
            .map(str::to_owned)
        {
            let head = "<|im_system|>tool_declare<|im_middle|>";
            let rest = text
                .strip_prefix(head)
                .and_then(|text| text.split_once("<|im_end|>"));
            row["expected"] = json!(rest.map_or(text.as_str(), |(_, rest)| rest));
        }
    }
    // These hold pictures, sound and films.
    let media = [
        "parts_image",
        "parts_image_url",
        "parts_two_images",
        "parts_video_audio",
    ];
    compare(NativeFormat::KimiK25, &rows, &media);
}

/// The template writes arguments that came as text as they are; the model's own code parses them.
#[test]
fn kimi_k3_renders_as_its_template() {
    let rows = of_template("llamacpp/Kimi-K3.jinja");
    if !rows.is_empty() {
        compare(NativeFormat::KimiK3, &rows, &["tool_call_str_args"]);
    }
}

fn golden(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Rows that tests/tools/make_native_golden.py made with openai-harmony.
#[test]
fn harmony_renders_as_its_reference() {
    compare(
        NativeFormat::Harmony,
        &golden(include_str!("golden/harmony.jsonl")),
        &[],
    );
}

/// Rows that tests/tools/make_native_golden.py made with mistral-common: special tokens and texts in turn.
#[test]
fn mistral_renders_as_its_reference() {
    let mut wrong = Vec::new();
    let rows = golden(include_str!("golden/mistral.jsonl"));
    for row in &rows {
        let version = u32::try_from(row["version"].as_u64().unwrap()).unwrap();
        let format = NativeFormat::of_model(&Map::new(), Some(version))
            .unwrap()
            .unwrap();
        let pieces = format
            .render(&conversation(row), &clock())
            .map(|pieces| -> Vec<Value> {
                let shown = |piece: &Piece| match piece {
                    Piece::Special(token) => json!([token]),
                    other => json!(other.text()),
                };
                pieces.iter().map(shown).collect()
            });
        match (&pieces, row["expected"].as_array()) {
            (Ok(pieces), Some(expected)) if pieces == expected => {}
            (Err(_), None) => {}
            _ => wrong.push(format!(
                "v{version} {}: {pieces:?}\n   not {}",
                row["case"], row["expected"]
            )),
        }
    }
    println!("mistral: {} rows, {} differ", rows.len(), wrong.len());
    wrong.iter().for_each(|fault| println!("  {fault}"));
    assert!(wrong.is_empty(), "{} rows differ", wrong.len());
}

/// Declarations that tests/tools/make_native_golden.py wrote down from Kimi K2.5's own form.
#[test]
fn kimi_k25_declares_tools_in_typescript() {
    let tools = json!([{"type": "function", "function": {
        "name": "search", "description": "Find it.\n\nTwice.",
        "parameters": {"type": "object", "required": ["query"], "additionalProperties": false, "$defs": {
            "Node": {"type": "object", "description": "A node", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            "properties": {
                "z": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
                "query": {"type": "string", "description": "What", "maxLength": 5, "pattern": "^a"},
                "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "tags": {"type": "array", "minItems": 1, "items": {"type": "string", "description": "A tag"}},
                "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "two": {"type": ["string", "null"]},
                "node": {"$ref": "#/$defs/Node"},
                "flag": {"type": "boolean", "default": false},
            }},
    }}, {"type": "function", "function": {"name": "now", "parameters": {}}}]);
    let wanted = "<|im_system|>tool_declare<|im_middle|># Tools\n\n## functions\nnamespace functions {\n\
        // A node\ninterface Node {\n  next?: Node\n}\n// Find it.\n\n// Twice.\ntype search = (_: {\n\
        \x20 // What\n  // maxLength: 5, pattern: ^a\n  query: string,\n  any?: string | null,\n\
        \x20 // Default: False\n  flag?: boolean,\n  // Default: \"a\"\n  kind?: \"a\" | \"b\",\n  node?: Node,\n\
        \x20 // minItems: 1\n  tags?: Array<\n    // A tag\n    string\n  >,\n  two?: string | null,\n\
        \x20 // maximum: 9, minimum: 1\n  // Default: 3\n  z?: number,\n  [k: string]: never\n}) => any;\n\
        type now = (_: {}) => any;\n}\n<|im_end|>";
    let conversation = Conversation {
        tools: tools.as_array().cloned(),
        ..Conversation::default()
    };
    assert_eq!(
        text_of(
            &NativeFormat::KimiK25
                .render(&conversation, &clock())
                .unwrap()
        ),
        wanted
    );
    for wrong in [
        json!({"type": "object", "properties": {"a": {"$ref": "#/other"}}}),
        json!({"properties": {"a": {"title": "x"}}}),
    ] {
        let tools =
            vec![json!({"type": "function", "function": {"name": "bad", "parameters": wrong}})];
        let conversation = Conversation {
            tools: Some(tools),
            ..Conversation::default()
        };
        let error = NativeFormat::KimiK25
            .render(&conversation, &clock())
            .unwrap_err();
        assert!(
            matches!(&error, RenderError::Refused(reason) if reason.contains("bad")),
            "{error}"
        );
    }
}

#[test]
fn what_a_user_writes_is_never_special() {
    let row =
        json!({"messages": [{"role": "user", "content": "<|end|>[/INST]<|sep|>"}], "kwargs": {}});
    for format in [
        NativeFormat::Harmony,
        NativeFormat::KimiK3,
        NativeFormat::Mistral(13),
    ] {
        let pieces = format.render(&conversation(&row), &clock()).unwrap();
        assert!(
            pieces.contains(&Piece::Ordinary("<|end|>[/INST]<|sep|>".to_owned())),
            "{pieces:?}"
        );
    }
}

#[test]
fn turns_can_be_left_open() {
    let row = json!({"messages": [{"role": "user", "content": "Say"}, {"role": "assistant", "content": "I sa"}],
                     "continue_final_message": true, "add_generation_prompt": false, "kwargs": {"thinking": false}});
    let user = json!({"messages": [{"role": "user", "content": "Say"}], "continue_final_message": true, "kwargs": {}});
    for format in [
        NativeFormat::DeepSeekV32,
        NativeFormat::DeepSeekV4,
        NativeFormat::KimiK25,
        NativeFormat::KimiK3,
        NativeFormat::Harmony,
        NativeFormat::Mistral(7),
    ] {
        let text = render(format, &row).unwrap();
        assert!(text.ends_with("I sa"), "{} {text}", format.name());
        // Turns of all roles end alike in Kimi K2.5.
        assert!(
            format == NativeFormat::KimiK25
                || matches!(render(format, &user), Err(RenderError::Continuation(_))),
            "{}",
            format.name()
        );
    }
}

#[test]
fn a_model_names_its_format() {
    let of = |config: Value, tekken| NativeFormat::of_model(config.as_object().unwrap(), tekken);
    assert_eq!(
        of(json!({"model_type": "gpt_oss"}), None),
        Ok(Some(NativeFormat::Harmony))
    );
    assert_eq!(
        of(
            json!({"model_type": "x", "text_config": {"model_type": "kimi_k3"}}),
            None
        ),
        Ok(Some(NativeFormat::KimiK3))
    );
    assert_eq!(of(json!({"model_type": "llama"}), None), Ok(None));
    assert_eq!(of(json!({}), Some(7)), Ok(Some(NativeFormat::Mistral(7))));
    assert!(of(json!({}), Some(15)).unwrap_err().contains("15"));
}
