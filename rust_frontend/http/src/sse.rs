//! What all streams of events are made of: the head of the answer, comments, JSON.

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, BytesMut};
use http::{HeaderName, HeaderValue, header};
use serde::Serialize;

pub(crate) fn respond(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Writes a comment, which clients skip.
pub(crate) fn write_comment(buffer: &mut BytesMut, text: &str) {
    buffer.extend_from_slice(b": ");
    buffer.extend_from_slice(text.as_bytes());
    buffer.extend_from_slice(b"\n\n");
}

/// Says in a comment why nothing comes.
pub(crate) fn silence(paused: bool) -> &'static str {
    if paused {
        "waiting for the engine to come back"
    } else {
        "working"
    }
}

/// Writes a JSON string; most texts have nothing to escape.
pub(crate) fn write_text(buffer: &mut BytesMut, text: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        buffer.put_u8(b'"');
        buffer.extend_from_slice(text.as_bytes());
        buffer.put_u8(b'"');
    } else {
        write_json(&mut buffer.writer(), text);
    }
}

/// Serialises into memory, which cannot fail for the types used here.
pub(crate) fn write_json(out: &mut impl std::io::Write, value: &(impl Serialize + ?Sized)) {
    let _ = serde_json::to_writer(out, value);
}
