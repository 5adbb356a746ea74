//! The parser cases of the bank of public bug reports, by id.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Choice, machine, registry, same_value, shared, show};
use octavo_grammar::Registry;
use octavo_parser::{Event, Finish, Message, Options, Parser, Start, Tools};
use serde_json::{Value, json};

fn cases() -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(shared()?.join("cases/cases.jsonl")).ok()?;
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    Some(
        rows.filter(|row| row.pointer("/input/kind") == Some(&json!("parser")))
            .collect(),
    )
}

/// The inputs of a case: itself and its variants.
fn inputs(case: &Value) -> Vec<Value> {
    let base = case["input"].clone();
    let mut all = vec![base.clone()];
    for variant in base
        .get("variants")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let mut input = base.clone();
        for (key, value) in variant.as_object().unwrap() {
            input[key] = value.clone();
        }
        all.push(input);
    }
    all
}

/// The texts of the templates that the cases give as Python.
fn text_of(input: &Value) -> String {
    let Some(template) = input.get("model_text_template").and_then(Value::as_str) else {
        return input["model_text"].as_str().unwrap().to_owned();
    };
    if template.contains("0123456789abcde") {
        let body = "0123456789abcde\\n".repeat(2499) + "0123456789abcdef";
        return format!(
            "I will save it now. <|tool_calls_section_begin|><|tool_call_begin|>functions.save_note:0\
             <|tool_call_argument_begin|>{{\"text\": \"{body}\"}}<|tool_call_end|><|tool_calls_section_end|>"
        );
    }
    if template.contains("40000") && template.contains("sep") {
        return "<｜tool▁calls▁begin｜>".to_owned() + &"<｜tool▁sep｜>x".repeat(40000);
    }
    assert!(
        template.starts_with("'word ' * 40000"),
        "unknown template {template}"
    );
    "word ".repeat(40000) + "</think>done"
}

/// One cut into pieces of one to nine characters, the same for the same seed.
fn random_cut(chars: &[char], seed: u64) -> Vec<String> {
    let mut state = seed;
    let mut pieces = Vec::new();
    let mut rest = chars;
    while !rest.is_empty() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let count = (usize::try_from(state >> 33).unwrap() % 9 + 1).min(rest.len());
        pieces.push(rest[..count].iter().collect());
        rest = &rest[count..];
    }
    pieces
}

/// All cuts of a text that a case asks for.
fn cuts(input: &Value, text: &str) -> Vec<Vec<String>> {
    let chars: Vec<char> = text.chars().collect();
    let sized = |size: usize| -> Vec<String> {
        chars
            .chunks(size.max(1))
            .map(|part| part.iter().collect())
            .collect()
    };
    let mut all = vec![vec![text.to_owned()]];
    match &input["chunks"] {
        Value::Object(sizes) => {
            for size in sizes["sizes"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_u64)
                .filter(|size| *size > 0)
            {
                all.push(sized(usize::try_from(size).unwrap()));
            }
            return all;
        }
        Value::Array(lists) if lists.iter().all(Value::is_array) => {
            let pieces = |list: &Value| -> Vec<String> {
                list.as_array()
                    .unwrap()
                    .iter()
                    .map(|piece| piece.as_str().unwrap().to_owned())
                    .collect()
            };
            all.extend(
                lists
                    .iter()
                    .map(pieces)
                    .filter(|pieces| pieces.concat() == text),
            );
        }
        _ => {}
    }
    all.push(sized(1));
    for at in 1..chars.len() {
        all.push(vec![
            chars[..at].iter().collect(),
            chars[at..].iter().collect(),
        ]);
    }
    all.extend((1..=200).map(|seed| random_cut(&chars, seed)));
    all
}

fn choice<'a>(registry: &Registry, input: &'a Value) -> Choice<'a> {
    let names = input["parser"].as_str().unwrap();
    let (tool, reasoning) = match names.split_once('+') {
        Some((reasoning, tool)) => (Some(tool), Some(reasoning)),
        None if input.get("tools").is_none() && registry.reasoning(names).is_some() => {
            (None, Some(names))
        }
        None => (Some(names), registry.reasoning(names).map(|_| names)),
    };
    Choice {
        tool,
        reasoning,
        none: input.get("tool_choice") == Some(&json!("none")),
        off: input.get("thinking") == Some(&json!(false)),
    }
}

fn finish(input: &Value) -> Finish {
    if input.get("finish") == Some(&json!("length")) {
        Finish::Length
    } else {
        Finish::Stop
    }
}

