//! What requests may say, and what the refusals say.
#![allow(clippy::unwrap_used)]

use octavo_api::{ApiError, Body, ChatRequest, CompletionRequest, Content, ErrorKind, Prompt};
use serde_json::{Value, json};

fn body(value: &Value) -> Body {
    Body::parse(&serde_json::to_vec(value).unwrap()).unwrap()
}

/// A chat request with these fields besides the least that is needed.
fn chat(extra: Value) -> Result<ChatRequest, ApiError> {
    let mut fields = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    fields
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().cloned().unwrap());
    ChatRequest::from_body(body(&fields))
}

fn completion(extra: Value) -> Result<CompletionRequest, ApiError> {
    let mut fields = json!({"model": "tiny", "prompt": "hi"});
    fields
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().cloned().unwrap());
    CompletionRequest::from_body(body(&fields))
}

/// Both routes refuse these fields with a 400 that names the field and says what is allowed.
fn refused(extra: &Value, param: &str, said: &str) {
    for error in [
        chat(extra.clone()).unwrap_err(),
        completion(extra.clone()).unwrap_err(),
    ] {
        assert_eq!(error.status(), 400, "{extra}");
        assert_eq!(error.param.as_deref(), Some(param), "{extra}: {error}");
        assert!(error.message.contains(said), "{extra}: {error}");
        assert!(error.message.contains(param), "{extra}: {error}");
    }
}

#[test]
fn numbers_out_of_range_are_named_with_the_range() {
    for (extra, param, said) in [
        (json!({"temperature": -3}), "temperature", "from 0"),
        (
            json!({"temperature": "1e400"}),
            "temperature",
            "must be a number",
        ),
        (json!({"temperature": true}), "temperature", "got true"),
        (json!({"top_p": 0}), "top_p", "above 0 and at most 1"),
        (json!({"top_p": 7}), "top_p", "got 7"),
        (json!({"top_k": 0.5}), "top_k", "0 or -1 for all"),
        (json!({"top_k": -2}), "top_k", "got -2"),
        (
            json!({"max_tokens": -1}),
            "max_tokens",
            "at least 1; got -1",
        ),
        (json!({"max_tokens": 0}), "max_tokens", "at least 1"),
        (json!({"max_tokens": 5.0}), "max_tokens", "an integer"),
        (json!({"max_tokens": "5"}), "max_tokens", "an integer"),
        (
            json!({"seed": 9_223_372_036_854_775_808_u64}),
            "seed",
            "2^63-1",
        ),
        (json!({"seed": 1.5}), "seed", "an integer"),
    ] {
        refused(&extra, param, said);
    }
}

#[test]
fn lists_and_switches_are_named() {
    for (extra, param, said) in [
        (
            json!({"stop": ["a", "b", "c", "d", "e"]}),
            "stop",
            "at most 4",
        ),
        (json!({"stop": ""}), "stop", "none of them empty"),
        (json!({"stop": [1]}), "stop", "got 1"),
        (json!({"stop_token_ids": [-1]}), "stop_token_ids", "got -1"),
        (
            json!({"stop_token_ids": [2_147_483_648_u64]}),
            "stop_token_ids",
            "integers from 0",
        ),
        (json!({"stop_token_ids": 5}), "stop_token_ids", "a list"),
        (json!({"ignore_eos": 1}), "ignore_eos", "true or false"),
        (json!({"stream": "yes"}), "stream", "true or false"),
        (
            json!({"stream_options": {"include_usage": true}}),
            "stream_options",
            "only when 'stream' is true",
        ),
        (json!({"user": 7}), "user", "a string"),
    ] {
        refused(&extra, param, said);
    }
    let error = chat(json!({"max_completion_tokens": -1})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("max_completion_tokens"));
    for name in ["include_usage", "continuous_usage_stats"] {
        let error = chat(json!({"stream": true, "stream_options": {name: 1}})).unwrap_err();
        assert_eq!(error.param, Some(format!("stream_options.{name}")));
        let one = chat(json!({"stream": true, "stream_options": {name: true}})).unwrap();
        let told = (one.include_usage, one.continuous_usage);
        assert_eq!(told, (name == "include_usage", name != "include_usage"));
    }
}

