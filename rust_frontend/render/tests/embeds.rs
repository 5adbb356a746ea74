//! Prompts of vectors: what two libraries write, and what a damaged file does.
#![allow(clippy::unwrap_used)]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use octavo_api::{ApiError, Body, CompletionRequest};
use octavo_render::{Prepared, Renderer};
use serde_json::{Value, json};
use support::{LIMITS, model};

/// `torch.save(torch.tensor([[0.0, 1.0, -2.0], [0.5, 3.0, 4.0]]).to(torch.bfloat16), ...)` by torch 2.
const SAVED: &str = include_str!("embeds/bfloat16.pt.base64");

fn renderer() -> Renderer {
    model(&json!({})).with_prompt_embeds(true)
}

fn prepare(renderer: &Renderer, file: &[u8], extra: &Value) -> Result<Prepared, ApiError> {
    let mut fields = json!({"prompt_embeds": STANDARD.encode(file)});
    let extra = extra.as_object().unwrap().clone();
    fields.as_object_mut().unwrap().extend(extra);
    let body = Body::parse(&serde_json::to_vec(&fields).unwrap())?;
    renderer.completion(&CompletionRequest::batch(body)?.remove(0), LIMITS)
}

fn saved() -> Vec<u8> {
    STANDARD.decode(SAVED.trim()).unwrap()
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), data].concat()
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

#[test]
fn both_libraries_are_read() {
    let renderer = renderer();
    let prepared = prepare(&renderer, &saved(), &json!({"max_tokens": 100})).unwrap();
    assert_eq!(prepared.prompt, [0, 0]);
    assert_eq!(prepared.sampling.max_tokens, 62); // what the context leaves
    assert!(prepared.prompt_ids().is_empty());
    let given = prepared.given.unwrap();
    assert_eq!(
        (given.embeds.width, given.embeds.dtype.as_str()),
        (3, "bfloat16")
    );
    let halves = [0x0000, 0x3F80, 0xC000, 0x3F00, 0x4040, 0x4080_u16];
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    assert_eq!(given.embeds.values.0, bytes);

    let header = r#"{"__metadata__": {"a": "b"}, "x": {"dtype": "BF16", "shape": [1, 2, 3], "data_offsets": [2, 14]}}"#;
    let file = safetensors(header, &[&[9, 9], &bytes[..]].concat());
    let same = prepare(&renderer, &file, &json!({}))
        .unwrap()
        .given
        .unwrap();
    assert_eq!(same, given); // the content id too
}

#[test]
fn content_ids_tell_vectors_apart() {
    let renderer = renderer();
    let id = |dtype: &str, shape: [usize; 2], data: &[u8]| {
        let end = data.len();
        let header = json!({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}});
        let file = safetensors(&header.to_string(), data);
        let prepared = prepare(&renderer, &file, &json!({})).unwrap();
        prepared.given.unwrap().content_id
    };
    let data = floats(&[0.0, 1.0, 2.0, 3.0]);
    let mut ids = vec![
        id("F32", [2, 2], &data),
        id("F32", [1, 4], &data),
        id("F16", [4, 2], &data),
        id("BF16", [4, 2], &data),
        id("F32", [2, 2], &floats(&[0.0, 1.0, 2.0, 4.0])),
    ];
    assert!(ids.iter().all(|id| id.len() == 32));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[test]
fn a_damaged_file_is_refused_or_read_and_never_more() {
    let renderer = renderer();
    let file = saved();
    let mut refused = 0;
    let mut tries = 0;
    let mut attempt = |file: &[u8]| {
        tries += 1;
        match prepare(&renderer, file, &json!({})) {
            Ok(prepared) => assert!(prepared.given.unwrap().embeds.values.0.len() <= file.len()),
            Err(error) => {
                assert_eq!(error.param.as_deref(), Some("prompt_embeds"), "{error}");
                assert_eq!(error.status(), 400, "{error}");
                refused += 1;
            }
        }
    };
    for end in 0..file.len() {
        attempt(&file[..end]);
    }
    for at in 0..file.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut damaged = file.clone();
            damaged[at] ^= flip;
            attempt(&damaged);
        }
    }
    assert!(refused > tries / 3, "{refused} of {tries}");
}

#[test]
fn wrong_headers_are_refused() {
    let renderer = renderer();
    let data = floats(&[1.0; 6]);
    for header in [
        "[]",
        "{}",
        r#"{"x": 5}"#,
        r#"{"x": {"dtype": "F32", "shape": [2, 3]}}"#,
        r#"{"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 25]}}"#,
        r#"{"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 0]}}"#,
        r#"{"x": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 24]}}"#,
        r#"{"x": {"dtype": "F32", "shape": [2, -3], "data_offsets": [0, 24]}}"#,
        r#"{"x": {"dtype": "F32", "shape": [18446744073709551615, 18446744073709551615, 2], "data_offsets": [0, 24]}}"#,
        r#"{"x": {"dtype": "I64", "shape": [1, 3], "data_offsets": [0, 24]}}"#,
        r#"{"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "y": {}}"#,
    ] {
        let error = prepare(&renderer, &safetensors(header, &data), &json!({})).unwrap_err();
        assert_eq!(
            error.param.as_deref(),
            Some("prompt_embeds"),
            "{header}: {error}"
        );
    }
    let long = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    assert!(prepare(&renderer, &long, &json!({})).is_err());
}

#[test]
fn the_context_bounds_them_and_a_server_may_take_none() {
    let header = |rows: usize| {
        let shape =
            json!({"x": {"dtype": "F32", "shape": [rows, 2], "data_offsets": [0, rows * 8]}});
        safetensors(&shape.to_string(), &vec![0; rows * 8])
    };
    let renderer = renderer();
    assert_eq!(
        prepare(&renderer, &header(63), &json!({}))
            .unwrap()
            .prompt
            .len(),
        63
    );
    let error = prepare(&renderer, &header(64), &json!({})).unwrap_err();
    assert!(error.message.contains("64"), "{error}");
    let error = prepare(&model(&json!({})), &header(1), &json!({})).unwrap_err();
    assert!(error.message.contains("--enable-prompt-embeds"), "{error}");
}
