//! Tokens of one output into the streaming parser, behind the search for stop strings.

use std::collections::VecDeque;
use std::sync::Arc;

use octavo_api::FinishReason;
use octavo_parser::{Event, Finish, Options, Parser, Specials};

use crate::parsers::ParsePlan;

/// Feeds the parser of one output.
///
/// Text may be held back as the beginning of a stop string, so the ends of tokens wait with it: each token is told
/// where its own text ends, whether or not the request has stop strings.
#[derive(Debug)]
pub(crate) struct Feed {
    parser: Parser,
    specials: Arc<Specials>,
    /// Bytes of text that the decoder has given.
    decoded: usize,
    /// Bytes of it that the search for stop strings has let through.
    released: usize,
    /// Where tokens end, in bytes of decoded text, of those not told yet.
    ends: VecDeque<usize>,
    /// Whether to look after each token whether the answer is complete.
    single: bool,
    counts_reasoning: bool,
    reasoning_tokens: usize,
    calls: usize,
}

impl Feed {
    pub(crate) fn new(plan: &ParsePlan, seed: u64) -> Self {
        let options = Options {
            tools: plan.tools.clone(),
            start: plan.start.clone(),
            parallel: plan.parallel,
            seed,
            skip_special: true,
        };
        Self {
            parser: Parser::new(&plan.machine, options),
            specials: Arc::clone(&plan.specials),
            decoded: 0,
            released: 0,
            ends: VecDeque::new(),
            single: !plan.parallel,
            counts_reasoning: plan.counts_reasoning,
            reasoning_tokens: 0,
            calls: 0,
        }
    }

    /// Returns the text of a special token that marks something in the format.
    pub(crate) fn marker(&self, id: u32) -> Option<String> {
        let text = self.specials.text(id)?;
        self.parser.marks(text).then(|| text.to_owned())
    }

    /// Says that a token has given so many bytes of text.
    pub(crate) fn decoded(&mut self, bytes: usize) {
        self.decoded += bytes;
        self.ends.push_back(self.decoded);
    }

    /// Says that the text has grown by what an unfinished character left.
    pub(crate) fn grown(&mut self, bytes: usize) {
        self.decoded += bytes;
    }

    /// Takes text that no stop string can hold any more.
    pub(crate) fn text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(end) = self
            .ends
            .front()
            .copied()
            .filter(|end| *end <= self.released + rest.len())
        {
            let (head, tail) = rest.split_at(end - self.released);
            self.parser.push_text(head);
            self.parser.end_token();
            self.ends.pop_front();
            self.released = end;
            rest = tail;
        }
        self.parser.push_text(rest);
        self.released += rest.len();
    }

    /// Takes a special token that marks something; all text before it has been taken.
    pub(crate) fn special(&mut self, text: &str) {
        self.parser.push_special(text);
        self.parser.end_token();
    }

    /// Reads after a token where one call is wanted; true when it is complete.
    pub(crate) fn is_done(&mut self, events: &mut Vec<Event>) -> bool {
        if self.single {
            self.poll(events);
        }
        self.parser.is_done()
    }

    /// Reads what was taken.
    pub(crate) fn poll(&mut self, events: &mut Vec<Event>) {
        let new = self.parser.poll();
        self.count(&new);
        events.extend(new);
    }

    /// Ends the output.
    pub(crate) fn finish(&mut self, reason: FinishReason, events: &mut Vec<Event>) {
        let finish = match reason {
            FinishReason::Stop | FinishReason::ToolCalls => Finish::Stop,
            FinishReason::Length | FinishReason::Repetition => Finish::Length,
            FinishReason::Abort | FinishReason::Error => Finish::Abort,
        };
        let last = self.parser.finish(finish);
        self.count(&last);
        events.extend(last);
    }

    /// Tokens of thoughts so far; `None` where no format of thoughts is chosen.
    pub(crate) fn reasoning_tokens(&self) -> Option<usize> {
        self.counts_reasoning.then_some(self.reasoning_tokens)
    }

    /// Whether a call was begun.
    pub(crate) fn called(&self) -> bool {
        self.calls > 0
    }

    fn count(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::ReasoningDelta { tokens, .. } => self.reasoning_tokens += *tokens as usize,
                Event::CallOpen { .. } => self.calls += 1,
                _ => {}
            }
        }
    }
}