#[test]
fn edges_of_the_ranges_are_allowed() {
    let fields = json!({
        "temperature": 0, "top_p": 1, "top_k": -1, "seed": i64::MIN, "max_tokens": 1, "stop": [], "stop_token_ids": [0],
        "min_p": 0, "n": 1, "presence_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}, "tools": [],
        "tool_choice": "none", "response_format": {"type": "text"}, "logprobs": null, "echo": false, "user": "u",
        "unheard_of": {"a": 1}, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": false},
    });
    let request = chat(fields.clone()).unwrap();
    assert_eq!(request.sampling.temperature, Some(0.0));
    assert_eq!(request.sampling.top_k, Some(0));
    assert_eq!(request.sampling.seed, Some(i64::MIN));
    assert!(request.stream && request.include_usage);
    assert_eq!(completion(fields).unwrap().sampling.max_tokens, Some(1));
    let nothing = chat(
        json!({"temperature": null, "max_tokens": null, "tools": null, "n": null, "stop": null}),
    )
    .unwrap();
    assert_eq!(nothing.sampling, chat(json!({})).unwrap().sampling);
    assert_eq!(
        chat(json!({"max_tokens": 5, "max_completion_tokens": 7}))
            .unwrap()
            .sampling
            .max_tokens,
        Some(7)
    );
    assert_eq!(completion(json!({})).unwrap().sampling.max_tokens, Some(16));
    assert_eq!(
        completion(json!({"stop": "END"})).unwrap().sampling.stop,
        ["END"]
    );
}

#[test]
fn one_field_at_most_says_what_the_output_must_be() {
    let object = json!({"response_format": {"type": "json_object"}});
    assert!(chat(object).unwrap().structured.structure.is_some());
    assert!(
        chat(json!({"response_format": {"type": "text"}}))
            .unwrap()
            .structured
            .structure
            .is_none()
    );
    for (extra, param) in [
        (
            json!({"response_format": {"type": "weird"}}),
            "response_format.type",
        ),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "response_format.json_schema",
        ),
        (json!({"structured_outputs": {}}), "structured_outputs"),
        (
            json!({"structured_outputs": {"choice": []}}),
            "structured_outputs.choice",
        ),
        (
            json!({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}),
            "structured_outputs",
        ),
    ] {
        let error = chat(extra.clone()).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{extra}"
        );
    }
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    for (extra, param) in [
        (json!({"functions": [{"name": "f"}]}), "functions"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"verbosity": "high"}), "verbosity"),
        (json!({"modalities": ["text", "audio"]}), "modalities"),
    ] {
        let error = chat(extra.clone()).unwrap_err();
        assert_eq!(
            (error.status(), error.code, error.param.as_deref()),
            (400, "unsupported_parameter", Some(param)),
            "{extra}"
        );
        assert!(error.message.contains(&format!("'{param}'")), "{error}");
    }
    for (extra, param) in [
        (json!({"suffix": "x"}), "suffix"),
        (json!({"best_of": 3}), "best_of"),
    ] {
        assert_eq!(completion(extra).unwrap_err().param.as_deref(), Some(param));
    }
    // Chat's fields mean nothing to completions, as with any unknown field.
    assert!(completion(json!({"tools": [1]})).is_ok());
}

#[test]
fn messages_are_checked_in_form() {
    let with = |messages: Value| chat(json!({"messages": messages}));
    for (messages, param, said) in [
        (json!([]), "messages", "at least one"),
        (json!("hi"), "messages", "a list"),
        (json!(["hi"]), "messages.0", "an object"),
        (json!([{"content": "hi"}]), "messages.0.role", "missing"),
        (json!([{"role": "user"}]), "messages.0.content", "missing"),
        (
            json!([{"role": "user", "content": null}]),
            "messages.0.content",
            "a string or a list of text parts",
        ),
        (
            json!([{"role": "user", "content": 5}]),
            "messages.0.content",
            "got 5",
        ),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            "messages.0.content.0",
            "image_url",
        ),
        (
            json!([{"role": "user", "content": [{"type": "poem", "text": "x"}]}]),
            "messages.0.content.0.type",
            "poem",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages.0.content.0.text",
            "missing",
        ),
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {}}]}]),
            "messages.1.tool_calls.0.function.name",
            "missing",
        ),
    ] {
        let error = with(messages.clone()).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{messages}: {error}"
        );
        assert!(error.message.contains(said), "{error}");
    }
}

