//! What grammars of requests take, in a model whose messages have heads: forced calls, strict tools, structured output.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use octavo_grammar::constraint::{Constraint, Grammar, Kind, Matcher, Vocabulary, Word};
use octavo_render::{ParserSettings, Renderer};
use octavo_wire::frontend::Grammar as Asked;
use serde_json::{Value, json};
use support::{chat, model, tokenizer};

/// From this id on, in their order.
const FIRST: i32 = 256;
const SPECIAL: [&str; 8] = [
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
    "<|x|>",
];

/// A model of gpt-oss's kind: two tokens end its answers.
fn renderer(head: &str) -> Renderer {
    let mut tokens = tokenizer();
    let added: Vec<Value> = SPECIAL
        .iter()
        .zip(FIRST..)
        .map(|(content, id)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    tokens["added_tokens"] = json!(added);
    let template = format!("{{% for m in messages %}}[{{{{ m.content }}}}]{{% endfor %}}{head}");
    let files = json!({
        "tokenizer.json": tokens,
        "tokenizer_config.json": {"eos_token": "<|return|>", "chat_template": template},
        "generation_config.json": {"eos_token_id": [FIRST + 5, FIRST + 6]},
    });
    let settings = ParserSettings {
        tool: Some("openai".to_owned()),
        reasoning: Some("openai_gptoss".to_owned()),
        auto_tool_choice: true,
        ..ParserSettings::default()
    };
    model(&files).with_parsers(&settings).unwrap()
}

fn ids(text: &str) -> Vec<u32> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(byte) = rest.bytes().next() {
        let special = SPECIAL
            .iter()
            .zip(FIRST..)
            .find(|(name, _)| rest.starts_with(**name));
        let (id, len) = special.map_or((i32::from(byte), 1), |(name, id)| (id, name.len()));
        out.push(id.cast_unsigned());
        rest = std::str::from_utf8(&rest.as_bytes()[len..]).unwrap_or("");
    }
    out
}

fn matcher(asked: &Asked) -> Matcher {
    let mut words: Vec<Word> = (0..=u8::MAX).map(|byte| Word::Bytes(vec![byte])).collect();
    words.extend(SPECIAL.map(|name| Word::Special(name.to_owned())));
    let end = [FIRST + 5, FIRST + 6].map(i32::cast_unsigned);
    let vocabulary = Vocabulary::new(&words, words.len(), &end).unwrap();
    let constraint = Constraint::raw(Kind::of(&asked.kind).unwrap(), asked.text.clone());
    Grammar::compile(&constraint, &vocabulary)
        .unwrap()
        .matcher()
}

/// Whether the answer may be this, and end there.
fn takes(asked: &Asked, text: &str) -> bool {
    let mut matcher = matcher(asked);
    let mut complete = false;
    for id in ids(text) {
        if complete {
            return false;
        }
        match matcher.accept(id) {
            Ok(now) => complete = now,
            Err(_) => return false,
        }
    }
    complete || matcher.accepting().unwrap()
}

fn strict(choice: &Value) -> Value {
    json!({"tool_choice": choice, "tools": [{"type": "function", "function": {"name": "look", "strict": true, "parameters": {
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}}}]})
}

const THOUGHT: &str = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
const CALL: &str = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"n\":1}";
const WRONG: &str =
    "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"n\":\"1\"}";
const SAID: &str = "<|channel|>final<|message|>Well, {\"n\":\"1\"} it is.";
const PREAMBLE: &str = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";

fn asked(head: &str, fields: &Value) -> Asked {
    chat(&renderer(head), fields).unwrap().grammar.unwrap()
}

#[test]
fn required_calls_have_thoughts_in_front() {
    let grammar = asked("<|start|>assistant", &strict(&json!("required")));
    assert!(takes(&grammar, CALL));
    assert!(takes(&grammar, &format!("{THOUGHT}{THOUGHT}{CALL}")));
    assert!(!takes(&grammar, WRONG));
    assert!(!takes(&grammar, SAID));
    assert!(!takes(&grammar, THOUGHT));
    assert!(!takes(&grammar, &format!("{CALL}{CALL}")));
}

#[test]
fn strict_tools_leave_the_choice_to_the_model() {
    let grammar = asked("<|start|>assistant", &strict(&json!("auto")));
    for right in [CALL, SAID] {
        assert!(takes(&grammar, right), "{right}");
        assert!(
            takes(&grammar, &format!("{THOUGHT}{PREAMBLE}{right}")),
            "{right}"
        );
    }
    assert!(!takes(&grammar, WRONG));
    assert!(!takes(&grammar, &format!("{PREAMBLE}{WRONG}")));
    assert!(!takes(&grammar, "Well."));
}

#[test]
fn thoughts_that_the_prompt_has_begun_go_on() {
    let head = "<|start|>assistant<|channel|>analysis<|message|>";
    let grammar = asked(head, &strict(&json!("required")));
    assert!(takes(
        &grammar,
        &format!("Hm.<|end|><|start|>assistant{CALL}")
    ));
    assert!(!takes(&grammar, CALL));
    let half = "<|start|>assistant<|channel|>";
    let error = chat(&renderer(half), &strict(&json!("required"))).unwrap_err();
    assert!(
        error.message.contains("inside of the head"),
        "{}",
        error.message
    );
}

#[test]
fn structured_output_is_the_body_of_the_answer() {
    let fields = json!({"structured_outputs": {"json": {"type": "object", "properties": {"n": {"type": "integer"}},
        "required": ["n"], "additionalProperties": false}}});
    let grammar = asked("<|start|>assistant", &fields);
    let answer = "<|channel|>final<|message|>{\"n\":1}";
    assert!(takes(&grammar, answer));
    assert!(takes(&grammar, &format!("{THOUGHT}{answer}")));
    assert!(!takes(&grammar, "{\"n\":1}"));
    assert!(!takes(&grammar, SAID));
    let grammar = asked("<|start|>assistant<|channel|>final<|message|>", &fields);
    assert!(takes(&grammar, "{\"n\":1}"));
}
