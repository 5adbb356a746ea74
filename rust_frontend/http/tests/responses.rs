//! `/v1/responses`: items and events, what goes on from what, what runs in the background, and errors.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use octavo_api::{
    ItemStatus, OutputItem, OutputPart, ReasoningPart, ResponseObject, ResponseStatus,
};
use octavo_edge::Keys;
use octavo_engine::GenerateError;
use serde_json::{Value, json};
use support::client::Client;
use support::model::{marked, tokens};
use support::response::{PATH, ask, body, events, gather, whole};
use support::{Server, eventually, within};

const CALL: &str =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}\n</tool_call>";

fn tools() -> Value {
    json!([{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}])
}

/// What was said, without ids: kinds and texts.
fn said(response: &ResponseObject) -> Vec<(&'static str, String)> {
    let read = |item: &OutputItem| match item {
        OutputItem::Message { content, .. } => {
            let OutputPart::OutputText { text, .. } = &content[0];
            ("text", text.clone())
        }
        OutputItem::Reasoning { content, .. } => {
            let ReasoningPart::ReasoningText { text } = &content[0];
            ("thoughts", text.clone())
        }
        OutputItem::FunctionCall {
            name,
            arguments,
            call_id,
            ..
        } => {
            assert!(!call_id.is_empty());
            ("call", format!("{name} {arguments}"))
        }
    };
    response.output.iter().map(read).collect()
}

#[test]
fn items_are_the_same_streamed_or_not() {
    within(async {
        let server = Server::parsing(Some("hermes"), Some("qwen3")).await;
        let text = format!("<think>\nhm\n</think>\n\nI look.\n{CALL}\n{CALL}");
        let expected = [
            ("thoughts", "hm".to_owned()),
            ("text", "I look.".to_owned()),
            ("call", "weather {\"city\": \"Lima\"}".to_owned()),
            ("call", "weather {\"city\": \"Lima\"}".to_owned()),
        ];
        for ids in [tokens(&text), marked(&text)] {
            for step in [1, 3, usize::MAX] {
                let fields = json!({"tools": tools(), "metadata": {"a": "b"}, "temperature": 0.5});
                let (reply, _) = ask(&server, &fields, &ids, step, "stop").await;
                let plain = whole(&reply);
                let mut streamed = fields.clone();
                streamed["stream"] = json!(true);
                let (reply, _) = ask(&server, &streamed, &ids, step, "stop").await;
                let gathered = gather(events(&reply, 0));
                for response in [plain, gathered] {
                    assert_eq!(said(&response), expected);
                    assert_eq!(response.status, ResponseStatus::Completed);
                    assert_eq!(response.metadata["a"], "b");
                    let usage = response.usage.unwrap();
                    assert_eq!(usage.output_tokens, ids.len());
                    assert!((2..6).contains(&usage.output_tokens_details.reasoning_tokens));
                    assert!(
                        response
                            .output
                            .iter()
                            .all(|item| item.status() == ItemStatus::Completed)
                    );
                }
            }
        }
    });
}

#[test]
fn a_limit_makes_it_incomplete_and_a_fault_makes_it_fail() {
    within(async {
        let server = Server::start().await;
        let stream = json!({"stream": true});
        let (reply, _) = ask(&server, &stream, &tokens("cut"), 9, "length").await;
        let response = gather(events(&reply, 0));
        assert_eq!(response.status, ResponseStatus::Incomplete);
        assert_eq!(
            response.incomplete_details.unwrap().reason,
            "max_output_tokens"
        );
        assert_eq!(response.output[0].status(), ItemStatus::Incomplete);

        let mut client = server.connect().await;
        client.post(PATH, &body(&stream)).await;
        let call = server.script.call().await;
        call.say("begun");
        let fail = async {
            call.steps.fail(GenerateError::Failed {
                message: "broken".to_owned(),
            });
        };
        let (reply, ()) = tokio::join!(client.reply(), fail);
        let response = gather(events(&reply, 0));
        assert_eq!(response.status, ResponseStatus::Failed);
        assert_eq!(response.error.unwrap().message, "broken");
    });
}

/// The route that counts says how long the prompt of such a response would be.
async fn counted(client: &mut Client, fields: &Value, length: usize) {
    let count = format!("{PATH}/input_tokens");
    let counted = client.ask_json(&count, &body(fields)).await.json();
    let expected = json!({"object": "response.input_tokens", "input_tokens": length});
    assert_eq!(counted, expected);
}

