//! The state of a beam search: which continuations of a prompt are kept. No I/O and no clock.
//!
//! As in vLLM: of each open beam the 2 `width` likeliest tokens are looked at; those that end an output end it, of the
//! others the `width` likeliest continuations stay open. What has ended is ranked by the sum of its log probabilities,
//! divided by its length (the prompt included, a stop token not) to the power of `length_penalty`.

use std::mem::take;

use octavo_wire::frontend::Logprobs;
use octavo_wire::{Floats, Tokens};

/// What a search goes by.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Beams that are kept, and answered with.
    pub(crate) width: usize,
    pub(crate) length_penalty: f64,
    /// Tokens that end an output.
    pub(crate) stops: Vec<i32>,
    /// Of an output, at least 1.
    pub(crate) max_tokens: usize,
    /// Tokens of the prompt, at least 1.
    pub(crate) prompt: usize,
    /// Alternatives that are told with each token, -1: all; `None`: nothing is told.
    pub(crate) told: Option<i32>,
}

/// A continuation of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Continuation {
    pub(crate) tokens: Vec<i32>,
    /// Sum of the tokens' log probabilities.
    pub(crate) total: f64,
    /// Of the tokens, where they are told.
    pub(crate) logprobs: Option<Logprobs>,
    /// The last token, where it ended the output.
    pub(crate) stop: Option<i32>,
}

/// A token that may follow an open beam.
struct Candidate {
    beam: usize,
    /// In its row.
    place: usize,
    token: i32,
    total: f64,
}

/// Invariants: at most `width` beams are open and `width` have ended; all open ones are equally long.
#[derive(Debug)]
pub(crate) struct Beams {
    rules: Rules,
    open: Vec<Continuation>,
    ended: Vec<Continuation>,
    /// Whether every value so far was a log probability, so that longer continuations cannot have larger sums.
    falling: bool,
}

impl Beams {
    pub(crate) fn new(rules: Rules) -> Self {
        let empty = Continuation {
            tokens: Vec::new(),
            total: 0.0,
            logprobs: None,
            stop: None,
        };
        Self {
            rules,
            open: vec![empty],
            ended: Vec::new(),
            falling: true,
        }
    }

    /// Continuations of which the next token is asked for.
    pub(crate) fn open(&self) -> &[Continuation] {
        &self.open
    }

    /// How many log probabilities a step must bring for each open beam; -1: all.
    pub(crate) fn wanted(&self) -> i32 {
        let looked_at = i32::try_from(2 * self.rules.width).unwrap_or(i32::MAX);
        match self.rules.told {
            Some(told) if told < 0 => -1,
            Some(told) => told.max(looked_at),
            None => looked_at,
        }
    }

    /// Takes what may follow each open beam: one token's log probabilities for each, the best behind the drawn one.
    pub(crate) fn advance(&mut self, rows: &[Logprobs]) {
        let mut candidates = Vec::new();
        for (beam, (open, row)) in self.open.iter().zip(rows).enumerate() {
            let looked_at = (1 + 2 * self.rules.width).min(row.width as usize);
            for (place, (&token, &value)) in row.ids.iter().zip(&row.values.0).enumerate() {
                if (1..looked_at).contains(&place) && value.is_finite() {
                    self.falling &= value <= 0.0;
                    candidates.push(Candidate {
                        beam,
                        place,
                        token,
                        total: open.total + f64::from(value),
                    });
                }
            }
        }
        candidates.sort_by(|one, other| other.total.total_cmp(&one.total));
        let before = take(&mut self.open);
        for candidate in candidates {
            let stop = self.rules.stops.contains(&candidate.token);
            if !stop && self.open.len() == self.rules.width {
                continue;
            }
            let next = self.follow(&before[candidate.beam], &rows[candidate.beam], &candidate);
            if stop {
                self.ended.push(Continuation {
                    stop: Some(candidate.token),
                    ..next
                });
            } else {
                self.open.push(next);
            }
        }
        let full = |beam: &Continuation| beam.tokens.len() >= self.rules.max_tokens;
        if self.open.first().is_some_and(full) {
            self.ended.append(&mut self.open);
        }
        self.rank();
    }

