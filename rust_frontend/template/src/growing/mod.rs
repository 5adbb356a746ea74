//! Conversations that grow: what a template wrote for the first messages is kept, and a longer conversation that begins
//! with the same messages goes on behind them.
//!
//! A template's loops over the messages are found when it is compiled ([`plan`]) and rewritten so that they ask where to
//! begin. While such a loop runs, each iteration is a [`Step`](run::Step): the text that it wrote, what it left in
//! namespaces, and what it looked at of the conversation ([`run`]). Another rendering may skip the first steps of a loop if
//! all that they looked at is as it was: the values of the template's variables when the loop began, the messages, and what
//! they saw of the conversation's end. Whatever is outside of the loops is rendered each time.
//!
//! The result is that of a rendering from the beginning: what cannot be shown to be the same is rendered again, and where a
//! rendering fails the whole is left to the plain template.

mod idle;
mod kept;
mod memory;
mod message;
mod plan;
mod run;
mod steps;
mod survey;
mod turns;
mod uses;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::{Environment, Value};

use crate::chat::Conversation;
use memory::{Inputs, Memory, Remembered};
use message::Message;
use plan::LoopPlan;
use run::Run;

/// The name under which an environment holds the rewritten template.
const TEMPLATE: &str = "growing";

/// Conversations of fewer messages are rendered as they are.
const FEWEST: usize = 3;

/// A template that remembers what it rendered. Shared between threads; its memory is bounded.
#[derive(Debug)]
pub(crate) struct Growing {
    loops: Arc<[LoopPlan]>,
    memory: Memory,
    /// Steps that were left out, and all.
    skipped: AtomicU64,
    all: AtomicU64,
}

impl Growing {
    /// Rewrites a template and puts it into its environment. `None` where no loop over messages can be resumed.
    pub(crate) fn prepare(env: &mut Environment<'static>, source: &str) -> Option<Self> {
        let plan = plan::read(env, source)?;
        env.add_template_owned(TEMPLATE, plan.source).ok()?;
        Some(Self {
            loops: plan.loops.into(),
            memory: Memory::new(),
            skipped: AtomicU64::new(0),
            all: AtomicU64::new(0),
        })
    }

    /// Renders a conversation, beginning behind the messages that are known. `None` where the plain template must.
    pub(crate) fn render(
        &self,
        env: &Environment<'static>,
        conversation: &Conversation,
    ) -> Option<String> {
        let messages = &conversation.messages;
        if messages.len() < FEWEST || !messages.iter().all(|message| message.is_object()) {
            return None;
        }
        let hashes = self.memory.hashes(conversation);
        let known = self.memory.find(conversation, &hashes);
        let common = known.as_ref().map_or(0, |(_, common)| *common);
        let mut turns: Vec<Arc<Message>> = Vec::with_capacity(messages.len());
        turns.extend(
            known
                .iter()
                .flat_map(|(known, _)| &known.messages[..common])
                .cloned(),
        );
        for (number, json) in messages.iter().enumerate().skip(common) {
            turns.push(Arc::new(Message::new(number, json)));
        }
        let inputs = known.as_ref().map_or_else(
            || Arc::new(Inputs::new(conversation)),
            |(known, _)| Arc::clone(&known.inputs),
        );
        let run = Run::new(Arc::clone(&self.loops), turns, known.clone());
        let mut variables = inputs.values();
        variables.push(("messages", run.turns()));
        variables.push((plan::START, run.starter()));
        let template = env.get_template(TEMPLATE).ok()?;
        let rendered = template.render_captured_to(Value::from_pairs(variables), &mut run.writer());
        // What holds the messages holds the rendering, and lets go of it here, whatever became of it.
        let done = run.finish();
        rendered.ok()?;
        self.skipped.fetch_add(done.skipped, Ordering::Relaxed);
        self.all.fetch_add(done.all, Ordering::Relaxed);
        let remembered = Remembered::new(inputs, messages, done.messages, done.passes);
        self.memory
            .put(remembered, known.map(|(known, _)| known), &hashes);
        String::from_utf8(done.text).ok()
    }

    /// Bytes that are taken, about.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Steps that were left out, and all.
    pub(crate) fn passes(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.skipped), read(&self.all))
    }
}