fn run(registry: &Registry, input: &Value, pieces: &[String]) -> Vec<Event> {
    let tools = input.get("tools").and_then(Value::as_array);
    let options = Options {
        tools: tools
            .map(|tools| Tools::from_json(tools))
            .unwrap_or_default(),
        start: Start::After(
            input
                .get("prompt_tail")
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned(),
        ),
        parallel: input.get("parallel_tool_calls") != Some(&json!(false)),
        ..Options::default()
    };
    let mut parser = Parser::new(&machine(registry, choice(registry, input)), options);
    let mut events: Vec<Event> = pieces.iter().flat_map(|piece| parser.feed(piece)).collect();
    events.extend(parser.finish(finish(input)));
    events
}

fn expect(id: &str, input: &Value, message: &Message) {
    let Some(expected) = input.get("expect") else {
        return;
    };
    let said = format!("{id}: {}", show(message));
    if let Some(content) = expected.get("content").and_then(Value::as_str) {
        assert_eq!(message.content.trim(), content.trim(), "{said}");
    }
    if let Some(reasoning) = expected.get("reasoning").and_then(Value::as_str) {
        assert_eq!(message.reasoning.trim(), reasoning.trim(), "{said}");
    }
    if let Some(calls) = expected.get("calls").and_then(Value::as_array) {
        assert_eq!(message.calls.len(), calls.len(), "{said}");
        for (call, want) in message.calls.iter().zip(calls) {
            assert_eq!(call.name, want["name"].as_str().unwrap(), "{said}");
            let arguments: Value = serde_json::from_str(&call.arguments).expect(&said);
            assert!(same_value(&arguments, &want["arguments"]), "{said}");
        }
    }
}

fn pairs(message: &Message) -> Vec<(&str, &str)> {
    let calls = message.calls.iter();
    calls
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect()
}

/// What the words of `right` ask for, where a case has no `expect`.
fn right(id: &str, input: &Value, message: &Message) {
    let text = text_of(input);
    let said = format!("{id}: {}", show(message));
    let calls = pairs(message);
    let content = message.content.trim();
    match id {
        "TC01" | "TC19" => {
            assert_eq!(calls, [("get_time", "{}")], "{said}");
            assert_eq!(content, "", "{said}");
            assert!(message.stopped_for_calls());
        }
        "TC03" => {
            let arguments: Value = serde_json::from_str(calls[0].1).unwrap();
            assert_eq!(arguments, json!({"text": "João às 9h – ünïcode 北京 🙂"}));
            assert!(!calls[0].1.contains("\\u"), "{said}");
        }
        "TC04" => {
            assert_eq!(
                calls,
                [
                    ("add", "{\"a\": 2, \"b\": 2}"),
                    ("get_weather", "{\"city\": \"Rome\"}")
                ],
                "{said}"
            );
            assert_ne!(message.calls[0].id, message.calls[1].id);
            assert_eq!(message.content, "", "{said}");
        }
        "TC06" => assert_eq!(calls.len(), 1, "{said}"),
        "TC13" => assert_eq!(calls, [("f", "{\"x\": \"\\\"null\\\"\"}")], "{said}"),
        "TC28" => assert_eq!(message.content, "Totals: a <tool", "{said}"),
        "TC30" => assert!(calls.is_empty(), "{said}"),
        "TC09" => {
            assert_eq!(message.content, text, "{said}");
            assert!(calls.is_empty() && !message.stopped_for_calls(), "{said}");
        }
        "TC10" => {
            assert_eq!(calls, [("add", "{\"a\": 1, \"b\": 1}")], "{said}");
            assert_eq!(content, "", "{said}");
        }
        "TC12" => {
            let want =
                json!({"timeout": 30, "dry": true, "ratio": 0.5, "ids": [1, 2], "code": "30"});
            assert_eq!(
                serde_json::from_str::<Value>(calls[0].1).unwrap(),
                want,
                "{said}"
            );
        }
        _ => right_of_the_rest(id, input, message),
    }
}

