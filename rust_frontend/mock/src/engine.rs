//! The scripted engine itself: requests in, deltas out, step by step. No I/O and no clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use octavo_wire::frontend::{AddRequest, Delta, Finish, RequestRejected, Stats};

use crate::Script;

/// What became of a request that came.
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once, never kept in numbers"
)]
#[derive(Debug, PartialEq)]
pub enum Added {
    /// It waits or runs.
    Queued,
    /// A later attempt of it is known already.
    Old,
    /// It is done already: it came with all tokens that it may have.
    Done(Delta),
    /// It is refused.
    Rejected(RequestRejected),
}

/// A request that waits or runs.
#[derive(Debug)]
struct Row {
    id: u64,
    attempt: u32,
    prompt: Vec<i32>,
    stops: Vec<i32>,
    seed: u64,
    /// Tokens that the client has.
    emitted: u64,
    /// `emitted` ends here.
    limit: u64,
    /// Prompt tokens that are not computed.
    uncomputed: usize,
    /// No delta of this attempt has gone out.
    fresh: bool,
}

/// Requests, and what the script makes of them.
///
/// Invariants: at most `max_num_seqs` rows run; a request has at most one row, which is of its latest attempt once
/// [`Engine::begin`] has looked.
#[derive(Debug)]
pub struct Engine {
    script: Arc<Script>,
    waiting: BTreeMap<(i64, u64), Row>,
    running: Vec<Row>,
    /// The attempt of each request that waits or runs.
    known: HashMap<u64, u32>,
    /// Rows may be there that are not of `known`.
    stale: bool,
    arrivals: u64,
    steps: u64,
    prompt_tokens: u64,
    generated_tokens: u64,
}

impl Engine {
    /// Starts without requests.
    #[must_use]
    pub fn new(script: Arc<Script>) -> Self {
        Self {
            script,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            known: HashMap::new(),
            stale: false,
            arrivals: 0,
            steps: 0,
            prompt_tokens: 0,
            generated_tokens: 0,
        }
    }

    /// Takes in a request.
    pub fn add(&mut self, request: AddRequest) -> Added {
        let known = self.known.get(&request.id).copied();
        if known.is_some_and(|attempt| attempt >= request.attempt) {
            return Added::Old;
        }
        if request.attempt == 1 {
            self.arrivals += 1;
        }
        if let Some(rejected) = self.refusal(&request) {
            self.forget(request.id);
            return Added::Rejected(rejected);
        }
        let row = self.row(request.sampling.max_tokens, &request);
        if row.emitted >= row.limit {
            self.forget(row.id);
            return Added::Done(row.delta(Vec::new(), Some(Finish::new("length"))));
        }
        self.stale |= known.is_some();
        self.known.insert(row.id, row.attempt);
        // Ids grow in the order of arrival.
        self.waiting.insert((request.priority, request.id), row);
        Added::Queued
    }

    /// Forgets requests; unknown ids are ignored.
    pub fn abort(&mut self, ids: &[u64]) {
        for id in ids {
            self.forget(*id);
        }
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.known.clear();
        self.waiting.clear();
        self.running.clear();
        self.stale = false;
    }

