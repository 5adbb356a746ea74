//! Forced tool calls: what a format writes is what its grammar takes.

#![allow(clippy::unwrap_used, clippy::panic)]

use octavo_grammar::constraint::{Checker, Guided, GuidedTool, Place, Specials, Thoughts, calls};
use octavo_grammar::{ArgumentStyle, Format, Registry, RenderedCall, RenderedMessage};
use serde_json::{Value, json};

const REQUIRED: Guided = Guided {
    required: true,
    parallel: true,
    place: Place::Head,
};

fn weather() -> Value {
    json!({"name": "get_weather", "strict": true, "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "units": {"type": "string", "enum": ["C", "F"]}, "wind": {"type": "boolean"}},
        "required": ["city", "days", "units", "wind"], "additionalProperties": false}})
}

fn time() -> Value {
    json!({"name": "get_time", "parameters": {"type": "object", "properties": {}}})
}

fn message(calls: &[(&str, Value)]) -> RenderedMessage {
    let calls = calls.iter().map(|(name, arguments)| RenderedCall {
        name: (*name).to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
    });
    RenderedMessage {
        calls: calls.collect(),
        ..RenderedMessage::default()
    }
}

fn good() -> Value {
    json!({"city": "Rome", "days": 3, "units": "C", "wind": true})
}

fn guided(format: &Format, wanted: Guided) -> Checker {
    let (weather, time) = (weather(), time());
    let tools = [&weather, &time].map(|tool| GuidedTool::read(tool).unwrap());
    calls(format, &tools, wanted, &Specials::default())
        .and_then(|constraint| Checker::of(&constraint))
        .unwrap_or_else(|error| panic!("{}: {error}", format.name))
}

#[test]
fn what_a_format_writes_is_taken_and_what_does_not_fit_is_not() {
    let registry = Registry::builtin().unwrap();
    let mut forced = Vec::new();
    for format in registry.formats() {
        let Some(render) = format
            .render
            .as_ref()
            .filter(|render| render.shape("f", 0).is_some())
        else {
            continue;
        };
        let checker = guided(format, REQUIRED);
        forced.push(format.name.clone());
        let one = render.write(&message(&[("get_weather", good())]));
        let two = render.write(&message(&[
            ("get_time", json!({})),
            ("get_weather", good()),
        ]));
        assert!(checker.accepts(&one), "{}: {one}", format.name);
        assert!(checker.accepts(&two), "{}: {two}", format.name);
        assert!(!checker.accepts(""), "{}", format.name);
        assert!(!checker.accepts("Hello."), "{}", format.name);
        for wrong in [
            json!({"city": "Rome", "days": 30, "units": "C", "wind": true}),
            json!({"city": "Rome", "days": 3, "units": "K", "wind": true}),
            json!({"city": "Rome"}),
        ] {
            let text = render.write(&message(&[("get_weather", wrong)]));
            assert!(!checker.accepts(&text), "{}: {text}", format.name);
        }
        let unknown = render.write(&message(&[("rm", json!({}))]));
        assert!(!checker.accepts(&unknown), "{}: {unknown}", format.name);
    }
    assert!(forced.len() >= 38, "{forced:?}");
}

#[test]
fn one_call_where_only_one_is_allowed() {
    let registry = Registry::builtin().unwrap();
    let hermes = registry.tool("hermes").unwrap();
    let single = Guided {
        parallel: false,
        ..REQUIRED
    };
    let checker = guided(hermes, single);
    let render = hermes.render.as_ref().unwrap();
    let call = ("get_weather", good());
    assert!(checker.accepts(&render.write(&message(std::slice::from_ref(&call)))));
    assert!(!checker.accepts(&render.write(&message(&[call.clone(), call]))));
}

