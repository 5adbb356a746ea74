//! The accept loop and the life of a connection.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::listener::Listener;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::stall::StallGuard;

/// Serves connections until `shutdown` drains, then waits for the running requests.
///
/// They get `patience` to finish, then are cut off with an error, then have `Settings::linger` to send it. Returns when
/// no connection is left.
///
/// # Errors
/// The socket does not listen.
pub async fn serve(
    listener: Listener,
    router: Router,
    settings: &Settings,
    shutdown: &Shutdown,
    patience: Duration,
) -> io::Result<()> {
    let connections = TaskTracker::new();
    let result = accept(listener, &router, settings, shutdown, &connections).await;
    shutdown.drain();
    connections.close();
    let finished = tokio::select! {
        result = timeout(patience, connections.wait()) => result.is_ok(),
        () = shutdown.cutting() => false,
    };
    if !finished {
        shutdown.cut();
        if timeout(settings.linger, connections.wait()).await.is_err() {
            tracing::debug!("{} connections are dropped", connections.len());
        }
        shutdown.abandon();
        connections.wait().await;
    }
    result
}

async fn accept(
    listener: Listener,
    router: &Router,
    settings: &Settings,
    shutdown: &Shutdown,
    connections: &TaskTracker,
) -> io::Result<()> {
    loop {
        let stream = tokio::select! {
            stream = listener.accept() => stream?,
            () = shutdown.draining() => return Ok(()),
        };
        connections.spawn(greet(
            stream,
            listener.tls(),
            router.clone(),
            settings.clone(),
            shutdown.clone(),
        ));
    }
}

/// Greets a client over TLS, where that is spoken, and serves the connection.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    settings: Settings,
    shutdown: Shutdown,
) {
    let Some(tls) = tls else {
        return connection(stream, router, settings, shutdown).await;
    };
    let greeted = tokio::select! {
        greeted = timeout(settings.handshake_timeout, tls.accept(stream)) => greeted,
        () = shutdown.draining() => return,
    };
    match greeted {
        Ok(Ok(stream)) => connection(stream, router, settings, shutdown).await,
        // Not TLS, or a certificate that is not good: the client's own affair.
        Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Serves one connection until either side ends it.
async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    router: Router,
    settings: Settings,
    shutdown: Shutdown,
) {
    let io = TokioIo::new(StallGuard::new(stream, settings.write_timeout));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.head_timeout)
            .max_buf_size(settings.max_head_bytes)
            .serve_connection(io, TowerToHyperService::new(router))
    );
    let result = tokio::select! {
        result = &mut connection => result,
        () = shutdown.draining() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = &mut connection => result,
                () = shutdown.abandoning() => return,
            }
        }
    };
    if let Err(error) = result {
        // The client went away, sent what is not HTTP, or took nothing for too long: its own affair.
        tracing::debug!("a connection ended early: {error}");
    }
}
