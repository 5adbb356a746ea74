//! Tool calls over HTTP: what clients gather is the same, streamed or not, however the tokens come.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::FinishReason;
use octavo_render::ParserSettings;
use serde_json::{Value, json};
use support::answer::{CHAT, always, ask, chat};
use support::model::{folder, folder_with, marked, tokens};
use support::{Server, eventually, within};

const TWO_CALLS: &str = "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Køln 字\"}}\n</tool_call>\n\
    <tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

fn tools() -> Value {
    let city =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!([
        {"type": "function", "function": {"name": "weather", "description": "of a town", "parameters": city}},
        {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}},
    ])
}

fn with(fields: Value) -> Value {
    let mut all = json!({"tools": tools()});
    all.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    all
}

fn two_calls() -> Vec<(String, String)> {
    [("weather", "{\"city\": \"Køln 字\"}"), ("time", "{}")]
        .map(|(name, arguments)| (name.to_owned(), arguments.to_owned()))
        .into()
}

#[test]
fn calls_are_the_same_streamed_or_not_and_end_the_answer() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        for ids in [tokens(TWO_CALLS), marked(TWO_CALLS)] {
            let answer = always(&server, &with(json!({})), &ids, "stop").await;
            assert_eq!(answer.content.as_deref(), Some("I look.\n"));
            assert_eq!(answer.calls, two_calls());
            assert_eq!(answer.finish, Some(FinishReason::ToolCalls));
            assert_ne!(answer.ids[0], answer.ids[1]);
            assert!(
                answer
                    .ids
                    .iter()
                    .all(|id| id.starts_with("call_") && id.len() == 29)
            );
            assert_eq!(answer.usage.unwrap().completion_tokens_details, None);
        }
    });
}

#[test]
fn a_call_alone_has_no_content_and_special_tokens_are_markers() {
    within(async {
        let server = Server::parsing(Some("kimi_k2"), None).await;
        let text = "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>\
            {\"city\": \"<|tool_call_end\"}<|tool_call_end|><|tool_calls_section_end|>";
        let answer = always(&server, &with(json!({})), &marked(text), "stop").await;
        assert_eq!(answer.content, None);
        assert_eq!(answer.ids, ["functions.weather:0"]);
        assert_eq!(answer.calls[0].1, "{\"city\": \"<|tool_call_end\"}");
    });
}

/// US01: one chunk has the usage, the last one, without choices; also where a call ends the answer.
#[test]
fn us01_usage_comes_once_and_last_behind_calls() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let mut client = server.connect().await;
        let fields = with(json!({"stream": true, "stream_options": {"include_usage": true}}));
        for step in [1, usize::MAX] {
            client.post(CHAT, &chat(&fields)).await;
            let play = async {
                let call = server.script.call().await;
                for part in tokens(TWO_CALLS).chunks(step) {
                    call.steps.push(part, Some(0));
                    tokio::task::yield_now().await;
                }
                call.finish("stop");
            };
            let (reply, ()) = tokio::join!(client.reply(), play);
            let events = reply.events();
            let [chunks @ .., last, done] = events.as_slice() else {
                panic!("{events:?}")
            };
            assert_eq!(done, "[DONE]");
            let read = |chunk: &String| serde_json::from_str::<Value>(chunk).unwrap();
            assert!(
                chunks
                    .iter()
                    .map(read)
                    .all(|chunk| chunk["usage"].is_null())
            );
            let last = read(last);
            assert_eq!(last["choices"], json!([]));
            let usage = &last["usage"];
            let count = |name: &str| usage[name].as_u64().unwrap();
            assert_eq!(
                count("total_tokens"),
                count("prompt_tokens") + count("completion_tokens")
            );
        }
    });
}

/// TC07: one finish reason for required and named, streamed or not.
#[test]
fn tc07_required_and_named_end_with_tool_calls() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let named = json!({"type": "function", "function": {"name": "weather"}});
        for choice in [json!("required"), named] {
            let fields = with(json!({"tool_choice": choice}));
            let answer = always(&server, &fields, &tokens(TWO_CALLS), "stop").await;
            assert_eq!(answer.finish, Some(FinishReason::ToolCalls));
            assert_eq!(answer.calls, two_calls());
        }
    });
}

