//! Texts on their way through the engine.

use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use octavo_api::{ApiError, PooledInput, PoolingOptions, SchedulingFields};
use octavo_edge::{RETRY_S, stopping};
use octavo_engine::{GenerateError, Step, StepStream, Submission};
use octavo_render::{PooledPrompt, Reading};
use octavo_telemetry::Outcome;
use octavo_wire::frontend::{Pooled, Pooling, SamplingParams};
use tokio::time::timeout;

use crate::app::App;
use crate::generate::{domain, limits_of};
use crate::refusal::of_generate;

/// Texts of one request that are in the engine at a time: others of the server want their turn too.
const AT_ONCE: usize = 256;

/// What a request asks of the engine.
#[derive(Debug)]
pub(super) struct Work {
    /// The id that the client sees.
    pub(super) name: String,
    /// "embed", …
    pub(super) task: String,
    pub(super) prompts: Vec<PooledPrompt>,
    pub(super) activate: Option<bool>,
    /// 0: all.
    pub(super) dimensions: u32,
    pub(super) scheduling: SchedulingFields,
}

/// What the engine gave.
#[derive(Debug)]
pub(super) struct Done {
    /// In the order of the texts.
    pub(super) vectors: Vec<Pooled>,
    /// Of all texts.
    pub(super) tokens: usize,
}

/// Turns texts into tokens; an error names the field `name`, or of several texts its entry.
pub(super) fn prompts(
    app: &App,
    inputs: &[PooledInput],
    options: &PoolingOptions,
    reading: Reading<'_>,
    name: &str,
) -> Result<Vec<PooledPrompt>, ApiError> {
    let limits = limits(app)?;
    let one = |(index, input): (usize, &PooledInput)| {
        let field = match input {
            PooledInput::Chat(_) => "messages",
            _ => name,
        };
        let place = match inputs.len() {
            1 => field.to_owned(),
            _ => format!("{field}.{index}"),
        };
        app.renderer.pooled(input, options, reading, limits, &place)
    };
    inputs.iter().enumerate().map(one).collect()
}

/// What texts are held against.
pub(super) fn limits(app: &App) -> Result<octavo_render::Limits, ApiError> {
    let info = app.generate.info();
    info.map(|info| limits_of(&info))
        .ok_or_else(|| ApiError::unavailable("No engine is ready yet. Try again soon.", RETRY_S))
}

/// Lets the engine work and waits for all vectors. Dropping the future aborts what is not done.
pub(super) async fn run(app: &App, work: Work, arrival: Instant) -> Result<Done, ApiError> {
    let name = work.name.clone();
    let (vectors, tokens) = all(app, name, work.submissions(), vectors_of, arrival).await?;
    Ok(Done { vectors, tokens })
}

/// Submits requests of one answer that end with their first step, and waits for what `take` finds in the last steps.
/// Returns that in the order of the requests, and the tokens of all prompts.
pub(super) async fn all<T>(
    app: &App,
    name: String,
    submissions: Vec<Submission>,
    take: fn(Step) -> Result<T, ApiError>,
    arrival: Instant,
) -> Result<(Vec<T>, usize), ApiError> {
    let lengths = submissions.iter().map(|submission| submission.prompt.len());
    let tokens: usize = lengths.sum();
    let _ticket = app.tokens.enter(tokens as u64)?;
    let mut metrics = app.metrics.request(name, arrival);
    let found = stream::iter(submissions)
        .map(|submission| last(app.generate.submit(submission), take))
        .buffered(AT_ONCE)
        .try_collect::<Vec<T>>();
    let bounded = async {
        match app.settings.request_timeout {
            Some(limit) => timeout(limit, found)
                .await
                .unwrap_or_else(|_| Err(ApiError::timed_out(limit.as_secs_f64()))),
            None => found.await,
        }
    };
    let cut = app.shutdown.cut_token();
    let result = tokio::select! {
        biased;
        result = bounded => result,
        () = cut.cancelled() => return Err(stopping()),
    };
    metrics.prompt(tokens as u64);
    metrics.finish(if result.is_ok() {
        Outcome::Stop
    } else {
        Outcome::Error
    });
    Ok((result?, tokens))
}

/// Waits for the last step of one request.
async fn last<T>(
    submitted: Result<StepStream, GenerateError>,
    take: fn(Step) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let mut steps = submitted.map_err(of_generate)?;
    while let Some(step) = steps.next().await {
        let step = step.map_err(of_generate)?;
        match step.finish.as_ref().map(|finish| finish.reason.as_str()) {
            None => {}
            Some("abort") => {
                let message = "The request was aborted. Send it again.";
                return Err(ApiError::unavailable(message, RETRY_S));
            }
            Some(_) => return take(step),
        }
    }
    Err(ApiError::internal(
        "The engine ended the request without a reason.",
    ))
}

fn vectors_of(step: Step) -> Result<Pooled, ApiError> {
    let message = step.finish.and_then(|finish| finish.message);
    step.pooled.ok_or_else(|| {
        ApiError::internal(
            message.unwrap_or_else(|| "The engine ended the request without a vector.".to_owned()),
        )
    })
}

impl Work {
    fn submissions(self) -> Vec<Submission> {
        let single = self.prompts.len() == 1;
        let one = |(index, prompt): (usize, PooledPrompt)| Submission {
            name: if single {
                self.name.clone()
            } else {
                format!("{}-{index}", self.name)
            },
            prompt: prompt.ids,
            sampling: SamplingParams::new(0, 1),
            priority: self.scheduling.priority,
            grammar: None,
            domain: domain(&self.scheduling),
            rank: self.scheduling.rank,
            session: self.scheduling.session_id.clone(),
            pooling: Some(Pooling {
                task: self.task.clone(),
                activate: self.activate,
                dimensions: self.dimensions,
                second: prompt.second,
            }),
            embeds: None,
        };
        self.prompts.into_iter().enumerate().map(one).collect()
    }
}