#[test]
fn strict_tools_are_forced_behind_the_trigger_and_text_is_free() {
    let registry = Registry::builtin().unwrap();
    let hermes = registry.tool("hermes").unwrap();
    let wanted = Guided {
        required: false,
        ..REQUIRED
    };
    let checker = guided(hermes, wanted);
    let render = hermes.render.as_ref().unwrap();
    let call = render.write(&message(&[("get_weather", good())]));
    let wrong = render.write(&message(&[("get_weather", json!({"city": 1}))]));
    assert!(checker.accepts("It is warm < 30."));
    assert!(checker.accepts(&call));
    assert!(checker.accepts(&format!("Let me see.\n{call}")));
    assert!(!checker.accepts(&wrong));
}

#[test]
fn a_strict_tool_whose_schema_cannot_be_enforced_is_refused_and_another_is_not() {
    let registry = Registry::builtin().unwrap();
    let hermes = registry.tool("hermes").unwrap();
    let render = hermes.render.clone().unwrap();
    let mut tool = json!({"name": "f", "strict": true, "parameters": {"type": "object", "properties": {
        "a": {"type": "array", "contains": {"type": "string"}}}}});
    let error = calls(
        hermes,
        &[GuidedTool::read(&tool).unwrap()],
        REQUIRED,
        &Specials::default(),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("f.parameters.properties.a.contains"),
        "{error}"
    );
    tool["strict"] = json!(false);
    let loose = calls(
        hermes,
        &[GuidedTool::read(&tool).unwrap()],
        REQUIRED,
        &Specials::default(),
    )
    .unwrap();
    let text = render.write(&message(&[("f", json!({"a": 1}))]));
    assert!(Checker::of(&loose).unwrap().accepts(&text));
}

#[test]
fn thoughts_stand_before_calls() {
    let registry = Registry::builtin().unwrap();
    let hermes = registry.tool("hermes").unwrap();
    let render = hermes.render.clone().unwrap();
    let weather = weather();
    let tools = [GuidedTool::read(&weather).unwrap()];
    let constraint = calls(hermes, &tools, REQUIRED, &Specials::default()).unwrap();
    let call = render.write(&message(&[("get_weather", good())]));
    let mut thoughts = Thoughts {
        open: String::new(),
        close: "</think>".to_owned(),
        without: vec!["<tool_call>".to_owned()],
    };
    let begun = Checker::of(&constraint.behind(&thoughts, &Specials::default())).unwrap();
    assert!(begun.accepts(&format!("Hm < {{}}.</think>\n\n{call}")));
    assert!(!begun.accepts(&call));
    assert!(!begun.accepts(&format!("Hm <tool_call> </think>{call}")));
    thoughts.open = "<think>".to_owned();
    let free = Checker::of(&constraint.behind(&thoughts, &Specials::default())).unwrap();
    assert!(free.accepts(&call));
    assert!(free.accepts(&format!("<think>\nHm.</think>\n{call}")));
    assert!(!free.accepts(&format!("Hm.</think>\n{call}")));
}

const OPEN: [&str; 3] = ["llama4_pythonic", "pythonic", "llama3_json"];

#[test]
fn strict_tools_are_forced_in_every_format_and_text_is_free() {
    let registry = Registry::builtin().unwrap();
    let wanted = Guided {
        required: false,
        ..REQUIRED
    };
    for format in registry.formats() {
        let Some(render) = format
            .render
            .as_ref()
            .filter(|render| render.shape("f", 0).is_some())
        else {
            continue;
        };
        let checker = guided(format, wanted);
        let said = |content: &str, args: Option<Value>| {
            let mut message = match args {
                Some(args) => message(&[("get_weather", args)]),
                None => message(&[]),
            };
            message.content = content.to_owned();
            render.write(&message)
        };
        let name = &format.name;
        let text = said("It is [warm] < 30 {or so}.", None);
        // A message with a head ends where the answer does.
        let text = text
            .split_once("<|end|><|start|>")
            .map_or(text.as_str(), |(text, _)| text);
        let text = text
            .split_once("<|eom|><|start|>")
            .map_or(text, |(text, _)| text);
        assert!(checker.accepts(text), "{name}: {text}");
        assert!(checker.accepts(&said("", Some(good()))), "{name}");
        let wrong = json!({"city": "Rome", "days": 30, "units": "C", "wind": true});
        let wrong = said("", Some(wrong));
        assert!(!checker.accepts(&wrong), "{name}: {wrong}");
        if !OPEN.contains(&name.as_str()) {
            let partial = &said("", Some(good()));
            let cut = partial.len() - partial.len() / 3;
            let cut = partial.floor_char_boundary(cut);
            assert!(
                !checker.accepts(&partial[..cut]),
                "{name}: {}",
                &partial[..cut]
            );
        }
    }
}