/// What agents do: send the output back with what the functions gave, with a store and without.
#[test]
fn a_conversation_goes_on_by_id_and_by_items_alike() {
    within(async {
        let server = Server::parsing(Some("hermes"), Some("qwen3")).await;
        let include = json!(["reasoning.encrypted_content"]);
        let first = json!({"tools": tools(), "instructions": "Be brief.", "include": include});
        let ids = marked(&format!("<think>\nhm\n</think>\n\nI look.\n{CALL}"));
        let (reply, _) = ask(&server, &first, &ids, 5, "stop").await;
        let response = whole(&reply);
        let OutputItem::FunctionCall { call_id, .. } = &response.output[2] else {
            panic!("{response:?}");
        };
        let output = json!({"type": "function_call_output", "call_id": call_id, "output": "grey"});
        let by_id = json!({
            "tools": tools(), "instructions": "Be brief.", "previous_response_id": response.id, "input": [output],
        });
        let (reply, call) = ask(&server, &by_id, &tokens("Grey."), 9, "stop").await;
        let second = whole(&reply);
        let shown = call.prompt();
        let turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\
            <|im_start|>assistant\nI look.weather(city)<|im_end|>\n<|im_start|>tool\ngrey<|im_end|>\n<|im_start|>assistant\n";
        assert!(shown.ends_with(turns), "{shown}");
        let mut items = vec![json!({"role": "user", "content": "hi"})];
        for item in &response.output {
            let mut item = serde_json::to_value(item).unwrap();
            if item["type"] == "reasoning" {
                assert!(item["encrypted_content"].is_string());
                item.as_object_mut().unwrap().remove("content"); // as agents do
            }
            items.push(item);
        }
        items.push(output);
        let by_items =
            json!({"tools": tools(), "instructions": "Be brief.", "store": false, "input": items});
        let (reply, call) = ask(&server, &by_items, &tokens("Grey."), 9, "stop").await;
        assert_eq!(call.prompt(), shown);
        let unstored = whole(&reply);
        let mut client = server.connect().await;
        let third = json!({"previous_response_id": second.id, "input": "And now?"});
        let (_, call) = ask(&server, &third, &tokens("Now."), 9, "stop").await;
        assert!(call.prompt().ends_with(
            "<|im_start|>tool\ngrey<|im_end|>\n<|im_start|>assistant\nGrey.<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n\
             <|im_start|>assistant\n"
        ));
        counted(&mut client, &third, call.request.prompt.len()).await;
        client
            .get(&format!("{PATH}/{}", unstored.id))
            .await
            .error(404, "response_not_found");
        let gone = json!({"previous_response_id": unstored.id});
        let reply = client.ask_json(PATH, &body(&gone)).await;
        assert_eq!(
            reply.error(400, "previous_response_not_found")["param"],
            "previous_response_id"
        );
    });
}

#[test]
fn what_is_kept_can_be_read_listed_and_deleted() {
    within(async {
        let server = Server::start().await;
        let input = json!([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "b"}]}]);
        let (reply, _) = ask(&server, &json!({"input": input}), &tokens("x"), 1, "stop").await;
        let response = whole(&reply);
        let mut client = server.connect().await;
        let path = format!("{PATH}/{}", response.id);
        assert_eq!(whole(&client.get(&path).await), response);
        let page = client
            .get(&format!("{path}/input_items?order=asc&limit=1"))
            .await
            .json();
        assert_eq!(page["data"][0]["content"], "a");
        assert_eq!(
            (&page["has_more"], &page["first_id"]),
            (&json!(true), &page["last_id"])
        );
        let after = page["last_id"].as_str().unwrap();
        let rest = client
            .get(&format!("{path}/input_items?order=asc&after={after}"))
            .await
            .json();
        assert_eq!(
            (&rest["data"][0]["content"][0]["text"], &rest["has_more"]),
            (&json!("b"), &json!(false))
        );
        for wrong in ["limit=0", "order=up", "after=nobody"] {
            client
                .get(&format!("{path}/input_items?{wrong}"))
                .await
                .error(400, "invalid_value");
        }
        client
            .get(&format!("{path}?stream=true"))
            .await
            .error(400, "invalid_value");
        client
            .ask("POST", &format!("{path}/cancel"))
            .await
            .error(400, "invalid_value");
        let deleted = client.ask("DELETE", &path).await.json();
        assert_eq!(
            deleted,
            json!({"id": response.id, "object": "response", "deleted": true})
        );
        for method in ["GET", "DELETE"] {
            client
                .ask(method, &path)
                .await
                .error(404, "response_not_found");
        }
    });
}

