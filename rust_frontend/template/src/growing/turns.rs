//! What a rewritten template is given: the messages, the function that a loop begins with, and what a loop knows of itself.

use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Error, ErrorKind, State, Value};

use super::run::Run;

/// The messages, as a list that notes what is read of it.
#[derive(Debug)]
pub(crate) struct Turns(pub(crate) Arc<Run>);

impl Object for Turns {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let number = key.as_usize()?;
        match self.0.message(number) {
            Some(message) => {
                self.0.note_message(number);
                Some(message)
            }
            None => {
                self.0.note_count();
                None
            }
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.0.note_count();
        Enumerator::Seq(self.0.count())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.0.count() > 0
    }
}

/// The function that a loop begins with: `octavo_turns(number of the loop, what it runs over)`.
#[derive(Debug)]
pub(crate) struct Starter(pub(crate) Arc<Run>);

impl Object for Starter {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let [number, over] = args else {
            return Err(Error::from(ErrorKind::MissingArgument));
        };
        let number = number
            .as_usize()
            .ok_or_else(|| Error::from(ErrorKind::InvalidOperation))?;
        self.0.begin(number, over, &|name| state.lookup(name))?;
        let run = Arc::clone(&self.0);
        Ok(Value::from_object(Walk { run, number }))
    }
}

/// A loop that runs: what `loop` says, and what its beginning needs.
#[derive(Debug)]
pub(crate) struct Walk {
    run: Arc<Run>,
    number: usize,
}

impl Object for Walk {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let run = &self.run;
        match key {
            "index0" => Some(run.position(self.number).into()),
            "index" => Some((run.position(self.number) + 1).into()),
            "first" => Some((run.position(self.number) == 0).into()),
            "last" => Some(run.is_last(self.number).into()),
            "previtem" => Some(run.neighbour(self.number, false)),
            "nextitem" => Some(run.neighbour(self.number, true)),
            "length" => Some(run.length(self.number).into()),
            "revindex" => Some(run.left_over(self.number).into()),
            "revindex0" => Some(run.left_over(self.number).saturating_sub(1).into()),
            "rest" => {
                let run = Arc::clone(run);
                let number = self.number;
                Some(Value::from_object(Rest { run, number }))
            }
            "resumed" => Some(run.resumed(self.number).is_some().into()),
            _ => {
                let (kind, place) = key.split_once('_')?;
                let place = place.parse().ok()?;
                match kind {
                    "read" => run.watched(self.number, place),
                    "has" => Some(run.left(self.number, place).is_some().into()),
                    "value" => run.left(self.number, place),
                    _ => None,
                }
            }
        }
    }
}

/// What a loop still has to run over.
#[derive(Debug)]
struct Rest {
    run: Arc<Run>,
    number: usize,
}

impl Object for Rest {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let (run, number) = (Arc::clone(&self.run), self.number);
        Enumerator::Iter(Box::new(std::iter::from_fn(move || run.next(number))))
    }
}
