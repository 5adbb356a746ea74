//! One tensor as safetensors writes it: a length, a JSON object, the numbers.

use serde_json::{Map, Value};

use super::numbers::{Dtype, unknown};
use super::tensor::Tensor;

/// No header of one tensor is longer, whatever metadata it has.
const LONGEST_HEADER: usize = 1 << 20;

pub(super) fn read(bytes: &[u8]) -> Result<Tensor<'_>, String> {
    let neither = "is neither a file of torch.save, in its zip format, nor of safetensors";
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or(neither)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    let length = length.filter(|length| *length <= rest.len().min(LONGEST_HEADER));
    let (header, data) = rest.split_at(length.ok_or(neither)?);
    let mut header: Map<String, Value> = serde_json::from_slice(header).map_err(|_| neither)?;
    header.remove("__metadata__");
    let mut tensors = header.into_iter();
    let (Some((_, tensor)), None) = (tensors.next(), tensors.next()) else {
        return Err("must hold one tensor".to_owned());
    };
    let dtype = match tensor.get("dtype").and_then(Value::as_str) {
        Some("F32") => Dtype::Float32,
        Some("F16") => Dtype::Float16,
        Some("BF16") => Dtype::Bfloat16,
        other => return Err(unknown(other.unwrap_or("(none)"))),
    };
    let damaged = || "has a damaged header".to_owned();
    let shape = numbers(tensor.get("shape")).ok_or_else(damaged)?;
    let ends = numbers(tensor.get("data_offsets")).ok_or_else(damaged)?;
    let [begin, end] = ends[..] else {
        return Err(damaged());
    };
    Ok(Tensor {
        strides: contiguous(&shape).ok_or_else(damaged)?,
        shape,
        dtype,
        offset: 0,
        data: data.get(begin..end).ok_or_else(damaged)?,
    })
}

fn numbers(value: Option<&Value>) -> Option<Vec<usize>> {
    let items = value?.as_array()?.iter();
    items
        .map(|item| usize::try_from(item.as_u64()?).ok())
        .collect()
}

/// The strides of a tensor that lies row by row.
fn contiguous(shape: &[usize]) -> Option<Vec<usize>> {
    let mut strides = vec![1_usize; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at].checked_mul(shape[at])?;
    }
    Some(strides)
}
