//! Generate and GenerateStream over a scripted engine: what reaches it, and what comes back.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::Duration;

use octavo_edge::{Keys, Settings};
use octavo_engine::GenerateError;
use octavo_grpc::proto::content_part::Part;
use octavo_grpc::proto::finish::Stop;
use octavo_grpc::proto::generate_request::Prompt;
use octavo_grpc::proto::{
    ContentPart, Conversation, FinishReason, GenerateRequest, Message, OutputOptions,
};
use support::{Server, ask, model, within};
use tonic::Code;

#[test]
fn a_stream_brings_text_as_it_comes_and_counts_at_its_end() {
    within(async {
        let server = Server::start().await;
        let mut client = server.inference().await;
        let mut request = ask("Hi");
        request.request_id = "mine".to_owned();
        request.cache_salt = "salt".to_owned();
        request.priority = -2;
        let params = request.sampling_params.as_mut().unwrap();
        params.stop = vec!["!".to_owned()];
        let mut stream = client.generate_stream(request).await.unwrap().into_inner();
        let call = server.script.call().await;
        assert_eq!((call.prompt().as_str(), call.request.priority), ("Hi", -2));
        assert_eq!(call.request.domain.as_ref().unwrap().salt, "salt");
        call.say("ab");
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!(
            (first.request_id.as_str(), first.model.as_str()),
            ("mine", "test")
        );
        let output = first.output.unwrap();
        assert_eq!((output.text.as_str(), output.finish), ("ab", None));
        call.say("c!d");
        let last = stream.message().await.unwrap().unwrap();
        let output = last.output.unwrap();
        let finish = output.finish.unwrap();
        assert_eq!(output.text, "c");
        assert_eq!(finish.reason(), FinishReason::Stop);
        assert_eq!(finish.stop, Some(Stop::StopText("!".to_owned())));
        let usage = last.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (2, 4));
        assert_eq!(stream.message().await.unwrap(), None);
        call.aborted.await.unwrap();
    });
}

