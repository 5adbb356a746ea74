//! The program `octavo-frontend`: reads its configuration, puts the parts together, and ends in order.

mod args;
mod config;
mod edge_config;
mod events;
mod otlp;
mod otlp_client;
mod process;
mod run;

use std::process::ExitCode;

use clap::Parser as _;
use octavo_edge::Failure;

use crate::args::Args;
use crate::config::Config;

/// The name of this process in the one log.
const PROCESS: &str = "frontend";

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let config = Config::read(&args.config);
    let level = config.as_ref().map_or("info", |config| &config.log_level);
    // A configuration that was read has a level that the log knows, and nobody set the log up before.
    let _ = octavo_telemetry::setup(PROCESS, level);
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    let done = config.and_then(|config| {
        if args.check {
            run::check(&config)
        } else {
            start(&config)
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            failure.exit_code()
        }
    }
}

fn start(config: &Config) -> Result<(), Failure> {
    process::die_with_parent().map_err(|error| {
        Failure::other(format!("cannot tie this process to its parent: {error}"))
    })?;
    if let Err(error) = process::raise_file_limit() {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let compute_threads = (cores / 2).clamp(1, 8);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("io")
        .worker_threads((cores / 2).clamp(1, 4))
        .max_blocking_threads(compute_threads + 4)
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("cannot start the threads: {error}")))?;
    let result = runtime.block_on(run::run(config, compute_threads));
    // A tokenizer that still works on a request of a client that left must not hold up the end.
    runtime.shutdown_background();
    result
}
