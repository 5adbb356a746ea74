//! Light requests while the threads that work are held up.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use octavo_edge::{
    Apart, ClientCertificates, Listener, Place, Settings, Shutdown, Tls, TlsFiles, serve_apart,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Longer than anything here takes, unless it hangs.
const LIMIT: Duration = Duration::from_secs(10);

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Whom clients trust; `None`: they speak no TLS.
type Trust = Option<Arc<ClientConfig>>;

struct Client {
    socket: TcpStream,
    stream: Box<dyn Stream>,
}

impl Client {
    /// Connects and sends a request, which ends the connection.
    fn send(address: SocketAddr, trust: &Trust, line: &str, body: &str) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let own = socket.try_clone().unwrap();
        let mut stream: Box<dyn Stream> = match trust {
            None => Box::new(own),
            Some(config) => {
                let name = ServerName::try_from("localhost").unwrap();
                let session = ClientConnection::new(Arc::clone(config), name).unwrap();
                Box::new(StreamOwned::new(session, own))
            }
        };
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let rest = format!("content-length: {length}\r\n\r\n{body}");
        stream.write_all(rest.as_bytes()).unwrap();
        Self { socket, stream }
    }

    fn answer(mut self) -> String {
        let mut all = String::new();
        self.stream.read_to_string(&mut all).unwrap();
        all
    }
}

/// A server's TLS, and clients who trust it.
fn tls() -> (Arc<Tls>, Trust) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificates, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    std::fs::write(&certificates, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = TlsFiles {
        certificates,
        key,
        client_roots: None,
        client_crl: None,
        client_certificates: ClientCertificates::None,
    };
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(Tls::open(files).unwrap()), Some(Arc::new(config)))
}

#[test]
fn light_requests_are_answered_while_all_threads_that_work_are_held_up() {
    hold_up(None, &None);
}

#[test]
fn over_tls_too() {
    let (server, clients) = tls();
    hold_up(Some(server), &clients);
}

fn hold_up(tls: Option<Arc<Tls>>, trust: &Trust) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let apart = Apart::start(&["/health"], || ()).unwrap();
    let listener = {
        let _watched = apart.enter();
        Listener::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
    };
    let listener = match tls {
        Some(tls) => listener.with_tls(tls),
        None => listener,
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
    let work = || Client::send(address, trust, "POST /work", &text);
    assert!(work().answer().ends_with(&text));

    let (release, held) = channel::<()>();
    let (tell, holding) = channel();
    runtime.spawn(async move {
        tell.send(()).unwrap();
        let _ = held.recv();
    });
    holding.recv_timeout(LIMIT).unwrap();
    let mut waits = work();
    let silent = TcpStream::connect(address).unwrap();
    for _ in 0..3 {
        let health = Client::send(address, trust, "GET /health", "");
        assert!(health.answer().ends_with("well"));
    }
    let brief = Duration::from_millis(50);
    waits.socket.set_read_timeout(Some(brief)).unwrap();
    let error = waits.stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    release.send(()).unwrap();
    waits.socket.set_read_timeout(Some(LIMIT)).unwrap();
    assert!(waits.answer().ends_with(&text));

    shutdown.drain();
    let ended = runtime.block_on(async { tokio::time::timeout(LIMIT, served).await });
    ended.unwrap().unwrap().unwrap();
    drop(silent);
}
