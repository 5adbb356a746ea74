//! Forced tool calls: what a format writes is what its grammar takes.

#![allow(clippy::unwrap_used, clippy::panic)]

use octavo_grammar::constraint::{Checker, Guided, GuidedTool, Specials, Thoughts, calls};
use octavo_grammar::{ArgumentStyle, Format, Registry, RenderedCall, RenderedMessage};
use serde_json::{Value, json};

const REQUIRED: Guided = Guided {
    required: true,
    parallel: true,
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

fn guided(format: &Format, wanted: Guided) -> Option<Checker> {
    let (weather, time) = (weather(), time());
    let tools = [GuidedTool::read(&weather)?, GuidedTool::read(&time)?];
    let render = format.render.as_ref()?;
    let constraint = calls(render, &tools, wanted, &Specials::default()).ok()?;
    Some(Checker::of(&constraint).unwrap_or_else(|error| panic!("{}: {error}", format.name)))
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
        let Some(checker) = guided(format, REQUIRED) else {
            let loose = [ArgumentStyle::Json, ArgumentStyle::Params].contains(&render.arguments);
            assert!(
                !loose || !render.param_join.is_empty(),
                "{} is not forced",
                format.name
            );
            continue;
        };
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
    assert!(forced.len() >= 25, "{forced:?}");
}

#[test]
fn one_call_where_only_one_is_allowed() {
    let registry = Registry::builtin().unwrap();
    let hermes = registry.tool("hermes").unwrap();
    let single = Guided {
        required: true,
        parallel: false,
    };
    let checker = guided(hermes, single).unwrap();
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
        parallel: true,
    };
    let checker = guided(hermes, wanted).unwrap();
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
    let render = registry.tool("hermes").unwrap().render.clone().unwrap();
    let mut tool = json!({"name": "f", "strict": true, "parameters": {"type": "object", "properties": {
        "a": {"type": "array", "contains": {"type": "string"}}}}});
    let error = calls(
        &render,
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
        &render,
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
    let render = registry.tool("hermes").unwrap().render.clone().unwrap();
    let weather = weather();
    let tools = [GuidedTool::read(&weather).unwrap()];
    let constraint = calls(&render, &tools, REQUIRED, &Specials::default()).unwrap();
    let call = render.write(&message(&[("get_weather", good())]));
    let mut thoughts = Thoughts {
        open: String::new(),
        close: "</think>".to_owned(),
    };
    let begun = Checker::of(&constraint.behind(&thoughts, &Specials::default())).unwrap();
    assert!(begun.accepts(&format!("Hm < {{}}.</think>\n\n{call}")));
    assert!(!begun.accepts(&call));
    thoughts.open = "<think>".to_owned();
    let free = Checker::of(&constraint.behind(&thoughts, &Specials::default())).unwrap();
    assert!(free.accepts(&call));
    assert!(free.accepts(&format!("<think>\nHm.</think>\n{call}")));
    assert!(!free.accepts(&format!("Hm.</think>\n{call}")));
}