    /// Whether nothing that is open can come among what is answered with.
    pub(crate) fn is_done(&self) -> bool {
        if self.open.is_empty() {
            return true;
        }
        let Some(worst) = self.ended.get(self.rules.width - 1) else {
            return false;
        };
        let longest = self.rules.prompt + self.rules.max_tokens;
        let most = |beam: &Continuation| {
            let shortest = self.rules.prompt + beam.tokens.len();
            let of = |length| self.score(beam.total, length);
            of(shortest).max(of(longest))
        };
        let reachable = self.open.iter().map(most).fold(f64::NEG_INFINITY, f64::max);
        self.falling && reachable <= self.rank_of(worst)
    }

    /// The best continuations, at most `width`, the best first.
    pub(crate) fn best(mut self) -> Vec<Continuation> {
        self.ended.append(&mut self.open);
        self.rank();
        self.ended
    }

    fn follow(&self, beam: &Continuation, row: &Logprobs, candidate: &Candidate) -> Continuation {
        let mut next = Continuation {
            total: candidate.total,
            ..beam.clone()
        };
        next.tokens.push(candidate.token);
        let Some(told) = self.rules.told else {
            return next;
        };
        let others = usize::try_from(told)
            .unwrap_or(usize::MAX)
            .min(row.ids.len() - 1);
        let with = |value: f32| [&[value], &row.values.0[1..=others]].concat();
        let more = Logprobs {
            width: u32::try_from(1 + others).unwrap_or(u32::MAX),
            ids: Tokens([&[candidate.token], &row.ids[1..=others]].concat()),
            values: Floats(with(row.values.0[candidate.place])),
            ranks: Tokens(vec![i32::try_from(candidate.place).unwrap_or(i32::MAX)]),
        };
        match &mut next.logprobs {
            Some(known) => known.append(&more),
            none => *none = Some(more),
        }
        next
    }

    fn rank(&mut self) {
        let mut ended = take(&mut self.ended);
        ended.sort_by(|one, other| self.rank_of(other).total_cmp(&self.rank_of(one)));
        ended.truncate(self.rules.width);
        self.ended = ended;
    }

    fn rank_of(&self, ended: &Continuation) -> f64 {
        let length = ended.tokens.len() - usize::from(ended.stop.is_some());
        self.score(ended.total, self.rules.prompt + length)
    }

