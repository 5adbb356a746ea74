//! The program `octavo-load`: streaming requests at a server, at little cost of its own.
//!
//! One thread, prepared bytes out, and of what comes in only what must be known: when the first byte came, how many
//! events, how many tokens the server says. `octavo bench serve` tells more of each request, and costs more.

mod args;
mod client;
mod figures;
mod response;

use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser as _;

use crate::args::Args;
use crate::client::Load;

fn main() -> ExitCode {
    let args = Args::parse();
    match start(&args) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("octavo-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> Result<serde_json::Value, String> {
    let requests = args.requests()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let load = Rc::new(Load::new(args.plan(), requests));
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(client::run(Rc::clone(&load))))?;
    Ok(load.report())
}