/// Schemas whose values are written otherwise than as JSON, with arguments that fit and some that do not.
fn shapes() -> Vec<(Value, Vec<Value>, Vec<Value>)> {
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    vec![
        (
            object(
                json!({"a": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}}),
                json!(["a"]),
            ),
            vec![json!({"a": [1]}), json!({"a": [1, 2, 3]})],
            vec![json!({"a": []}), json!({"a": [1, 2, 3, 4]}), json!({})],
        ),
        (
            object(
                json!({"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}),
                json!(["b"]),
            ),
            vec![
                json!({"b": 1}),
                json!({"a": "x", "b": 1}),
                json!({"b": 1, "c": false}),
                json!({"a": "y", "b": 1, "c": true}),
            ],
            vec![json!({"a": "x"}), json!({"b": 1, "d": 2})],
        ),
        (
            object(
                json!({"a": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4}}),
                json!(["a"]),
            ),
            vec![json!({"a": "abc"})],
            vec![json!({"a": "abcde"}), json!({"a": "A"})],
        ),
        (
            object(
                json!({"o": object(json!({"x": {"type": "number"}, "y": {"type": "string"}}), json!(["x"]))}),
                json!(["o"]),
            ),
            vec![json!({"o": {"x": 1.5}}), json!({"o": {"x": 2, "y": "z"}})],
            vec![json!({"o": {}}), json!({"o": {"y": "z"}})],
        ),
        (
            object(
                json!({"a": {"enum": ["red", "green"]}, "n": {"const": 7}}),
                json!(["a", "n"]),
            ),
            vec![json!({"a": "red", "n": 7})],
            vec![json!({"a": "blue", "n": 7}), json!({"a": "red", "n": 8})],
        ),
        (
            json!({"type": "object", "properties": {"t": {"$ref": "#/$defs/pair"}}, "required": ["t"], "additionalProperties": false,
                "$defs": {"pair": object(json!({"k": {"type": "string"}, "v": {"type": "integer", "minimum": 0}}), json!(["k", "v"]))}}),
            vec![json!({"t": {"k": "a", "v": 0}})],
            vec![json!({"t": {"k": "a", "v": -1}}), json!({"t": {"k": "a"}})],
        ),
    ]
}

#[test]
fn arguments_follow_their_schema_in_every_format() {
    let registry = Registry::builtin().unwrap();
    for format in registry.formats() {
        let Some(render) = format
            .render
            .as_ref()
            .filter(|render| render.shape("f", 0).is_some())
        else {
            continue;
        };
        // Where arguments are JSON, the schemas' own tests are those of structured output.
        if render.arguments == ArgumentStyle::Json && format.name != "hermes" {
            continue;
        }
        for (schema, right, wrong) in shapes() {
            let tool = json!({"name": "f", "strict": true, "parameters": schema});
            let constraint = calls(
                format,
                &[GuidedTool::read(&tool).unwrap()],
                REQUIRED,
                &Specials::default(),
            )
            .unwrap_or_else(|error| panic!("{}: {error} in {schema}", format.name));
            let checker = Checker::of(&constraint).unwrap();
            let text = |arguments: &Value| render.write(&message(&[("f", arguments.clone())]));
            for arguments in &right {
                assert!(
                    checker.accepts(&text(arguments)),
                    "{}: {} of {schema}",
                    format.name,
                    text(arguments)
                );
            }
            for arguments in &wrong {
                assert!(
                    !checker.accepts(&text(arguments)),
                    "{}: {} of {schema}",
                    format.name,
                    text(arguments)
                );
            }
        }
    }
}
