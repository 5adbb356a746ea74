//! The seam between the API routes and whatever generates tokens.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use octavo_wire::frontend::{
    Domain, Embeds, EngineInfo, Finish, Grammar, Logprobs, Pooled, Pooling, SamplingParams, Stats,
};

use crate::stream::StepStream;

/// A request as the renderer hands it over: prompt and parameters are final and validated.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The id that the client sees, for logs.
    pub name: String,
    /// Prompt token ids.
    pub prompt: Vec<i32>,
    /// How to choose tokens and when to stop.
    pub sampling: SamplingParams,
    /// Lower goes first.
    pub priority: i64,
    /// What the output must be; `None`: any text.
    pub grammar: Option<Grammar>,
    /// With whom it may share KV; `None`: with all that have none either.
    pub domain: Option<Domain>,
    /// The data-parallel rank that must serve it; `None`: any.
    pub rank: Option<u32>,
    /// The session that it belongs to, which is best served by one rank; `None`: none.
    pub session: Option<String>,
    /// What it wants instead of tokens; `None`: tokens.
    pub pooling: Option<Pooling>,
    /// What the tokens of the prompt are; `None`: their ids. Else `domain` holds the content id of these.
    pub embeds: Option<Arc<Embeds>>,
}

/// One of the engine cores behind a [`Generate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankView {
    /// Whether it serves requests now.
    pub ready: bool,
    /// Whether it may still come back.
    pub alive: bool,
    /// How often it has come back as a new process.
    pub restarts: u64,
    /// Requests that it was given and that have not ended.
    pub open: usize,
    /// Of these, those that it runs.
    pub running: u64,
    /// Of these, those that wait in it.
    pub waiting: u64,
}

/// Tokens of one request, as many steps merged as were waiting when the reader came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Index, among all tokens of the request, of the first token here.
    pub start: usize,
    /// New token ids; may be empty in the last step.
    pub tokens: Vec<i32>,
    /// Set in the last step, and only there.
    pub finish: Option<Finish>,
    /// Prompt tokens found in the prefix cache; in the first step that knows it.
    pub cached_tokens: Option<u64>,
    /// Microseconds that the request waited in the engine before its first row; in the first step that knows it.
    pub queued_us: Option<u64>,
    /// Of `tokens`, where they were asked for.
    pub logprobs: Option<Logprobs>,
    /// Of the prompt, where they were asked for; in the first step.
    pub prompt_logprobs: Option<Logprobs>,
    /// Vectors, where they were asked for instead of tokens; in the last step.
    pub pooled: Option<Pooled>,
    /// Versions of the weights that these tokens are the first of, in order.
    pub weights: Vec<Arc<str>>,
}

/// Why a request got no (further) tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The request itself is at fault.
    #[error("{message}")]
    Rejected {
        /// "invalid" or "`too_long`".
        code: String,
        /// For the client.
        message: String,
        /// The request field at fault.
        param: Option<String>,
    },
    /// No engine can take a request now; try again after so many seconds.
    #[error("{message}")]
    Unavailable {
        /// For the client.
        message: String,
        /// Goes into Retry-After.
        retry_after_s: u32,
    },
    /// Too many requests are open; try again after so many seconds.
    #[error("{message}")]
    Overloaded {
        /// For the client.
        message: String,
        /// Goes into Retry-After.
        retry_after_s: u32,
    },
    /// The operation cannot be done in the state that the engine is in.
    #[error("{message}")]
    Conflict {
        /// For the client.
        message: String,
    },
    /// The engine knows no such operation, or cannot do it.
    #[error("{message}")]
    Unsupported {
        /// For the client.
        message: String,
    },
    /// The engine failed on this request, or stayed away longer than the replay time-out.
    #[error("{message}")]
    Failed {
        /// For the client.
        message: String,
    },
}

/// The answer to an operation, to be awaited.
pub type ControlFuture =
    Pin<Box<dyn Future<Output = Result<BTreeMap<String, String>, GenerateError>> + Send>>;

/// Generates tokens. The engine client, a scripted engine and a router implement it.
pub trait Generate: Send + Sync + 'static {
    /// Submits a request and returns at once. Dropping the stream aborts the request.
    ///
    /// # Errors
    /// `Unavailable` before any engine was ready, `Overloaded` when too many requests are open. What the engine
    /// itself refuses arrives in the stream.
    fn submit(&self, request: Submission) -> Result<StepStream, GenerateError>;

    /// What is known of the engine; `None` until it was ready for the first time.
    fn info(&self) -> Option<Arc<EngineInfo>>;

    /// Whether an engine is ready now.
    fn ready(&self) -> bool;

    /// Whether the engine may still come back: false once it has given up.
    fn alive(&self) -> bool;

    /// The engine's latest statistics.
    fn stats(&self) -> Option<Stats>;

    /// How often the engine has come back as a new process.
    fn restarts(&self) -> u64 {
        0
    }

    /// The engine cores, by data-parallel rank; empty where there is nothing to tell apart.
    fn ranks(&self) -> Vec<RankView> {
        Vec::new()
    }

    /// Asks the engine for an operation, such as "`reset_prefix_cache`", and waits for its answer.
    ///
    /// The future fails with `Unavailable` when no engine is ready or it goes away meanwhile; with `Rejected` (wrong
    /// arguments), `Conflict` (not in this state), `Unsupported` or `Failed` when the engine says why it does not do it.
    fn control(&self, op: &str, args: BTreeMap<String, String>) -> ControlFuture;
}
