//! Tokens of one output to text.

use std::collections::VecDeque;

use octavo_api::{FinishReason, StopReason};
use octavo_parser::Event;
use octavo_tokenizer::IncrementalDecoder;
use octavo_wire::frontend::Finish;

use crate::feed::Feed;
use crate::prepared::OutputPlan;
use crate::stop::StopScanner;

/// What an output gained.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Text that is certain now; may be empty, and is where the output is parsed.
    pub text: String,
    /// What the parser makes of it, where the output is parsed. They only append.
    pub events: Vec<Event>,
    /// Set once, when the output has ended. Nothing comes afterwards.
    pub end: Option<Ended>,
    /// How many tokens have all of their text in this update or those before it. Counted only where tokens come with
    /// log probabilities.
    pub settled: usize,
}

impl Update {
    /// Empties it; its memory stays.
    fn clear(&mut self) {
        self.text.clear();
        self.events.clear();
        self.end = None;
        self.settled = 0;
    }
}

/// How an output ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// For the client.
    pub reason: FinishReason,
    /// The stop string or stop id of the request that ended it; an end token of the model is none.
    pub stop_reason: Option<StopReason>,
    /// Tokens that count: all, or up to and including the one in which a stop string ended.
    pub completion_tokens: usize,
    /// Of these, tokens that ended in thoughts; `None` where thoughts are not told apart.
    pub reasoning_tokens: Option<usize>,
}

/// Text of one output, as its tokens come.
///
/// The joined text and the end do not depend on how tokens were cut into steps. Held back are: an unfinished character,
/// what may become a stop string (less than the longest one), and a stop id until it is known whether it ended the output.
#[derive(Debug)]
pub struct OutputText {
    decoder: IncrementalDecoder,
    scanner: StopScanner,
    plan: OutputPlan,
    /// Where the output is parsed.
    feed: Option<Feed>,
    /// The text of one token, while it is looked at.
    shown: String,
    /// A stop id whose text is not shown if the output ends with it.
    deferred: Option<u32>,
    tokens: usize,
    ended: bool,
    /// Bytes of text that the tokens made certain, and those of them that are out.
    decoded: usize,
    released: usize,
    /// Places in the text behind which so many tokens are whole.
    marks: VecDeque<(usize, usize)>,
    settled: usize,
}

impl OutputText {
    /// `seed` gives the seed of the ids of calls, where there may be calls.
    pub(crate) fn new(
        decoder: IncrementalDecoder,
        plan: OutputPlan,
        seed: impl FnOnce() -> u64,
    ) -> Self {
        let scanner = StopScanner::new(&plan.stop);
        let feed = plan.parse.as_ref().map(|parse| Feed::new(parse, seed()));
        Self {
            decoder,
            scanner,
            plan,
            feed,
            shown: String::new(),
            deferred: None,
            tokens: 0,
            ended: false,
            decoded: 0,
            released: 0,
            marks: VecDeque::new(),
            settled: 0,
        }
    }

    /// Takes the tokens of one step, and the engine's finish where the step is the last.
    ///
    /// Returns the text that is certain now. When `end` is set and `finish` was `None`, a stop string has matched: the
    /// caller drops its stream, which aborts the request in the engine. After the end all calls return nothing.
    pub fn advance(&mut self, ids: &[i32], finish: Option<&Finish>) -> Update {
        let mut update = Update::default();
        self.advance_into(ids, finish, &mut update);
        update
    }

    /// As [`OutputText::advance`], into an update whose memory is used again: what it held is gone.
    pub fn advance_into(&mut self, ids: &[i32], finish: Option<&Finish>, update: &mut Update) {
        update.clear();
        if self.ended {
            return;
        }
        for &id in ids {
            if self.ended {
                break;
            }
            self.token(id, update);
        }
        if let Some(finish) = finish.filter(|_| !self.ended) {
            self.finish(finish, update);
        }
        if let Some(feed) = self.feed.as_mut().filter(|_| !self.ended) {
            feed.poll(&mut update.events);
        }
        self.settle(update);
    }

    /// Says how many tokens are whole.
    fn settle(&mut self, update: &mut Update) {
        if !self.plan.logprobs {
            return;
        }
        if self.ended {
            self.settled = self.tokens;
        }
        while let Some((_, tokens)) = self.marks.pop_front_if(|(at, _)| *at <= self.released) {
            self.settled = self.settled.max(tokens);
        }
        update.settled = self.settled;
    }

    /// Notes that the tokens so far are whole where the text stands now.
    fn whole(&mut self) {
        if self.plan.logprobs && self.decoder.pending() == 0 {
            self.marks.push_back((self.decoded, self.tokens));
        }
    }

    /// Tokens that count so far.
    pub fn completion_tokens(&self) -> usize {
        self.tokens
    }

