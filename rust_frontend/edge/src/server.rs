//! The accept loops and the life of a connection.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::future::select_all;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::apart::{Apart, Begun, Fork, Movable};
use crate::armed::Armed;
use crate::held::HeldBody;
use crate::listener::{Arrival, Listener, Protocol};
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
    serve_all(vec![(listener, router)], settings, shutdown, patience, None).await
}

/// As [`serve`], with several sockets whose clients share the limits of connections and the end; the thread apart accepts
/// them and answers light requests, while the runtime of the caller works.
///
/// # Errors
/// One of the sockets does not listen.
pub async fn serve_apart(
    apart: &Apart,
    entrances: Vec<(Listener, Router)>,
    settings: Settings,
    shutdown: Shutdown,
    patience: Duration,
) -> io::Result<()> {
    let fork = apart.fork();
    let serving =
        async move { serve_all(entrances, &settings, &shutdown, patience, Some(fork)).await };
    apart.handle.spawn(serving).await?
}

async fn serve_all(
    entrances: Vec<(Listener, Router)>,
    settings: &Settings,
    shutdown: &Shutdown,
    patience: Duration,
    fork: Option<Fork>,
) -> io::Result<()> {
    let handshakes = Arc::new(Semaphore::new(settings.max_handshakes));
    let places = Arc::new(Semaphore::new(settings.max_connections));
    let host = |router, protocol| Host {
        router,
        protocol,
        settings: settings.clone(),
        shutdown: shutdown.clone(),
        handshakes: Arc::clone(&handshakes),
        places: Arc::clone(&places),
        fork: fork.clone(),
        late: false,
    };
    let hosts: Vec<(Listener, Host)> = entrances
        .into_iter()
        .map(|(listener, router)| {
            let host = host(router, listener.protocol());
            (listener, host)
        })
        .collect();
    let (connections, late) = (TaskTracker::new(), TaskTracker::new());
    let result = tokio::select! {
        result = accept_all(&hosts, &connections) => result,
        () = shutdown.draining() => Ok(()),
    };
    shutdown.drain();
    connections.close();
    let last: Vec<(Listener, Host)> = hosts
        .into_iter()
        .map(|(listener, host)| (listener, Host { late: true, ..host }))
        .collect();
    let end = end(&connections, settings, shutdown, patience);
    tokio::select! {
        () = end => {}
        // It fails only where the loop above failed.
        () = forever(accept_all(&last, &late)) => {}
    }
    drop(last);
    late.close();
    let _ = timeout(LATE, late.wait()).await;
    shutdown.abandon();
    connections.wait().await;
    late.wait().await;
    result
}

/// Accepts connections at all sockets, until one of them does not listen.
async fn accept_all(hosts: &[(Listener, Host)], connections: &TaskTracker) -> io::Result<()> {
    let loops = hosts
        .iter()
        .map(|(listener, host)| Box::pin(accept(listener, host, connections)));
    select_all(loops).await.0
}

