//! Keys and roles, control, health, reflection, and the end.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use octavo_edge::{Access, Keys, Role, Settings};
use octavo_engine::GenerateError;
use octavo_grpc::proto::{
    AbortRequest, DESCRIPTORS, InitWeightTransferEngineRequest, IsPausedRequest, ListLorasRequest,
    PauseGenerationRequest, PauseMode, ShutdownRequest, SleepRequest, UpdateWeightsRequest,
    WakeUpRequest,
};
use octavo_http::ACCESS;
use serde_json::{Value, json};
use support::{Server, ask, within};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

const KEYS: [(Role, &str); 4] = [
    (Role::Inference, "inference-key"),
    (Role::Render, "render-key"),
    (Role::Metrics, "metrics-key"),
    (Role::Admin, "admin-key"),
];

fn keys() -> Keys {
    let lines: String = KEYS
        .iter()
        .map(|(role, key)| format!("{} {key}\n", role.name()))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, lines).unwrap();
    Keys::new(&[], Some(&file)).unwrap()
}

/// Calls a path with an empty message.
async fn call(server: &Server, path: String, key: Option<&str>) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let mut request = Request::new(AbortRequest::default());
    if let Some(key) = key {
        let value = format!("Bearer {key}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request.set_timeout(Duration::from_secs(5));
    let codec = tonic_prost::ProstCodec::<AbortRequest, AbortRequest>::default();
    let path: PathAndQuery = path.parse().unwrap();
    grpc.unary(request, path, codec).await.map(|_| ())
}

#[test]
fn a_service_opens_to_its_role_alone() {
    within(async {
        let server = Server::start_with(Settings::default(), keys(), Duration::ZERO).await;
        let mut seen = 0;
        for (path, access) in ACCESS {
            let Some(service) = path.strip_suffix("/{method}") else {
                continue;
            };
            seen += 1;
            // No call of that name: who is let in is told so.
            let path = || format!("{service}/Nothing");
            for key in [None, Some("some-other-key")] {
                let code = call(&server, path(), key).await.unwrap_err().code();
                let open = *access == Access::Open;
                let expected = if open {
                    Code::Unimplemented
                } else {
                    Code::Unauthenticated
                };
                assert_eq!(code, expected, "{service} {key:?}");
            }
            for (role, key) in KEYS {
                let code = call(&server, path(), Some(key)).await.unwrap_err().code();
                let let_in = *access == Access::Open || *access == Access::Needs(role);
                let expected = if let_in {
                    Code::Unimplemented
                } else {
                    Code::PermissionDenied
                };
                assert_eq!(code, expected, "{service} {key}");
            }
        }
        assert_eq!(seen, 5);
        // What is no service is told to be none, as paths of HTTP are.
        let code = call(&server, "/octavo.v1.Other/Nothing".to_owned(), None).await;
        assert_eq!(code.unwrap_err().code(), Code::Unimplemented);
    });
}

/// What the engine was asked last.
fn asked(server: &Server) -> (String, Value) {
    let (op, args) = server.script.controls.lock().unwrap().pop().unwrap();
    (op, json!(args))
}

#[test]
fn messages_become_arguments() {
    within(async {
        let server = Server::start().await;
        let mut client = server.control().await;
        let pause = PauseGenerationRequest {
            mode: PauseMode::Keep.into(),
            clear_cache: Some(false),
        };
        client.pause_generation(pause).await.unwrap();
        let expected = json!({"mode": "keep", "clear_cache": "false"});
        assert_eq!(asked(&server), ("pause".to_owned(), expected));
        client
            .pause_generation(PauseGenerationRequest::default())
            .await
            .unwrap();
        assert_eq!(asked(&server), ("pause".to_owned(), json!({})));
        let sleep = SleepRequest {
            level: Some(2),
            mode: PauseMode::Wait.into(),
        };
        client.sleep(sleep).await.unwrap();
        assert_eq!(
            asked(&server),
            ("sleep".to_owned(), json!({"level": "2", "mode": "wait"}))
        );
        let tags = vec!["weights".to_owned(), "kv_cache".to_owned()];
        client.wake_up(WakeUpRequest { tags }).await.unwrap();
        assert_eq!(
            asked(&server),
            ("wake_up".to_owned(), json!({"tags": "weights,kv_cache"}))
        );
        let request_ids = vec!["a".to_owned(), "b".to_owned()];
        client.abort(AbortRequest { request_ids }).await.unwrap();
        let expected = json!({"request_ids": "[\"a\",\"b\"]"});
        assert_eq!(asked(&server), ("abort_requests".to_owned(), expected));
        client.abort(AbortRequest::default()).await.unwrap();
        assert_eq!(asked(&server).1, json!({}));
        let init = InitWeightTransferEngineRequest {
            init_info_json: r#"{ "backend": "shm" }"#.to_owned(),
        };
        client.init_weight_transfer_engine(init).await.unwrap();
        assert_eq!(
            asked(&server).1,
            json!({"init_info": r#"{"backend":"shm"}"#})
        );
    });
}

#[test]
fn wrong_arguments_and_states_have_their_codes() {
    within(async {
        let server = Server::start().await;
        let mut client = server.control().await;
        let wrong = PauseGenerationRequest {
            mode: 9,
            clear_cache: None,
        };
        let status = client.pause_generation(wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        for text in ["", "[]", "{"] {
            let request = UpdateWeightsRequest {
                update_info_json: text.to_owned(),
            };
            let status = client.update_weights(request).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{text}");
            assert!(status.message().contains("update_info_json"), "{status:?}");
        }
        assert!(server.script.controls.lock().unwrap().is_empty());
        let status = client.list_loras(ListLorasRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        let message = "no session is open".to_owned();
        *server.script.refusal.lock().unwrap() = Some(GenerateError::Conflict { message });
        let status = client.is_paused(IsPausedRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        let message = "there is none".to_owned();
        *server.script.refusal.lock().unwrap() = Some(GenerateError::Unsupported { message });
        let status = client.is_paused(IsPausedRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

fn health_of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

/// The next status that a watch is told; `None`: it is over.
async fn told(watch: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    let message = watch.message().await.unwrap();
    message.map(|message| message.status())
}

#[test]
fn health_follows_the_engine() {
    within(async {
        let server = Server::start().await;
        let mut client = HealthClient::new(server.channel().await);
        let control = "octavo.v1.ControlService";
        let mut watch = client.watch(health_of("")).await.unwrap().into_inner();
        assert_eq!(told(&mut watch).await, Some(ServingStatus::Serving));
        let unknown = client.check(health_of("nothing")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        server.script.ready.store(false, Ordering::SeqCst);
        assert_eq!(told(&mut watch).await, Some(ServingStatus::NotServing));
        let found = client.check(health_of(control)).await.unwrap();
        assert_eq!(found.into_inner().status(), ServingStatus::Serving);
        server.script.alive.store(false, Ordering::SeqCst);
        let found = client.check(health_of(control)).await.unwrap();
        assert_eq!(found.into_inner().status(), ServingStatus::NotServing);
        server.script.alive.store(true, Ordering::SeqCst);
        server.script.ready.store(true, Ordering::SeqCst);
        assert_eq!(told(&mut watch).await, Some(ServingStatus::Serving));
    });
}

#[test]
fn the_end_is_told_to_watches_which_hold_up_nothing() {
    within(async {
        let patience = Duration::from_secs(20);
        let server = Server::start_with(Settings::default(), Keys::default(), patience).await;
        let mut client = HealthClient::new(server.channel().await);
        let mut watch = client.watch(health_of("")).await.unwrap().into_inner();
        let mut unknown = client
            .watch(health_of("nothing"))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(told(&mut watch).await, Some(ServingStatus::Serving));
        assert_eq!(
            told(&mut unknown).await,
            Some(ServingStatus::ServiceUnknown)
        );
        let mut inference = server.inference().await;
        let running = tokio::spawn(async move { inference.generate(ask("Hi")).await });
        let held = server.script.call().await;
        server.shutdown.drain();
        assert_eq!(told(&mut watch).await, Some(ServingStatus::NotServing));
        assert_eq!(
            (told(&mut watch).await, told(&mut unknown).await),
            (None, None)
        );
        held.say("end");
        held.finish("stop");
        let answer = running.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.outputs[0].text, "end");
        server.ended().await;
    });
}

#[test]
fn the_end_cuts_what_runs_on_with_a_status() {
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
        server.shutdown.drain();
        let status = stream.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        server.ended().await;
    });
}

#[test]
fn a_client_may_ask_for_the_end() {
    within(async {
        let server = Server::start().await;
        server
            .control()
            .await
            .shutdown(ShutdownRequest {})
            .await
            .unwrap();
        server.shutdown.asked().await;
        assert!(
            server.shutdown.accepting(),
            "whoever runs the server ends it"
        );
    });
}

#[test]
fn reflection_tells_of_all_services() {
    within(async {
        let server = Server::start().await;
        let mut client = ServerReflectionClient::new(server.channel().await);
        let ask = |message: MessageRequest| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message),
        };
        let asked = futures::stream::iter([
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol(
                "octavo.v1.InferenceService".to_owned(),
            )),
        ]);
        let mut answers = client
            .server_reflection_info(asked)
            .await
            .unwrap()
            .into_inner();
        let listed = answers.message().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::ListServicesResponse(listed)) = listed else {
            panic!("{listed:?}");
        };
        let names: Vec<String> = listed.service.into_iter().map(|known| known.name).collect();
        for name in [
            "octavo.v1.InferenceService",
            "octavo.v1.ControlService",
            "grpc.health.v1.Health",
        ] {
            assert!(
                names.iter().any(|known| known == name),
                "{name} in {names:?}"
            );
        }
        let file = answers.message().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::FileDescriptorResponse(file)) = file else {
            panic!("{file:?}");
        };
        let found = &file.file_descriptor_proto[0];
        assert!(DESCRIPTORS.windows(found.len()).any(|part| part == found));
    });
}
