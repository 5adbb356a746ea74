//! The program `octavo-mock`: a scripted engine as a process.

mod args;
mod lifeline;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use octavo_mock::{Ending, Mock};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;

/// Nothing of it would be better the next time.
const EXIT_FINAL: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    // The level is one of those that the log knows, and nobody set it up before.
    let _ = octavo_telemetry::setup("mock", &args.log_level);
    lifeline::watch();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(play(&args)),
        Err(error) => {
            tracing::error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(Ending::Stopped | Ending::Shutdown) => ExitCode::SUCCESS,
        Ok(ending) => {
            tracing::warn!("ended by the script: {ending:?}");
            ExitCode::FAILURE
        }
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(EXIT_FINAL)
        }
    }
}

async fn play(args: &Args) -> Result<Ending, octavo_mock::MockError> {
    Mock::new(args.script(), &args.endpoint)
        .on_ready(|| say("ready"))
        .run(stop())
        .await
}

/// Waits for SIGTERM or SIGINT.
async fn stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Tells a parent, by one JSON line.
fn say(event: &str) {
    let line = json!({"event": event, "version": octavo_wire::VERSION, "pid": std::process::id()});
    // Nobody has to read it.
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
