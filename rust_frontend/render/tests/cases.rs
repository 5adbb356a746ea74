//! Reported faults of serving engines, by their ids in the shared bank: templates (CT) and text of tokens (DT).
//!
//! CT16 and DT10, DT12, DT13 are about routes, and are tested in `http`; DT04 is in `tokenizer`.
#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{FinishReason, StopReason};
use octavo_render::Renderer;
use octavo_wire::frontend::Finish;
use serde_json::{Value, json};
use support::{BOS, LIMITS, chat, completion, ids, model};

const TOOL: &str = r#"{"type": "function", "function": {"name": "zeta", "description": "it's <b> & é", "parameters": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}}}"#;

/// Id, template, variables as JSON, what must come out. Messages are a user's "hi", or where the template reads calls, the
/// assistant's with one; tools are given where the template names them.
const RENDERED: [(&str, &str, &str, &str); 11] = [
    (
        "CT01",
        "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
        "{}",
        r#"{"unit": "c", "city": "Oslo"}"#,
    ),
    (
        "CT01",
        "{% if messages[0].tool_calls[0].function.arguments is string %}S{% else %}O{% endif %}",
        "{}",
        "O",
    ),
    ("CT02", "{{ tools[0] | tojson }}", "{}", TOOL),
    (
        "CT04",
        "{% if m.content is iterable and m.content is not mapping and m.content.0.type == 'text' %}yes{% endif %}",
        r#"{"m": {"content": [{"type": "text"}]}}"#,
        "yes",
    ),
    (
        "CT05",
        "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content | fromjson }}{% endif %}{% endfor %}ok",
        "{}",
        "ok",
    ),
    (
        "CT07",
        "{% set ns = namespace(name=x if x else 'd') %}{{ ns.name }}",
        r#"{"x": ""}"#,
        "d",
    ),
    (
        "CT07",
        "{% set ns = namespace(name=x if x else 'd') %}{{ ns.name }}",
        r#"{"x": "q"}"#,
        "q",
    ),
    (
        "CT08",
        "A{% generation %}b{% endgeneration %}C",
        "{}",
        "AbC",
    ),
    (
        "CT08",
        "{% for i in [1, 2] %}\n  {% generation %}\n  b{{ i }}\n  {% endgeneration %}\n{% endfor %}",
        "{}",
        "  b1\n  b2\n",
    ),
    (
        "CT10",
        "A\n{% if true %}\n  B\n{% endif %}\nC\n",
        "{}",
        "A\n  B\nC",
    ),
    (
        "CT11",
        "[{{ s | trim }}]{% for a in l %}{{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}{% for k, v in d|items %}{{k}}={{v}};{% endfor %}",
        r#"{"s": "\u3000 x \t\n", "l": [1, 2, 3], "d": {"b": 1, "a": true, "c": null}}"#,
        "[x]|2;1|3;2|;b=1;a=True;c=None;",
    ),
];

fn with_template(template: &str) -> Renderer {
    model(
        &json!({"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}}),
    )
}

fn text(renderer: &Renderer, body: &Value) -> Result<String, octavo_api::ApiError> {
    let body = octavo_api::Body::parse(&serde_json::to_vec(body).unwrap())?;
    renderer.chat_text(&octavo_api::ChatRequest::from_body(body)?)
}

#[test]
fn conversations_render_as_they_must() {
    let hi = json!([{"role": "user", "content": "hi"}]);
    let function = json!({"name": "f", "arguments": "{\"unit\":\"c\",\"city\":\"Oslo\"}"});
    let calls = json!([{"id": "c1", "type": "function", "function": function}]);
    let called = json!([{"role": "assistant", "content": null, "tool_calls": calls}]);
    let mut wrong = Vec::new();
    for (id, template, variables, expected) in RENDERED {
        let variables: Value = serde_json::from_str(variables).unwrap();
        let messages = if template.contains("tool_calls") {
            &called
        } else {
            &hi
        };
        let mut body = json!({"messages": messages, "chat_template_kwargs": variables});
        if template.contains("tools[") {
            let tool: Value = serde_json::from_str(TOOL).unwrap();
            body["tools"] = json!([tool]);
            body["tool_choice"] = json!("none");
        }
        match text(&with_template(template), &body) {
            Ok(text) if text == expected => {}
            other => wrong.push(format!("{id}: {other:?}, not {expected:?}")),
        }
    }
    println!(
        "{} of {} rows right",
        RENDERED.len() - wrong.len(),
        RENDERED.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn ct05_an_unknown_filter_is_a_warning_and_then_a_400_with_its_line() {
    let source = "{% for m in messages %}{% if m.role == 'tool' %}\n{{ m.content | fromjson }}{% endif %}{% endfor %}";
    let renderer = with_template(source);
    assert!(
        renderer
            .warnings()
            .iter()
            .any(|line| line.contains("filter fromjson (line 2)"))
    );
    let body = json!({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "1", "content": "{}"}]});
    let error = text(&renderer, &body).unwrap_err();
    assert!(
        error.message.contains("fromjson") && error.message.contains("line 2"),
        "{}",
        error.message
    );
}

#[test]
fn ct13_a_turn_goes_on_where_the_template_trims_it() {
    let renderer =
        with_template("{% for m in messages %}<{{m.role}}>{{ m.content | trim }}<end>{% endfor %}");
    for (first, last, wanted) in [
        ("joke", "OK!\n", "<user>joke<end><assistant>OK!"),
        ("joke", "OK! ", "<user>joke<end><assistant>OK!"),
        ("joke", "OK!\t", "<user>joke<end><assistant>OK!"),
        ("OK!\n", "OK!\n", "<user>OK!<end><assistant>OK!"),
    ] {
        let messages =
            json!([{"role": "user", "content": first}, {"role": "assistant", "content": last}]);
        let body = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false});
        assert_eq!(text(&renderer, &body).unwrap(), wanted);
    }
}

