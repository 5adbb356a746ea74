//! Reported faults of serving engines, by their ids in the shared bank, that need a server: the text of tokens (DT), and what
//! templates say of turns that go on (CT). DT10 is in inference.rs, the others of these areas in `render` and `tokenizer`.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{Completion, FinishReason};
use octavo_render::ParserSettings;
use octavo_wire::frontend::Finish;
use serde_json::{Value, json};
use support::answer::{CHAT, chat};
use support::client::{Client, Reply};
use support::model::{TURN, folder_with, tokens};
use support::{Server, within};

const COMPLETIONS: &str = "/v1/completions";

/// The pieces of a stream of completions.
fn pieces(reply: &Reply) -> Vec<String> {
    let events = reply.events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last, "[DONE]");
    let text = |chunk: &String| {
        let chunk: Completion = serde_json::from_str(chunk).unwrap();
        chunk
            .choices
            .first()
            .map(|choice| choice.text.clone())
            .unwrap_or_default()
    };
    chunks.iter().map(text).collect()
}

/// Starts a server for glm45 whose end of a turn is `<|user|>`, a special token.
async fn glm() -> Server {
    let template = "{% for m in messages %}{{ '<|user|>' + m['content'] }}{% endfor %}<|assistant|>\n<think></think>\n";
    let folder = folder_with(template);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let path = folder.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("<|im_start|>", "<|user|>")).unwrap();
    }
    let eos = json!({"eos_token_id": [2, TURN]});
    std::fs::write(
        folder.path().join("generation_config.json"),
        eos.to_string(),
    )
    .unwrap();
    let glm = Some("glm45".to_owned());
    let parsers = ParserSettings {
        tool: glm.clone(),
        reasoning: glm,
        ..ParserSettings::default()
    };
    Server::start_parsing(folder, &parsers).await
}

#[test]
fn dt12_the_text_of_a_stop_token_is_not_shown_where_parsers_see_special_tokens() {
    within(async {
        let server = glm().await;
        let mut client = server.connect().await;
        for stream in [false, true] {
            let fields = json!({"stream": stream, "stream_options": {"include_usage": true}});
            let fields = if stream { fields } else { json!({}) };
            client.post(CHAT, &chat(&fields)).await;
            let engine = async {
                let call = server.script.call().await;
                assert!(call.request.sampling.stop_token_ids.contains(&TURN));
                for part in [&tokens("Hi")[..], &tokens("?"), &[TURN]] {
                    call.steps.push(part, None);
                }
                let mut finish = Finish::new("stop");
                finish.stop_token = Some(TURN);
                call.steps.finish(finish);
            };
            let (reply, ()) = tokio::join!(client.reply(), engine);
            assert!(!reply.text().contains("user"), "{}", reply.text());
            let answer = support::answer::Answer::of(&reply, stream);
            assert_eq!(answer.content.as_deref(), Some("Hi?"));
            assert_eq!(answer.reasoning.unwrap_or_default(), "");
            assert_eq!(answer.finish, Some(FinishReason::Stop));
            assert_eq!(answer.usage.unwrap().completion_tokens, 4);
        }
    });
}

/// What the engine answers to the n-th request.
fn said(number: usize) -> String {
    format!("Answer {number}: über 字 😀, ").repeat(20)
}

#[test]
fn dt13_each_chunk_holds_what_was_not_sent_before() {
    within(async {
        let server = Server::start().await;
        for streams in [1, 32] {
            let mut clients: Vec<Client> = Vec::new();
            for number in 0..streams {
                let mut client = server.connect().await;
                let body = json!({"model": "test", "prompt": [number + 1], "max_tokens": 2000, "stream": true});
                client.post(COMPLETIONS, &body).await;
                clients.push(client);
            }
            // Nobody reads before all is said: what has piled up by then goes out in merged chunks.
            for _ in 0..streams {
                let call = server.script.call().await;
                let number = usize::try_from(call.request.prompt[0]).unwrap() - 1;
                for part in tokens(&said(number)).chunks(3) {
                    call.steps.push(part, None);
                    if number % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                call.finish("length");
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let pieces = pieces(&client.reply().await);
                assert_eq!(pieces.concat(), said(number), "{number} of {streams}");
            }
        }
    });
}

/// On Anthropic's route: messages.rs.
#[test]
fn ct16_a_turn_of_the_assistant_goes_on_where_it_is_asked_for() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let messages = json!([{"role": "user", "content": "Count to 3"}, {"role": "assistant", "content": "1, 2,"}]);
        let fields = json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": true});
        client.post(CHAT, &chat(&fields)).await;
        let engine = async {
            let call = server.script.call().await;
            assert!(call.request.prompt.ends_with(&tokens("assistant\n1, 2,")));
            call.say(" 3");
            call.finish("stop");
        };
        let (reply, ()) = tokio::join!(client.reply(), engine);
        let reply: Value = reply.json();
        assert_eq!(reply["choices"][0]["message"]["content"], " 3");
    });
}