    fn token(&mut self, id: i32, update: &mut Update) {
        if let Some(deferred) = self.deferred.take() {
            self.show(deferred, update);
            if self.ended {
                return;
            }
            self.whole();
        }
        self.tokens += 1;
        // Ids that no tokenizer has decode to nothing.
        let shown = u32::try_from(id).unwrap_or(u32::MAX);
        if self.plan.stop_token_ids.contains(&id) {
            self.deferred = Some(shown);
        } else {
            self.show(shown, update);
            self.whole();
        }
    }

    fn show(&mut self, id: u32, update: &mut Update) {
        if self.feed.is_none() && self.scanner.is_idle() {
            // Nothing looks at the text: it goes out as it is.
            let before = update.text.len();
            self.decoder.push(&[id], &mut update.text);
            self.decoded += update.text.len() - before;
            self.released = self.decoded;
            return;
        }
        if let Some(marker) = self.feed.as_ref().and_then(|feed| feed.marker(id)) {
            self.mark(&marker, update);
        } else {
            // Taken and given back: a token costs no allocation of its own.
            let mut text = std::mem::take(&mut self.shown);
            text.clear();
            self.decoder.push(&[id], &mut text);
            if let Some(feed) = &mut self.feed {
                feed.decoded(text.len());
            }
            self.scan(&text, update);
            self.shown = text;
        }
        let complete = |feed: &mut Feed| feed.is_done(&mut update.events);
        if !self.ended && self.feed.as_mut().is_some_and(complete) {
            self.end(FinishReason::Stop, None, update);
        }
    }

    /// Takes a special token that marks something. Nothing of a stop string reaches over it.
    fn mark(&mut self, marker: &str, update: &mut Update) {
        self.flush(update);
        if self.ended {
            return;
        }
        self.drain(update);
        if let Some(feed) = &mut self.feed {
            feed.special(marker);
        }
    }

    fn scan(&mut self, text: &str, update: &mut Update) {
        let before = update.text.len();
        self.decoded += text.len();
        let stop = if self.tokens <= self.plan.min_tokens {
            update.text.push_str(text);
            None
        } else {
            self.scanner.push(text, &mut update.text)
        };
        self.released += update.text.len() - before;
        if let Some(stop) = stop.as_ref().filter(|_| self.plan.include_stop) {
            update.text.push_str(stop);
        }
        self.pass(update);
        if let Some(stop) = stop {
            self.end(FinishReason::Stop, Some(StopReason::Text(stop)), update);
        }
    }

    /// Gives up on an unfinished character.
    fn flush(&mut self, update: &mut Update) {
        let mut rest = String::new();
        self.decoder.finish(&mut rest);
        if let Some(feed) = &mut self.feed {
            feed.grown(rest.len());
        }
        self.scan(&rest, update);
    }

    /// Lets out what the search for stop strings has held back.
    fn drain(&mut self, update: &mut Update) {
        let before = update.text.len();
        self.scanner.finish(&mut update.text);
        self.released += update.text.len() - before;
        self.pass(update);
    }

    /// Hands text to the parser, where there is one.
    fn pass(&mut self, update: &mut Update) {
        if let Some(feed) = &mut self.feed {
            feed.text(&update.text);
            update.text.clear();
        }
    }

    fn finish(&mut self, finish: &Finish, update: &mut Update) {
        if let Some(deferred) = self.deferred.take()
            && (self.plan.include_stop
                || finish
                    .stop_token
                    .is_none_or(|stop| u32::try_from(stop) != Ok(deferred)))
        {
            self.show(deferred, update);
        }
        if !self.ended {
            self.flush(update);
        }
        if self.ended {
            return;
        }
        self.drain(update);
        let reason = match finish.reason.as_str() {
            "stop" => FinishReason::Stop,
            "length" => FinishReason::Length,
            "repetition" => FinishReason::Repetition,
            "abort" => FinishReason::Abort,
            _ => FinishReason::Error,
        };
        let explicit = finish
            .stop_token
            .filter(|stop| self.plan.explicit.contains(stop));
        self.end(reason, explicit.map(StopReason::Token), update);
    }

    fn end(&mut self, reason: FinishReason, stop_reason: Option<StopReason>, update: &mut Update) {
        self.ended = true;
        let mut ended = Ended {
            reason,
            stop_reason,
            completion_tokens: self.tokens,
            reasoning_tokens: None,
        };
        if let Some(feed) = &mut self.feed {
            feed.finish(reason, &mut update.events);
            ended.reasoning_tokens = feed.reasoning_tokens();
            if reason == FinishReason::Stop && feed.called() {
                ended.reason = FinishReason::ToolCalls;
            }
        }
        update.end = Some(ended);
    }
}