    /// Whether no request waits or runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.known.is_empty()
    }

    /// Begins a step with the requests that may run. Returns its number, counted from 1, or `None` if there are none.
    pub fn begin(&mut self) -> Option<u64> {
        self.sweep();
        let room = usize::try_from(self.script.info.max_num_seqs).unwrap_or(usize::MAX);
        while self.running.len() < room {
            let Some((_, row)) = self.waiting.pop_first() else {
                break;
            };
            self.running.push(row);
        }
        if self.running.is_empty() {
            return None;
        }
        self.steps += 1;
        Some(self.steps)
    }

    /// Ends the step: returns what it brought, one delta a request.
    pub fn finish(&mut self) -> Vec<Delta> {
        self.sweep();
        let mut deltas = Vec::with_capacity(self.running.len());
        let script = &self.script;
        let (known, prompts, generated) = (
            &mut self.known,
            &mut self.prompt_tokens,
            &mut self.generated_tokens,
        );
        self.running.retain_mut(|row| {
            *prompts += row.prefill(script.prefill_chunk);
            if row.uncomputed > 0 {
                return true;
            }
            let delta = row.step(script);
            *generated += delta.tokens.len() as u64;
            let done = delta.finish.is_some();
            if done {
                known.remove(&row.id);
            }
            deltas.push(delta);
            !done
        });
        deltas
    }

    /// How things stand.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let blocks = self.script.info.num_blocks;
        let tokens: u64 = self.running.iter().map(Row::held).sum();
        let used = tokens.div_ceil(self.script.info.block_tokens.max(1));
        Stats {
            running: self.running.len() as u64,
            waiting: self.waiting.len() as u64,
            free_blocks: blocks.saturating_sub(used),
            total_blocks: blocks,
            prompt_tokens: self.prompt_tokens,
            generated_tokens: self.generated_tokens,
            prefix_queries: self.prompt_tokens,
            prefix_hits: 0,
            preemptions: 0,
            worker_restarts: 0,
            steps: self.steps,
            detail: None,
        }
    }

    /// Panics if an invariant does not hold; for tests.
    pub fn check(&self) {
        assert!(self.running.len() as u64 <= self.script.info.max_num_seqs);
        if !self.stale {
            assert_eq!(self.known.len(), self.running.len() + self.waiting.len());
        }
    }

    fn refusal(&self, request: &AddRequest) -> Option<RequestRejected> {
        let length = request.prompt.len() as u64;
        let context = self.script.info.max_model_len;
        let rule = self
            .script
            .rejects
            .iter()
            .find(|rule| rule.fits(request, self.arrivals));
        let (code, message) = match rule {
            Some(rule) => (rule.code.as_str(), "refused, as the script says".to_owned()),
            None if length == 0 => ("invalid", "the prompt has no tokens".to_owned()),
            None if length >= context => (
                "too_long",
                format!("the prompt has {length} tokens and the context is {context}"),
            ),
            None => return None,
        };
        Some(RequestRejected {
            id: request.id,
            attempt: request.attempt,
            code: code.to_owned(),
            message,
            param: None,
        })
    }

    fn row(&self, max_tokens: u64, request: &AddRequest) -> Row {
        let length = request.prompt.len() as u64;
        let room = self.script.info.max_model_len.saturating_sub(length);
        Row {
            id: request.id,
            attempt: request.attempt,
            prompt: request.prompt.to_vec(),
            stops: request.sampling.stop_token_ids.clone(),
            seed: request.sampling.seed,
            emitted: request.emitted.len() as u64,
            limit: max_tokens.min(room),
            uncomputed: request.prompt.len(),
            fresh: true,
        }
    }

    fn forget(&mut self, id: u64) {
        self.stale |= self.known.remove(&id).is_some();
    }

    /// Removes rows of requests that were aborted or came again.
    fn sweep(&mut self) {
        if std::mem::take(&mut self.stale) {
            let known = &self.known;
            let lives = |row: &Row| known.get(&row.id) == Some(&row.attempt);
            self.waiting.retain(|_, row| lives(row));
            self.running.retain(lives);
        }
    }
}

impl Row {
    /// Computes some of the prompt; returns how much.
    fn prefill(&mut self, chunk: usize) -> u64 {
        let count = if chunk == 0 {
            self.uncomputed
        } else {
            self.uncomputed.min(chunk)
        };
        self.uncomputed -= count;
        count as u64
    }

    /// Draws the tokens of one step.
    fn step(&mut self, script: &Script) -> Delta {
        let mut tokens = Vec::with_capacity(script.tokens_per_step);
        let mut finish = None;
        for at in (self.emitted..self.limit).take(script.tokens_per_step) {
            let token = script.output.token(&self.prompt, self.seed, at);
            tokens.push(token);
            if self.stops.contains(&token) {
                finish = Some(Finish {
                    stop_token: Some(token),
                    ..Finish::new("stop")
                });
                break;
            }
        }
        if finish.is_none() && self.emitted + tokens.len() as u64 == self.limit {
            finish = Some(Finish::new("length"));
        }
        let delta = self.delta(tokens, finish);
        self.emitted += delta.tokens.len() as u64;
        self.fresh = false;
        delta
    }

    fn delta(&self, tokens: Vec<i32>, finish: Option<Finish>) -> Delta {
        Delta {
            finish,
            cached_tokens: self.fresh.then_some(0),
            queued_us: self.fresh.then_some(0),
            ..Delta::new(self.id, self.attempt, self.emitted, tokens)
        }
    }

    /// Tokens whose keys and values a real engine would hold.
    fn held(&self) -> u64 {
        self.prompt.len() as u64 + self.emitted
    }
}

#[cfg(test)]
mod tests {
    use octavo_wire::Tokens;
    use octavo_wire::frontend::SamplingParams;

    use super::*;
    use crate::Output;

    fn request(id: u64, prompt: &[i32], max_tokens: u64) -> AddRequest {
        AddRequest {
            id,
            attempt: 1,
            name: format!("r{id}"),
            prompt: Tokens(prompt.to_vec()),
            emitted: Tokens::default(),
            sampling: SamplingParams::new(7, max_tokens),
            arrival_us: id,
            priority: 0,
            grammar: None,
            domain: None,
            pooling: None,
            embeds: None,
        }
    }

    fn engine(change: impl FnOnce(&mut Script)) -> Engine {
        let mut script = Script::new("m");
        change(&mut script);
        Engine::new(Arc::new(script))
    }

    /// Runs one step; returns (id, start, tokens, finish reason) of each delta.
    fn step(engine: &mut Engine) -> Vec<(u64, u64, Vec<i32>, Option<String>)> {
        engine.begin();
        let deltas = engine.finish();
        engine.check();
        deltas
            .into_iter()
            .map(|delta| {
                let reason = delta.finish.map(|finish| finish.reason);
                (delta.id, delta.start, delta.tokens.to_vec(), reason)
            })
            .collect()
    }

