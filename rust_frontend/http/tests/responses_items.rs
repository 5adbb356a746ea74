//! `/v1/responses`: items named by their ids, and log probabilities of the text.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use octavo_api::{OutputItem, OutputPart, ResponseEvent};
use octavo_edge::Keys;
use octavo_engine::News;
use octavo_wire::frontend::Logprobs;
use octavo_wire::{Floats, Tokens};
use serde_json::{Value, json};
use support::model::{marked, tokens};
use support::response::{PATH, ask, body, events, whole};
use support::{Server, within};

const CALL: &str =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}\n</tool_call>";

fn reference(id: &str) -> Value {
    json!({"type": "item_reference", "id": id})
}

#[test]
fn references_stand_for_what_was_said_and_asked() {
    within(async {
        let server = Server::parsing(Some("hermes"), Some("qwen3")).await;
        let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]);
        let ids = marked(&format!("<think>\nhm\n</think>\n\nI look.\n{CALL}"));
        let (reply, _) = ask(&server, &json!({"tools": tools}), &ids, 5, "stop").await;
        let response = whole(&reply);
        let mut client = server.connect().await;
        let asked = client
            .get(&format!("{PATH}/{}/input_items", response.id))
            .await
            .json();
        let OutputItem::FunctionCall { call_id, .. } = &response.output[2] else {
            panic!("{response:?}");
        };
        let output = json!({"type": "function_call_output", "call_id": call_id, "output": "grey"});
        let by_id = json!({"tools": tools, "previous_response_id": response.id, "input": [output]});
        let (_, call) = ask(&server, &by_id, &tokens("Grey."), 9, "stop").await;
        let mut input = vec![reference(asked["data"][0]["id"].as_str().unwrap())];
        input.extend(response.output.iter().map(|item| reference(item.id())));
        // The type may be left out.
        input[1].as_object_mut().unwrap().remove("type");
        input.push(output);
        let by_reference = json!({"tools": tools, "input": input});
        let (reply, again) = ask(&server, &by_reference, &tokens("Grey."), 9, "stop").await;
        assert_eq!(again.prompt(), call.prompt());
        // What is kept are the items, not their names.
        let second = whole(&reply).id;
        let kept = client
            .get(&format!("{PATH}/{second}/input_items?order=asc"))
            .await
            .json();
        let kinds: Vec<&str> = kept["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "message",
                "reasoning",
                "message",
                "function_call",
                "function_call_output"
            ]
        );
    });
}

#[test]
fn references_to_nothing_or_to_what_is_anothers_are_refused() {
    within(async {
        let server = Server::start().await;
        let (reply, _) = ask(&server, &json!({}), &tokens("x"), 1, "stop").await;
        let id = whole(&reply).output[0].id().to_owned();
        let mut client = server.connect().await;
        for wrong in [
            "x",
            "msg_",
            "msg_字",
            &format!("{id}0"),
            &id.replace("msg_", "msg_0"),
        ] {
            let input = json!([{"role": "user", "content": "a"}, reference(wrong)]);
            let reply = client.ask_json(PATH, &body(&json!({"input": input}))).await;
            let error = reply.error(400, "item_not_found");
            assert_eq!(error["param"], "input.1.id");
        }
        let reply = client
            .ask_json(PATH, &body(&json!({"input": [{"type": "item_reference"}]})))
            .await;
        assert_eq!(reply.error(400, "missing_field")["param"], "input.0.id");
        let many = vec![reference(&id); 1025];
        let reply = client.ask_json(PATH, &body(&json!({"input": many}))).await;
        assert_eq!(reply.error(400, "invalid_value")["param"], "input");
    });
}

/// -0.5 of each token, whose only alternative is "z" at -1.
fn rows(ids: &[i32]) -> Logprobs {
    Logprobs {
        width: 2,
        ids: Tokens(ids.iter().flat_map(|id| [*id, 122]).collect()),
        values: Floats(ids.iter().flat_map(|_| [-0.5, -1.0]).collect()),
        ranks: Tokens(vec![1; ids.len()]),
    }
}

async fn told(server: &Server, fields: &Value, ids: &[i32], step: usize) -> support::client::Reply {
    let mut client = server.connect().await;
    client.post(PATH, &body(fields)).await;
    let play = async {
        let call = server.script.call().await;
        let extras = call.request.sampling.extras.as_ref();
        assert_eq!(extras.and_then(|extras| extras.logprobs), Some(1));
        for part in ids.chunks(step) {
            call.steps.deliver(News {
                tokens: part,
                cached_tokens: Some(0),
                logprobs: Some(rows(part)),
                ..News::default()
            });
            tokio::task::yield_now().await;
        }
        call.finish("stop");
    };
    tokio::join!(client.reply(), play).0
}

#[test]
fn log_probabilities_come_with_the_text_and_not_with_thoughts() {
    within(async {
        let server = Server::parsing(None, Some("qwen3")).await;
        let include = json!(["message.output_text.logprobs"]);
        let fields = json!({"include": include, "top_logprobs": 1});
        for (ids, step) in [
            (tokens("a b "), 1),
            (tokens("a b "), 3),
            (marked("<think>\nhm\n</think>a b "), 1),
        ] {
            let response = whole(&told(&server, &fields, &ids, step).await);
            assert_eq!(response.top_logprobs, 1);
            let Some(OutputItem::Message { content, .. }) = response.output.last() else {
                panic!("{response:?}");
            };
            let OutputPart::OutputText { logprobs, .. } = &content[0];
            let texts: Vec<&str> = logprobs
                .iter()
                .map(|one| one["token"].as_str().unwrap())
                .collect();
            assert_eq!(texts.concat(), "a b ");
            assert_eq!(logprobs[0]["logprob"], -0.5);
            assert_eq!(logprobs[0]["top_logprobs"][0]["token"], "z");

            let mut streamed = fields.clone();
            streamed["stream"] = json!(true);
            let reply = told(&server, &streamed, &ids, step).await;
            let mut joined = Vec::new();
            for event in events(&reply, 0) {
                match event {
                    ResponseEvent::TextDelta { logprobs, .. } => joined.extend(logprobs),
                    ResponseEvent::TextDone { logprobs, .. } => assert_eq!(logprobs, joined),
                    _ => {}
                }
            }
            assert_eq!(&joined, logprobs);
        }
    });
}

#[test]
fn another_key_finds_no_items() {
    within(async {
        let keys = ["first-key", "other-key"].map(str::to_owned);
        let server = Server::locked(Keys::new(&keys, None).unwrap()).await;
        let with = |key: &str, body: &Value| {
            let body = body.to_string();
            format!(
                "POST {PATH} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let mut client = server.connect().await;
        client
            .send(with("first-key", &body(&json!({}))).as_bytes())
            .await;
        let ids = tokens("mine");
        let (reply, _) = tokio::join!(client.reply(), server.script.play(&ids, 9, 0, "stop"));
        let id = whole(&reply).output[0].id().to_owned();
        let named = body(&json!({"input": [reference(&id), {"role": "user", "content": "a"}]}));
        client.send(with("other-key", &named).as_bytes()).await;
        client.reply().await.error(400, "item_not_found");
        client.send(with("first-key", &named).as_bytes()).await;
        let (reply, call) = tokio::join!(client.reply(), server.script.play(&ids, 9, 0, "stop"));
        assert_eq!(reply.head.status, 200);
        assert!(call.prompt().contains("mine"));
    });
}
