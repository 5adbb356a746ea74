//! `truncate_prompt_tokens` and `truncation_side`.
#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{ApiError, Body, ChatRequest, CompletionRequest, GenerateRequest};
use octavo_render::{RenderedPrompt, Renderer, Wanted};
use serde_json::{Value, json};
use support::{BOS, LIMITS, chat, completion, ids, model};

/// Adds a first token of its own to plain texts.
fn adding() -> Renderer {
    model(&json!({"tokenizer_config.json": {
        "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "chat_template": support::TEMPLATE,
    }}))
}

fn prompt_of(renderer: &Renderer, fields: &Value) -> Vec<i32> {
    completion(renderer, fields).unwrap().prompt
}

#[test]
fn the_last_tokens_are_kept_or_the_first() {
    let renderer = model(&json!({}));
    for (prompt, cut, kept) in [
        (json!("abcdef"), json!({"truncate_prompt_tokens": 2}), "ef"),
        (
            json!("abcdef"),
            json!({"truncate_prompt_tokens": 2, "truncation_side": "right"}),
            "ab",
        ),
        (json!("ab"), json!({"truncate_prompt_tokens": 2}), "ab"),
        (json!("ab"), json!({"truncate_prompt_tokens": 63}), "ab"),
        (json!("ab"), json!({"truncate_prompt_tokens": -1}), "ab"),
        (json!("ab"), json!({"truncation_side": "left"}), "ab"),
        (
            json!([97, 98, 99]),
            json!({"truncate_prompt_tokens": 1}),
            "c",
        ),
        (
            json!([97, 98, 99]),
            json!({"truncate_prompt_tokens": 1, "truncation_side": "right"}),
            "a",
        ),
    ] {
        let mut fields = cut.clone();
        fields["prompt"] = prompt.clone();
        assert_eq!(prompt_of(&renderer, &fields), ids(kept), "{prompt} {cut}");
    }
    let conversation = json!({"truncate_prompt_tokens": 3});
    assert_eq!(
        chat(&renderer, &conversation).unwrap().prompt,
        ids("hi]")[..]
    );
    let begin = json!({"truncate_prompt_tokens": 2, "truncation_side": "right"});
    let begin = chat(&renderer, &begin).unwrap().prompt;
    assert_eq!(begin, [vec![BOS], ids("[")].concat());
}

/// The tokens that the tokenizer adds count and stay, as Transformers has it.
#[test]
fn a_first_token_stays() {
    let renderer = adding();
    for (side, kept) in [("left", "ef"), ("right", "ab")] {
        let fields =
            json!({"prompt": "abcdef", "truncate_prompt_tokens": 3, "truncation_side": side});
        assert_eq!(
            prompt_of(&renderer, &fields),
            [vec![BOS], ids(kept)].concat()
        );
    }
}

/// -1 leaves room for what the output needs; without a limit of the request for one token.
#[test]
fn as_much_is_kept_as_the_output_leaves() {
    let renderer = model(&json!({}));
    let long = "x".repeat(200);
    for (fields, kept) in [
        (json!({"max_tokens": 10}), 54),
        (json!({}), 48), // 16 tokens are the default of completions
        (json!({"max_tokens": 63}), 1),
        (json!({"max_tokens": 0, "echo": true}), 63),
    ] {
        let mut fields = fields.clone();
        fields["prompt"] = json!(long);
        fields["truncate_prompt_tokens"] = json!(-1);
        let prepared = completion(&renderer, &fields).unwrap();
        assert_eq!(prepared.prompt.len(), kept, "{fields}");
        assert!(prepared.sampling.max_tokens + kept as u64 <= 64, "{fields}");
    }
    let says = json!([{"role": "user", "content": long}]);
    let whole = json!({"messages": says, "truncate_prompt_tokens": -1});
    assert_eq!(chat(&renderer, &whole).unwrap().prompt.len(), 63);
    let bounded = model(&json!({"generation_config.json": {"max_new_tokens": 20}}));
    assert_eq!(chat(&bounded, &whole).unwrap().prompt.len(), 44);
    let boundless = model(&json!({"generation_config.json": {"max_new_tokens": 2000}}));
    assert_eq!(chat(&boundless, &whole).unwrap().prompt.len(), 63);
}