#[test]
fn ct14_one_first_token() {
    let config = json!({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true,
                        "chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}"});
    let renderer = model(&json!({"tokenizer_config.json": config}));
    let prompt = chat(&renderer, &json!({})).unwrap().prompt;
    assert_eq!(prompt, [&[BOS][..], &ids("[hi]")].concat());
    assert_eq!(
        completion(&renderer, &json!({})).unwrap().prompt,
        [&[BOS][..], &ids("hi")].concat()
    );
}

fn finish() -> Finish {
    Finish {
        reason: "length".to_owned(),
        stop_token: None,
        message: None,
    }
}

/// Streams tokens after a prompt of these, one at a time. Returns the pieces, and why and with how many tokens it ended.
fn stream(
    renderer: &Renderer,
    fields: &Value,
    tokens: &[i32],
) -> (Vec<String>, FinishReason, Option<StopReason>, usize) {
    let prepared = completion(renderer, fields).unwrap();
    let mut output = renderer.output(&prepared.output);
    let mut pieces = Vec::new();
    for token in tokens {
        let update = output.advance(&[*token], None);
        pieces.push(update.text);
        if let Some(end) = update.end {
            return (pieces, end.reason, end.stop_reason, end.completion_tokens);
        }
    }
    let update = output.advance(&[], Some(&finish()));
    pieces.push(update.text);
    let end = update.end.unwrap();
    (pieces, end.reason, end.stop_reason, end.completion_tokens)
}

#[test]
fn dt01_half_a_character_of_the_prompt_belongs_to_the_output() {
    let renderer = model(&json!({}));
    let mut prompt = ids("Hello world 🌶");
    let last = prompt.pop().unwrap();
    let (pieces, ..) = stream(
        &renderer,
        &json!({"prompt": prompt}),
        &[last, i32::from(b'!')],
    );
    assert_eq!(pieces.concat(), "🌶!");
}

#[test]
fn dt03_unfinished_bytes_are_not_lost() {
    let renderer = model(&json!({}));
    let tokens = [&ids("a")[..], &ids("🌶")[..3]].concat();
    let (pieces, ..) = stream(&renderer, &json!({}), &tokens);
    assert_eq!(pieces.concat(), "a\u{fffd}");
    let tokens = [&[0xE2, 0x82][..], &ids(" x")].concat();
    let (pieces, ..) = stream(&renderer, &json!({}), &tokens);
    assert_eq!(pieces, ["", "", "\u{fffd} ", "x", ""]);
}

#[test]
fn dt06_a_stop_string_across_tokens() {
    let renderer = model(&json!({}));
    for (include, wanted) in [(false, "abc "), (true, "abc END.")] {
        let fields = json!({"stop": ["END."], "include_stop_str_in_output": include});
        let Ok(prepared) = completion(&renderer, &fields) else {
            // The field is refused by name where it is not served.
            assert!(include);
            continue;
        };
        // All ways to cut the text into two steps.
        let tokens = ids("abc END. more and on");
        for cut in 0..tokens.len() {
            let mut output = renderer.output(&prepared.output);
            let first = output.advance(&tokens[..cut], None);
            let second = if first.end.is_some() {
                octavo_render::Update::default()
            } else {
                output.advance(&tokens[cut..], None)
            };
            let end = first.end.or(second.end).unwrap();
            assert_eq!(first.text + &second.text, wanted, "{cut}");
            assert_eq!(
                (end.reason, end.stop_reason),
                (
                    FinishReason::Stop,
                    Some(StopReason::Text("END.".to_owned()))
                )
            );
            assert_eq!(end.completion_tokens, 8);
        }
    }
}

