//! One rendering of a rewritten template.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::{Error, ErrorKind, Value};

use super::kept::{Kept, plain};
use super::memory::Remembered;
use super::message::Message;
use super::plan::{LoopPlan, Place};
use super::steps::{Items, Notes, Passed, Start, Step};
use super::turns::{Starter, Turns};
use crate::chat::MAX_OUTPUT;

/// What is known of a conversation, and how many of its messages are the same.
pub(crate) type Known = Option<(Arc<Remembered>, usize)>;

/// Finds a template's variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// What a rendering ended with.
pub(crate) struct Done {
    pub(crate) text: Vec<u8>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// By the template's loops.
    pub(crate) passes: Vec<Option<Passed>>,
    /// Steps that were left out, and all.
    pub(crate) skipped: u64,
    pub(crate) all: u64,
}

/// A rendering. The template's objects share it; it is on one thread, so that its lock is never waited for.
#[derive(Debug)]
pub(crate) struct Run {
    loops: Arc<[LoopPlan]>,
    messages: Vec<Arc<Message>>,
    known: Known,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    out: Vec<u8>,
    passes: Vec<Option<Pass>>,
    /// The loop whose iteration reads what is read.
    active: Option<usize>,
    notes: Notes,
}

/// A loop that runs.
#[derive(Debug)]
struct Pass {
    items: Items,
    start: Start,
    /// The namespaces that the loop sets attributes of, by the plan's writes.
    spaces: Vec<Option<Value>>,
    /// The plan's watched variables.
    watched: Vec<Value>,
    steps: Vec<Arc<Step>>,
    /// Whether steps are still taken down: what it leaves behind can be kept.
    kept: bool,
    /// How many steps it left out.
    skipped: usize,
    /// The iteration that runs, and where its text begins.
    running: Option<(usize, usize)>,
    next: usize,
}

impl Run {
    pub(crate) fn new(
        loops: Arc<[LoopPlan]>,
        messages: Vec<Arc<Message>>,
        known: Known,
    ) -> Arc<Self> {
        let mut progress = Progress::default();
        progress.passes.resize_with(loops.len(), || None);
        Arc::new(Self {
            loops,
            messages,
            known,
            progress: Mutex::new(progress),
        })
    }

    /// The template's variable `messages`.
    pub(crate) fn turns(self: &Arc<Self>) -> Value {
        Value::from_object(Turns(Arc::clone(self)))
    }

    /// The function that loops begin with.
    pub(crate) fn starter(self: &Arc<Self>) -> Value {
        Value::from_object(Starter(Arc::clone(self)))
    }