#[test]
fn numbers_that_keep_nothing_or_too_much_are_refused() {
    let renderer = model(&json!({}));
    for (fields, said) in [
        (json!({"truncate_prompt_tokens": 64}), "at most 63"),
        (json!({"truncate_prompt_tokens": 0}), "at least 1"),
        (json!({"truncate_prompt_tokens": -2}), "at least 1"),
        (json!({"truncate_prompt_tokens": "5"}), "a number"),
        (
            json!({"truncate_prompt_tokens": -1, "max_tokens": 64}),
            "leaves nothing",
        ),
    ] {
        for error in [
            chat(&renderer, &fields).unwrap_err(),
            completion(&renderer, &fields).unwrap_err(),
        ] {
            assert_eq!(error.status(), 400);
            assert_eq!(error.param.as_deref(), Some("truncate_prompt_tokens"));
            assert!(error.message.contains(said), "{fields}: {error}");
        }
    }
    let side = json!({"truncate_prompt_tokens": 1, "truncation_side": "middle"});
    let error = chat(&renderer, &side).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("truncation_side"));
    let huge = json!({"prompt": "x".repeat((1 << 20) + 1), "truncate_prompt_tokens": 5});
    let error = completion(&renderer, &huge).unwrap_err();
    assert!(error.message.contains("reads 1048576 at most"), "{error}");
}

/// What stands before the output is what the model saw, and so are its log probabilities.
#[test]
fn an_echo_is_what_was_kept() {
    let renderer = adding();
    let echo = |cut: &Value| {
        let mut fields = json!({"prompt": "abcdef", "echo": true, "prompt_logprobs": 0});
        for (name, value) in cut.as_object().unwrap() {
            fields[name] = value.clone();
        }
        let prepared = completion(&renderer, &fields).unwrap();
        assert_eq!(prepared.prompt_values, prepared.prompt.len());
        let told = renderer.echoed(&prepared, None);
        assert_eq!(told.tokens.len(), prepared.prompt.len());
        assert_eq!(told.text_offset[0], 0);
        prepared.echo.unwrap()
    };
    assert_eq!(echo(&json!({})), "abcdef");
    assert_eq!(echo(&json!({"truncate_prompt_tokens": 7})), "abcdef");
    assert_eq!(echo(&json!({"truncate_prompt_tokens": 3})), "ef");
    let right = json!({"truncate_prompt_tokens": 3, "truncation_side": "right"});
    assert_eq!(echo(&right), "ab");
}

fn body(fields: &Value) -> Body {
    Body::parse(&serde_json::to_vec(fields).unwrap()).unwrap()
}

/// Render routes give what was kept, with its places in the whole text, and pass nothing on that would cut again.
#[test]
fn rendered_prompts_are_cut_once() {
    let renderer = adding();
    let wanted = Wanted {
        offsets: true,
        ..Wanted::default()
    };
    let fields = json!({"prompt": "abcdef", "truncate_prompt_tokens": 3});
    let request = CompletionRequest::from_body(body(&fields)).unwrap();
    let rendered: Result<RenderedPrompt, ApiError> =
        renderer.render_completion(&request, LIMITS, wanted);
    let rendered = rendered.unwrap();
    assert_eq!(rendered.token_ids, [vec![BOS], ids("ef")].concat());
    assert_eq!(rendered.offsets, Some(vec![(0, 0), (4, 5), (5, 6)]));
    assert!(!rendered.sampling.contains_key("truncate_prompt_tokens"));
    let says = json!([{"role": "user", "content": "abc"}]);
    let fields = json!({"messages": says, "truncate_prompt_tokens": 2});
    let request = ChatRequest::from_body(body(&fields)).unwrap();
    let rendered = renderer.render_chat(&request, LIMITS, wanted).unwrap();
    assert_eq!(rendered.token_ids, ids("c]"));
    assert_eq!(rendered.offsets, Some(vec![(6, 7), (7, 8)]));
    let tokens = renderer.chat_tokens(&request, 100, LIMITS).unwrap();
    assert_eq!(tokens, [u32::from(b'c'), u32::from(b']')]);
}

#[test]
fn token_ids_of_a_request_are_cut_too() {
    let renderer = model(&json!({}));
    let cut = |sampling: Value| {
        let fields = json!({"token_ids": [97, 98, 99], "sampling_params": sampling});
        let request = GenerateRequest::from_body(body(&fields))?;
        renderer.generate(request, LIMITS)
    };
    let kept = cut(json!({"truncate_prompt_tokens": 2})).unwrap().prompt;
    assert_eq!(kept, ids("bc"));
    let error = cut(json!({"truncate_prompt_tokens": 99})).unwrap_err();
    let field = "sampling_params.truncate_prompt_tokens";
    assert_eq!(error.param.as_deref(), Some(field));
}
