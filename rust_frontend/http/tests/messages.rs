//! Anthropic's API: what clients gather is the same, streamed or not; blocks, ends, and what the model is shown.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use octavo_api::{ContentBlock, EndReason};
use serde_json::{Value, json};
use support::message::{always, ask, body};
use support::model::{END, marked, tokens};
use support::{Server, within};

const CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Lima\"}}\n</tool_call>";

fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"name": "get_weather", "description": "of a town", "input_schema": schema}])
}

fn text(text: &str) -> ContentBlock {
    ContentBlock::Text {
        text: text.to_owned(),
    }
}

fn weather() -> ContentBlock {
    let (id, name) = (String::new(), "get_weather".to_owned());
    ContentBlock::ToolUse {
        id,
        name,
        input: json!({"city": "Lima"}),
    }
}

#[test]
fn gr05_blocks_and_ends() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let fields = json!({"tools": tools()});
        let cases = [
            (
                format!("Let me look.\n{CALL}"),
                vec![text("Let me look."), weather()],
                EndReason::ToolUse,
            ),
            (CALL.to_owned(), vec![weather()], EndReason::ToolUse),
            (
                format!("{CALL}\n{CALL}"),
                vec![weather(), weather()],
                EndReason::ToolUse,
            ),
            (
                "Just text.".to_owned(),
                vec![text("Just text.")],
                EndReason::EndTurn,
            ),
        ];
        for (said, blocks, reason) in cases {
            for ids in [tokens(&said), marked(&said)] {
                let answer = always(&server, &fields, &ids, "stop").await;
                assert_eq!(answer.content, blocks);
                assert_eq!(
                    (answer.stop_reason, answer.stop_sequence),
                    (Some(reason), None)
                );
                assert_eq!(answer.usage.output_tokens, ids.len());
                assert_eq!(answer.usage.cache_read_input_tokens, 16);
            }
        }
        let parallel = json!({"tools": tools(), "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
        let answer = always(
            &server,
            &parallel,
            &tokens(&format!("{CALL}\n{CALL}")),
            "stop",
        )
        .await;
        assert_eq!(answer.content, [weather()]);
    });
}

/// CT16: an assistant's last turn is continued.
#[test]
fn ct16_the_answer_goes_on_with_the_last_turn() {
    within(async {
        let server = Server::start().await;
        let messages = json!([{"role": "user", "content": "Count to 3"}, {"role": "assistant", "content": "1, 2,"}]);
        let (reply, call) = ask(
            &server,
            &json!({"messages": messages}),
            &tokens(" 3"),
            9,
            "stop",
        )
        .await;
        assert!(
            call.prompt().ends_with("<|im_start|>assistant\n1, 2,"),
            "{}",
            call.prompt()
        );
        assert_eq!(
            reply.json()["content"],
            json!([{"type": "text", "text": " 3"}])
        );
    });
}

#[test]
fn thoughts_are_blocks_with_a_signature_and_can_be_left_out() {
    within(async {
        let server = Server::parsing(Some("hermes"), Some("qwen3")).await;
        let ids = marked("<think>\nA town.\n</think>\n\nLima.");
        let answer = always(
            &server,
            &json!({"thinking": {"type": "enabled", "budget_tokens": 20}}),
            &ids,
            "stop",
        )
        .await;
        let ContentBlock::Thinking {
            thinking,
            signature,
        } = &answer.content[0]
        else {
            panic!("{answer:?}");
        };
        assert_eq!((thinking.as_str(), signature.len()), ("A town.", 64));
        assert_eq!(answer.content[1..], [text("Lima.")]);
        for off in [
            json!({"type": "adaptive", "display": "omitted"}),
            json!({"type": "disabled"}),
        ] {
            let said = if off["type"] == "disabled" {
                marked("Lima.")
            } else {
                ids.clone()
            };
            let answer = always(&server, &json!({"thinking": off}), &said, "stop").await;
            assert_eq!(answer.content, [text("Lima.")]);
        }
    });
}

#[test]
fn ends_have_anthropics_names() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let stop = json!({"stop_sequences": ["END", "no"]});
        let answer = always(&server, &stop, &tokens("one END two"), "stop").await;
        assert_eq!(answer.content, [text("one ")]);
        assert_eq!(answer.stop_reason, Some(EndReason::StopSequence));
        assert_eq!(answer.stop_sequence.as_deref(), Some("END"));
        let answer = always(&server, &json!({}), &tokens("cut"), "length").await;
        assert_eq!(answer.stop_reason, Some(EndReason::MaxTokens));
        let answer = always(&server, &json!({}), &[END], "stop").await;
        assert_eq!(answer.content, []);
        let cut = tokens(
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"a\": 1, \"city\": \"Li",
        );
        let (reply, _) = ask(&server, &json!({"tools": tools()}), &cut, 9, "length").await;
        assert_eq!(reply.json()["content"][0]["input"], json!({"a": 1}));
        assert_eq!(reply.json()["stop_reason"], "max_tokens");
    });
}

#[test]
fn a_conversation_becomes_the_messages_of_a_chat() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let fields = json!({
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "tools": tools(),
            "messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "user", "content": [{"type": "text", "text": "In Lima."}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Lima"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "grey"}], "is_error": true},
                    {"type": "text", "text": "So?"},
                ]},
            ],
        });
        let (reply, call) = ask(&server, &fields, &tokens("Grey."), 9, "stop").await;
        let shown = call.prompt();
        let (head, turns) = shown.split_at(shown.find("<|im_start|>").unwrap());
        let tool: Value = serde_json::from_str(head.trim_end_matches("\\n")).unwrap();
        assert_eq!(
            tool[0]["function"]["parameters"],
            tools()[0]["input_schema"]
        );
        assert_eq!(tool[0]["function"]["description"], "of a town");
        let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWeather?\nIn Lima.<|im_end|>\n\
            <|im_start|>assistant\nI look.get_weather(city)<|im_end|>\n<|im_start|>tool\nError:\ngrey<|im_end|>\n\
            <|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(turns, expected);
        let mut client = server.connect().await;
        let mut count = body(&fields);
        count.as_object_mut().unwrap().remove("max_tokens");
        let counted = client.ask_json("/v1/messages/count_tokens", &count).await;
        assert_eq!(
            counted.json(),
            json!({"input_tokens": call.request.prompt.len()})
        );
        let usage = reply.json()["usage"].clone();
        let parts = [
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
        ];
        let [rest, created, found] = parts.map(|name| usage[name].as_u64().unwrap());
        let prompt = call.request.prompt.len() as u64;
        assert_eq!(rest + created + found, prompt);
        // Full blocks of 16 tokens before the last token, which is always computed.
        assert_eq!(found + created, (prompt - 1) / 16 * 16);
        assert!(created > 0);
    });
}
