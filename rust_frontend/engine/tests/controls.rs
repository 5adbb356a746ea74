//! Operations on a scripted core.

#![allow(clippy::unwrap_used, clippy::panic)]

mod scripted;

use std::collections::BTreeMap;

use octavo_engine::{EngineClient, EngineConfig, Generate, GenerateError};
use octavo_transport::memory::network;
use octavo_wire::frontend::{Control, ControlDone, FrontendMessage};
use scripted::{Core, until};

const WINDOW: u64 = 1 << 20;

async fn next_control(core: &mut Core) -> Control {
    match core.next().await {
        FrontendMessage::Control(control) => control,
        other => panic!("expected a control, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn operations_are_asked_for_and_answered() {
    let (transport, network) = network();
    let client = EngineClient::start_over(transport, EngineConfig::new("memory"));
    let mut core = Core::ready(&network, 1, WINDOW).await;
    until("ready", || client.ready()).await;
    let args = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let asked = tokio::spawn(client.control("reset_prefix_cache", args.clone()));
    let control = next_control(&mut core).await;
    assert_eq!(
        (control.op.as_str(), &control.args),
        ("reset_prefix_cache", &args)
    );
    core.send(ControlDone {
        id: control.id,
        error: None,
        result: args.clone(),
        code: String::new(),
        param: None,
    })
    .await;
    assert_eq!(asked.await.unwrap(), Ok(args));

    let refused = tokio::spawn(client.control("dance", BTreeMap::new()));
    let control = next_control(&mut core).await;
    core.send(ControlDone {
        id: control.id,
        error: Some("no".to_owned()),
        result: BTreeMap::new(),
        code: String::new(),
        param: None,
    })
    .await;
    let message = "no".to_owned();
    assert_eq!(
        refused.await.unwrap(),
        Err(GenerateError::Failed { message })
    );

    let lost = tokio::spawn(client.control("reset_prefix_cache", BTreeMap::new()));
    next_control(&mut core).await;
    drop(core);
    let _core = Core::ready(&network, 2, WINDOW).await;
    assert!(matches!(
        lost.await.unwrap(),
        Err(GenerateError::Unavailable { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn refusals_say_what_kind_they_are() {
    let (transport, network) = network();
    let client = EngineClient::start_over(transport, EngineConfig::new("memory"));
    let mut core = Core::ready(&network, 1, WINDOW).await;
    until("ready", || client.ready()).await;
    for (code, wanted) in [
        (
            "conflict",
            GenerateError::Conflict {
                message: "no".to_owned(),
            },
        ),
        (
            "unsupported",
            GenerateError::Unsupported {
                message: "no".to_owned(),
            },
        ),
    ] {
        let asked = tokio::spawn(client.control("dance", BTreeMap::new()));
        let control = next_control(&mut core).await;
        core.send(ControlDone {
            id: control.id,
            error: Some("no".to_owned()),
            result: BTreeMap::new(),
            code: code.to_owned(),
            param: None,
        })
        .await;
        assert_eq!(asked.await.unwrap(), Err(wanted));
    }
}