#[test]
fn a_conversation_is_rendered() {
    within(async {
        let server = Server::start().await;
        let mut client = server.inference().await;
        let said = |text: &str| ContentPart {
            part: Some(Part::Text(text.to_owned())),
        };
        let request = GenerateRequest {
            prompt: Some(Prompt::Conversation(Conversation {
                messages: vec![Message {
                    role: "user".to_owned(),
                    content: vec![said("Hi")],
                    ..Message::default()
                }],
                ..Conversation::default()
            })),
            output_options: Some(OutputOptions {
                token_ids: true,
                prompt_token_ids: true,
            }),
            ..GenerateRequest::default()
        };
        let answer = tokio::spawn(async move { client.generate(request).await });
        let call = server.script.call().await;
        assert_eq!(
            call.prompt(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        call.say("ok");
        call.finish("length");
        let answer = answer.await.unwrap().unwrap().into_inner();
        let output = &answer.outputs[0];
        assert_eq!(
            (output.text.as_str(), &output.token_ids),
            ("ok", &model::tokens("ok"))
        );
        assert_eq!(answer.prompt.unwrap().token_ids, call.request.prompt);
        assert_eq!(
            output.finish.as_ref().unwrap().reason(),
            FinishReason::Length
        );
    });
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    within(async {
        let server = Server::start().await;
        let mut client = server.inference().await;
        let mut stream = client
            .generate_stream(ask("Hi"))
            .await
            .unwrap()
            .into_inner();
        let call = server.script.call().await;
        call.say("a");
        stream.message().await.unwrap();
        drop(stream);
        call.aborted.await.unwrap();
        let waiting = tokio::spawn(async move { client.generate(ask("Hi")).await });
        let call = server.script.call().await;
        waiting.abort();
        call.aborted.await.unwrap();
    });
}

#[test]
fn a_deadline_ends_the_request_at_the_engine_too() {
    within(async {
        let server = Server::start().await;
        let mut client = server.inference().await;
        let mut request = tonic::Request::new(ask("Hi"));
        request.set_timeout(Duration::from_millis(200));
        // Its own client would give up first: this one does not look at the clock.
        let asked = tokio::spawn(async move { client.generate(request).await });
        let call = server.script.call().await;
        call.aborted.await.unwrap();
        let status = asked.await.unwrap().unwrap_err();
        assert!(
            [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()),
            "{status:?}"
        );
        let mut request = tonic::Request::new(ask("Hi"));
        request
            .metadata_mut()
            .insert("grpc-timeout", "soon".parse().unwrap());
        let status = server
            .inference()
            .await
            .generate(request)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

#[test]
fn bodies_and_open_tokens_have_the_limits_of_http() {
    within(async {
        let settings = Settings {
            max_body_bytes: 1000,
            max_open_tokens: Some(20),
            ..Settings::default()
        };
        let server = Server::start_with(settings, Keys::default(), Duration::ZERO).await;
        let mut client = server.inference().await;
        let status = client.generate(ask(&"x".repeat(2000))).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        let _open = client.generate_stream(ask("Hello")).await.unwrap();
        let status = client.generate_stream(ask("Hello")).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("of 20 tokens"), "{status:?}");
    });
}

#[test]
fn a_defect_ends_one_call() {
    within(async {
        let server = Server::start().await;
        let mut client = server.inference().await;
        server
            .script
            .panics
            .store(true, std::sync::atomic::Ordering::SeqCst);
        let status = client.generate(ask("Hi")).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status:?}");
        server
            .script
            .panics
            .store(false, std::sync::atomic::Ordering::SeqCst);
        let answer = tokio::spawn(async move { client.generate(ask("Hi")).await });
        server.script.call().await.finish("stop");
        assert!(answer.await.unwrap().is_ok());
    });
}

/// Kinds of refusals of the engine, by the code that a call ends with.
fn refusals() -> Vec<(GenerateError, Code)> {
    let message = || "why".to_owned();
    vec![
        (
            GenerateError::Rejected {
                code: "invalid".to_owned(),
                message: message(),
                param: Some("temperature".to_owned()),
            },
            Code::InvalidArgument,
        ),
        (
            GenerateError::Overloaded {
                message: message(),
                retry_after_s: 1,
            },
            Code::ResourceExhausted,
        ),
        (
            GenerateError::Unavailable {
                message: message(),
                retry_after_s: 5,
            },
            Code::Unavailable,
        ),
        (GenerateError::Failed { message: message() }, Code::Internal),
    ]
}

#[test]
fn gr01_each_refusal_has_its_own_code_and_the_next_request_is_served() {
    within(async {
        let server = Server::start().await;
        let mut client = server.inference().await;
        for (error, code) in refusals() {
            // Before the engine takes it, and after.
            *server.script.refusal.lock().unwrap() = Some(error.clone());
            let status = client.generate(ask("Hi")).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (code, "why"));
            *server.script.refusal.lock().unwrap() = None;
            let mut stream = client
                .generate_stream(ask("Hi"))
                .await
                .unwrap()
                .into_inner();
            let call = server.script.call().await;
            call.say("a");
            assert!(stream.message().await.unwrap().is_some());
            call.steps.fail(error);
            let status = stream.message().await.unwrap_err();
            assert_eq!((status.code(), status.message()), (code, "why"));
        }
        let mut wrong = ask("Hi");
        wrong.sampling_params.as_mut().unwrap().n = Some(0);
        for _ in 0..5 {
            let status = client.generate(wrong.clone()).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
        }
        let good = tokio::spawn(async move { client.generate(ask("Hi")).await });
        let call = server.script.call().await;
        // An engine that is away is no error: the call waits, and goes on when it is back.
        call.steps.set_paused(true);
        call.say("a");
        call.steps.set_paused(false);
        call.finish("stop");
        assert_eq!(
            good.await.unwrap().unwrap().into_inner().outputs[0].text,
            "a"
        );
    });
}

#[test]
fn gr02_a_silent_call_outlives_its_clients_pings() {
    // OCTAVO_SILENCE_S=600 waits as long as people did.
    let seconds = std::env::var("OCTAVO_SILENCE_S").ok();
    let silence = seconds.map_or(2, |text| text.parse().unwrap());
    within(async move {
        let server = Server::start().await;
        let pinging = server
            .endpoint()
            .http2_keep_alive_interval(Duration::from_millis(300))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        let channel = pinging.connect().await.unwrap();
        let mut client =
            octavo_grpc::proto::inference_service_client::InferenceServiceClient::new(channel);
        let mut other = client.clone();
        let silent = tokio::spawn(async move { client.generate(ask("Hi")).await });
        let call = server.script.call().await;
        tokio::time::sleep(Duration::from_secs(silence)).await;
        let quick = tokio::spawn(async move { other.generate(ask("Hi")).await });
        let second = server.script.call().await;
        second.finish("stop");
        assert!(quick.await.unwrap().is_ok(), "a slow call kills no other");
        call.say("late");
        call.finish("stop");
        let answer = silent.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.outputs[0].text, "late");
    });
}

#[test]
fn many_streams_share_a_connection() {
    // OCTAVO_GRPC_STREAMS=1000 for all of them.
    let count = std::env::var("OCTAVO_GRPC_STREAMS").ok();
    let count: usize = count.map_or(200, |text| text.parse().unwrap());
    within(async move {
        let server = Server::start().await;
        let client = server.inference().await;
        let engine = async {
            for _ in 0..count {
                let call = server.script.call().await;
                call.say(&call.prompt());
                call.finish("stop");
            }
        };
        let one = |index: usize| {
            let mut client = client.clone();
            async move {
                let text = format!("prompt {index}");
                let mut stream = client
                    .generate_stream(ask(&text))
                    .await
                    .unwrap()
                    .into_inner();
                let mut said = String::new();
                while let Some(message) = stream.message().await.unwrap() {
                    said.push_str(&message.output.unwrap().text);
                }
                assert_eq!(said, text);
            }
        };
        tokio::join!(engine, futures::future::join_all((0..count).map(one)));
    });
}
