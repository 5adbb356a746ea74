//! Prompts, sampling defaults, limits.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};
use support::{BOS, EOS, TURN, chat, completion, ids, model};

#[test]
fn a_first_token_stands_there_once() {
    let adds = model(&json!({"tokenizer_config.json": {
        "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "chat_template": support::TEMPLATE,
    }}));
    assert_eq!(
        chat(&adds, &json!({})).unwrap().prompt,
        [vec![BOS], ids("[hi]")].concat()
    );
    assert_eq!(
        completion(&adds, &json!({})).unwrap().prompt,
        [vec![BOS], ids("hi")].concat()
    );
    assert_eq!(
        completion(&adds, &json!({"add_special_tokens": false}))
            .unwrap()
            .prompt,
        ids("hi")
    );
    assert_eq!(
        completion(&adds, &json!({"prompt": ""})).unwrap().prompt,
        [BOS]
    );
    assert_eq!(
        completion(&model(&json!({})), &json!({})).unwrap().prompt,
        ids("hi")
    );
}

/// SP08: what a request says wins, 0 and -1 included.
#[test]
fn sp08_what_the_client_leaves_open_comes_from_the_model() {
    let renderer = model(&json!({"generation_config.json": {
        "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05, "min_p": 0.1, "typical_p": 0.5,
    }}));
    assert!(
        renderer
            .warnings()
            .iter()
            .any(|warning| warning.contains("typical_p is 0.5")),
        "{:?}",
        renderer.warnings()
    );
    for (fields, wanted) in [
        (json!({}), (0.7, 0.8, 20)),
        (json!({"top_k": 1}), (0.7, 0.8, 1)),
        (json!({"top_k": -1}), (0.7, 0.8, 0)),
        (json!({"top_p": 1}), (0.7, 1.0, 20)),
        (json!({"temperature": 0}), (0.0, 1.0, 0)),
        (json!({"temperature": 1e-9}), (0.0, 1.0, 0)),
        (json!({"temperature": 1.5, "top_p": 0.5}), (1.5, 0.5, 20)),
    ] {
        let sampling = chat(&renderer, &fields).unwrap().sampling;
        assert_eq!(
            (sampling.temperature, sampling.top_p, sampling.top_k),
            wanted,
            "{fields}"
        );
    }
    for (fields, wanted) in [
        (json!({}), (0.1, 1.05)),
        (json!({"min_p": 0, "repetition_penalty": 2}), (0.0, 2.0)),
        (json!({"temperature": 0}), (0.0, 1.05)),
    ] {
        let extras = chat(&renderer, &fields).unwrap().sampling.extras.unwrap();
        assert_eq!(
            (extras.min_p, extras.repetition_penalty),
            wanted,
            "{fields}"
        );
    }
    let neutral = json!({"min_p": 0, "repetition_penalty": 1});
    assert_eq!(chat(&renderer, &neutral).unwrap().sampling.extras, None);
    let plain = chat(&model(&json!({})), &json!({})).unwrap().sampling;
    assert_eq!(plain.extras, None);
    assert_eq!((plain.temperature, plain.top_p, plain.top_k), (1.0, 1.0, 0));
    let odd = model(&json!({"generation_config.json": {"temperature": -1, "top_p": "x"}}));
    assert_eq!(odd.warnings().len(), 2);
}

#[test]
fn seeds_are_the_clients_or_drawn() {
    let renderer = model(&json!({}));
    let seed = |fields: Value| chat(&renderer, &fields).unwrap().sampling.seed;
    assert_eq!(seed(json!({"seed": -1})), u64::MAX);
    assert_eq!(seed(json!({"seed": 5})), 5);
    assert_ne!(seed(json!({})), seed(json!({})));
    let again = model(&json!({}));
    let first = |renderer| chat(renderer, &json!({})).unwrap().sampling.seed;
    assert_eq!(
        first(&again),
        first(&model(&json!({}))),
        "the same seed of the server draws the same seeds"
    );
}

/// The stop ids that a chat with these fields gets from a model with these files.
fn stops(files: &Value, fields: &Value) -> Vec<i32> {
    chat(&model(files), fields).unwrap().sampling.stop_token_ids
}

#[test]
fn end_tokens_come_from_wherever_they_stand() {
    let none = json!({"bos_token": "<s>", "chat_template": support::TEMPLATE});
    for (files, wanted) in [
        (json!({}), vec![EOS]),
        (
            json!({"generation_config.json": {"eos_token_id": [EOS, TURN]}}),
            vec![EOS, TURN],
        ),
        (
            json!({"generation_config.json": {"eos_token_id": TURN}}),
            vec![EOS, TURN],
        ),
        (
            json!({"config.json": {"eos_token_id": TURN}, "tokenizer_config.json": none}),
            vec![TURN],
        ),
        (
            json!({"config.json": {"text_config": {"eos_token_id": [TURN]}}, "tokenizer_config.json": none}),
            vec![TURN],
        ),
        // Ids beyond the logits cannot be sampled.
        (
            json!({"generation_config.json": {"eos_token_id": [EOS, 99_999]}}),
            vec![EOS],
        ),
        (json!({"tokenizer_config.json": none}), vec![]),
    ] {
        assert_eq!(stops(&files, &json!({})), wanted, "{files}");
    }
}

