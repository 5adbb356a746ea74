//! Listens until a signal comes.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use octavo_edge::{
    Failure, Keys, Listener, Reload, Settings, Shutdown, Signals, Tls, serve, watch,
};
use octavo_render_http::TextService;

use crate::app;
use crate::args::Args;

/// Requests that run at SIGTERM get so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves until a signal comes.
pub(crate) fn run(args: &Args, service: TextService) -> Result<(), Failure> {
    let threads = args.threads();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("io")
        .worker_threads(threads.div_ceil(2).clamp(1, 4))
        .max_blocking_threads(threads + threads / 2 + 4)
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("cannot start the threads: {error}")))?;
    let result = runtime.block_on(until_signal(args, service));
    // A text that is still tokenized for a client that left must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn until_signal(args: &Args, service: TextService) -> Result<(), Failure> {
    let signals = Signals::new()
        .map_err(|error| Failure::other(format!("cannot watch for signals: {error}")))?;
    let keys =
        Keys::new(&args.api_keys(), args.api_key_file.as_deref()).map_err(Failure::Config)?;
    let keys = Arc::new(keys);
    let tls = tls(args)?;
    let listener = listen(args, tls.as_ref())?;
    let shutdown = Shutdown::default();
    let settings = Settings {
        compute_threads: args.threads(),
        ..Settings::default()
    };
    let router = app::router(service, &settings, &shutdown, &keys);
    tokio::spawn(signals.obey(shutdown.clone()));
    let mut parts: Vec<Arc<dyn Reload>> = vec![keys];
    parts.extend(tls.map(|tls| tls as Arc<_>));
    tokio::spawn(watch(parts));
    announce(&listener);
    let served = serve(listener, router, &settings, &shutdown, PATIENCE).await;
    tracing::info!("stopped");
    served.map_err(|error| Failure::other(format!("cannot accept connections: {error}")))
}

fn tls(args: &Args) -> Result<Option<Arc<Tls>>, Failure> {
    let tls = args.tls().map(Tls::open).transpose();
    Ok(tls
        .map_err(|error| Failure::config(error.to_string()))?
        .map(Arc::new))
}

fn listen(args: &Args, tls: Option<&Arc<Tls>>) -> Result<Listener, Failure> {
    let (host, port) = (args.host.as_str(), args.port);
    let socket = TcpListener::bind((host, port)).map_err(|error| {
        Failure::config(format!(
            "cannot listen on {host} port {port}: {error}; --port 0 takes a free one"
        ))
    })?;
    let listener = Listener::new(socket)
        .map_err(|error| Failure::other(format!("cannot listen on {host} port {port}: {error}")))?;
    Ok(match tls {
        Some(tls) => listener.with_tls(Arc::clone(tls)),
        None => listener,
    })
}

/// Says that connections are answered from now on.
fn announce(listener: &Listener) {
    let scheme = if listener.is_tls() { "https" } else { "http" };
    let mut stdout = std::io::stdout().lock();
    // Nobody has to read it.
    let _ = writeln!(
        stdout,
        "octavo-renderer is ready at {scheme}://{}",
        listener.place()
    )
    .and_then(|()| stdout.flush());
}
