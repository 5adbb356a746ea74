//! One GET over one connection to an address that was checked.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::error::MediaError;
use crate::policy::{MediaPolicy, Target};

/// What a server answers.
pub(crate) enum Answer {
    Found(Bytes),
    /// The Location of a redirect.
    Redirect(String),
}

/// TLS to public servers, with Mozilla's roots.
pub(crate) fn tls() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Asks a server that stands at one of the addresses, which are dialled in order.
pub(crate) async fn get(
    policy: &MediaPolicy,
    tls: &TlsConnector,
    url: &Url,
    target: &Target,
    addresses: &[SocketAddr],
) -> Result<Answer, MediaError> {
    let connecting = connect(addresses);
    let stream = timeout(policy.connect_timeout, connecting).await;
    let stream = stream.map_err(|_| unreachable("nobody answers in time"))??;
    if !target.tls {
        return ask(policy, url, target, stream).await;
    }
    let name = ServerName::try_from(target.host.clone()).map_err(|_| MediaError::Url)?;
    let greeted = timeout(policy.connect_timeout, tls.connect(name, stream)).await;
    let stream = greeted
        .map_err(|_| unreachable("nobody answers in time"))?
        .map_err(|_| unreachable("TLS fails, or the certificate is not good"))?;
    ask(policy, url, target, stream).await
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, MediaError> {
    for address in addresses {
        if let Ok(stream) = TcpStream::connect(address).await {
            return Ok(stream);
        }
    }
    Err(unreachable("nobody answers"))
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    policy: &MediaPolicy,
    url: &Url,
    target: &Target,
    stream: S,
) -> Result<Answer, MediaError> {
    let broken = |_| unreachable("the answer is no HTTP");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // Dropped, and with it the connection, when the answer is there or nobody waits for it any more.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // What goes wrong shows in the answer.
        let _ = connection.await;
    });
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let request = Request::get(path)
        .header(header::HOST, authority(target))
        .header(header::USER_AGENT, "octavo")
        .header(header::ACCEPT, "*/*")
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Empty::<Bytes>::new())
        .map_err(|_| MediaError::Url)?;
    let response = sender.send_request(request).await.map_err(broken)?;
    read(policy, response).await
}

fn authority(target: &Target) -> String {
    let host = match target.literal {
        Some(address) if address.is_ipv6() => format!("[{}]", target.host),
        _ => target.host.clone(),
    };
    match (target.tls, target.port) {
        (true, 443) | (false, 80) => host,
        (_, port) => format!("{host}:{port}"),
    }
}

async fn read(policy: &MediaPolicy, response: Response<Incoming>) -> Result<Answer, MediaError> {
    let status = response.status();
    if status.is_redirection() {
        let place = response.headers().get(header::LOCATION);
        let place = place.and_then(|place| place.to_str().ok());
        return place
            .map(|place| Answer::Redirect(place.to_owned()))
            .ok_or_else(|| unreachable("a redirect leads nowhere"));
    }
    if status != 200 {
        return Err(unreachable(&format!(
            "the server answers {}",
            status.as_u16()
        )));
    }
    let encoding = response.headers().get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(unreachable(
            "the answer is compressed, which was not asked for",
        ));
    }
    let mut body = response.into_body();
    let told = hyper::body::Body::size_hint(&body).lower();
    if told > policy.max_bytes as u64 {
        return Err(MediaError::TooLarge(policy.max_bytes));
    }
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| unreachable("the answer breaks off"))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > policy.max_bytes {
                return Err(MediaError::TooLarge(policy.max_bytes));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(Answer::Found(all.freeze()))
}

pub(crate) fn unreachable(reason: &str) -> MediaError {
    MediaError::Unreachable(reason.to_owned())
}