    #[test]
    fn requests_run_to_their_limit() {
        let mut engine = engine(|script| script.tokens_per_step = 2);
        assert_eq!(engine.begin(), None);
        assert_eq!(engine.add(request(1, &[5, 6], 3)), Added::Queued);
        assert_eq!(step(&mut engine), [(1, 0, vec![5, 6], None)]);
        let length = Some("length".to_owned());
        assert_eq!(step(&mut engine), [(1, 2, vec![5], length)]);
        assert!(engine.is_idle());
        assert_eq!(
            (engine.stats().steps, engine.stats().generated_tokens),
            (2, 3)
        );
    }

    #[test]
    fn a_stop_id_ends_and_is_told() {
        let mut engine = engine(|script| script.tokens_per_step = 8);
        let mut stopped = request(1, &[5, 6, 7], 100);
        stopped.sampling.stop_token_ids = vec![6];
        engine.add(stopped);
        engine.begin();
        let delta = engine.finish().remove(0);
        assert_eq!(*delta.tokens, [5, 6]);
        let finish = delta.finish.unwrap();
        assert_eq!(
            (finish.reason.as_str(), finish.stop_token),
            ("stop", Some(6))
        );
        assert!(engine.is_idle());
    }

    #[test]
    fn the_context_ends_an_output_and_refuses_a_prompt() {
        let mut engine = engine(|script| script.info.max_model_len = 4);
        engine.add(request(1, &[1, 2], 100));
        assert_eq!(step(&mut engine)[0].3, None);
        assert_eq!(step(&mut engine)[0].3, Some("length".to_owned()));
        let Added::Rejected(rejected) = engine.add(request(2, &[1, 2, 3, 4], 1)) else {
            panic!("taken")
        };
        assert_eq!((rejected.id, rejected.code.as_str()), (2, "too_long"));
    }

    #[test]
    fn rows_are_bounded_and_others_wait_by_priority() {
        let mut engine = engine(|script| script.info.max_num_seqs = 1);
        engine.add(request(1, &[1], 2));
        engine.add(request(2, &[2], 1));
        let urgent = AddRequest {
            priority: -1,
            ..request(3, &[3], 1)
        };
        assert_eq!(step(&mut engine)[0].0, 1);
        engine.add(urgent);
        let order: Vec<u64> = (0..3).map(|_| step(&mut engine)[0].0).collect();
        assert_eq!(order, [1, 3, 2]);
    }

    #[test]
    fn prefill_takes_its_steps() {
        let mut engine = engine(|script| script.prefill_chunk = 4);
        engine.add(request(1, &[1; 9], 1));
        assert_eq!(step(&mut engine), []);
        assert_eq!(step(&mut engine), []);
        assert_eq!(step(&mut engine).len(), 1);
    }

    #[test]
    fn what_comes_again_goes_on_where_it_was() {
        let whole = {
            let mut engine = engine(|script| {
                script.output = Output::Random { low: 0, high: 1000 };
                script.tokens_per_step = 8;
            });
            engine.add(request(1, &[1], 8));
            step(&mut engine)[0].2.clone()
        };
        let mut engine = engine(|script| script.output = Output::Random { low: 0, high: 1000 });
        engine.add(request(1, &[1], 8));
        step(&mut engine);
        let again = AddRequest {
            attempt: 3,
            emitted: Tokens(whole[..5].to_vec()),
            ..request(1, &[1], 8)
        };
        assert_eq!(engine.add(again.clone()), Added::Queued);
        assert_eq!(engine.add(again.clone()), Added::Old);
        assert_eq!(step(&mut engine), [(1, 5, vec![whole[5]], None)]);
        let full = AddRequest {
            attempt: 4,
            emitted: Tokens(whole.clone()),
            ..again
        };
        let Added::Done(delta) = engine.add(full) else {
            panic!("not done")
        };
        assert_eq!((delta.start, delta.tokens.len()), (8, 0));
        assert!(engine.is_idle() && step(&mut engine).is_empty());
    }

    #[test]
    fn aborts_work_in_every_state() {
        let mut engine = engine(|script| script.info.max_num_seqs = 1);
        engine.add(request(1, &[1], 9));
        engine.add(request(2, &[2], 9));
        engine.begin();
        engine.abort(&[1, 99]);
        assert!(engine.finish().is_empty());
        engine.abort(&[2]);
        assert!(engine.is_idle());
        assert_eq!(engine.begin(), None);
        engine.check();
    }

    #[test]
    fn rules_refuse() {
        let rules = [
            "invalid:prompt>2",
            "invalid:max_tokens>10",
            "overloaded:every=3",
        ];
        let mut engine = engine(|script| {
            script.rejects = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        });
        let mut code =
            |id, prompt: &[i32], max_tokens| match engine.add(request(id, prompt, max_tokens)) {
                Added::Rejected(rejected) => rejected.code,
                _ => "taken".to_owned(),
            };
        assert_eq!(code(1, &[1], 10), "taken");
        assert_eq!(code(2, &[1, 1, 1], 1), "invalid");
        assert_eq!(code(3, &[1], 1), "overloaded");
        assert_eq!(code(4, &[1], 11), "invalid");
    }
}
