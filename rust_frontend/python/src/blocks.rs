//! Keys of KV blocks.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

/// Below this many bytes of tokens, hashing takes less time than giving the interpreter away and taking it back.
const DETACH_BYTES: usize = 16 * 1024;

/// Keys of all full blocks, 16 bytes each, joined.
#[pyfunction]
pub(crate) fn hash_blocks<'py>(
    py: Python<'py>,
    root: &[u8],
    tokens: &[u8],
    block_tokens: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let block = usize::try_from(block_tokens).map_err(|_| {
        PyValueError::new_err(format!(
            "block_tokens is {block_tokens}; it must be at least 1"
        ))
    })?;
    let keys = if tokens.len() < DETACH_BYTES {
        octavo_hash::chain(root, tokens, block)
    } else {
        py.detach(|| octavo_hash::chain(root, tokens, block))
    };
    let keys = keys.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &keys))
}

/// The key that a list of (tag, value) gives: the root of a chain.
#[pyfunction]
pub(crate) fn root_key<'py>(
    py: Python<'py>,
    fields: Vec<(PyBackedStr, PyBackedBytes)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let key =
        octavo_hash::root(&fields).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &key))
}