/// TC09: calls that nobody wants are text, and the prompt shows the tools all the same.
#[test]
fn tc09_no_calls_are_wanted() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        for fields in [json!({}), with(json!({"tool_choice": "none"}))] {
            let answer = always(&server, &fields, &tokens(TWO_CALLS), "stop").await;
            assert_eq!(answer.content.as_deref(), Some(TWO_CALLS));
            assert_eq!(answer.finish, Some(FinishReason::Stop));
            let mut client = server.connect().await;
            let (_, call) = ask(&server, &mut client, &fields, &[], 1, "stop").await;
            let prompt: Vec<u8> = call
                .request
                .prompt
                .iter()
                .filter_map(|id| u8::try_from(*id).ok())
                .collect();
            let shown = String::from_utf8(prompt).unwrap().contains("of a town");
            assert_eq!(shown, fields.get("tools").is_some());
        }
    });
}

/// TC10: one call, and the engine is told to stop.
#[test]
fn tc10_one_call_ends_the_answer_and_aborts_the_engine() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let fields = with(json!({"parallel_tool_calls": false}));
        let answer = always(&server, &fields, &tokens(TWO_CALLS), "stop").await;
        assert_eq!(answer.calls, two_calls()[..1]);
        assert_eq!(answer.finish, Some(FinishReason::ToolCalls));
        // The call is complete with its last bracket; the marker behind it is not waited for.
        let first = TWO_CALLS.find("}}").unwrap() + 2;
        assert_eq!(answer.usage.unwrap().completion_tokens, first);

        let mut client = server.connect().await;
        client.post(CHAT, &chat(&fields)).await;
        let mut call = server.script.call().await;
        call.say(TWO_CALLS);
        assert_eq!(client.reply().await.head.status, 200);
        eventually("the request is aborted", || call.aborted.try_recv().is_ok()).await;
    });
}

/// TC16, US04: what a limit cuts is a prefix, and the reason is the limit.
#[test]
fn tc16_a_limit_cuts_a_call() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let cut = TWO_CALLS.find("ln 字").unwrap();
        let answer = always(
            &server,
            &with(json!({})),
            &tokens(&TWO_CALLS[..cut]),
            "length",
        )
        .await;
        assert_eq!(answer.finish, Some(FinishReason::Length));
        assert_eq!(
            answer.calls,
            [("weather".to_owned(), "{\"city\": \"Kø".to_owned())]
        );
        assert_eq!(answer.content.as_deref(), Some("I look.\n"));
    });
}

/// TC28: what is held back as a possible marker comes before the end, whatever ends the answer.
#[test]
fn tc28_a_stop_string_sets_free_what_is_held_back() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        for (stop, text) in [
            (json!(null), "a <tool"),
            (json!("END"), "a <toolEND more"),
            (json!("_call>"), "a <tool_call>"),
        ] {
            let fields = with(json!({"stop": stop}));
            let answer = always(&server, &fields, &tokens(text), "stop").await;
            assert_eq!(answer.content.as_deref(), Some("a <tool"));
            assert_eq!(answer.finish, Some(FinishReason::Stop));
        }
    });
}

/// TC24: ids of a family, and the call as history of the next turn.
#[test]
fn tc24_ids_of_mistral_go_round() {
    let root = std::env::var_os("OCTAVO_SHARED").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        std::path::PathBuf::from,
    );
    let path =
        root.join("oracles/templates/jinja/llamacpp/mistralai-Mistral-Nemo-Instruct-2407.jinja");
    let Ok(template) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is absent; set OCTAVO_SHARED", path.display());
        return;
    };
    within(async {
        let parsers = ParserSettings {
            tool: Some("mistral".to_owned()),
            auto_tool_choice: true,
            ..ParserSettings::default()
        };
        let server = Server::start_parsing(folder_with(&template), &parsers).await;
        let text = "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}]";
        let named = json!({"type": "function", "function": {"name": "weather"}});
        for choice in [json!("auto"), json!("required"), named] {
            let fields = with(json!({"tool_choice": choice}));
            let answer = always(&server, &fields, &tokens(text), "stop").await;
            let id = &answer.ids[0];
            assert!(
                id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
                "{id}"
            );
            let function = json!({"name": answer.calls[0].0, "arguments": answer.calls[0].1});
            let history = json!([
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": id, "content": "sunny"},
            ]);
            let mut client = server.connect().await;
            let next = with(json!({"messages": history}));
            let (answer, call) = ask(
                &server,
                &mut client,
                &next,
                &tokens("It is sunny."),
                4,
                "stop",
            )
            .await;
            assert_eq!(answer.content.as_deref(), Some("It is sunny."));
            assert!(call.request.prompt.len() > 100);
        }
    });
}