#[test]
fn a_response_runs_in_the_background_and_is_followed() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let queued = client
            .ask_json(PATH, &body(&json!({"background": true})))
            .await;
        let queued = whole(&queued);
        assert_eq!(queued.status, ResponseStatus::Queued);
        let path = format!("{PATH}/{}", queued.id);
        server.script.play(&tokens("done"), 2, 0, "stop").await;
        let mut done = whole(&client.get(&path).await);
        while !done.status.ended() {
            tokio::task::yield_now().await;
            done = whole(&client.get(&path).await);
        }
        assert_eq!(said(&done), [("text", "done".to_owned())]);

        let mut follower = server.connect().await;
        client
            .post(PATH, &body(&json!({"background": true, "stream": true})))
            .await;
        let head = client.head().await;
        assert_eq!(head.status, 200);
        let first = client.text_chunk().await;
        let created: Value = serde_json::from_str(first.split("data: ").nth(1).unwrap().trim())
            .unwrap_or_else(|_| {
                serde_json::from_str(
                    first
                        .split("data: ")
                        .nth(1)
                        .unwrap()
                        .split("\n\n")
                        .next()
                        .unwrap(),
                )
                .unwrap()
            });
        let id = created["response"]["id"].as_str().unwrap().to_owned();
        drop(client); // which does not end it
        follower
            .send(
                format!(
                    "GET {PATH}/{id}?stream=true&starting_after=1 HTTP/1.1\r\nHost: test\r\n\r\n"
                )
                .as_bytes(),
            )
            .await;
        server.script.play(&tokens("followed"), 3, 0, "stop").await;
        let live = follower.reply().await;
        let told = events(&live, 2);
        assert_eq!(told[0].name(), "response.in_progress");
        assert_eq!(told.last().unwrap().name(), "response.completed");
        let again = follower
            .get(&format!("{PATH}/{id}?stream=true&starting_after=1"))
            .await;
        assert_eq!(events(&again, 2), told);
    });
}

#[test]
fn a_background_response_can_be_cancelled_and_deleted() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for deletes in [false, true] {
            let queued = whole(
                &client
                    .ask_json(PATH, &body(&json!({"background": true})))
                    .await,
            );
            let mut call = server.script.call().await;
            call.say("begun");
            let path = format!("{PATH}/{}", queued.id);
            let previous = json!({"previous_response_id": queued.id});
            client
                .ask_json(PATH, &body(&previous))
                .await
                .error(400, "previous_response_not_done");
            if deletes {
                assert_eq!(client.ask("DELETE", &path).await.head.status, 200);
                client.get(&path).await.error(404, "response_not_found");
            } else {
                for _ in 0..2 {
                    let reply = client.ask("POST", &format!("{path}/cancel")).await;
                    assert_eq!(whole(&reply).status, ResponseStatus::Cancelled);
                }
            }
            (&mut call.aborted).await.unwrap();
        }
        eventually("the gauge is back", || {
            server.metric("num_requests_open") == 0.0
        })
        .await;
    });
}

#[test]
fn what_is_too_long_is_refused_or_cut() {
    within(async {
        let server = Server::start().await;
        let turn = |role: &str, fill: char| json!({"role": role, "content": fill.to_string().repeat(1500)});
        let input = json!([
            turn("user", 'a'),
            turn("assistant", 'b'),
            turn("user", 'c'),
            turn("assistant", 'd'),
            turn("user", 'e')
        ]);
        let mut client = server.connect().await;
        client
            .ask_json(PATH, &body(&json!({"input": input})))
            .await
            .error(400, "context_length_exceeded");
        let fields = json!({"input": input, "truncation": "auto", "instructions": "sys"});
        let (_, call) = ask(&server, &fields, &tokens("x"), 1, "stop").await;
        let shown = call.prompt();
        assert!(
            shown.starts_with("<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\nee"),
            "{}",
            &shown[..80]
        );
        let one = json!({"input": "f".repeat(5000), "truncation": "auto"});
        client
            .ask_json(PATH, &body(&one))
            .await
            .error(400, "context_length_exceeded");
    });
}