#[test]
fn messages_keep_what_templates_may_read() {
    let request = chat(json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, "b"]},
        {"role": "assistant", "content": null, "name": "n", "zeta": {"b": 1, "a": 2}},
    ]}));
    let messages = request.unwrap().messages;
    assert_eq!(
        messages[0].content,
        Some(Content::Parts(vec!["a".to_owned(), "b".to_owned()]))
    );
    assert_eq!(messages[1].content, None);
    assert_eq!(
        Value::from(messages[1].rest.clone()).to_string(),
        r#"{"name":"n","zeta":{"b":1,"a":2}}"#
    );
}

#[test]
fn prompts_are_one_text_or_one_list_of_ids() {
    let prompt =
        |prompt: Value| completion(json!({"prompt": prompt})).map(|request| request.prompt);
    assert_eq!(prompt(json!("")).unwrap(), Prompt::Text(String::new()));
    assert_eq!(prompt(json!([1, 2])).unwrap(), Prompt::Tokens(vec![1, 2]));
    assert_eq!(prompt(json!(["a"])).unwrap(), Prompt::Text("a".to_owned()));
    assert_eq!(prompt(json!([[3]])).unwrap(), Prompt::Tokens(vec![3]));
    for (wrong, said) in [
        (json!([]), "empty list"),
        (json!([[]]), "empty list"),
        (json!([-1]), "got -1"),
        (json!([99_999_999_999_u64]), "integers from 0"),
        (json!([1.5]), "got 1.5"),
        (json!([1, "a"]), "got \"a\""),
        (json!(["a", "b"]), "Batches are not supported"),
        (json!([[1], [2]]), "Batches are not supported"),
        (json!({"a": 1}), "a string or a list of token ids"),
        (json!(null), "missing"),
    ] {
        let error = prompt(wrong.clone()).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some("prompt")),
            "{wrong}"
        );
        assert!(error.message.contains(said), "{wrong}: {error}");
    }
}

fn batch(fields: &Value) -> Result<Vec<CompletionRequest>, ApiError> {
    let mut all = json!({"n": 2});
    let fields = fields.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    CompletionRequest::batch(body(&all))
}

#[test]
fn vectors_come_before_prompts() {
    let prompts = |fields: Value| -> Vec<Prompt> {
        let requests = batch(&fields).unwrap();
        assert!(requests.iter().all(|one| one.sampling.extras.n == 2));
        requests.into_iter().map(|one| one.prompt).collect()
    };
    let given = |text: &str| Prompt::Embeds(text.into());
    let text = |text: &str| Prompt::Text(text.to_owned());
    for none in [json!(null), json!(""), json!([])] {
        let alone = prompts(json!({"prompt": none, "prompt_embeds": "a"}));
        assert_eq!(alone, [given("a")]);
    }
    assert_eq!(
        prompts(json!({"prompt_embeds": ["a", "b"]})),
        [given("a"), given("b")]
    );
    let mixed = json!({"prompt": ["x", [1]], "prompt_embeds": ["b"]});
    assert_eq!(
        prompts(mixed),
        [given("b"), text("x"), Prompt::Tokens(vec![1])]
    );
    assert_eq!(
        prompts(json!({"prompt": "x", "prompt_embeds": null})),
        [text("x")]
    );
}

#[test]
fn vectors_need_no_text_and_have_bounds() {
    let many = vec!["a"; 1020];
    for (fields, param) in [
        (json!({"prompt_embeds": 5}), "prompt_embeds"),
        (json!({"prompt_embeds": []}), "prompt_embeds"),
        (json!({"prompt_embeds": ["a", null]}), "prompt_embeds"),
        (
            json!({"prompt_embeds": many, "prompt": ["1", "2", "3", "4", "5"]}),
            "prompt_embeds",
        ),
        (json!({"prompt_embeds": "a", "prompt": {}}), "prompt"),
        (
            json!({"prompt_embeds": "a", "prompt": [""], "echo": true}),
            "echo",
        ),
        (
            json!({"prompt_embeds": "a", "prompt_logprobs": 0}),
            "prompt_logprobs",
        ),
        (json!({"prompt_embeds": "a", "suffix": "b"}), "suffix"),
        (json!({"prompt_embeds": "a", "n": 0}), "n"),
    ] {
        let error = batch(&fields).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{fields}: {error}"
        );
    }
    let one = completion(json!({"prompt": "x", "prompt_embeds": "a"})).unwrap_err();
    assert_eq!(one.param.as_deref(), Some("prompt_embeds"));
}