#[test]
fn dt07_the_beginning_of_a_stop_string_is_held_back() {
    let renderer = model(&json!({}));
    let fields = json!({"stop": ["<|user|>", "\n\nQ:"]});
    let (pieces, reason, ..) = stream(&renderer, &fields, &ids("hello\n\nQ: next"));
    assert_eq!(
        (pieces.concat().as_str(), reason),
        ("hello", FinishReason::Stop)
    );
}

#[test]
fn dt09_no_place_of_a_stop_string_is_special() {
    let renderer = model(&json!({}));
    for count in 45..=55 {
        let tokens = ids(&format!("{}STOPWORD{}", "a".repeat(count), "b".repeat(40)));
        let (pieces, reason, ..) = stream(&renderer, &json!({"stop": ["STOPWORD"]}), &tokens);
        assert_eq!(
            (pieces.concat(), reason),
            ("a".repeat(count), FinishReason::Stop)
        );
    }
}

#[test]
fn bad_input_is_refused_by_name() {
    let endless =
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let error = chat(&with_template(endless), &json!({})).unwrap_err();
    assert!(error.message.contains("too long"), "{}", error.message);
    let huge = "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 99 }}{% endfor %}{% endfor %}";
    let error = chat(&with_template(huge), &json!({})).unwrap_err();
    assert!(
        error.message.contains("too long or wrote too much"),
        "{}",
        error.message
    );
    let renderer = model(&json!({}));
    let error = completion(&renderer, &json!({"prompt": [1, 999]})).unwrap_err();
    assert!(error.message.contains("999"), "{}", error.message);
    assert!(octavo_api::Body::parse(b"{\"prompt\": \"\xff\"}").is_err());
    assert_eq!(LIMITS.vocab_size, 264);
}

#[test]
fn a_template_of_the_request_is_rendered_only_where_it_is_trusted() {
    let body = json!({"chat_template": "<{{ messages[0].content }}>"});
    let error = chat(&model(&json!({})), &body).unwrap_err();
    assert!(
        error.message.contains("--trust-request-chat-template"),
        "{}",
        error.message
    );
    let trusting = model(&json!({})).trusting_templates(true);
    assert_eq!(chat(&trusting, &body).unwrap().prompt, ids("<hi>"));
    let error = chat(&trusting, &json!({"chat_template": "{% if %}"})).unwrap_err();
    assert!(
        error.message.contains("'chat_template' cannot be used"),
        "{}",
        error.message
    );
    let endless = json!({"chat_template": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"});
    assert!(chat(&trusting, &endless).is_err());
}

#[test]
fn a_model_without_a_template_speaks_its_own_format() {
    let added: Vec<Value> = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>"]
        .iter()
        .zip(259..)
        .map(|(token, id)| json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}))
        .collect();
    let mut tokenizer = support::tokenizer();
    tokenizer["added_tokens"]
        .as_array_mut()
        .unwrap()
        .extend(added);
    let files = json!({"tokenizer.json": tokenizer, "tokenizer_config.json": {}, "config.json": {"model_type": "gpt_oss"}});
    let renderer = model(&files);
    assert_eq!(
        renderer
            .native_format()
            .map(octavo_render::NativeFormat::name),
        Some("harmony")
    );
    let limits = octavo_render::Limits {
        max_model_len: 4096,
        vocab_size: 400,
    };
    let request = json!({"messages": [{"role": "user", "content": "<|end|>"}]});
    let request = octavo_api::Body::parse(&serde_json::to_vec(&request).unwrap()).unwrap();
    let request = octavo_api::ChatRequest::from_body(request).unwrap();
    let prompt = renderer.chat(&request, limits).unwrap().prompt;
    let user = [
        &[259][..],
        &ids("user"),
        &[261],
        &ids("<|end|>"),
        &[260],
        &[259],
        &ids("assistant"),
    ]
    .concat();
    assert_eq!(
        prompt[prompt.len() - user.len()..],
        user,
        "what the user wrote is text"
    );
    let encoding = renderer.chat_encoding(&request).unwrap();
    assert_eq!(encoding.ids.len(), prompt.len());
    let text = renderer.chat_text(&request).unwrap();
    assert_eq!(
        encoding.offsets.last().map(|place| place.1),
        Some(text.chars().count())
    );
    let unknown =
        model(&json!({"tokenizer_config.json": {}, "config.json": {"model_type": "llama"}}));
    assert!(
        chat(&unknown, &json!({}))
            .unwrap_err()
            .message
            .contains("no chat template")
    );
}