fn right_of_the_rest(id: &str, input: &Value, message: &Message) {
    let said = format!("{id}: {}", show(message));
    let calls = pairs(message);
    let content = message.content.trim();
    match id {
        "TC16" => {
            assert!(!message.content.contains("<tool_call>"), "{said}");
            let whole = "{\"city\": \"Paris\"}";
            assert!(
                calls
                    .iter()
                    .all(|(_, arguments)| whole.starts_with(arguments)),
                "{said}"
            );
        }
        "TC21" => {
            assert_eq!(content, "I will save it now.");
            let arguments: Value = serde_json::from_str(calls[0].1).unwrap();
            assert_eq!(arguments["text"].as_str().unwrap().chars().count(), 40_000);
        }
        "TC27" => {
            assert_eq!(calls, [("get_weather", "{\"city\": \"Lima\"}")], "{said}");
            assert_eq!(content, "", "{said}");
        }
        "RS02" => assert_eq!(
            (message.reasoning.as_str(), content),
            ("a<b is fine", "Answer < 5"),
            "{said}"
        ),
        "RS05" => {
            assert_eq!(
                calls,
                [
                    ("get_weather", "{\"city\": \"Tokyo\"}"),
                    ("get_weather", "{\"city\": \"Paris\"}")
                ]
            );
            assert_eq!(message.reasoning, "", "{said}");
        }
        "RS11" => assert_eq!(
            (message.reasoning.as_str(), content),
            ("Sure, the answer is 42", ""),
            "{said}"
        ),
        "RS12" => {
            assert_eq!(message.reasoning, "I should look it up.", "{said}");
            assert_eq!(calls, [("get_time", "{}")], "{said}");
        }
        "RS14" => assert_eq!(
            (message.reasoning.chars().count(), content),
            (200_000, "done")
        ),
        "RS15" => assert_eq!(
            (message.reasoning.as_str(), message.content.as_str()),
            ("SECRET", "V1  V2"),
            "{said}"
        ),
        _ => assert!(input.get("expect").is_some(), "{id} has no check here"),
    }
}

const ALIAS: &str = "name = \"alias\"\nreasoning = [\"alias-tags\"]\ndoc = \"Two tags.\"\nstart = \"content\"\n[markers]\n\
open = [\"<think>\", \"<reasoning>\"]\nclose = [\"</think>\", \"</reasoning>\"]\n[states.content]\nkind = \"content\"\n\
on = { open = \"reasoning\" }\n[states.reasoning]\nkind = \"reasoning\"\non = { close = \"content\" }\n";

/// Opens once, then only grows: no event repeats what another said.
fn well_formed(id: &str, events: &[Event]) {
    let mut opened = 0;
    for event in events {
        match event {
            Event::CallOpen {
                index,
                id: call,
                name,
            } => {
                assert_eq!(*index, opened, "{id}");
                assert!(!call.is_empty() && !name.is_empty(), "{id}");
                opened += 1;
            }
            Event::ArgsDelta { index, json } => {
                assert!(*index + 1 == opened && !json.is_empty(), "{id}")
            }
            _ => {}
        }
    }
    assert!(matches!(events.last(), Some(Event::End { .. })), "{id}");
}

#[test]
fn cases_of_the_bank() {
    let Some(cases) = cases() else {
        eprintln!("skipped: no recorded material beside this checkout (OCTAVO_SHARED)");
        return;
    };
    let mut registry = registry();
    registry.add("alias.toml", ALIAS).unwrap();
    assert!(cases.len() >= 25);
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        for input in inputs(case) {
            let input = if id == "RS15" {
                with(&input, "parser", "alias-tags")
            } else {
                input
            };
            let text = text_of(&input);
            let whole: Message = run(&registry, &input, std::slice::from_ref(&text))
                .iter()
                .collect();
            for pieces in cuts(&input, &text) {
                let events = run(&registry, &input, &pieces);
                well_formed(id, &events);
                let message: Message = events.iter().collect();
                assert_eq!(
                    message,
                    whole,
                    "{id}: {:?}",
                    &pieces[..pieces.len().min(40)]
                );
            }
            expect(id, &input, &whole);
            right(id, &input, &whole);
        }
    }
}

fn with(input: &Value, key: &str, value: &str) -> Value {
    let mut input = input.clone();
    input[key] = json!(value);
    input
}

/// TC15's fuzz: a character less anywhere still gives arguments that are JSON objects.
#[test]
fn a_missing_character_leaves_json() {
    let tools = [
        json!({"type": "function", "function": {"name": "run", "parameters": {"type": "object",
        "properties": {"cmd": {"type": "string"}}}}}),
    ];
    let base =
        "<tool_call>\n<function=run>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>";
    let registry = registry();
    let machine = machine(
        &registry,
        Choice {
            tool: Some("qwen3_coder"),
            ..Choice::default()
        },
    );
    for at in 0..base.len() {
        let text = format!("{}{}", &base[..at], &base[at + 1..]);
        let parse = |pieces: &[String]| -> Message {
            let options = Options {
                tools: Tools::from_json(&tools),
                ..Options::default()
            };
            let mut parser = Parser::new(&machine, options);
            let mut events: Vec<Event> =
                pieces.iter().flat_map(|piece| parser.feed(piece)).collect();
            events.extend(parser.finish(Finish::Stop));
            events.iter().collect()
        };
        let whole = parse(std::slice::from_ref(&text));
        let chars: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(whole, parse(&chars), "{text}");
        for call in &whole.calls {
            assert!(
                serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value.is_object()),
                "{text}"
            );
        }
    }
}