    #[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
    fn score(&self, total: f64, length: usize) -> f64 {
        total / (length as f64).powf(self.rules.length_penalty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: i32 = 0;
    const PROMPT: usize = 3;

    fn rules(width: usize, length_penalty: f64, max_tokens: usize) -> Rules {
        Rules {
            width,
            length_penalty,
            stops: vec![STOP],
            max_tokens,
            prompt: PROMPT,
            told: Some(1),
        }
    }

    /// What may follow these tokens: five tokens, a different order behind each last one.
    fn following(tokens: &[i32]) -> Vec<(i32, f32)> {
        let last = tokens.last().copied().unwrap_or(4);
        let weight = |token: i32| f64::from((7 * token + 3 * last + 2) % 11 + 1);
        let sum: f64 = (0..5).map(weight).sum();
        let mut row: Vec<(i32, f32)> = (0..5)
            .map(|token| {
                #[allow(clippy::cast_possible_truncation)]
                (token, (weight(token) / sum).ln() as f32)
            })
            .collect();
        row.sort_by(|one, other| other.1.total_cmp(&one.1));
        row
    }

    fn row(tokens: &[i32]) -> Logprobs {
        let best = following(tokens);
        let with_drawn = || best.iter().take(1).chain(&best);
        Logprobs {
            width: 6,
            ids: Tokens(with_drawn().map(|entry| entry.0).collect()),
            values: Floats(with_drawn().map(|entry| entry.1).collect()),
            ranks: Tokens(vec![1]),
        }
    }

    fn search(rules: Rules) -> (Vec<Continuation>, usize) {
        let mut beams = Beams::new(rules);
        let mut steps = 0;
        while !beams.is_done() {
            let rows: Vec<Logprobs> = beams.open().iter().map(|beam| row(&beam.tokens)).collect();
            beams.advance(&rows);
            steps += 1;
        }
        (beams.best(), steps)
    }

    #[allow(clippy::cast_precision_loss)]
    fn scored(one: &Continuation, length_penalty: f64) -> f64 {
        let length = PROMPT + one.tokens.len() - usize::from(one.stop.is_some());
        one.total / (length as f64).powf(length_penalty)
    }

    /// All outputs there are, with their scores, the best first.
    fn all(length_penalty: f64, max_tokens: usize) -> Vec<(Vec<i32>, f64)> {
        let mut found = Vec::new();
        let mut open = vec![(Vec::new(), 0.0)];
        while let Some((tokens, total)) = open.pop() {
            for (token, value) in following(&tokens) {
                let next = [tokens.as_slice(), &[token]].concat();
                let sum = total + f64::from(value);
                if token == STOP || next.len() == max_tokens {
                    let length = PROMPT + next.len() - usize::from(token == STOP);
                    #[allow(clippy::cast_precision_loss)]
                    found.push((next, sum / (length as f64).powf(length_penalty)));
                } else {
                    open.push((next, sum));
                }
            }
        }
        found.sort_by(|one, other| other.1.total_cmp(&one.1));
        found
    }

    #[test]
    fn a_beam_as_wide_as_the_tree_finds_all_outputs_in_order() {
        for length_penalty in [-1.0, 0.0, 0.7, 1.0, 2.0] {
            let (found, _) = search(rules(200, length_penalty, 3));
            let expected = all(length_penalty, 3);
            assert_eq!(found.len(), expected.len());
            for (one, (_, score)) in found.iter().zip(&expected) {
                assert!((scored(one, length_penalty) - score).abs() < 1e-9);
                let stopped = one.tokens.last() == Some(&STOP);
                assert_eq!(one.stop, stopped.then_some(STOP));
            }
            let mut outputs: Vec<_> = found.into_iter().map(|one| one.tokens).collect();
            let mut wanted: Vec<_> = expected.into_iter().map(|one| one.0).collect();
            outputs.sort();
            wanted.sort();
            assert_eq!(outputs, wanted);
        }
    }

    #[test]
    fn to_end_early_changes_nothing() {
        for width in 1..6 {
            for length_penalty in [-1.0, 0.0, 1.0, 1.5] {
                let (early, steps) = search(rules(width, length_penalty, 8));
                let mut beams = Beams::new(rules(width, length_penalty, 8));
                for _ in 0..8 {
                    let rows: Vec<Logprobs> =
                        beams.open().iter().map(|beam| row(&beam.tokens)).collect();
                    beams.advance(&rows);
                }
                assert_eq!(early, beams.best(), "{width} beams at {length_penalty}");
                assert!(steps <= 8);
            }
        }
        assert!(search(rules(2, 0.0, 8)).1 < 8, "no search ended early");
    }

    #[test]
    fn one_beam_goes_the_greedy_way_where_nothing_ends_it() {
        let greedy = Rules {
            stops: Vec::new(),
            ..rules(1, 1.0, 6)
        };
        let (found, _) = search(greedy);
        let mut tokens = Vec::new();
        for _ in 0..6 {
            tokens.push(following(&tokens)[0].0);
        }
        assert_eq!(found[0].tokens, tokens);
    }

    #[test]
    fn log_probabilities_are_told_with_rank_and_alternatives() {
        let (found, _) = search(rules(3, 1.0, 4));
        for one in &found {
            let told = one.logprobs.as_ref().unwrap();
            assert_eq!((told.width, told.len()), (2, one.tokens.len()));
            let mut total = 0.0;
            for (at, token) in one.tokens.iter().enumerate() {
                let best = following(&one.tokens[..at]);
                let place = best.iter().position(|entry| entry.0 == *token).unwrap();
                assert_eq!(told.ids[2 * at..2 * at + 2], [*token, best[0].0]);
                assert_eq!(told.ranks[at], i32::try_from(place).unwrap() + 1);
                total += f64::from(told.values.0[2 * at]);
            }
            assert!((total - one.total).abs() < 1e-9);
        }
        assert_eq!(Beams::new(rules(3, 1.0, 4)).wanted(), 6);
    }
}