/// What is wrong, and what the message names.
const WRONG: [(&str, &str); 22] = [
    (r#"{"input": null}"#, "'input'"),
    (r#"{"input": []}"#, "'input'"),
    (
        r#"{"input": [{"role": "tool", "content": "x"}]}"#,
        "input.0.role",
    ),
    (
        r#"{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}"#,
        "\"input_image\"",
    ),
    (
        r#"{"input": [{"type": "item_reference", "id": "x"}]}"#,
        "input.0.id",
    ),
    (
        r#"{"input": [{"type": "web_search_call"}]}"#,
        "web_search_call",
    ),
    (
        r#"{"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}"#,
        "input.0.call_id",
    ),
    (
        r#"{"input": [{"type": "function_call_output", "call_id": "f"}]}"#,
        "input.0.output",
    ),
    (r#"{"tools": [{"type": "web_search"}]}"#, "web_search"),
    (r#"{"tools": [{"type": "mcp", "server_url": "x"}]}"#, "mcp"),
    (r#"{"tool_choice": "required"}"#, "'tool_choice'"),
    (
        r#"{"tool_choice": {"type": "web_search"}}"#,
        "tool_choice.type",
    ),
    (
        r#"{"text": {"format": {"type": "grammar"}}}"#,
        "text.format.type",
    ),
    (
        r#"{"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nonsense"}}}}"#,
        "text.format.schema",
    ),
    (r#"{"reasoning": {"effort": "huge"}}"#, "reasoning.effort"),
    (r#"{"top_logprobs": 21}"#, "top_logprobs"),
    (r#"{"include": ["everything"]}"#, "include.0"),
    (r#"{"max_output_tokens": 0}"#, "max_output_tokens"),
    (r#"{"truncation": "some"}"#, "truncation"),
    (r#"{"metadata": {"a": 1}}"#, "metadata"),
    (r#"{"background": true, "store": false}"#, "background"),
    (r#"{"conversation": "conv_1"}"#, "'conversation'"),
];

#[test]
fn errors_name_the_field_and_fields_without_effect_are_told() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let mut client = server.connect().await;
        for (fields, named) in WRONG {
            let fields: Value = serde_json::from_str(fields).unwrap();
            let reply = client.ask_json(PATH, &body(&fields)).await;
            let body = reply.json();
            assert_eq!(reply.head.status, 400, "{fields}: {body}");
            assert!(
                body["error"]["message"].as_str().unwrap().contains(named),
                "{fields}: {body}"
            );
        }
        let reply = client
            .ask_json(PATH, &body(&json!({"model": "nope"})))
            .await;
        reply.error(404, "model_not_found");
        let fields =
            json!({"mood": "good", "reasoning": {"summary": "auto"}, "prompt_cache_key": "k"});
        let (reply, _) = ask(&server, &fields, &tokens("x"), 1, "stop").await;
        assert_eq!(
            reply.head.headers["x-octavo-warning"],
            "ignored fields: reasoning.summary, mood"
        );
    });
}

#[test]
fn a_response_belongs_to_the_key_that_made_it() {
    within(async {
        let keys = ["first-key", "other-key"].map(str::to_owned);
        let server = Server::locked(Keys::new(&keys, None).unwrap()).await;
        let with = |key: &str, method: &str, path: &str, body: &str| {
            format!(
                "{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let mut client = server.connect().await;
        client
            .send(with("first-key", "POST", PATH, &body(&json!({})).to_string()).as_bytes())
            .await;
        let ids = tokens("mine");
        let (reply, _) = tokio::join!(client.reply(), server.script.play(&ids, 9, 0, "stop"));
        let path = format!("{PATH}/{}", whole(&reply).id);
        for (key, status) in [("other-key", 404), ("first-key", 200)] {
            for (method, path) in [
                ("GET", path.clone()),
                ("GET", format!("{path}/input_items")),
            ] {
                client.send(with(key, method, &path, "").as_bytes()).await;
                assert_eq!(client.reply().await.head.status, status);
            }
        }
        let previous = body(&json!({"previous_response_id": path.rsplit('/').next()}));
        client
            .send(with("other-key", "POST", PATH, &previous.to_string()).as_bytes())
            .await;
        client
            .reply()
            .await
            .error(400, "previous_response_not_found");
        client
            .send(with("other-key", "DELETE", &path, "").as_bytes())
            .await;
        assert_eq!(client.reply().await.head.status, 404);
    });
}