    /// Takes the template's output.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer(self)
    }

    /// Ends the rendering: the text, and what is to be kept.
    pub(crate) fn finish(&self) -> Done {
        let mut progress = self.lock();
        let passes = std::mem::take(&mut progress.passes);
        let mut done = Done {
            text: std::mem::take(&mut progress.out),
            messages: self.messages.clone(),
            passes: Vec::with_capacity(passes.len()),
            skipped: 0,
            all: 0,
        };
        for pass in passes {
            let pass = pass.filter(|pass| pass.items.are_messages());
            if let Some(pass) = &pass {
                done.skipped += pass.skipped as u64;
                done.all += pass.next as u64;
            }
            done.passes.push(pass.map(|pass| Passed {
                length: pass.items.len(),
                start: pass.start,
                steps: pass.steps,
            }));
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn message(&self, number: usize) -> Option<Value> {
        let message = self.messages.get(number)?;
        Some(Value::from_dyn_object(Arc::clone(message)))
    }

    /// Takes down that a message was read.
    pub(crate) fn note_message(&self, number: usize) {
        let mut progress = self.lock();
        progress.notes.reach = progress.notes.reach.max(number + 1);
    }

    /// Takes down that something depends on how many messages there are.
    pub(crate) fn note_count(&self) {
        self.lock().notes.count = true;
    }

    /// Begins a loop: finds out how many of its steps are known, and writes their text.
    ///
    /// # Errors
    /// What cannot be run over.
    pub(crate) fn begin(
        &self,
        number: usize,
        over: &Value,
        lookup: Lookup<'_>,
    ) -> Result<(), Error> {
        let plan = &self.loops[number];
        let items = Items::of(over, self.count())?;
        let read = |place: &Place| Kept::of(place.value(lookup));
        let mut start = Start {
            reads: plan.reads.iter().map(read).collect(),
            guards: plan.guarded.iter().map(read).collect(),
            watched: vec![None; plan.watched.len()],
        };
        let watched = plan
            .watched
            .iter()
            .map(|name| lookup(name).unwrap_or_default());
        let watched: Vec<Value> = watched.collect();
        let spaces = plan
            .writes
            .iter()
            .map(|place| lookup(&place.name))
            .collect();
        let known = self.known.as_ref().and_then(|(known, common)| {
            let passed = known.passes.get(number)?.as_ref()?;
            let counts = (known.messages.len(), self.count());
            let valid = passed.valid(plan, &mut start, &watched, &items, (*common, counts));
            Some(&passed.steps[..valid])
        });
        let steps = known.unwrap_or_default().to_vec();
        let mut progress = self.lock();
        let more: usize = steps.iter().map(|step| step.text.len()).sum();
        if progress.out.len() + more > MAX_OUTPUT {
            return Err(Error::new(
                ErrorKind::WriteFailure,
                "the prompt is too long",
            ));
        }
        progress.out.reserve(more + more / 8);
        for step in &steps {
            progress.out.extend_from_slice(step.text.as_bytes());
        }
        progress.passes[number] = Some(Pass {
            kept: items.are_messages(),
            items,
            start,
            spaces,
            watched,
            skipped: steps.len(),
            next: steps.len(),
            running: None,
            steps,
        });
        progress.active = None;
        Ok(())
    }

    /// Ends an iteration, and gives what the next one is about.
    pub(crate) fn next(&self, number: usize) -> Option<Value> {
        let plan = &self.loops[number];
        let mut progress = self.lock();
        let Progress {
            out,
            passes,
            active,
            notes,
        } = &mut *progress;
        let pass = passes.get_mut(number)?.as_mut()?;
        if *active == Some(number) {
            pass.end(plan, out, *notes);
        }
        let place = pass.next;
        if place >= pass.items.len() {
            *active = None;
            return None;
        }
        pass.next += 1;
        pass.running = Some((place, out.len()));
        *active = Some(number);
        *notes = Notes {
            reach: pass.items.number(place).map_or(0, |message| message + 1),
            ..Notes::default()
        };
        match &pass.items {
            Items::All(_) => self.message(place),
            Items::These { values, .. } => values.get(place).cloned(),
        }
    }

    fn pass<T>(&self, number: usize, read: impl FnOnce(&mut Pass, &mut Notes) -> T) -> Option<T> {
        let mut progress = self.lock();
        let Progress { passes, notes, .. } = &mut *progress;
        Some(read(passes.get_mut(number)?.as_mut()?, notes))
    }

    /// The place of the iteration that runs.
    pub(crate) fn position(&self, number: usize) -> usize {
        let running = self.pass(number, |pass, _| pass.running).flatten();
        running.map_or(0, |(place, _)| place)
    }

    /// Whether the iteration that runs is the last.
    pub(crate) fn is_last(&self, number: usize) -> bool {
        let last = |pass: &mut Pass, notes: &mut Notes| {
            notes.next = true;
            pass.next >= pass.items.len()
        };
        self.pass(number, last).unwrap_or_default()
    }

    /// How many a loop runs over.
    pub(crate) fn length(&self, number: usize) -> usize {
        let length = |pass: &mut Pass, notes: &mut Notes| {
            notes.count = true;
            pass.items.len()
        };
        self.pass(number, length).unwrap_or_default()
    }

    /// How many iterations there are from the one that runs on.
    pub(crate) fn left_over(&self, number: usize) -> usize {
        let length = self.length(number);
        length.saturating_sub(self.position(number))
    }

    /// What the iteration before or behind the one that runs is about; undefined where there is none.
    pub(crate) fn neighbour(&self, number: usize, behind: bool) -> Value {
        let found = self.pass(number, |pass, notes| {
            let place = match behind {
                true => pass.next,
                false => pass.next.checked_sub(2)?,
            };
            notes.next |= behind;
            let message = pass.items.number(place);
            notes.reach = notes.reach.max(message.map_or(0, |message| message + 1));
            match &pass.items {
                Items::All(_) => self.message(place),
                Items::These { values, .. } => values.get(place).cloned(),
            }
        });
        found.flatten().unwrap_or_default()
    }

    /// A watched variable, which the iteration that runs reads.
    pub(crate) fn watched(&self, number: usize, place: usize) -> Option<Value> {
        let read = |pass: &mut Pass, notes: &mut Notes| {
            let value = pass.watched.get(place)?.clone();
            notes.watched |= 1 << place;
            pass.start.watch(1 << place, &pass.watched);
            Some(value)
        };
        self.pass(number, read).flatten()
    }

    /// How many steps a loop left out; `None` where it began at its beginning.
    pub(crate) fn resumed(&self, number: usize) -> Option<usize> {
        let skipped = self.pass(number, |pass, _| pass.skipped)?;
        (skipped > 0).then_some(skipped)
    }

    /// What the steps that a loop left out had left in an attribute, by the plan's writes.
    pub(crate) fn left(&self, number: usize, place: usize) -> Option<Value> {
        let left = |pass: &mut Pass, _: &mut Notes| {
            let step = pass.steps.get(pass.skipped.checked_sub(1)?)?;
            step.left.get(place)?.clone()
        };
        self.pass(number, left).flatten()
    }
}

impl Pass {
    /// Takes down the iteration that ended.
    fn end(&mut self, plan: &LoopPlan, out: &[u8], notes: Notes) {
        let Some((place, begun)) = self.running.take().filter(|_| self.kept) else {
            return;
        };
        let attribute = |(space, place): (&Option<Value>, &Place)| {
            let value = space.as_ref()?.get_attr(place.attr.as_deref()?).ok()?;
            (!value.is_undefined()).then_some(value)
        };
        let left: Vec<Option<Value>> = self
            .spaces
            .iter()
            .zip(&plan.writes)
            .map(attribute)
            .collect();
        let text = std::str::from_utf8(&out[begun..]).ok();
        match (text, self.items.number(place)) {
            (Some(text), Some(message))
                if left.iter().flatten().all(|value| plain(value, &mut 0)) =>
            {
                self.steps.push(Arc::new(Step {
                    message,
                    next: self.items.number(place + 1),
                    notes,
                    text: text.into(),
                    left,
                }));
            }
            _ => self.kept = false,
        }
    }
}

/// Collects output up to a limit.
pub(crate) struct Writer<'a>(&'a Run);

impl io::Write for Writer<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut progress = self.0.lock();
        if progress.out.len() + text.len() > MAX_OUTPUT {
            return Err(io::Error::other("the prompt is too long"));
        }
        progress.out.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
