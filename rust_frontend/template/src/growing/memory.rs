//! Conversations that were rendered, by their beginnings.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahash::RandomState;
use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::message::Message;
use super::steps::Passed;
use crate::chat::Conversation;
use crate::value::from_json;

/// Bytes that all conversations of a template take at most.
const MOST: usize = 64 << 20;

/// Bytes that a conversation takes besides its parts.
const OVERHEAD: usize = 1 << 10;

/// What a conversation is besides its messages.
#[derive(Debug)]
pub(crate) struct Inputs {
    tools: Option<Vec<Json>>,
    documents: Option<Vec<Json>>,
    variables: Map<String, Json>,
    add_generation_prompt: bool,
    values: Vec<(String, Value)>,
}

impl Inputs {
    pub(crate) fn new(conversation: &Conversation) -> Self {
        let list = |items: &Option<Vec<Json>>| match items {
            Some(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
            None => Value::from(()),
        };
        let variables = conversation.variables.iter();
        let mut values: Vec<(String, Value)> = variables
            .map(|(name, json)| (name.clone(), from_json(json)))
            .collect();
        values.push(("tools".to_owned(), list(&conversation.tools)));
        values.push(("documents".to_owned(), list(&conversation.documents)));
        let flag = conversation.add_generation_prompt;
        values.push(("add_generation_prompt".to_owned(), flag.into()));
        Self {
            tools: conversation.tools.clone(),
            documents: conversation.documents.clone(),
            variables: conversation.variables.clone(),
            add_generation_prompt: flag,
            values,
        }
    }

    /// The template's variables but for the messages.
    pub(crate) fn values(&self) -> Vec<(&str, Value)> {
        let values = self.values.iter();
        values
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect()
    }

    fn are_of(&self, conversation: &Conversation) -> bool {
        let list = |left: &Option<Vec<Json>>, right: &Option<Vec<Json>>| match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => {
                left.len() == right.len()
                    && std::iter::zip(left, right).all(|(left, right)| same(left, right))
            }
            _ => false,
        };
        self.add_generation_prompt == conversation.add_generation_prompt
            && list(&self.tools, &conversation.tools)
            && list(&self.documents, &conversation.documents)
            && same_fields(&self.variables, &conversation.variables)
    }

    fn bytes(&self) -> usize {
        let lists = [&self.tools, &self.documents]
            .into_iter()
            .flatten()
            .flatten();
        // As JSON and as values of the template.
        2 * lists
            .chain(self.variables.values())
            .map(super::message::size)
            .sum::<usize>()
    }
}

/// A conversation that was rendered.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// What the messages were made from, as long as somebody else holds it.
    sources: Vec<Weak<Json>>,
    /// By the template's loops.
    pub(crate) passes: Vec<Option<Passed>>,
    bytes: usize,
}

impl Remembered {
    pub(crate) fn new(
        inputs: Arc<Inputs>,
        sources: &[Arc<Json>],
        messages: Vec<Arc<Message>>,
        passes: Vec<Option<Passed>>,
    ) -> Self {
        let steps = passes.iter().flatten().flat_map(|passed| &passed.steps);
        let bytes = OVERHEAD
            + inputs.bytes()
            + messages
                .iter()
                .map(|message| message.bytes())
                .sum::<usize>()
            + steps.map(|step| step.bytes()).sum::<usize>();
        Self {
            inputs,
            messages,
            sources: sources.iter().map(Arc::downgrade).collect(),
            passes,
            bytes,
        }
    }
}

/// Where a conversation is found: under the hash of each of its beginnings that was not there before.
#[derive(Debug)]
struct Slot {
    remembered: Arc<Remembered>,
    hashes: Vec<u64>,
    used: u64,
}

#[derive(Debug, Default)]
struct Slots {
    by_number: HashMap<u64, Slot, RandomState>,
    by_hash: HashMap<u64, u64, RandomState>,
    next: u64,
    clock: u64,
    bytes: usize,
}