#[test]
fn end_tokens_can_be_left_out_and_others_added() {
    let files = json!({"generation_config.json": {"eos_token_id": [EOS, TURN]}});
    for (fields, wanted) in [
        (json!({"ignore_eos": true}), vec![]),
        (
            json!({"ignore_eos": true, "stop_token_ids": [65, TURN, 65]}),
            vec![65, TURN],
        ),
        (json!({"stop_token_ids": [65]}), vec![65, EOS, TURN]),
    ] {
        assert_eq!(stops(&files, &fields), wanted, "{fields}");
    }
}

#[test]
fn prompt_and_output_fit_together() {
    let renderer = model(&json!({}));
    let prompt = |length: usize| json!({"prompt": vec![5; length], "max_tokens": 10});
    assert_eq!(
        completion(&renderer, &prompt(54))
            .unwrap()
            .sampling
            .max_tokens,
        10
    );
    assert_eq!(
        completion(&renderer, &prompt(55))
            .unwrap()
            .sampling
            .max_tokens,
        9,
        "cut to the room that is left"
    );
    for length in [64, 65] {
        let error = completion(&renderer, &prompt(length)).unwrap_err();
        assert_eq!(
            (error.status(), error.code, error.param.as_deref()),
            (400, "context_length_exceeded", Some("prompt"))
        );
        assert!(
            error.message.contains(&format!("{length} tokens"))
                && error.message.contains("64 tokens"),
            "{error}"
        );
    }
    // "[hi]" after the first token are five.
    assert_eq!(chat(&renderer, &json!({})).unwrap().sampling.max_tokens, 59);
    let words =
        json!({"messages": [{"role": "user", "content": "word ".repeat(128)}], "stream": true});
    assert_eq!(
        chat(&renderer, &words).unwrap_err().param.as_deref(),
        Some("messages")
    );
    let capped = model(&json!({"generation_config.json": {"max_new_tokens": 7}}));
    assert_eq!(chat(&capped, &json!({})).unwrap().sampling.max_tokens, 7);
    assert_eq!(
        chat(&capped, &json!({"max_tokens": 30}))
            .unwrap()
            .sampling
            .max_tokens,
        30
    );
}

#[test]
fn prompts_of_nothing_or_of_unknown_ids_are_refused() {
    let renderer = model(&json!({}));
    for (fields, param, said) in [
        (json!({"prompt": ""}), "prompt", "no tokens"),
        (json!({"prompt": [99_999_999]}), "prompt", "99999999"),
        (json!({"prompt": [264]}), "prompt", "from 0 to 263"),
        (
            json!({"stop_token_ids": [264]}),
            "stop_token_ids",
            "from 0 to 263",
        ),
        (
            json!({"stop_token_ids": [151_645]}),
            "stop_token_ids",
            "151645",
        ),
    ] {
        let error = completion(&renderer, &fields).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{fields}"
        );
        assert!(error.message.contains(said), "{error}");
    }
    assert!(
        completion(
            &renderer,
            &json!({"prompt": [263], "stop_token_ids": [263]})
        )
        .is_ok()
    );
}

#[test]
fn templates_refuse_in_their_own_words() {
    let config = |template: &str| json!({"tokenizer_config.json": {"eos_token": "</s>", "chat_template": template}});
    let renderer = model(&config("{{ raise_exception('Roles must alternate') }}"));
    let error = chat(&renderer, &json!({})).unwrap_err();
    assert_eq!(
        (
            error.status(),
            error.message.as_str(),
            error.param.as_deref()
        ),
        (400, "Roles must alternate", Some("messages"))
    );
    let none = model(&json!({"tokenizer_config.json": {"eos_token": "</s>"}}));
    let error = chat(&none, &json!({})).unwrap_err();
    assert!(
        error.message.contains("no chat template") && error.message.contains("/v1/completions"),
        "{error}"
    );
    assert!(completion(&none, &json!({})).is_ok());
    let unknown = model(&config(
        "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content | fromjson }}{% endif %}x{% endfor %}",
    ));
    assert!(
        unknown
            .warnings()
            .iter()
            .any(|warning| warning.contains("fromjson")),
        "{:?}",
        unknown.warnings()
    );
    assert_eq!(chat(&unknown, &json!({})).unwrap().prompt, ids("x"));
    let tool = json!({"messages": [{"role": "tool", "content": "{}"}]});
    assert_eq!(chat(&unknown, &tool).unwrap_err().status(), 400);
}

#[test]
fn variables_reach_the_template() {
    let template = "{{ enable_thinking }}|{{ reasoning_effort }}|{{ documents | length }}|{{ eos_token }}|{{ add_generation_prompt }}";
    let renderer =
        model(&json!({"tokenizer_config.json": {"eos_token": "</s>", "chat_template": template}}));
    let fields = json!({
        "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "high", "documents": [{"title": "t", "text": "x"}],
    });
    let wanted = [ids("False|high|1|"), vec![EOS], ids("|True")].concat();
    assert_eq!(chat(&renderer, &fields).unwrap().prompt, wanted);
}
