//! Messages between the frontend and an engine core: `python/wire/frontend.py`, field by field.
//!
//! On the socket a message is `[Header, body, *aux]`: one frame each, `MessagePack` except for the aux frames, which
//! are raw bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::embeds::Embeds;
pub use crate::info::{EngineInfo, ModelState};
pub use crate::pooling::{Pooled, Pooling};
use crate::record::{end, messages, records};
pub use crate::stats::{Histogram, StepStats};
use crate::{Blob, DecodeError, FewTokens, Floats, Reader, Tokens, Wire, Writer};

records! {
    /// Precedes every body. Sequence numbers count within one session, a pair of incarnations.
    #[derive(Copy, Eq)]
    struct Header {
        /// Drawn at random when the sending process started.
        incarnation: u64,
        /// The receiver's incarnation as the sender knows it; 0 in `Hello`.
        session: u64,
        /// 1 for the first numbered message of the session; 0: not numbered (`Hello`, `Welcome`, `Refuse`, `Ack`).
        seq: u64,
        /// The highest number received without a gap.
        ack: u64,
        /// Bytes of bodies and aux frames that the receiver of this header may have sent in the session.
        credit: u64,
        /// Which opening of the session, counted by the frontend; in `Hello` the last one known, or 0.
        epoch: u64 = 0,
    }

    /// core -> frontend: who connects. Repeated every 500 ms until `Welcome` or `Refuse` comes.
    struct Hello {
        /// See [`crate::PROTOCOL`].
        protocol: u32,
        /// See [`crate::VERSION`].
        version: String,
        /// "engine".
        role: String,
        /// Data-parallel rank.
        rank: u32,
        /// Process id.
        pid: u32,
        /// The key that frontend and engine were given.
        proof: Option<Blob> = None,
    }

    /// frontend -> core: the session is open; both sides count from 1.
    struct Welcome {
        /// See [`crate::PROTOCOL`].
        protocol: u32,
        /// See [`crate::VERSION`].
        version: String,
    }

    /// frontend -> core: no session, and trying again will not help.
    struct Refuse {
        /// What was wrong and what to do about it.
        reason: String,
    }

    /// Either way, when half of the credit is used up and every second. `sent` beyond what came shows a lost tail.
    #[derive(Copy, Eq)]
    struct Ack {
        /// The highest number that the sender of this has sent in the session.
        sent: u64,
    }

    /// core -> frontend: everything before this is sent; the core leaves when it is acknowledged.
    struct Goodbye {
        /// Why it leaves.
        reason: String,
    }

    /// End an output that repeats a pattern of so many tokens so many times in a row.
    #[derive(Copy, Eq)]
    struct RepetitionDetection {
        /// Largest pattern, in tokens.
        max_pattern_size: u32,
        /// Smallest pattern, in tokens.
        min_pattern_size: u32,
        /// How often it stands in a row.
        min_count: u32,
    }

    /// Force the end of thoughts after so many tokens of them, counted over all blocks of the output.
    #[derive(Eq)]
    struct ThinkingBudget {
        /// In tokens.
        budget: u64,
        /// The marker behind which thoughts begin.
        start: Tokens,
        /// What is forced; it ends them.
        end: Tokens,
        /// An end of `end` that ends them too; empty: all of it.
        close: Tokens = Tokens(Vec::new()),
    }

    /// What few requests ask for. All defaults ask for nothing.
    struct SamplingExtras {
        /// Of the best token's probability, what others need at least.
        min_p: f64 = 0.0,
        /// Subtracted once from tokens of the output.
        presence_penalty: f64 = 0.0,
        /// Subtracted from tokens of the output as often as they stand there.
        frequency_penalty: f64 = 0.0,
        /// Divides (or, negative ones, multiplies) the logits of tokens of prompt and output.
        repetition_penalty: f64 = 1.0,
        /// No stop id is drawn before so many tokens are out.
        min_tokens: u64 = 0,
        /// Tokens with a bias.
        bias_ids: Tokens = Tokens(Vec::new()),
        /// Added to their logits.
        biases: Floats = Floats(Vec::new()),
        /// Empty: all.
        allowed_token_ids: Tokens = Tokens(Vec::new()),
        /// The last token of each is never drawn behind the others.
        bad_words: Vec<Tokens> = Vec::new(),
        /// So many best tokens beside the drawn one; -1: all.
        logprobs: Option<i32> = None,
        /// Likewise for each token of the prompt but the first.
        prompt_logprobs: Option<i32> = None,
        /// These instead of the best ones.
        logprob_token_ids: Tokens = Tokens(Vec::new()),
        /// When to end an output that turns in circles.
        repetition: Option<RepetitionDetection> = None,
        /// When to end thoughts.
        thinking: Option<ThinkingBudget> = None,
        /// Tokens in a delta at least, but for the first and the last.
        stream_interval: u32 = 1,
    }

    /// How to choose tokens, and when to stop. Validated by the frontend; the core trusts types, not ranges.
    struct SamplingParams {
        /// Drawn by the frontend if the client gave none.
        seed: u64,
        /// At most so many tokens are generated.
        max_tokens: u64,
        /// 0: greedy.
        temperature: f64 = 1.0,
        /// Share of the probability mass that is kept.
        top_p: f64 = 1.0,
        /// Number of tokens that are kept; 0: all.
        top_k: u64 = 0,
        /// The model's end tokens are among them unless `ignore_eos`.
        stop_token_ids: Vec<i32> = Vec::new(),
        /// What few requests ask for.
        extras: Option<SamplingExtras> = None,
    }

    /// What an output must be, from its first token to its end. The frontend has compiled it once: it is valid.
    #[derive(Eq)]
    struct Grammar {
        /// How `text` reads: "lark", "`json_schema`", "regex".
        kind: String,
        /// The grammar.
        text: String,
    }

    /// With whom a request may share KV: two requests meet in the prefix cache only if all of this is equal.
    #[derive(Eq, Default)]
    struct Domain {
        /// The client's `cache_salt`; empty: none.
        salt: String = String::new(),
        /// Content id of the adapter; empty: none.
        adapter: String = String::new(),
        /// Content ids of the media in the prompt, in its order.
        media: Vec<String> = Vec::new(),
    }

    /// frontend -> core. Sent again with a higher attempt and the ids emitted so far after a crash or a gap.
    struct AddRequest {
        /// Unique in this incarnation of the frontend.
        id: u64,
        /// 1, 2, ...; a higher one replaces the request, a lower or equal one is dropped.
        attempt: u32,
        /// The id that the client sees; for logs.
        name: String,
        /// Prompt token ids.
        prompt: Tokens,
        /// Ids the client already has; they count toward `max_tokens`.
        emitted: Tokens,
        /// How to choose tokens.
        sampling: SamplingParams,
        /// Unix time in microseconds.
        arrival_us: u64,
        /// Lower goes first.
        priority: i64 = 0,
        /// `None`: any text.
        grammar: Option<Grammar> = None,
        /// `None`: the one that all share.
        domain: Option<Domain> = None,
        /// `None`: tokens are wanted.
        pooling: Option<Pooling> = None,
        /// `None`: the prompt is its ids. Else `domain` holds the content id of these.
        embeds: Option<Arc<Embeds>> = None,
    }

    /// frontend -> core. Idempotent: unknown ids are ignored.
    struct AbortRequests {
        /// Request ids.
        ids: Vec<u64>,
        /// "client", "stop", "shutdown", "timeout".
        reason: String,
    }

    /// frontend or supervisor -> core: an operation with an answer (`ControlDone` of the same id).
    struct Control {
        /// Chosen by the sender.
        id: u64,
        /// "shutdown", "`reset_prefix_cache`", "pause", …
        op: String,
        /// Of the operation.
        args: BTreeMap<String, String> = BTreeMap::new(),
    }

    /// core -> frontend.
    struct ControlDone {
        /// Of the `Control`.
        id: u64,
        /// What went wrong.
        error: Option<String> = None,
        /// Of the operation.
        result: BTreeMap<String, String> = BTreeMap::new(),
        /// With an error: "invalid" (the arguments), "conflict" (not in this state), "unsupported", "failed".
        code: String = String::new(),
        /// The argument at fault.
        param: Option<String> = None,
    }

    /// Why a request ended.
    struct Finish {
        /// "stop", "length", "repetition", "abort", "error".
        reason: String,
        /// The stop id that ended it; the id is also the last of the tokens.
        stop_token: Option<i32> = None,
        /// With "error": what a client may read.
        message: Option<String> = None,
    }

    /// Log probabilities of consecutive tokens, `width` for each: the token itself, then the others asked for.
    struct Logprobs {
        /// Values for each token.
        width: u32,
        /// `width` for each token.
        ids: Tokens,
        /// `width` for each token.
        values: Floats,
        /// Of the token itself; 1 is the best.
        ranks: Tokens,
    }

    /// New tokens of one request.
    struct Delta {
        /// Of the request.
        id: u64,
        /// Of the request.
        attempt: u32,
        /// Index, among all emitted tokens, of the first token here.
        start: u64,
        /// New token ids.
        tokens: FewTokens,
        /// In the last delta.
        finish: Option<Finish> = None,
        /// Prompt tokens found in the prefix cache; in the first delta of an attempt.
        cached_tokens: Option<u64> = None,
        /// Of `tokens`, where they were asked for.
        logprobs: Option<Logprobs> = None,
        /// Of the prompt but its first token; with the first tokens.
        prompt_logprobs: Option<Logprobs> = None,
        /// From its coming to its first row; in the first delta of an attempt.
        queued_us: Option<u64> = None,
        /// In the only delta of a request that pools.
        pooled: Option<Pooled> = None,
    }

    /// core -> frontend: one message a step (or more steps, merged, when credit ran out).
    struct Deltas {
        /// The core's step.
        step: u64,
        /// One for each request with news.
        items: Vec<Delta>,
    }

    /// core -> frontend: this request cannot run; final.
    struct RequestRejected {
        /// Of the request.
        id: u64,
        /// Of the request.
        attempt: u32,
        /// "invalid", "`too_long`", "overloaded".
        code: String,
        /// What was wrong, with the value, and what to do.
        message: String,
        /// The request field at fault.
        param: Option<String> = None,
    }

    /// core -> frontend: requests may come. Sent again after each restart of the workers, and when `info` changes.
    struct EngineReady {
        /// Of this engine.
        info: EngineInfo,
    }

    /// core -> frontend: the workers are gone.
    struct EngineFault {
        /// "`worker_died`", "`worker_hung`", "`worker_fault`".
        kind: String,
        /// What is known of it.
        message: String,
        /// False: the core gives up and leaves.
        restarting: bool,
    }

    /// core -> frontend, at most every 500 ms and when the engine falls idle. Counters since the core started.
    struct Stats {
        /// Requests in the running set.
        running: u64,
        /// Requests that wait.
        waiting: u64,
        /// KV blocks nobody uses.
        free_blocks: u64,
        /// KV blocks.
        total_blocks: u64,
        /// Prompt tokens computed or found.
        prompt_tokens: u64,
        /// Tokens generated.
        generated_tokens: u64,
        /// Prompt tokens looked up.
        prefix_queries: u64,
        /// Of these, found.
        prefix_hits: u64,
        /// Requests that gave their blocks back and started over.
        preemptions: u64,
        /// Restarts of the worker group.
        worker_restarts: u64,
        /// Steps run.
        steps: u64,
        /// Of the steps.
        detail: Option<Box<StepStats>> = None,
    }
}

