//! Light requests while the threads that work are held up.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use octavo_edge::{Apart, Listener, Place, Settings, Shutdown, serve_apart};

/// Longer than anything here takes, unless it hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// Connects and sends a request, which ends the connection.
fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    client.write_all(head.as_bytes()).unwrap();
    client
        .write_all(format!("content-length: {length}\r\n\r\n{body}").as_bytes())
        .unwrap();
    client
}

fn answer(mut client: TcpStream) -> String {
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    all
}

#[test]
fn light_requests_are_answered_while_all_threads_that_work_are_held_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let apart = Apart::start(&["/health"]).unwrap();
    let listener = {
        let _watched = apart.enter();
        Listener::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
    };
    let Place::Tcp(address) = *listener.place() else {
        unreachable!("a TCP socket")
    };
    let router = Router::new()
        .route("/health", get(|| async { "well" }))
        .route("/work", post(|body: String| async move { body }));
    let shutdown = Shutdown::default();
    let ending = shutdown.clone();
    let served = runtime.spawn(async move {
        let entrances = vec![(listener, router)];
        serve_apart(&apart, entrances, Settings::default(), ending, LIMIT).await
    });
    let text = "a body that is longer than what is looked at of a request ".repeat(50);
    assert!(answer(send(address, "POST", "/work", &text)).ends_with(&text));

    let (release, held) = channel::<()>();
    let (tell, holding) = channel();
    runtime.spawn(async move {
        tell.send(()).unwrap();
        let _ = held.recv();
    });
    holding.recv_timeout(LIMIT).unwrap();
    let mut work = send(address, "POST", "/work", &text);
    let silent = TcpStream::connect(address).unwrap();
    for _ in 0..3 {
        assert!(answer(send(address, "GET", "/health", "")).ends_with("well"));
    }
    let brief = Duration::from_millis(50);
    work.set_read_timeout(Some(brief)).unwrap();
    let error = work.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    release.send(()).unwrap();
    work.set_read_timeout(Some(LIMIT)).unwrap();
    assert!(answer(work).ends_with(&text));

    shutdown.drain();
    let ended = runtime.block_on(async { tokio::time::timeout(LIMIT, served).await });
    ended.unwrap().unwrap().unwrap();
    drop(silent);
}
