//! Which requests may have killed an engine core.
//!
//! One crash says nothing: somebody may have killed the core. After a second one in a row without a token in between, the
//! requests that were in flight are tried in halves: only one group is in flight until each of its members has got a
//! token. A request is convicted only after two crashes in which it alone was in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Crashes in a row without progress that start a trial.
const STRIKES: u32 = 2;
/// Crashes alone in flight that convict.
const LONE_CRASHES: u32 = 2;

/// The trial, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    strikes: u32,
    /// On trial: nothing else goes out until each of these has got a token or ended.
    current: BTreeSet<u64>,
    /// Tried after that.
    waiting: VecDeque<BTreeSet<u64>>,
    lone_crashes: BTreeMap<u64, u32>,
}

impl Suspects {
    /// Whether there is a trial.
    pub(crate) fn active(&self) -> bool {
        !self.current.is_empty()
    }

    /// Whether a request may be in flight now.
    pub(crate) fn admits(&self, id: u64) -> bool {
        self.current.is_empty() || self.current.contains(&id)
    }

    /// Notes that a request got a token.
    pub(crate) fn progressed(&mut self, id: u64) {
        self.strikes = 0;
        self.forget(id);
    }

    /// Strikes a request from the suspects: it got a token, or is not open any more.
    pub(crate) fn forget(&mut self, id: u64) {
        if self.current.is_empty() && self.lone_crashes.is_empty() {
            return; // nobody is suspected: so it is for nearly every token
        }
        self.lone_crashes.remove(&id);
        for group in &mut self.waiting {
            group.remove(&id);
        }
        if self.current.remove(&id) {
            self.advance();
        }
    }

    /// Notes that a core died with these requests in flight. Returns the one that is convicted.
    pub(crate) fn crashed(&mut self, in_flight: &BTreeSet<u64>) -> Option<u64> {
        if in_flight.is_empty() {
            return None;
        }
        self.strikes += 1;
        if self.current.is_empty() {
            if self.strikes >= STRIKES {
                self.judge(in_flight, in_flight);
                self.advance();
            }
            return None;
        }
        let group = std::mem::take(&mut self.current);
        let convicted = self.judge(&group, in_flight);
        self.advance();
        convicted
    }

    fn judge(&mut self, group: &BTreeSet<u64>, in_flight: &BTreeSet<u64>) -> Option<u64> {
        let Some(&only) = group.first().filter(|_| group.len() == 1) else {
            self.split(group.clone());
            return None;
        };
        if in_flight == group {
            let crashes = self.lone_crashes.entry(only).or_default();
            *crashes += 1;
            if *crashes >= LONE_CRASHES {
                self.lone_crashes.remove(&only);
                return Some(only);
            }
        }
        self.waiting.push_front(group.clone());
        None
    }

    /// Puts two halves in front; one alone stays whole.
    fn split(&mut self, group: BTreeSet<u64>) {
        let middle = group.iter().nth(group.len().div_ceil(2)).copied();
        let mut first = group;
        if let Some(middle) = middle {
            self.waiting.push_front(first.split_off(&middle));
        }
        self.waiting.push_front(first);
    }

    fn advance(&mut self) {
        while self.current.is_empty() {
            let Some(next) = self.waiting.pop_front() else {
                return;
            };
            self.current = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs requests against a core that dies as soon as a poisonous one is in flight. Returns the convicted, in order,
    /// and the number of crashes.
    fn run(ids: std::ops::Range<u64>, poison: &[u64]) -> (Vec<u64>, u32) {
        let mut suspects = Suspects::default();
        let mut open: BTreeSet<u64> = ids.collect();
        let (mut convicted, mut crashes) = (Vec::new(), 0);
        while !open.is_empty() {
            let in_flight: BTreeSet<u64> = open
                .iter()
                .copied()
                .filter(|id| suspects.admits(*id))
                .collect();
            if in_flight.iter().any(|id| poison.contains(id)) {
                crashes += 1;
                assert!(crashes < 200, "no end");
                if let Some(id) = suspects.crashed(&in_flight) {
                    open.remove(&id);
                    suspects.forget(id);
                    convicted.push(id);
                }
            } else {
                for id in in_flight {
                    suspects.progressed(id);
                    open.remove(&id);
                }
            }
        }
        (convicted, crashes)
    }

    #[test]
    fn one_poisonous_request_is_found_and_nobody_else() {
        for poison in [0, 7, 8, 15] {
            let (convicted, crashes) = run(0..16, &[poison]);
            assert_eq!(convicted, [poison]);
            assert!(crashes <= 2 * 4 + 2, "{crashes} crashes");
        }
        assert_eq!(run(0..1, &[0]).0, [0]);
    }

    #[test]
    fn several_are_found() {
        let (mut convicted, _) = run(0..32, &[3, 4, 30]);
        convicted.sort_unstable();
        assert_eq!(convicted, [3, 4, 30]);
    }

    #[test]
    fn kills_from_outside_convict_nobody() {
        let mut suspects = Suspects::default();
        let all: BTreeSet<u64> = (0..8).collect();
        for _ in 0..100 {
            assert_eq!(suspects.crashed(&all), None);
            let in_flight: Vec<u64> = all
                .iter()
                .copied()
                .filter(|id| suspects.admits(*id))
                .collect();
            for id in in_flight {
                suspects.progressed(id);
            }
        }
    }

    #[test]
    fn two_kills_of_the_only_request_do_not_suffice() {
        let mut suspects = Suspects::default();
        let one = BTreeSet::from([1]);
        assert_eq!(suspects.crashed(&one), None);
        assert_eq!(suspects.crashed(&one), None);
        assert_eq!(suspects.crashed(&one), Some(1));
    }

    #[test]
    fn an_idle_core_that_dies_proves_nothing() {
        let mut suspects = Suspects::default();
        for _ in 0..5 {
            assert_eq!(suspects.crashed(&BTreeSet::new()), None);
        }
        assert!(suspects.admits(1));
    }
}
