//! What a format's serializer writes, the parser reads: with nasty values, and the same by ids as by text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{fail, fold, machine_of, run_all, same_value, show};
use octavo_grammar::{ArgumentStyle, Format, Kind, Render, RenderedCall, RenderedMessage};
use octavo_parser::{Finish, Message, Options, Parser, Start, Tools};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn value() -> impl Strategy<Value = Value> {
    let nasty = prop_oneof![
        Just(String::new()),
        Just("</tool_call>".to_owned()),
        Just("<|tool_call_end|> and \"}]} '; \\ \n\t".to_owned()),
        Just("a < b && c > d".to_owned()),
        Just("true".to_owned()),
        Just("12".to_owned()),
        Just("null".to_owned()),
        Just("\n two lines \n".to_owned()),
        "[a-zA-Z0-9 .,:;'\"(){}\\[\\]\\\\é🙂\n-]{0,12}",
    ];
    let leaf = prop_oneof![
        4 => nasty.prop_map(Value::String),
        1 => any::<i32>().prop_map(|number| json!(number)),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(|flag| json!(flag)),
        1 => (-1000..1000_i32).prop_map(|number| json!(f64::from(number) / 8.0)),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::vec(("[a-z]{1,5}", inner), 0..3).prop_map(|pairs| {
                Value::Object(pairs.into_iter().collect::<Map<String, Value>>())
            }),
        ]
    })
}

fn message() -> impl Strategy<Value = RenderedMessage> {
    let call = (
        "[a-z][a-z_]{1,8}",
        proptest::collection::vec(("[a-z]{1,6}", value()), 0..4),
    )
        .prop_map(|(name, pairs)| RenderedCall {
            name,
            arguments: pairs.into_iter().collect(),
        });
    let prose = "([A-Z][a-z]{1,5}( [a-zé,]{1,6}){0,4}\\.)?";
    (prose, prose, proptest::collection::vec(call, 0..4)).prop_map(|(reasoning, content, calls)| {
        RenderedMessage {
            reasoning,
            content,
            calls,
        }
    })
}

/// Whether a string inside the value holds one of the texts.
fn holds(value: &Value, texts: &[String]) -> bool {
    match value {
        Value::String(text) => texts.iter().any(|marker| text.contains(marker.as_str())),
        Value::Array(items) => items.iter().any(|item| holds(item, texts)),
        Value::Object(map) => map.values().any(|item| holds(item, texts)),
        _ => false,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A tool for each call, whose schema says the types of its arguments; calls of one name share the first's arguments.
fn tools_for(message: &mut RenderedMessage) -> Tools {
    message
        .calls
        .iter_mut()
        .enumerate()
        .for_each(|(index, call)| call.name += &format!("_{index}x"));
    let tools: Vec<Value> = message
        .calls
        .iter()
        .map(|call| {
            let types: Map<String, Value> =
                call.arguments.iter().map(|(key, value)| (key.clone(), json!({"type": type_of(value)}))).collect();
            json!({"type": "function", "function": {"name": call.name, "parameters": {"properties": types}}})
        })
        .collect();
    Tools::from_json(&tools)
}

/// Take out of a message what the format cannot write.
fn fit(message: &mut RenderedMessage, format: &Format, render: &Render) {
    if render.reasoning.is_empty() {
        message.reasoning.clear();
    }
    if render.call.is_empty() {
        message.calls.clear();
    }
    // Without an escape, a value cannot hold the format's own markers.
    let escaped = matches!(
        render.arguments,
        ArgumentStyle::Json | ArgumentStyle::Python
    );
    let markers = format
        .markers
        .values()
        .flat_map(|marker| marker.texts().0.to_vec());
    let mut markers: Vec<String> = markers.filter(|marker| marker.len() > 1).collect();
    markers.extend(Some(render.quote.clone()).filter(|quote| !quote.is_empty()));
    // Inside of a tree, only a full schema tells numbers from text: the recorded case has one.
    let flat = render.arguments == ArgumentStyle::Tree;
    for call in &mut message.calls {
        call.arguments
            .retain(|_, value| escaped || !holds(value, &markers));
        call.arguments
            .retain(|_, value| !flat || !(value.is_array() || value.is_object()));
    }
}

/// What a request for this message would say.
fn options_for(message: &mut RenderedMessage, format: &Format) -> Options {
    let header = format
        .states
        .get(&format.start)
        .is_some_and(|state| state.kind == Kind::Header);
    let thought = format.start == "reasoning" && !message.reasoning.is_empty();
    let start = match (header, thought) {
        (true, _) => Start::Default,
        (_, true) => Start::Reasoning,
        _ => Start::Content,
    };
    Options {
        tools: tools_for(message),
        start,
        ..Options::default()
    }
}

fn check(read: &Message, message: &RenderedMessage, text: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(&read.content, &message.content, "{}", text);
    prop_assert_eq!(&read.reasoning, &message.reasoning, "{}", text);
    prop_assert_eq!(
        read.calls.len(),
        message.calls.len(),
        "{} -> {}",
        text,
        show(read)
    );
    for (call, want) in read.calls.iter().zip(&message.calls) {
        let arguments: Value = serde_json::from_str(&call.arguments).map_err(|error| {
            TestCaseError::fail(format!("{error}: {} of {text}", call.arguments))
        })?;
        prop_assert_eq!(&call.name, &want.name);
        let same = same_value(&arguments, &Value::Object(want.arguments.clone()));
        prop_assert!(same, "{} -> {}", text, show(read));
    }
    prop_assert_eq!(read.malformed.as_str(), "", "{}", text);
    Ok(())
}

#[test]
fn what_is_written_is_read() {
    run_all(120, |format, runner| {
        let render = format.render.clone()?;
        let machine = machine_of(format);
        let result = runner.run(&message(), |mut message| {
            fit(&mut message, format, &render);
            let options = options_for(&mut message, format);
            let text = render.write(&message);
            let (read, _) = fold(&machine, &options, &[&text], Finish::Stop);
            check(&read, &message, &text)?;
            // Special tokens by id say the same, unless a value looks like one.
            let angle = ["<".to_owned()];
            if message
                .calls
                .iter()
                .any(|call| call.arguments.values().any(|value| holds(value, &angle)))
            {
                return Ok(());
            }
            let mut parser = Parser::new(&machine, options);
            push_tokens(&mut parser, &text);
            let mut by_id = Message::default();
            parser.poll().iter().for_each(|event| by_id.add(event));
            parser
                .finish(Finish::Stop)
                .iter()
                .for_each(|event| by_id.add(event));
            prop_assert_eq!(&by_id, &read, "by id: {}", text);
            Ok(())
        });
        fail(format, result)
    });
}

/// Feed what looks like a special token as one.
fn push_tokens(parser: &mut Parser, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let Some(end) = rest[at..].find('>').map(|end| at + end + 1) else {
            break;
        };
        parser.push_text(&rest[..at]);
        if rest[at..end].contains(['|', '｜']) && !rest[at..end].contains(char::is_whitespace) {
            parser.push_special(&rest[at..end]);
        } else {
            parser.push_text(&rest[at..end]);
        }
        rest = &rest[end..];
    }
    parser.push_text(rest);
}
