//! TLS on a real port: who may connect, and what strangers can do.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use octavo_edge::{
    ClientCertificates, Listener, Peer, Place, Reload as _, Settings, Shutdown, Tls, TlsFiles,
    serve,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A root, and a certificate of it for the server and for a client.
struct Papers {
    root: rcgen::Certificate,
    server: (String, KeyPair),
    client: (rcgen::Certificate, KeyPair),
}

impl Papers {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (certificate, key) = signed("localhost");
        Self {
            root,
            server: (certificate.pem(), key),
            client: signed("client"),
        }
    }

    fn write(&self, folder: &Path, client_certificates: ClientCertificates) -> TlsFiles {
        let write = |name: &str, text: String| -> PathBuf {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            certificates: write("cert.pem", self.server.0.clone()),
            key: write("key.pem", self.server.1.serialize_pem()),
            client_roots: Some(write("roots.pem", self.root.pem())),
            client_crl: None,
            client_certificates,
        }
    }

    fn connector(&self, certificate: bool) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if certificate {
            let chain: Vec<CertificateDer<'static>> = vec![self.client.0.der().clone()];
            let key = PrivateKeyDer::try_from(self.client.1.serialize_der()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        TlsConnector::from(Arc::new(config))
    }
}

/// Asks for `/`; the error is that of the handshake or of the connection.
async fn ask(address: SocketAddr, connector: &TlsConnector) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await?;
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A server that says who asks.
struct Server {
    address: SocketAddr,
    tls: Arc<Tls>,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Server {
    fn start(files: TlsFiles) -> Self {
        let tls = Arc::new(Tls::open(files).unwrap());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::new(socket).unwrap().with_tls(Arc::clone(&tls));
        let Place::Tcp(address) = *listener.place() else {
            unreachable!("a TCP socket")
        };
        let shutdown = Shutdown::default();
        let ending = shutdown.clone();
        let task = tokio::spawn(async move {
            let say = |Extension(peer): Extension<Peer>| async move {
                let names: Vec<String> = peer.names.iter().map(ToString::to_string).collect();
                format!("hello {}", names.join(" "))
            };
            let router = Router::new().route("/", get(say));
            let settings = Settings::default();
            serve(listener, router, &settings, &ending, Duration::from_secs(5)).await
        });
        Self {
            address,
            tls,
            shutdown,
            task,
        }
    }

    async fn stop(self) {
        self.shutdown.drain();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn clients_are_asked_for_what_the_server_wants_and_strangers_hold_up_nobody() {
    let papers = Papers::new();
    for (wanted, shown, without) in [
        (ClientCertificates::None, "hello ", true),
        (ClientCertificates::Optional, "hello DNS:client", true),
        (ClientCertificates::Required, "hello DNS:client", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(papers.write(folder.path(), wanted));
        // One says nothing, one speaks plain HTTP: others are served meanwhile.
        let silent = TcpStream::connect(server.address).await.unwrap();
        let mut plain = TcpStream::connect(server.address).await.unwrap();
        plain
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut said = Vec::new();
        let _ = plain.read_to_end(&mut said).await;
        assert!(!String::from_utf8_lossy(&said).contains("hello"));

        let answer = ask(server.address, &papers.connector(true)).await.unwrap();
        assert!(answer.ends_with(shown), "{answer}");
        let answer = ask(server.address, &papers.connector(false)).await;
        assert_eq!(answer.is_ok_and(|text| text.ends_with("hello ")), without);
        server.stop().await;
        drop(silent);
    }
}

#[tokio::test]
async fn a_reload_swaps_all_files_or_none() {
    let (papers, others) = (Papers::new(), Papers::new());
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(papers.write(folder.path(), ClientCertificates::Required));
    let answers =
        async |papers: &Papers| ask(server.address, &papers.connector(true)).await.is_ok();
    assert!(answers(&papers).await && !answers(&others).await);

    std::fs::write(folder.path().join("cert.pem"), &others.server.0).unwrap();
    let problem = server.tls.reload().unwrap_err();
    assert!(problem.contains("cannot serve TLS together"), "{problem}");
    assert!(answers(&papers).await && !answers(&others).await);

    others.write(folder.path(), ClientCertificates::Required);
    server.tls.reload().unwrap();
    assert!(!answers(&papers).await && answers(&others).await);
    server.stop().await;
}
