//! Constraints on outputs: checking schemas, and the masks of an engine core.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use octavo_grammar::constraint::{
    self, Constraint, ConstraintError, Grammar, Kind, Matcher, Vocabulary,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde_json::Value;

pyo3::create_exception!(
    octavo_native,
    GrammarError,
    PyValueError,
    "A schema, grammar or token that is refused, with the reason."
);

/// So many masks are not worth another thread.
const MASKS_PER_THREAD: usize = 4;

/// The schema that was asked for last, compiled: texts are checked many against one.
static LAST: Mutex<Option<(Value, constraint::Checker)>> = Mutex::new(None);

/// Raise unless a JSON schema can be enforced.
#[pyfunction]
pub(crate) fn check_schema(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
    let schema = value(schema)?;
    py.detach(|| constraint::check_schema(&schema))
        .map_err(|error| refused(&error))
}

/// Tell whether a text is an instance of a schema.
#[pyfunction]
pub(crate) fn accepts(py: Python<'_>, schema: &Bound<'_, PyAny>, text: &str) -> PyResult<bool> {
    let schema = value(schema)?;
    py.detach(|| {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(known, _)| *known != schema) {
            *last = Some((schema.clone(), constraint::Checker::new(&schema)?));
        }
        Ok(last
            .as_ref()
            .is_some_and(|(_, checker)| checker.accepts(text)))
    })
    .map_err(|error: ConstraintError| refused(&error))
}

/// The words of a model's tokenizer.
#[pyclass(name = "Vocabulary", module = "octavo_native", frozen)]
pub(crate) struct PyVocabulary {
    vocabulary: Vocabulary,
}

#[pymethods]
impl PyVocabulary {
    #[new]
    fn new(py: Python<'_>, folder: PathBuf, vocab_size: usize) -> PyResult<Self> {
        let vocabulary = py
            .detach(|| octavo_render::vocabulary(&folder, vocab_size))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { vocabulary })
    }

    fn compile(&self, py: Python<'_>, kind: &str, text: String) -> PyResult<PyGrammar> {
        let Some(known) = Kind::of(kind) else {
            return Err(GrammarError::new_err(format!(
                "{kind:?} is no kind of grammar"
            )));
        };
        let constraint = Constraint::raw(known, text);
        let grammar = py
            .detach(|| Grammar::compile(&constraint, &self.vocabulary))
            .map_err(|error| refused(&error))?;
        Ok(PyGrammar {
            grammar: Mutex::new(grammar),
        })
    }
}

/// A compiled grammar.
#[pyclass(name = "Grammar", module = "octavo_native", frozen)]
pub(crate) struct PyGrammar {
    grammar: Mutex<Grammar>,
}

#[pymethods]
impl PyGrammar {
    fn matcher(&self) -> PyMatcher {
        let grammar = self.grammar.lock().unwrap_or_else(PoisonError::into_inner);
        PyMatcher {
            matcher: Arc::new(Mutex::new(grammar.matcher())),
        }
    }
}

/// Where one output stands in its grammar.
#[pyclass(name = "Matcher", module = "octavo_native", frozen)]
pub(crate) struct PyMatcher {
    matcher: Arc<Mutex<Matcher>>,
}

#[pymethods]
impl PyMatcher {
    /// Takes microseconds: less than giving the interpreter away.
    fn accept(&self, token: u32) -> PyResult<bool> {
        let mut matcher = self.matcher.lock().unwrap_or_else(PoisonError::into_inner);
        matcher.accept(token).map_err(|error| refused(&error))
    }

    fn accepting(&self) -> PyResult<bool> {
        let mut matcher = self.matcher.lock().unwrap_or_else(PoisonError::into_inner);
        matcher.accepting().map_err(|error| refused(&error))
    }
}

/// The masks of several outputs, joined, and what went wrong with each.
#[pyfunction]
pub(crate) fn fill_masks<'py>(
    py: Python<'py>,
    matchers: Vec<PyRef<'py, PyMatcher>>,
    vocab_size: usize,
) -> (Bound<'py, PyBytes>, Vec<Option<String>>) {
    let matchers: Vec<Arc<Mutex<Matcher>>> = matchers
        .iter()
        .map(|one| Arc::clone(&one.matcher))
        .collect();
    let words = vocab_size.div_ceil(32);
    let (masks, errors) = py.detach(|| masks(&matchers, words));
    let bytes: Vec<u8> = masks.iter().flat_map(|word| word.to_le_bytes()).collect();
    (PyBytes::new(py, &bytes), errors)
}

fn masks(matchers: &[Arc<Mutex<Matcher>>], words: usize) -> (Vec<u32>, Vec<Option<String>>) {
    let mut masks = vec![0u32; matchers.len() * words];
    let mut errors = vec![None; matchers.len()];
    if words == 0 || matchers.is_empty() {
        return (masks, errors);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = matchers.len().div_ceil(cores).max(MASKS_PER_THREAD);
    let parts = matchers
        .chunks(share)
        .zip(masks.chunks_mut(share * words))
        .zip(errors.chunks_mut(share));
    std::thread::scope(|scope| {
        let mut parts = parts;
        let mine = parts.next();
        for ((matchers, masks), errors) in parts {
            scope.spawn(move || fill(matchers, words, masks, errors));
        }
        if let Some(((matchers, masks), errors)) = mine {
            fill(matchers, words, masks, errors);
        }
    });
    (masks, errors)
}

fn fill(
    matchers: &[Arc<Mutex<Matcher>>],
    words: usize,
    masks: &mut [u32],
    errors: &mut [Option<String>],
) {
    for ((matcher, mask), error) in matchers.iter().zip(masks.chunks_mut(words)).zip(errors) {
        let mut matcher = matcher.lock().unwrap_or_else(PoisonError::into_inner);
        *error = matcher.mask(mask).err().map(|error| error.to_string());
    }
}

/// A schema given as a Python value, or as JSON text.
fn value(schema: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text: String = if schema.is_instance_of::<PyString>() {
        schema.extract()?
    } else {
        let dumped = schema
            .py()
            .import("json")?
            .call_method1("dumps", (schema,))?;
        dumped.extract()?
    };
    serde_json::from_str(&text)
        .map_err(|error| GrammarError::new_err(format!("the schema is no JSON: {error}")))
}

fn refused(error: &ConstraintError) -> PyErr {
    GrammarError::new_err(error.to_string())
}
