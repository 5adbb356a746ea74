//! The accept loop and the life of a connection.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::held::HeldBody;
use crate::listener::{Arrival, Listener};
use crate::peer::{Peer, names_of};
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::stall::StallGuard;
use crate::waiting::{Activity, Patience, WaitGuard};

/// Serves connections until `shutdown` drains, then waits for the running requests.
///
/// They get `patience` to finish, then are cut off with an error, then have `Settings::linger` to send it. Who comes
/// meanwhile is answered, so that probes see that the server is not ready, but waited for no more. Returns when no
/// connection is left.
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
    let host = Host {
        router,
        settings: settings.clone(),
        shutdown: shutdown.clone(),
        handshakes: Arc::new(Semaphore::new(settings.max_handshakes)),
        places: Arc::new(Semaphore::new(settings.max_connections)),
        late: false,
    };
    let (connections, late) = (TaskTracker::new(), TaskTracker::new());
    let result = tokio::select! {
        result = accept(&listener, &host, &connections) => result,
        () = shutdown.draining() => Ok(()),
    };
    shutdown.drain();
    connections.close();
    let last = Host {
        late: true,
        ..host.clone()
    };
    let end = end(&connections, settings, shutdown, patience);
    tokio::select! {
        () = end => {}
        // It fails only where the loop above failed.
        () = forever(accept(&listener, &last, &late)) => {}
    }
    drop(listener);
    late.close();
    let _ = timeout(LATE, late.wait()).await;
    shutdown.abandon();
    connections.wait().await;
    late.wait().await;
    result
}

/// Who came while the server was ending has so long to read that it ends.
const LATE: Duration = Duration::from_millis(100);

/// Waits for ever, also where the work fails.
async fn forever(work: impl Future<Output = io::Result<()>>) {
    let _ = work.await;
    std::future::pending().await
}

async fn end(
    connections: &TaskTracker,
    settings: &Settings,
    shutdown: &Shutdown,
    patience: Duration,
) {
    let finished = tokio::select! {
        result = timeout(patience, connections.wait()) => result.is_ok(),
        () = shutdown.cutting() => false,
    };
    if !finished {
        shutdown.cut();
        if timeout(settings.linger, connections.wait()).await.is_err() {
            tracing::debug!("{} connections are dropped", connections.len());
        }
    }
}

/// What all connections share.
#[derive(Clone)]
struct Host {
    router: Router,
    settings: Settings,
    shutdown: Shutdown,
    handshakes: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// Whether its connections came after the end began.
    late: bool,
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: &Listener, host: &Host, connections: &TaskTracker) -> io::Result<()> {
    let mut full = false;
    loop {
        let place = place(&host.places, &mut full).await;
        let arrival = listener.accept().await?;
        let (host, tls) = (host.clone(), listener.tls());
        connections.spawn(async move {
            match arrival {
                Arrival::Tcp(stream, address) => host.greet(stream, Some(address), tls).await,
                Arrival::Unix(stream) => host.greet(stream, None, tls).await,
            }
            drop(place);
        });
    }
}

/// Waits for a place for one more connection; meanwhile clients wait in the socket's queue.
async fn place(places: &Arc<Semaphore>, full: &mut bool) -> Option<OwnedSemaphorePermit> {
    if places.available_permits() == 0 && !std::mem::replace(full, true) {
        tracing::warn!("as many connections are open as --max-connections allows: others wait");
    }
    // The semaphore is never closed.
    Arc::clone(places).acquire_owned().await.ok()
}

impl Host {
    /// Greets a client over TLS, where that is spoken, and serves the connection.
    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: S,
        address: Option<std::net::SocketAddr>,
        tls: Option<TlsAcceptor>,
    ) {
        let anonymous = Peer {
            address,
            names: Arc::default(),
        };
        let Some(tls) = tls else {
            return self.connection(stream, anonymous).await;
        };
        let handshake = async {
            // The semaphore is never closed.
            let _turn = self.handshakes.acquire().await.ok();
            tls.accept(stream).await
        };
        let greeted = tokio::select! {
            greeted = timeout(self.settings.handshake_timeout, handshake) => greeted,
            () = self.last_request() => return,
        };
        match greeted {
            Ok(Ok(stream)) => {
                let names = names(stream.get_ref().1);
                let peer = Peer { address, names };
                self.connection(stream, peer).await;
            }
            // Not TLS, or a certificate that is not good: the client's own affair.
            Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    /// Waits for the moment from which on no handshake and no further request of a connection is waited for.
    async fn last_request(&self) {
        if self.late {
            self.shutdown.abandoning().await;
        } else {
            self.shutdown.draining().await;
        }
    }

    /// Serves one connection until either side ends it.
    async fn connection<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S, peer: Peer) {
        let settings = &self.settings;
        let patience = Patience {
            head: settings.head_timeout,
            idle: settings.idle_timeout,
        };
        let activity = Arc::<Activity>::default();
        let stream = WaitGuard::new(stream, Arc::clone(&activity), patience);
        let io = TokioIo::new(StallGuard::new(stream, settings.write_timeout));
        let router = self.router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let busy = activity.begin();
            request.extensions_mut().insert(peer.clone());
            let answer = router.clone().oneshot(request.map(Body::new));
            async move {
                let response: Response<Body> = answer.await?;
                Ok::<_, std::convert::Infallible>(response.map(|body| HeldBody::new(body, busy)))
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(!self.late)
                .header_read_timeout(None)
                .max_header_size(settings.max_head_bytes)
                .max_buf_size(settings.max_head_bytes)
                .serve_connection(io, service)
        );
        let result = tokio::select! {
            result = &mut connection => result,
            () = self.last_request() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    result = &mut connection => result,
                    () = self.shutdown.abandoning() => return,
                }
            }
        };
        if let Err(error) = result {
            // The client went away, sent what is not HTTP, or took nothing for too long: its own affair.
            tracing::debug!("a connection ended early: {error}");
        }
    }
}

/// The names of the certificate that the client showed, if it showed one.
fn names(connection: &ServerConnection) -> Arc<[crate::peer::San]> {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    shown.map(names_of).unwrap_or_default()
}
