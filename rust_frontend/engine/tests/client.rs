//! The engine client against a scripted core.

#![allow(clippy::unwrap_used, clippy::panic)]

mod scripted;

use std::sync::Arc;
use std::time::Duration;

use octavo_engine::{EngineClient, EngineConfig, Generate, GenerateError};
use octavo_transport::memory::{Network, network};
use octavo_wire::Blob;
use octavo_wire::frontend::{
    CoreMessage, EngineFault, EngineReady, FrontendMessage, Goodbye, RequestRejected, Stats,
};
use scripted::{Core, info, read_all, read_step, submission, submit, until};

const WINDOW: u64 = 1 << 20;

fn start(change: impl FnOnce(&mut EngineConfig)) -> (Arc<EngineClient>, Network) {
    let (transport, network) = network();
    let mut config = EngineConfig::new("memory");
    change(&mut config);
    (EngineClient::start_over(transport, config), network)
}

async fn ready() -> (Arc<EngineClient>, Network, Core) {
    let (client, network) = start(|_| {});
    let core = Core::ready(&network, 1, WINDOW).await;
    until("ready", || client.ready()).await;
    (client, network, core)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_before_an_engine_is_ready() {
    let (client, network) = start(|_| {});
    assert!(client.alive() && !client.ready() && client.info().is_none());
    assert!(matches!(
        client.submit(submission("a")),
        Err(GenerateError::Unavailable { .. })
    ));
    let mut core = Core::new(&network, 1, WINDOW);
    core.open().await;
    assert!(matches!(
        client.submit(submission("a")),
        Err(GenerateError::Unavailable { .. })
    ));
    core.send(EngineReady { info: info() }).await;
    until("ready", || client.ready()).await;
    assert_eq!(*client.info().unwrap(), info());
    assert!(client.submit(submission("a")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn only_a_core_that_knows_the_key_is_the_engine() {
    let (client, network) = start(|config| config.key = b"secret".to_vec());
    let wrong = [None, Some(b"guess".to_vec()), Some(Vec::new())];
    for (incarnation, proof) in (20..).zip(wrong) {
        let mut stranger = Core::new(&network, incarnation, WINDOW);
        stranger.hello.proof = proof.map(Blob);
        let opened = tokio::time::timeout(Duration::from_secs(5), stranger.open()).await;
        assert!(opened.is_err());
    }
    let mut core = Core::new(&network, 1, WINDOW);
    core.hello.proof = Some(Blob(b"secret".to_vec()));
    core.open().await;
    core.send(EngineReady { info: info() }).await;
    until("ready", || client.ready()).await;
    // Who comes later without the key does not take its place.
    let mut stranger = Core::new(&network, 9, WINDOW);
    assert!(
        tokio::time::timeout(Duration::from_secs(5), stranger.open())
            .await
            .is_err()
    );
    core.acknowledge().await;
    assert!(client.ready());
    let mut stream = submit(&*client, "a");
    let request = core.request().await;
    core.deliver(&request, 0, &[4], Some("length")).await;
    assert_eq!(
        read_all(&mut stream).await,
        Ok((vec![4], "length".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_out_and_its_tokens_come_back() {
    let (client, _network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    let request = core.request().await;
    assert_eq!(
        (
            request.attempt,
            request.name.as_str(),
            request.prompt.as_slice()
        ),
        (1, "a", [1, 2, 3].as_slice())
    );
    assert!(request.emitted.is_empty());
    core.deliver(&request, 0, &[5, 6], None).await;
    core.deliver(&request, 2, &[7], Some("stop")).await;
    assert_eq!(
        read_all(&mut stream).await,
        Ok((vec![5, 6, 7], "stop".to_owned()))
    );
    assert_eq!(client.open_requests(), 0);
    drop(stream);
    assert!(
        core.quiet(Duration::from_secs(3)).await,
        "an ended request is not aborted"
    );
}

#[tokio::test(start_paused = true)]
async fn streams_go_on_when_the_core_dies() {
    let (client, network, mut core) = ready().await;
    let mut one = submit(&*client, "one");
    let mut two = submit(&*client, "two");
    let first = core.request().await;
    core.request().await;
    core.deliver(&first, 0, &[5, 6], None).await;
    assert_eq!(read_step(&mut one).await, [5, 6]);
    drop(core);

    let mut core = Core::new(&network, 2, WINDOW);
    core.open().await;
    until("not ready", || !client.ready()).await;
    assert!(one.paused());
    let three = submit(&*client, "three");
    core.send(EngineReady { info: info() }).await;
    let again = core.request().await;
    assert_eq!(
        (again.id, again.attempt, again.emitted.as_slice()),
        (first.id, 2, [5, 6].as_slice())
    );
    let other = core.request().await;
    assert_eq!((other.name.as_str(), other.attempt), ("two", 2));
    assert_eq!(core.request().await.name, "three");
    assert!(!one.paused());
    core.deliver(&first, 2, &[99], Some("stop")).await;
    core.deliver(&again, 1, &[6, 7], None).await;
    core.deliver(&again, 0, &[5, 6, 7, 8], None).await;
    core.deliver(&again, 4, &[9], Some("length")).await;
    core.deliver(&other, 0, &[1], Some("stop")).await;
    assert_eq!(read_step(&mut two).await, [1]);
    let mut rest = Vec::new();
    while let Some(step) = one.next().await {
        rest.extend(step.unwrap().tokens);
    }
    assert_eq!(rest, [7, 8, 9], "late attempts dropped, overlap cut");
    assert_eq!(client.engine_restarts(), 1);
    drop(three);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_leaves_is_noticed_at_once() {
    let (client, network, core) = ready().await;
    let stream = submit(&*client, "a");
    drop(core);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!client.ready() && client.alive() && stream.paused());
    let mut core = Core::ready(&network, 2, WINDOW).await;
    assert_eq!(core.request().await.name, "a");
    assert!(client.ready() && !stream.paused());
}

#[tokio::test(start_paused = true)]
async fn a_gap_opens_the_session_anew() {
    let (client, _network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    let first = core.request().await;
    core.deliver(&first, 0, &[5], None).await;
    core.skip();
    core.deliver(&first, 2, &[7], None).await;
    while core.session.epoch() < 2 {
        assert!(core.take().await.is_none());
    }
    core.send(EngineReady { info: info() }).await;
    let again = core.request().await;
    assert_eq!(
        (again.attempt, again.emitted.as_slice()),
        (2, [5].as_slice())
    );
    core.deliver(&again, 1, &[6, 7], Some("stop")).await;
    assert_eq!(read_all(&mut stream).await.unwrap().0, [5, 6, 7]);
    assert_eq!(client.engine_restarts(), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_tokens_are_asked_for_again() {
    let (client, _network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    let first = core.request().await;
    core.deliver(&first, 1, &[6], None).await;
    while core.session.epoch() < 2 {
        assert!(core.take().await.is_none());
    }
    core.send(EngineReady { info: info() }).await;
    let again = core.request().await;
    assert_eq!((again.attempt, again.emitted.len()), (2, 0));
    core.deliver(&again, 0, &[5, 6], Some("stop")).await;
    assert_eq!(read_all(&mut stream).await.unwrap().0, [5, 6]);
}

#[tokio::test(start_paused = true)]
async fn dropped_streams_are_aborted_in_batches() {
    let (client, network) = start(|config| config.max_open_requests = 5000);
    let mut core = Core::ready(&network, 1, 30_000).await;
    until("ready", || client.ready()).await;
    let streams: Vec<_> = (0..3000)
        .map(|n| submit(&*client, &n.to_string()))
        .collect();
    let mut ids = Vec::new();
    for _ in 0..3000 {
        ids.push(core.request().await.id);
    }
    drop(streams);
    let mut aborted = Vec::new();
    while aborted.len() < 3000 {
        let abort = core.abort().await;
        assert!(abort.ids.len() <= 1024);
        assert_eq!(abort.reason, "client");
        aborted.extend(abort.ids);
    }
    assert_eq!(aborted, ids);
    assert_eq!(client.open_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_works_for_nobody_is_told() {
    let (client, _network, mut core) = ready().await;
    let stream = submit(&*client, "a");
    let mut request = core.request().await;
    request.id += 1000;
    core.deliver(&request, 0, &[1], None).await;
    assert_eq!(core.abort().await.ids, [request.id]);
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn too_many_are_overloaded_until_a_place_is_free() {
    let (client, network) = start(|config| config.max_open_requests = 2);
    let mut core = Core::ready(&network, 1, WINDOW).await;
    until("ready", || client.ready()).await;
    let mut one = submit(&*client, "a");
    let two = submit(&*client, "b");
    let error = client.submit(submission("c")).unwrap_err();
    assert!(
        matches!(&error, GenerateError::Overloaded { message, .. } if message.starts_with("2 requests"))
    );
    let request = core.request().await;
    core.deliver(&request, 0, &[1], Some("stop")).await;
    read_all(&mut one).await.unwrap();
    until("a place", || client.open_requests() == 1).await;
    let three = submit(&*client, "c");
    drop((two, three));
    until("all places", || client.open_requests() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn out_of_credit_requests_wait_in_order() {
    let (client, network) = start(|_| {});
    let mut core = Core::ready(&network, 1, 300).await;
    until("ready", || client.ready()).await;
    let streams: Vec<_> = (0..50)
        .map(|n| submit(&*client, &format!("{n:02}")))
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    for n in 0..50 {
        assert!(core.session.held() <= 300);
        assert_eq!(core.request().await.name, format!("{n:02}"));
    }
    drop(streams);
}

#[tokio::test(start_paused = true)]
async fn another_version_is_refused_and_both_are_named() {
    let (client, network) = start(|_| {});
    let mut core = Core::new(&network, 1, WINDOW);
    core.hello.version = "9.9.9".to_owned();
    core.hello.protocol = 77;
    let header = core.session.hello(Duration::ZERO);
    core.post(&header, &core.hello.clone().into()).await;
    let Some(FrontendMessage::Refuse(refuse)) = core.take().await else {
        panic!("not refused")
    };
    for part in [
        "octavo 9.9.9 (protocol 77)",
        &format!("octavo {} (protocol 1)", octavo_wire::VERSION),
    ] {
        assert!(refuse.reason.contains(part), "{}", refuse.reason);
    }
    assert!(!client.ready());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stays_away_fails_its_requests() {
    let (client, network) = start(|config| config.replay_timeout = Duration::from_secs(60));
    let mut core = Core::ready(&network, 1, WINDOW).await;
    until("ready", || client.ready()).await;
    let mut early = submit(&*client, "early");
    core.request().await;
    drop(core);
    until("silence is noticed", || !client.ready()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut late = submit(&*client, "late");
    let before = tokio::time::Instant::now();
    let error = early.next().await.unwrap().unwrap_err();
    assert!(
        matches!(&error, GenerateError::Unavailable { message, .. } if message.contains("60 seconds")),
        "{error:?}"
    );
    assert!(before.elapsed() < Duration::from_secs(31));
    assert!(late.next().await.unwrap().is_err());
    assert!(
        before.elapsed() > Duration::from_secs(59),
        "a later request waits as long"
    );
    assert_eq!(client.open_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_engine_that_speaks_again_goes_on_without_replay() {
    let (client, _network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    let request = core.request().await;
    until("silence is noticed", || !client.ready()).await;
    assert!(stream.paused());
    core.deliver(&request, 0, &[1], Some("stop")).await;
    assert_eq!(read_all(&mut stream).await.unwrap().0, [1]);
    until("ready", || client.ready()).await;
    assert_eq!(core.session.epoch(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fault_pauses_and_a_final_one_fails() {
    let (client, network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    let request = core.request().await;
    let fault = |restarting| EngineFault {
        kind: "worker_died".into(),
        message: "signal 9".into(),
        restarting,
    };
    core.send(fault(true)).await;
    until("paused", || {
        stream.paused() && !client.ready() && client.alive()
    })
    .await;
    core.send(EngineReady { info: info() }).await;
    until("ready", || client.ready() && !stream.paused()).await;
    core.deliver(&request, 0, &[1], None).await;
    assert_eq!(read_step(&mut stream).await, [1]);
    core.send(fault(false)).await;
    let error = stream.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, GenerateError::Failed { message } if message.contains("signal 9")));
    assert!(!client.alive());
    assert!(matches!(
        client.submit(submission("b")),
        Err(GenerateError::Unavailable { .. })
    ));
    drop(core);
    let _core = Core::ready(&network, 2, WINDOW).await;
    until("back", || client.alive() && client.ready()).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_and_statistics_arrive() {
    let (client, _network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    let request = core.request().await;
    let rejected = RequestRejected {
        id: request.id,
        attempt: 1,
        code: "too_long".into(),
        message: "9 > 8".into(),
        param: Some("prompt".into()),
    };
    core.send(rejected).await;
    let expected = GenerateError::Rejected {
        code: "too_long".into(),
        message: "9 > 8".into(),
        param: Some("prompt".into()),
    };
    assert_eq!(stream.next().await, Some(Err(expected)));
    assert_eq!(client.open_requests(), 0);
    let stats = Stats {
        running: 3,
        ..zero_stats()
    };
    core.send(CoreMessage::Stats(stats.clone())).await;
    until("stats", || client.stats().as_ref() == Some(&stats)).await;
}

fn zero_stats() -> Stats {
    let mut bytes = vec![0x9c, 0xa5];
    bytes.extend(b"Stats");
    bytes.extend([0; 11]);
    match octavo_wire::Message::decode(&bytes) {
        Ok(CoreMessage::Stats(stats)) => stats,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_requests_end_and_waits_for_the_acknowledgement() {
    let (client, _network, mut core) = ready().await;
    let mut done = submit(&*client, "done");
    let mut late = submit(&*client, "late");
    let request = core.request().await;
    core.request().await;
    let closing = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.shutdown(Duration::from_secs(8)).await }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(matches!(
        client.submit(submission("x")),
        Err(GenerateError::Unavailable { .. })
    ));
    core.deliver(&request, 0, &[1], Some("stop")).await;
    assert_eq!(read_all(&mut done).await.unwrap().0, [1]);
    core.acknowledge().await;
    assert!(!closing.is_finished());
    assert!(matches!(
        late.next().await,
        Some(Err(GenerateError::Unavailable { .. }))
    ));
    let abort = core.abort().await;
    assert_eq!((abort.ids.len(), abort.reason.as_str()), (1, "shutdown"));
    tokio::time::timeout(Duration::from_secs(2), closing)
        .await
        .unwrap()
        .unwrap();
    assert!(!client.ready());
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_is_acknowledged_and_no_crash() {
    let (client, network, mut core) = ready().await;
    let mut stream = submit(&*client, "a");
    core.request().await;
    core.send(Goodbye {
        reason: "restart".into(),
    })
    .await;
    while !core.session.drained() {
        assert!(core.take().await.is_none());
    }
    assert!(!client.ready());
    drop(core);
    let mut core = Core::ready(&network, 2, WINDOW).await;
    let again = core.request().await;
    core.deliver(&again, 0, &[1], Some("stop")).await;
    assert_eq!(read_all(&mut stream).await.unwrap().0, [1]);
    assert_eq!(client.engine_restarts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_kills_cores_is_found_and_the_others_end_well() {
    let (client, network) = start(|_| {});
    let mut incarnation = 1;
    let mut core = Core::ready(&network, incarnation, WINDOW).await;
    until("ready", || client.ready()).await;
    let mut streams: Vec<_> = (0..8).map(|n| submit(&*client, &n.to_string())).collect();
    let mut ended = 0;
    while ended < 7 {
        // All that comes at once is in flight together; the core dies of number 5 before it has emitted anything.
        let mut flight = vec![core.request().await];
        while let Ok(request) =
            tokio::time::timeout(Duration::from_millis(500), core.request()).await
        {
            flight.push(request);
        }
        if flight.iter().any(|request| request.name == "5") {
            incarnation += 1;
            assert!(incarnation < 20, "no end");
            drop(core);
            core = Core::ready(&network, incarnation, WINDOW).await;
            continue;
        }
        for request in flight {
            core.deliver(&request, 0, &[1], Some("stop")).await;
            ended += 1;
        }
    }
    assert!(matches!(
        streams[5].next().await,
        Some(Err(GenerateError::Failed { .. }))
    ));
    for (n, stream) in streams.iter_mut().enumerate().filter(|(n, _)| *n != 5) {
        assert_eq!(read_all(stream).await.unwrap().0, [1], "{n}");
    }
}