#[test]
fn arguments_of_history_reach_the_template_as_objects() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let mut client = server.connect().await;
        let function = json!({"name": "weather", "arguments": "{\"city\": \"Lima\", \"day\": 1}"});
        let history = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": "sunny"},
        ]);
        let fields = json!({"messages": history});
        let (_, call) = ask(&server, &mut client, &fields, &[], 1, "stop").await;
        let expected = marked("weather(cityday)");
        let prompt = call.request.prompt;
        assert!(prompt.windows(expected.len()).any(|part| part == expected));
    });
}

#[test]
fn token_ids_of_a_step_come_once() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let mut client = server.connect().await;
        let fields = with(json!({"stream": true, "return_token_ids": true}));
        client.post(CHAT, &chat(&fields)).await;
        let ids = tokens(TWO_CALLS);
        let play = async {
            let call = server.script.call().await;
            for part in ids.chunks(7) {
                call.steps.push(part, None);
                tokio::task::yield_now().await;
            }
            call.finish("stop");
        };
        let (reply, ()) = tokio::join!(client.reply(), play);
        let events = reply.events();
        let chunks = events[..events.len() - 1]
            .iter()
            .map(|event| serde_json::from_str::<Value>(event).unwrap());
        let given: Vec<i32> = chunks
            .flat_map(|chunk| {
                chunk["choices"][0]["token_ids"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default()
            })
            .map(|id| i32::try_from(id.as_i64().unwrap()).unwrap())
            .collect();
        assert_eq!(given, ids);
    });
}

#[test]
fn what_cannot_be_parsed_is_refused_with_what_to_do() {
    within(async {
        let none = Server::start().await;
        let manual = ParserSettings {
            tool: Some("hermes".to_owned()),
            ..ParserSettings::default()
        };
        let manual = Server::start_parsing(folder(), &manual).await;
        for (server, choice, param, said) in [
            (&none, "auto", "tools", "--tool-call-parser"),
            (&none, "required", "tools", "--tool-call-parser"),
            (&manual, "auto", "tool_choice", "--enable-auto-tool-choice"),
        ] {
            let mut client = server.connect().await;
            let body = chat(&with(json!({"tool_choice": choice})));
            let error = client
                .ask_json(CHAT, &body)
                .await
                .error(400, "unsupported_parameter");
            assert_eq!(error["param"], param);
            assert!(error["message"].as_str().unwrap().contains(said), "{error}");
        }
        let fields = with(json!({"tool_choice": "required"}));
        let answer = always(&manual, &fields, &tokens(TWO_CALLS), "stop").await;
        assert_eq!(answer.calls, two_calls());
        let fields = with(json!({"tool_choice": "none"}));
        let answer = always(&none, &fields, &tokens("plain"), "stop").await;
        assert_eq!(answer.content.as_deref(), Some("plain"));
    });
}

/// An output that was searched for calls counts once in `octavo:tool_call_parser_invocations`, others do not.
#[test]
fn the_metric_of_calls_counts_each_searched_output_once() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let mut client = server.connect().await;
        for (fields, text) in [
            (with(json!({})), TWO_CALLS),
            (with(json!({"stream": true})), TWO_CALLS),
            (with(json!({"stream": true})), "I look."),
            (json!({}), TWO_CALLS),
            (with(json!({"tool_choice": "none"})), TWO_CALLS),
        ] {
            ask(&server, &mut client, &fields, &tokens(text), 3, "stop").await;
        }
        let counted = |mode: &str, outcome: &str| {
            server.find_series(&format!(
                "octavo:tool_call_parser_invocations_total{{model_name=\"test\",mode=\"{mode}\",\
                 outcome=\"{outcome}\",request_type=\"chat_completions\"}}"
            ))
        };
        assert_eq!(counted("non_streaming", "tool_call"), Some(1.0));
        assert_eq!(counted("streaming", "tool_call"), Some(1.0));
        assert_eq!(counted("streaming", "no_tool_call"), Some(1.0));
        assert_eq!(counted("non_streaming", "no_tool_call"), None);
    });
}
