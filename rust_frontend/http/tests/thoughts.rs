//! Reasoning over HTTP: where thoughts end, how they are shown, how their tokens are counted.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::FinishReason;
use octavo_render::ParserSettings;
use serde_json::{Value, json};
use support::answer::{Answer, always};
use support::model::{END, folder_with, marked, tokens};
use support::{Server, within};

fn open(fields: Value) -> Value {
    let mut all = json!({"chat_template_kwargs": {"open_think": true}});
    all.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    all
}

fn split(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (answer.reasoning.as_deref(), answer.content.as_deref())
}

/// RS06: stop strings that never match change nothing; markers may be one token or several.
#[test]
fn rs06_stop_strings_do_not_move_the_border() {
    within(async {
        let server = Server::parsing(None, Some("qwen3")).await;
        let text = "<think>first part</think>second part";
        let opened = "first part</think>second part";
        let long = "✿".repeat(20);
        for stop in [
            json!(null),
            json!(["✿RESULT✿", "✿RETURN✿"]),
            json!(["q", long]),
            json!(["</thinker", "<thinks"]),
        ] {
            for (fields, text) in [
                (json!({"stop": stop}), text),
                (open(json!({"stop": stop})), opened),
            ] {
                let (mut seen, mut counts) = (Vec::new(), Vec::new());
                for ids in [tokens(text), marked(text)] {
                    let answer = always(&server, &fields, &ids, "stop").await;
                    assert_eq!(split(&answer), (Some("first part"), Some("second part")));
                    assert_eq!(answer.finish, Some(FinishReason::Stop));
                    counts.push(answer.reasoning_tokens());
                    seen.push(answer);
                }
                assert_eq!(counts, ["first part".len(); 2], "each byte is a token");
            }
        }
    });
}

/// US03: tokens behind the end are nobody's, and the close marker is no thought.
#[test]
fn us03_reasoning_tokens_are_those_of_the_thoughts() {
    within(async {
        let server = Server::parsing(None, Some("qwen3")).await;
        // The engine cuts at the end token: [t1, </think>, EOS] is all that comes of [t1, </think>, EOS, x, y].
        let mut ids = marked("t</think>");
        ids.push(END);
        let answer = always(&server, &open(json!({})), &ids, "stop").await;
        let usage = answer.usage.clone().unwrap();
        assert_eq!((usage.completion_tokens, answer.reasoning_tokens()), (3, 1));
        assert_eq!(split(&answer), (Some("t"), None));
    });
}

#[test]
fn a_stop_string_within_thoughts_ends_them_and_counts_what_was_shown() {
    within(async {
        let server = Server::parsing(None, Some("qwen3")).await;
        let fields = open(json!({"stop": "END"}));
        let answer = always(&server, &fields, &tokens("abcEND never"), "stop").await;
        assert_eq!(split(&answer), (Some("abc"), None));
        assert_eq!(answer.reasoning_tokens(), 3);
        assert_eq!(answer.usage.unwrap().completion_tokens, 6);
    });
}

#[test]
fn a_prompt_that_leaves_nothing_open_begins_the_answer() {
    within(async {
        let server = Server::parsing(None, Some("qwen3")).await;
        let answer = always(&server, &json!({}), &tokens("plain"), "stop").await;
        assert_eq!(split(&answer), (None, Some("plain")));
        assert_eq!(answer.reasoning_tokens(), 0);
        let answer = always(&server, &open(json!({})), &tokens("cut off"), "length").await;
        assert_eq!(split(&answer), (Some("cut off"), None));
        assert_eq!(answer.finish, Some(FinishReason::Length));
    });
}

/// Messages that speak of markers do not open thoughts, whatever heads the template writes.
#[test]
fn markers_in_messages_do_not_say_where_the_answer_begins() {
    let template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}\
        {% if add_generation_prompt %}bot:{% if open_think %}<think>{% endif %}{% endif %}";
    within(async {
        let parsers = ParserSettings {
            reasoning: Some("qwen3".to_owned()),
            ..ParserSettings::default()
        };
        let server = Server::start_parsing(folder_with(template), &parsers).await;
        let text = "a</think>b";
        for question in ["What is <think>?", "What is </think>?"] {
            let messages = json!([{"role": "user", "content": question}]);
            let fields = json!({"messages": messages});
            let closed = always(&server, &fields, &tokens("plain"), "stop").await;
            assert_eq!(split(&closed), (None, Some("plain")), "{question}");
            let opened = always(&server, &open(fields), &tokens(text), "stop").await;
            assert_eq!(split(&opened), (Some("a"), Some("b")), "{question}");
        }
    });
}

#[test]
fn thoughts_are_shown_as_the_client_asks() {
    within(async {
        let server = Server::parsing(None, Some("qwen3")).await;
        let ids = tokens("hm</think>yes");
        let hidden = always(
            &server,
            &open(json!({"include_reasoning": false})),
            &ids,
            "stop",
        )
        .await;
        assert_eq!(split(&hidden), (None, Some("yes")));
        assert_eq!(hidden.reasoning_tokens(), 2);
        let fields = open(json!({"reasoning_field": "reasoning_content"}));
        let renamed = always(&server, &fields, &ids, "stop").await;
        assert_eq!(renamed.reasoning, None);
        assert_eq!(renamed.reasoning_content.as_deref(), Some("hm"));
        let both = always(
            &server,
            &open(json!({"reasoning_field": "both"})),
            &ids,
            "stop",
        )
        .await;
        assert_eq!(both.reasoning, both.reasoning_content);
    });
}

#[test]
fn without_a_parser_markers_are_text_and_nothing_is_counted() {
    within(async {
        let server = Server::start().await;
        let answer = always(&server, &json!({}), &marked("<think>a</think>b"), "stop").await;
        assert_eq!(split(&answer), (None, Some("<think>a</think>b")));
        assert_eq!(answer.usage.unwrap().completion_tokens_details, None);
    });
}

#[test]
fn thoughts_then_a_call() {
    within(async {
        let server = Server::parsing(Some("hermes"), Some("qwen3")).await;
        let tool = json!({"type": "function", "function": {"name": "time"}});
        let call = "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
        for text in [format!("hm</think>{call}"), format!("hm{call}")] {
            for ids in [tokens(&text), marked(&text)] {
                let fields = open(json!({"tools": [tool]}));
                let answer = always(&server, &fields, &ids, "stop").await;
                assert_eq!(split(&answer), (Some("hm"), None), "{text}");
                assert_eq!(answer.calls, [("time".to_owned(), "{}".to_owned())]);
                assert_eq!(answer.finish, Some(FinishReason::ToolCalls));
                assert_eq!(answer.reasoning_tokens(), 2);
            }
        }
    });
}
