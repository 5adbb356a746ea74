//! Beam search in front of the engine: each step is a request for one token of each open beam.
//!
//! Steps after the first find their prompts in the prefix cache, but for the last block. What is found goes out
//! through streams like those of an engine, so that whatever reads an output reads these.

use std::sync::Arc;

use octavo_engine::{
    Generate, GenerateError, News, Step, StepSender, StepStream, Submission, channel,
};
use octavo_render::Prepared;
use octavo_wire::frontend::{Domain, Finish, Logprobs, SamplingExtras, SamplingParams};
use tokio_util::sync::CancellationToken;

use crate::beams::{Beams, Continuation, Rules};

/// What is searched for.
pub(crate) struct Search {
    /// Of the request, for logs.
    pub(crate) name: String,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) length_penalty: f64,
    pub(crate) priority: i64,
    pub(crate) domain: Option<Domain>,
    /// The engine that the client wants.
    pub(crate) rank: Option<u32>,
    /// The session that it belongs to.
    pub(crate) session: Option<String>,
}

/// What the first step tells of the prompt.
#[derive(Default)]
struct Told {
    cached_tokens: Option<u64>,
    queued_us: Option<u64>,
    prompt_logprobs: Option<Logprobs>,
}

/// Starts a search; returns a stream for each of `n` outputs, the best first. All of an output comes at once, at the end.
/// Dropping one before that ends the search.
pub(crate) fn start(generate: &Arc<dyn Generate>, search: Search) -> Vec<StepStream> {
    let cancelled = CancellationToken::new();
    let mut senders = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..search.prepared.n {
        let (sender, stream) = channel();
        let token = cancelled.clone();
        senders.push(sender);
        streams.push(stream.on_abort(move || token.cancel()));
    }
    let generate = Arc::clone(generate);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {}
            found = search.run(generate.as_ref()) => deliver(&senders, found),
        }
    });
    streams
}

/// Ends the streams with what was found.
fn deliver(senders: &[StepSender], found: Result<(Vec<Continuation>, Told), GenerateError>) {
    let (best, mut told) = match found {
        Ok(found) => found,
        Err(error) => {
            for sender in senders {
                sender.fail(error.clone());
            }
            return;
        }
    };
    let mut best = best.into_iter();
    for sender in senders {
        let Some(one) = best.next() else {
            sender.fail(GenerateError::Failed {
                message: "there are fewer continuations of this prompt than 'n'".to_owned(),
            });
            continue;
        };
        let finish = Finish {
            stop_token: one.stop,
            ..Finish::new(if one.stop.is_some() { "stop" } else { "length" })
        };
        sender.deliver(News {
            tokens: &one.tokens,
            cached_tokens: told.cached_tokens,
            queued_us: told.queued_us.take(),
            logprobs: one.logprobs,
            prompt_logprobs: told.prompt_logprobs.clone(),
            finish: Some(finish),
            ..News::default()
        });
    }
}

impl Search {
    async fn run(
        &self,
        generate: &dyn Generate,
    ) -> Result<(Vec<Continuation>, Told), GenerateError> {
        let sampling = &self.prepared.sampling;
        let asked = sampling.extras.as_ref();
        let mut beams = Beams::new(Rules {
            width: self.prepared.n as usize,
            length_penalty: self.length_penalty,
            stops: sampling.stop_token_ids.clone(),
            max_tokens: usize::try_from(sampling.max_tokens).unwrap_or(usize::MAX),
            prompt: self.prepared.prompt.len(),
            told: asked.and_then(|extras| extras.logprobs),
        });
        let mut told = None;
        while !beams.is_done() {
            let mut streams = Vec::with_capacity(beams.open().len());
            for (index, beam) in beams.open().iter().enumerate() {
                let wanted = beams.wanted();
                streams.push(generate.submit(self.submission(index, beam, wanted))?);
            }
            let mut rows = Vec::with_capacity(streams.len());
            for stream in &mut streams {
                let step = whole(stream).await?;
                told.get_or_insert(Told {
                    cached_tokens: step.cached_tokens,
                    queued_us: step.queued_us,
                    prompt_logprobs: step.prompt_logprobs,
                });
                rows.push(
                    step.logprobs
                        .filter(|row| !row.ids.is_empty())
                        .ok_or_else(|| GenerateError::Failed {
                            message: "the engine gave no log probabilities".to_owned(),
                        })?,
                );
            }
            beams.advance(&rows);
        }
        Ok((beams.best(), told.unwrap_or_default()))
    }

    /// Asks for the next token of a beam, and what else might stand there.
    fn submission(&self, index: usize, beam: &Continuation, wanted: i32) -> Submission {
        let sampling = &self.prepared.sampling;
        let asked = sampling.extras.as_ref().filter(|_| beam.tokens.is_empty());
        Submission {
            name: format!("{}-beam{index}", self.name),
            prompt: [self.prepared.prompt.as_slice(), &beam.tokens].concat(),
            sampling: SamplingParams {
                temperature: 0.0,
                extras: Some(SamplingExtras {
                    logprobs: Some(wanted),
                    prompt_logprobs: asked.and_then(|extras| extras.prompt_logprobs),
                    ..SamplingExtras::default()
                }),
                ..SamplingParams::new(sampling.seed, 1)
            },
            priority: self.priority,
            grammar: None,
            domain: self.domain.clone(),
            rank: self.rank,
            session: self.session.clone(),
            pooling: None,
            embeds: None,
        }
    }
}

/// Waits for the end of a request for one token.
async fn whole(stream: &mut StepStream) -> Result<Step, GenerateError> {
    let mut all: Option<Step> = None;
    loop {
        let Some(step) = stream.next().await else {
            return Err(GenerateError::Failed {
                message: "the engine ended a step of the search without a reason".to_owned(),
            });
        };
        let step = step?;
        let finish = step.finish.clone();
        match &mut all {
            None => all = Some(step),
            Some(all) => {
                all.logprobs = all.logprobs.take().or(step.logprobs);
                all.prompt_logprobs = all.prompt_logprobs.take().or(step.prompt_logprobs);
            }
        }
        match (finish, all.take()) {
            (Some(finish), _) if finish.reason == "error" || finish.reason == "abort" => {
                let message = finish.message.unwrap_or_else(|| finish.reason.clone());
                return Err(GenerateError::Failed { message });
            }
            (Some(_), Some(all)) => return Ok(all),
            (_, kept) => all = kept,
        }
    }
}
