//! Fields about tools and thoughts: defaults, choices, and what is refused.
#![allow(clippy::unwrap_used)]

use octavo_api::{
    ApiError, Body, ChatRequest, FinishReason, ReasoningField, ReasoningFields, ToolChoice,
};
use serde_json::{Value, json};

fn chat(fields: &Value) -> Result<ChatRequest, ApiError> {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    ChatRequest::from_body(Body::parse(&serde_json::to_vec(&body).unwrap())?)
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}, "strict": null}})
}

#[test]
fn calls_are_wanted_where_there_are_tools_and_nothing_says_no() {
    let of = |fields: Value| chat(&fields).unwrap().tools;
    let none = of(json!({"tools": []}));
    assert_eq!(
        (&none.choice, none.parallel, none.wants_calls()),
        (&ToolChoice::None, true, false)
    );
    let auto = of(json!({"tools": [tool("f")], "tool_choice": null, "parallel_tool_calls": null}));
    assert_eq!(
        (&auto.choice, auto.parallel, auto.wants_calls()),
        (&ToolChoice::Auto, true, true)
    );
    assert_eq!(auto.tools, [tool("f")]);
    let off = of(json!({"tools": [tool("f")], "tool_choice": "none"}));
    assert!(!off.wants_calls() && off.tools.len() == 1);
    let one =
        of(json!({"tools": [tool("f")], "tool_choice": "required", "parallel_tool_calls": false}));
    assert_eq!((one.choice, one.parallel), (ToolChoice::Required, false));
    let named = json!({"type": "function", "function": {"name": "g"}});
    let named = of(json!({"tools": [tool("f"), tool("g")], "tool_choice": named}));
    assert_eq!(named.choice, ToolChoice::Named("g".to_owned()));
}

/// Asserts that each is refused under the name, with these words.
fn refused(cases: &[(Value, &str, &str)]) {
    for (fields, param, said) in cases {
        let error = chat(fields).unwrap_err();
        assert_eq!(error.status(), 400);
        assert_eq!(error.param.as_deref(), Some(*param), "{fields}: {error}");
        assert!(error.message.contains(said), "{fields}: {error}");
    }
}

#[test]
fn tools_that_are_none_are_refused_by_name() {
    refused(&[
        (json!({"tools": {}}), "tools", "a list"),
        (json!({"tools": [7]}), "tools.0", "an object"),
        (
            json!({"tools": [{"function": {}}]}),
            "tools.0.type",
            "missing",
        ),
        (
            json!({"tools": [{"type": "web_search"}]}),
            "tools.0.type",
            "web_search",
        ),
        (
            json!({"tools": [tool("f"), {"type": "function"}]}),
            "tools.1.function",
            "missing",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": " "}}]}),
            "tools.0.function.name",
            "a name",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}),
            "tools.0.function.parameters",
            "JSON schema",
        ),
    ]);
}

#[test]
fn choices_that_cannot_be_are_refused_by_name() {
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    refused(&[
        (
            json!({"tool_choice": "auto"}),
            "tool_choice",
            "needs 'tools'",
        ),
        (
            json!({"tools": [tool("f")], "tool_choice": "any"}),
            "tool_choice",
            "\"required\"",
        ),
        (
            json!({"tools": [tool("f")], "tool_choice": named("g")}),
            "tool_choice",
            "it has f",
        ),
        (
            json!({"tools": [tool("f")], "tool_choice": {"type": "function"}}),
            "tool_choice.function.name",
            "missing",
        ),
        (
            json!({"parallel_tool_calls": 1}),
            "parallel_tool_calls",
            "true or false",
        ),
        (
            json!({"include_reasoning": "no"}),
            "include_reasoning",
            "true or false",
        ),
        (
            json!({"reasoning_field": "thoughts"}),
            "reasoning_field",
            "\"both\"",
        ),
    ]);
}

#[test]
fn thoughts_are_shown_under_the_names_that_are_asked_for() {
    let of = |fields: Value| chat(&fields).unwrap().reasoning;
    assert_eq!(of(json!({})), ReasoningFields::default());
    let hidden = of(json!({"include_reasoning": false, "reasoning_field": "both"}));
    assert_eq!(
        (hidden.include, hidden.field),
        (false, ReasoningField::Both)
    );
}

#[test]
fn finish_reasons_have_the_names_of_the_api() {
    let reasons = [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::ToolCalls,
        FinishReason::Abort,
    ];
    let names = serde_json::to_value(reasons).unwrap();
    assert_eq!(names, json!(["stop", "length", "tool_calls", "abort"]));
}
