//! The program `octavo-renderer`: text to token ids and back for one model, over HTTP or as a filter. It has no engine.

mod app;
mod args;
mod filter;
mod line;
mod serve;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use octavo_edge::Failure;
use octavo_render::{Limits, Renderer};
use octavo_render_http::TextService;

use crate::args::Args;

/// The name of this process in its log.
const PROCESS: &str = "renderer";

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    // The level is one of those that the log knows, and nobody set the log up before.
    let _ = octavo_telemetry::setup(PROCESS, &args.log_level);
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    match start(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            failure.exit_code()
        }
    }
}

fn start(args: &Args) -> Result<(), Failure> {
    let service = load(args)?;
    if args.filter {
        return filter::run(
            &service,
            args.threads(),
            std::io::stdin().lock(),
            std::io::stdout(),
        )
        .map_err(|error| Failure::other(format!("the filter broke off: {error}")));
    }
    serve::run(args, service)
}

fn load(args: &Args) -> Result<TextService, Failure> {
    if !args.model.is_dir() {
        return Err(Failure::config(format!(
            "{} is no folder: octavo-renderer reads tokenizer.json, config.json and the chat template of a model's folder",
            args.model.display()
        )));
    }
    let given = args.chat_template.as_deref().map(template).transpose()?;
    let loaded = match &given {
        Some(source) => Renderer::load_with_template(&args.model, None, source),
        None => Renderer::load(&args.model, None),
    };
    let renderer = loaded
        .and_then(|renderer| renderer.with_parsers(&args.parsers()))
        .map_err(|error| Failure::config(error.to_string()))?
        .trusting_templates(args.trust_request_chat_template);
    for note in renderer.notes() {
        tracing::info!("{note}");
    }
    for warning in renderer.warnings() {
        tracing::warn!("{warning}");
    }
    let told = renderer.limits();
    let limits = Limits {
        max_model_len: args.max_model_len().unwrap_or(told.max_model_len),
        ..told
    };
    Ok(TextService::new(
        Arc::new(renderer),
        args.model_names(),
        move || limits,
    ))
}

/// The text of `--chat-template`: a file's, or the text itself where it has a brace in it.
fn template(given: &str) -> Result<String, Failure> {
    if given.contains('{') {
        return Ok(given.to_owned());
    }
    std::fs::read_to_string(given).map_err(|error| {
        let message =
            format!("--chat-template {given}: {error}; give a file with a Jinja template");
        Failure::config(message)
    })
}
