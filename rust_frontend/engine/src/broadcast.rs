//! What several engine cores say, put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_wire::frontend::{EngineInfo, Histogram, Stats, StepStats};

use crate::GenerateError;

/// What one core answered to an operation.
pub(crate) type Answer = Result<BTreeMap<String, String>, GenerateError>;

/// The version of the weights that an answer names.
pub(crate) fn version(answer: &BTreeMap<String, String>) -> Option<String> {
    let named = answer
        .get("weight_version")
        .or_else(|| answer.get("new_version"));
    named.cloned()
}

/// One answer for all: that of the first, with counts added up and yes only where all say so.
///
/// # Errors
/// The first error, with the rank that it is of.
pub(crate) fn merge(op: &str, args: &BTreeMap<String, String>, answers: Vec<Answer>) -> Answer {
    let ranks = answers.len();
    let mut all = Vec::with_capacity(ranks);
    for (rank, answer) in answers.into_iter().enumerate() {
        all.push(answer.map_err(|error| of_rank(rank, error))?);
    }
    let aborted: u64 = all
        .iter()
        .filter_map(|one| one.get("aborted")?.parse::<u64>().ok())
        .sum();
    let agreed = |name: &str| {
        all.iter()
            .all(|one| one.get(name).is_some_and(|word| word == "true"))
    };
    let (paused, sleeping) = (agreed("is_paused"), agreed("is_sleeping"));
    let mut merged = all.into_iter().next().unwrap_or_default();
    for (name, value) in &mut merged {
        match name.as_str() {
            "aborted" => *value = aborted.to_string(),
            "is_paused" => *value = paused.to_string(),
            "is_sleeping" => *value = sleeping.to_string(),
            _ => {}
        }
    }
    if op == "server_info" && args.get("include_dp").is_none_or(|word| word != "false") {
        merged.insert("data_parallel_size".to_owned(), ranks.to_string());
    }
    Ok(merged)
}

fn of_rank(rank: usize, error: GenerateError) -> GenerateError {
    let tell = |message: String| format!("rank {rank}: {message}");
    match error {
        GenerateError::Rejected {
            code,
            message,
            param,
        } => GenerateError::Rejected {
            code,
            message: tell(message),
            param,
        },
        GenerateError::Unavailable {
            message,
            retry_after_s,
        } => GenerateError::Unavailable {
            message: tell(message),
            retry_after_s,
        },
        GenerateError::Overloaded {
            message,
            retry_after_s,
        } => GenerateError::Overloaded {
            message: tell(message),
            retry_after_s,
        },
        GenerateError::Conflict { message } => GenerateError::Conflict {
            message: tell(message),
        },
        GenerateError::Unsupported { message } => GenerateError::Unsupported {
            message: tell(message),
        },
        GenerateError::Failed { message } => GenerateError::Failed {
            message: tell(message),
        },
    }
}

/// What may be asked of any of them: the shortest context, and all places and blocks together.
pub(crate) fn infos(all: &[Arc<EngineInfo>]) -> Option<Arc<EngineInfo>> {
    let (first, rest) = all.split_first()?;
    if rest.is_empty() {
        return Some(Arc::clone(first));
    }
    let mut merged = EngineInfo::clone(first);
    for info in rest {
        merged.max_model_len = merged.max_model_len.min(info.max_model_len);
        merged.num_blocks += info.num_blocks;
        merged.max_num_seqs += info.max_num_seqs;
        merged.startup_ms = merged.startup_ms.max(info.startup_ms);
    }
    Some(Arc::new(merged))
}

/// Figures of all of them added up.
pub(crate) fn stats(all: impl Iterator<Item = Stats>) -> Option<Stats> {
    all.reduce(|mut sum, more| {
        for (total, value) in [
            (&mut sum.running, more.running),
            (&mut sum.waiting, more.waiting),
            (&mut sum.free_blocks, more.free_blocks),
            (&mut sum.total_blocks, more.total_blocks),
            (&mut sum.prompt_tokens, more.prompt_tokens),
            (&mut sum.generated_tokens, more.generated_tokens),
            (&mut sum.prefix_queries, more.prefix_queries),
            (&mut sum.prefix_hits, more.prefix_hits),
            (&mut sum.preemptions, more.preemptions),
            (&mut sum.worker_restarts, more.worker_restarts),
            (&mut sum.steps, more.steps),
        ] {
            *total += value;
        }
        sum.detail = match (sum.detail.take(), more.detail) {
            (Some(one), Some(other)) => Some(Box::new(details(*one, &other))),
            (one, other) => one.or(other),
        };
        sum
    })
}

fn details(mut sum: StepStats, more: &StepStats) -> StepStats {
    for (total, value) in [
        (&mut sum.waiting_capacity, more.waiting_capacity),
        (&mut sum.waiting_deferred, more.waiting_deferred),
        (&mut sum.cached_blocks, more.cached_blocks),
        (&mut sum.decode_tokens, more.decode_tokens),
        (&mut sum.prefill_tokens, more.prefill_tokens),
        (&mut sum.decode_rows, more.decode_rows),
        (&mut sum.prefill_rows, more.prefill_rows),
    ] {
        *total += value;
    }
    add(&mut sum.scheduler_seconds, &more.scheduler_seconds);
    add(&mut sum.step_tokens, &more.step_tokens);
    sum
}

/// Cores of one version have the same bounds.
fn add(sum: &mut Histogram, more: &Histogram) {
    if sum.bounds != more.bounds {
        return;
    }
    for (count, value) in sum.counts.iter_mut().zip(&more.counts) {
        *count += value;
    }
    sum.total += more.total;
}