/// Requests that a connection of HTTP/2 may have open; clients keep further ones back.
const STREAMS: u32 = 1024;
/// Bytes of a request's body that its client may send before they are read, in HTTP/2.
const STREAM_WINDOW: u32 = 1 << 20;
/// Likewise of all bodies of a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of an answer that wait for a client to take them, in HTTP/2.
const SEND_BUFFER: usize = 64 << 10;

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
    protocol: Protocol,
    settings: Settings,
    shutdown: Shutdown,
    handshakes: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// Where connections go; `None`: nowhere else.
    fork: Option<Fork>,
    /// Whether its connections came after the end began.
    late: bool,
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: &Listener, host: &Host, connections: &TaskTracker) -> io::Result<()> {
    let mut full = false;
    loop {
        let place = place(&host.places, &mut full).await;
        let arrival = listener.accept().await?;
        let guest = Guest {
            host: host.clone(),
            tls: listener.tls(),
            place,
        };
        let all = connections.clone();
        connections.spawn(async move {
            match arrival {
                Arrival::Tcp(stream, address) => guest.enter(stream, Some(address), &all).await,
                Arrival::Unix(stream) => guest.enter(stream, None, &all).await,
            }
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

/// A connection that was accepted just now.
struct Guest {
    host: Host,
    tls: Option<TlsAcceptor>,
    /// Held until the connection ends.
    place: Option<OwnedSemaphorePermit>,
}

/// Where connections with work go, and what counts them.
type Sorting<'a> = Option<(Fork, &'a TaskTracker)>;

impl Guest {
    /// Greets the client and serves the connection: here if its first request is light, else where work is done.
    async fn enter<S: Movable>(
        self,
        stream: S,
        address: Option<SocketAddr>,
        connections: &TaskTracker,
    ) {
        let stream = Begun::new(stream);
        match self.host.fork.clone() {
            None => self.greet(stream, address, None).await,
            Some(fork) if self.host.protocol == Protocol::Http2 => {
                let greeted = async move {
                    if let Some(stream) = moved(stream) {
                        self.greet(stream, address, None).await;
                    }
                };
                connections.spawn_on(greeted, &fork.work);
            }
            Some(fork) => self.greet(stream, address, Some((fork, connections))).await,
        }
    }

    /// Greets a client over TLS, where that is spoken, and serves the connection.
    async fn greet<S: Movable>(
        mut self,
        stream: Begun<S>,
        address: Option<SocketAddr>,
        sorting: Sorting<'_>,
    ) {
        let Some(tls) = self.tls.take() else {
            let names = Arc::default();
            return self.serve(stream, Peer { address, names }, sorting).await;
        };
        if let Some(stream) = self.host.shake_hands(stream, tls).await {
            let names = names(stream.get_ref().1);
            let peer = Peer { address, names };
            self.serve(Begun::new(stream), peer, sorting).await;
        }
    }

    async fn serve<S: Movable>(self, mut stream: Begun<S>, peer: Peer, sorting: Sorting<'_>) {
        let Some((fork, connections)) = sorting else {
            return self.host.connection(stream, peer).await;
        };
        let light = tokio::select! {
            light = fork.is_light(&mut stream) => light,
            () = self.host.last_request() => false,
        };
        if light {
            return self.host.connection(stream, peer).await;
        }
        let served = async move {
            let _place = self.place;
            if let Some(stream) = moved(stream) {
                self.host.connection(stream, peer).await;
            }
        };
        connections.spawn_on(served, &fork.work);
    }
}

/// A connection that the runtime of the caller watches from now on.
fn moved<S: Movable>(mut stream: Begun<S>) -> Option<Begun<S>> {
    match stream.watch_here() {
        Ok(()) => Some(stream),
        Err(error) => {
            tracing::warn!("a connection is dropped: {error}");
            None
        }
    }
}

impl Host {
    /// Greets a client over TLS; `None`: that failed.
    async fn shake_hands<S: Movable>(
        &self,
        stream: Begun<S>,
        tls: TlsAcceptor,
    ) -> Option<TlsStream<Begun<S>>> {
        let handshake = async {
            // The semaphore is never closed.
            let _turn = self.handshakes.acquire().await.ok();
            tls.accept(stream).await
        };
        let greeted = tokio::select! {
            greeted = timeout(self.settings.handshake_timeout, handshake) => greeted,
            () = self.last_request() => return None,
        };
        match greeted {
            Ok(Ok(stream)) => return Some(stream),
            // Not TLS, or a certificate that is not good: the client's own affair.
            Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
        None
    }

    /// Waits for the moment from which on no handshake and no further request of a connection is waited for.
    async fn last_request(&self) {
        self.shutdown.last_request(self.late).cancelled().await;
    }

    /// Serves one connection until either side ends it.
    async fn connection<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S, peer: Peer) {
        let settings = &self.settings;
        let activity = Arc::<Activity>::default();
        let stream = WaitGuard::new(stream, Arc::clone(&activity), self.patience());
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
        match self.protocol {
            Protocol::Http1 => {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .keep_alive(!self.late)
                    .header_read_timeout(None)
                    .max_header_size(settings.max_head_bytes)
                    .max_buf_size(settings.max_head_bytes)
                    .serve_connection(io, service);
                self.drive(pin!(connection), http1::Connection::graceful_shutdown)
                    .await;
            }
            Protocol::Http2 => {
                let head = u32::try_from(settings.max_head_bytes).unwrap_or(u32::MAX);
                let connection = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(STREAMS)
                    .max_header_list_size(head)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_send_buf_size(SEND_BUFFER)
                    .keep_alive_interval(Some(settings.keep_alive))
                    .keep_alive_timeout(settings.write_timeout)
                    .serve_connection(io, service);
                self.drive(pin!(connection), http2::Connection::graceful_shutdown)
                    .await;
            }
        }
    }

    /// How long the connection may go without a request. HTTP/2 has frames between requests, which begin no head.
    fn patience(&self) -> Patience {
        let idle = self.settings.idle_timeout;
        Patience {
            head: match self.protocol {
                Protocol::Http1 => self.settings.head_timeout,
                Protocol::Http2 => idle,
            },
            idle,
        }
    }

    /// Keeps a connection going until its end, which `finish` begins when the server ends.
    async fn drive<C>(&self, mut connection: Pin<&mut C>, finish: impl FnOnce(Pin<&mut C>))
    where
        C: Future<Output = hyper::Result<()>>,
    {
        // The connection's own, so that a token that goes out touches nothing that connections share.
        let last = self.shutdown.last_request(self.late);
        let (mut ending, mut armed) = (pin!(last.cancelled()), Armed::default());
        let ended = poll_fn(|cx| {
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            if last.is_cancelled() {
                return Poll::Ready(None);
            }
            if armed.wakes(cx) {
                return Poll::Pending;
            }
            armed.arm(cx);
            ending.as_mut().poll(cx).map(|()| None)
        });
        let result = if let Some(result) = ended.await {
            result
        } else {
            finish(connection.as_mut());
            tokio::select! {
                result = &mut connection => result,
                () = self.shutdown.abandoning() => return,
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