/// Conversations that were rendered, the latest ones. Shared between threads.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Its seeds are drawn anew by each process, so that nobody can choose messages whose hashes are the same. What is
    /// found is compared all the same.
    hashing: RandomState,
    slots: Mutex<Slots>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            hashing: RandomState::new(),
            slots: Mutex::default(),
        }
    }

    /// Bytes that all conversations take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hashes of a conversation's beginnings: of one message, of two, and so on.
    pub(crate) fn hashes(&self, conversation: &Conversation) -> Vec<u64> {
        let mut hasher = self.hashing.build_hasher();
        conversation.add_generation_prompt.hash(&mut hasher);
        for items in [&conversation.tools, &conversation.documents] {
            items.as_ref().map(Vec::len).hash(&mut hasher);
            items
                .iter()
                .flatten()
                .for_each(|item| hash(item, &mut hasher));
        }
        for (name, value) in &conversation.variables {
            name.hash(&mut hasher);
            hash(value, &mut hasher);
        }
        let messages = conversation.messages.iter();
        let beginnings = messages.map(|message| {
            hash(message, &mut hasher);
            hasher.finish()
        });
        beginnings.collect()
    }

    /// The conversation that has the most messages in common with this one from the beginning on, and how many.
    pub(crate) fn find(
        &self,
        conversation: &Conversation,
        hashes: &[u64],
    ) -> Option<(Arc<Remembered>, usize)> {
        let remembered = {
            let mut slots = self.lock();
            let found = hashes
                .iter()
                .rev()
                .find_map(|hash| slots.by_hash.get(hash).copied())?;
            slots.clock += 1;
            let clock = slots.clock;
            let slot = slots.by_number.get_mut(&found)?;
            slot.used = clock;
            Arc::clone(&slot.remembered)
        };
        if !remembered.inputs.are_of(conversation) {
            return None;
        }
        let known = std::iter::zip(&remembered.messages, &remembered.sources);
        let pairs = std::iter::zip(known, &conversation.messages);
        let same = |((message, source), json): &((&Arc<Message>, &Weak<Json>), &Arc<Json>)| {
            std::ptr::eq(source.as_ptr(), Arc::as_ptr(json)) || message.is(json)
        };
        let common = pairs.take_while(same).count();
        (common > 0).then_some((remembered, common))
    }

    /// Keeps a conversation. It takes the place of `from`, which it was made from, where it is the longer form of it.
    pub(crate) fn put(
        &self,
        remembered: Remembered,
        from: Option<Arc<Remembered>>,
        hashes: &[u64],
    ) {
        if remembered.bytes > MOST / 4 {
            return;
        }
        let mut slots = self.lock();
        slots.clock += 1;
        let clock = slots.clock;
        let number = from
            .filter(|from| hashes.len() >= from.messages.len())
            .and_then(|from| {
                let hash = hashes.get(from.messages.len().checked_sub(1)?)?;
                let number = *slots.by_hash.get(hash)?;
                let slot = slots.by_number.get(&number)?;
                Arc::ptr_eq(&slot.remembered, &from).then_some(number)
            });
        let number = number.unwrap_or_else(|| {
            slots.next += 1;
            slots.next
        });
        let mut slot = slots.by_number.remove(&number);
        slots.bytes -= slot.as_ref().map_or(0, |slot| slot.remembered.bytes);
        let mut own = slot.take().map(|slot| slot.hashes).unwrap_or_default();
        for hash in hashes {
            // A beginning leads to the conversation that had it first, and to another one when that is gone.
            if let std::collections::hash_map::Entry::Vacant(free) = slots.by_hash.entry(*hash) {
                free.insert(number);
                own.push(*hash);
            }
        }
        if own.is_empty() {
            // All that it begins with leads to longer conversations.
            return;
        }
        slots.bytes += remembered.bytes;
        let slot = Slot {
            remembered: Arc::new(remembered),
            hashes: own,
            used: clock,
        };
        slots.by_number.insert(number, slot);
        slots.shrink();
    }
}

impl Slots {
    /// Forgets what was not used for longest until the rest is small enough.
    fn shrink(&mut self) {
        while self.bytes > MOST {
            let oldest = self.by_number.iter().min_by_key(|(_, slot)| slot.used);
            let Some(number) = oldest.map(|(number, _)| *number) else {
                return;
            };
            let Some(slot) = self.by_number.remove(&number) else {
                return;
            };
            self.bytes -= slot.remembered.bytes;
            for hash in slot.hashes {
                self.by_hash.remove(&hash);
            }
        }
    }
}

fn hash(json: &Json, hasher: &mut impl Hasher) {
    std::mem::discriminant(json).hash(hasher);
    match json {
        Json::Null => {}
        Json::Bool(flag) => flag.hash(hasher),
        Json::Number(number) => number.hash(hasher),
        Json::String(text) => text.hash(hasher),
        Json::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        Json::Object(fields) => {
            fields.len().hash(hasher);
            for (name, field) in fields {
                name.hash(hasher);
                hash(field, hasher);
            }
        }
    }
}

/// Whether two are written the same, down to the order of keys.
fn same(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => {
            left == right && left.as_f64().map(f64::to_bits) == right.as_f64().map(f64::to_bits)
        }
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len()
                && std::iter::zip(left, right).all(|(left, right)| same(left, right))
        }
        (Json::Object(left), Json::Object(right)) => same_fields(left, right),
        (left, right) => left == right,
    }
}

fn same_fields(left: &Map<String, Json>, right: &Map<String, Json>) -> bool {
    left.len() == right.len()
        && std::iter::zip(left, right)
            .all(|((name, left), (other, right))| name == other && same(left, right))
}