messages! {
    /// What a frontend sends.
    enum FrontendMessage { Welcome, Refuse, Ack, AddRequest, AbortRequests, Control }
}

messages! {
    /// What an engine core sends.
    enum CoreMessage { Hello, Ack, Goodbye, EngineReady, EngineFault, Deltas, RequestRejected, ControlDone, Stats }
}

impl Header {
    /// Appends the header's frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(&mut Writer::new(out));
    }

    /// Decodes a header that fills `bytes`.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        let header = Self::read(&mut input)?;
        end(&input, header)
    }
}

impl SamplingParams {
    /// Plain sampling: temperature 1, nothing cut off, no stop ids.
    #[must_use]
    pub fn new(seed: u64, max_tokens: u64) -> Self {
        Self {
            seed,
            max_tokens,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            stop_token_ids: Vec::new(),
            extras: None,
        }
    }
}

impl Default for SamplingExtras {
    fn default() -> Self {
        Self {
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            min_tokens: 0,
            bias_ids: Tokens::default(),
            biases: Floats::default(),
            allowed_token_ids: Tokens::default(),
            bad_words: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            logprob_token_ids: Tokens::default(),
            repetition: None,
            thinking: None,
            stream_interval: 1,
        }
    }
}

impl Delta {
    /// New tokens and nothing else.
    #[must_use]
    pub fn new(id: u64, attempt: u32, start: u64, tokens: Vec<i32>) -> Self {
        Self {
            id,
            attempt,
            start,
            tokens: tokens.into(),
            finish: None,
            cached_tokens: None,
            logprobs: None,
            prompt_logprobs: None,
            queued_us: None,
            pooled: None,
        }
    }
}

impl Logprobs {
    /// How many tokens they are of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether they are of none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Forgets the first `count` tokens.
    pub fn skip(&mut self, count: usize) {
        let tokens = count.min(self.len());
        let entries = tokens * self.width as usize;
        self.ids.0.drain(..entries.min(self.ids.0.len()));
        self.values.0.drain(..entries.min(self.values.0.len()));
        self.ranks.0.drain(..tokens);
    }

    /// Appends those of the tokens that follow.
    pub fn append(&mut self, more: &Self) {
        self.width = more.width;
        self.ids.extend_from_slice(&more.ids);
        self.values.0.extend_from_slice(&more.values.0);
        self.ranks.extend_from_slice(&more.ranks);
    }
}

impl Finish {
    /// An end for `reason`, without a stop token or a message.
    #[must_use]
    pub fn new(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            stop_token: None,
            message: None,
        }
    }
}
