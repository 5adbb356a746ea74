//! What a loop over messages did, and which part of it another rendering may leave out.

use std::sync::Arc;

use minijinja::Value;

use super::kept::Kept;
use super::plan::{Guard, LoopPlan};
use super::turns::Turns;

/// Bytes that a step takes besides its text.
const OVERHEAD: usize = 160;

/// What an iteration looked at of the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// One more than the last message that was read.
    pub(crate) reach: usize,
    /// Whether it saw what comes next in the loop, or that nothing does.
    pub(crate) next: bool,
    /// Whether it saw how many there are.
    pub(crate) count: bool,
    /// Which of the plan's watched variables it read, one bit each.
    pub(crate) watched: u32,
}

/// One iteration of a loop.
#[derive(Debug)]
pub(crate) struct Step {
    /// The message that it was about.
    pub(crate) message: usize,
    /// What comes next in the loop.
    pub(crate) next: Option<usize>,
    pub(crate) notes: Notes,
    /// What it wrote.
    pub(crate) text: Box<str>,
    /// What the attributes that the loop sets were after it, in the plan's order; `None` where there was no such attribute.
    pub(crate) left: Vec<Option<Value>>,
}

impl Step {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let left = self.left.iter().flatten();
        OVERHEAD
            + self.text.len()
            + left
                .map(|value| 64 + value.as_str().map_or(0, str::len))
                .sum::<usize>()
    }
}

/// What a loop runs over.
#[derive(Debug)]
pub(crate) enum Items {
    /// All messages; their number.
    All(usize),
    /// Some of them, or something else.
    These {
        values: Vec<Value>,
        /// Which messages they are; `None` where they are no messages.
        numbers: Option<Vec<usize>>,
    },
}

impl Items {
    pub(crate) fn of(over: &Value, count: usize) -> Result<Self, minijinja::Error> {
        if over.downcast_object_ref::<Turns>().is_some() {
            return Ok(Self::All(count));
        }
        let values: Vec<Value> = over.try_iter()?.collect();
        let number = |value: &Value| {
            let message = value.downcast_object_ref::<super::message::Message>();
            message.map(|message| message.number)
        };
        let numbers = values.iter().map(number).collect();
        Ok(Self::These { values, numbers })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::These { values, .. } => values.len(),
        }
    }

    /// Whether all are messages.
    pub(crate) fn are_messages(&self) -> bool {
        !matches!(self, Self::These { numbers: None, .. })
    }

    /// Which message is at a place.
    pub(crate) fn number(&self, place: usize) -> Option<usize> {
        match self {
            Self::All(count) => (place < *count).then_some(place),
            Self::These { numbers, .. } => numbers.as_ref()?.get(place).copied(),
        }
    }
}

/// What a loop began with.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// By the plan's reads.
    pub(crate) reads: Vec<Kept>,
    /// By the plan's guards: what the place in the loop is compared with.
    pub(crate) guards: Vec<Kept>,
    /// By the plan's watched variables; `None` for those that no iteration read.
    pub(crate) watched: Vec<Option<Kept>>,
}

impl Start {
    /// Keeps the watched variables that iterations read.
    pub(crate) fn watch(&mut self, read: u32, values: &[Value]) {
        for (number, (kept, value)) in std::iter::zip(&mut self.watched, values).enumerate() {
            if read & (1 << number) != 0 {
                kept.get_or_insert_with(|| match Kept::of(value.clone()) {
                    // It may have changed since the loop began.
                    Kept::Space(_) => Kept::Unknown,
                    kept => kept,
                });
            }
        }
    }
}

/// A loop that ran.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) start: Start,
    /// How many it ran over.
    pub(crate) length: usize,
    /// Its iterations, but for a last one that broke off.
    pub(crate) steps: Vec<Arc<Step>>,
}

impl Passed {
    /// How many of its steps another rendering would take just so.
    ///
    /// `common` is the number of messages that both conversations begin with, `counts` are their numbers of messages. One
    /// step at least is left, so that there is always something to run over. What the steps read of `values`, the watched
    /// variables, is kept in `start`.
    pub(crate) fn valid(
        &self,
        plan: &LoopPlan,
        start: &mut Start,
        values: &[Value],
        items: &Items,
        (common, counts): (usize, (usize, usize)),
    ) -> usize {
        let unchanged = self.start.reads.len() == start.reads.len()
            && std::iter::zip(&self.start.reads, &start.reads).all(|(old, new)| old.same(new));
        if !unchanged || !items.are_messages() {
            return 0;
        }
        let as_many = counts.0 == counts.1 && self.length == items.len();
        let stands = |place: usize, step: &Step| {
            items.number(place) == Some(step.message)
                && step.notes.reach <= common
                && (!step.notes.next || items.number(place + 1) == step.next)
                && (!step.notes.count || as_many)
        };
        let decided = |start: &Start, place: usize| {
            let values = std::iter::zip(&self.start.guards, &start.guards);
            std::iter::zip(&plan.guards, values)
                .all(|(guard, (old, new))| alike(*guard, place, old, new))
        };
        let mut found = 0;
        let mut read = 0;
        for (place, step) in self
            .steps
            .iter()
            .take(items.len().saturating_sub(1))
            .enumerate()
        {
            if step.notes.watched & !read != 0 {
                start.watch(step.notes.watched, values);
                read |= step.notes.watched;
                if !self.same_watched(start, read) {
                    break;
                }
            }
            if !stands(place, step) || !decided(start, place) {
                break;
            }
            found += 1;
        }
        found
    }

    /// Whether the watched variables that iterations read are the same.
    fn same_watched(&self, start: &Start, read: u32) -> bool {
        let pairs = std::iter::zip(&self.start.watched, &start.watched).enumerate();
        let mut pairs = pairs.filter(|(number, _)| read & (1 << number) != 0);
        pairs.all(|(_, pair)| matches!(pair, (Some(old), Some(new)) if old.same(new)))
    }
}

/// Whether a place in the loop compares with both values alike.
fn alike(guard: Guard, place: usize, old: &Kept, new: &Kept) -> bool {
    match (old.integer(), new.integer()) {
        (Some(old), Some(new)) => guard.holds(place, old) == guard.holds(place, new),
        _ => old.same(new),
    }
}