#[test]
fn the_model_is_known_before_anything_is_judged() {
    assert_eq!(
        body(&json!({"model": "nope", "messages": 5}))
            .model()
            .unwrap(),
        Some("nope")
    );
    assert_eq!(body(&json!({"messages": []})).model().unwrap(), None);
    assert_eq!(
        body(&json!({"model": 5}))
            .model()
            .unwrap_err()
            .param
            .as_deref(),
        Some("model")
    );
    let error = ApiError::model_not_found("nope", &["tiny".to_owned()]);
    assert_eq!(
        (error.status(), error.code, error.param.as_deref()),
        (404, "model_not_found", Some("model"))
    );
    assert!(error.message.contains("`nope`") && error.message.contains("tiny"));
}

#[test]
fn bodies_that_are_no_object_are_refused_with_the_place() {
    for (bytes, said) in [
        (&b""[..], "empty"),
        (b"  \n", "empty"),
        (b"[]", "a list"),
        (b"null", "null"),
        (b"{bad json", "line 1 column 2"),
        (
            b"{\"prompt\": \"x\",\n \"temperature\": NaN}",
            "temperature",
        ),
        (b"{\"prompt\":\"x\",\"temperature\":1e400}", "temperature"),
        (b"{\"a\": \"\xff\"}", "not valid JSON"),
    ] {
        let error = Body::parse(bytes).unwrap_err();
        assert_eq!((error.status(), error.code), (400, "invalid_json"));
        assert!(error.message.contains(said), "{error}");
    }
    let deep = [
        b"{\"a\":".repeat(100_000),
        b"1".to_vec(),
        b"}".repeat(100_000),
    ]
    .concat();
    assert!(
        Body::parse(&deep)
            .unwrap_err()
            .message
            .contains("recursion limit")
    );
    // The last of equal keys holds, as in Python.
    assert_eq!(
        Body::parse(br#"{"model": "a", "model": "b"}"#)
            .unwrap()
            .model()
            .unwrap(),
        Some("b")
    );
}

#[test]
fn errors_have_the_shape_of_openai() {
    let error = ApiError::too_long("prompt", 70, 64);
    assert!(error.message.contains("70 tokens") && error.message.contains("64 tokens"));
    let body = serde_json::to_value(error.body()).unwrap();
    assert_eq!(body["error"]["type"], "invalid_request_error");
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert_eq!(body["error"]["param"], "prompt");
    assert_eq!(
        ApiError::rejected("too_long", "m", None).code,
        "context_length_exceeded"
    );
    assert_eq!(
        ApiError::rejected("overloaded", "m", None).kind,
        ErrorKind::Overloaded
    );
    assert_eq!(ApiError::unavailable("m", 5).retry_after_s, Some(5));
}

#[test]
fn scheduling_fields_are_checked() {
    let asked = chat(json!({"priority": -3, "cache_salt": "tenant"})).unwrap();
    assert_eq!(asked.scheduling.priority, -3);
    assert_eq!(asked.scheduling.cache_salt.as_deref(), Some("tenant"));
    let plain = chat(json!({"priority": null})).unwrap().scheduling;
    assert_eq!((plain.priority, plain.cache_salt), (0, None));
    for (extra, param) in [
        (json!({"priority": 1.5}), "priority"),
        (json!({"priority": "high"}), "priority"),
        (json!({"cache_salt": ""}), "cache_salt"),
        (json!({"cache_salt": 7}), "cache_salt"),
        (json!({"cache_salt": "s".repeat(1025)}), "cache_salt"),
    ] {
        let error = chat(extra.clone()).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{extra}"
        );
    }
}
