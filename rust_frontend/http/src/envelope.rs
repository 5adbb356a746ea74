//! The SSE writer: what does not change in a stream's events is serialised once.
//!
//! An event is `data: {HEAD"choices":[…]}`; per step only the escaped text is written between fixed parts, into one
//! buffer that is reused.

use bytes::{BufMut as _, BytesMut};
use octavo_api::{
    ApiError, ChatDelta, FinishReason, ReasoningFields, RequestTiming, StopReason, Usage,
};
use octavo_edge::error_json;
use octavo_telemetry::TraceParent;
use serde::Serialize;

use crate::live::BUFFER;
use crate::logprobs::Shown;
use crate::route::Route;
use crate::sse::{write_comment, write_json, write_text};

/// Ends an event.
const CLOSE: &[u8] = b"}\n\n";

/// Ends an event with new text and nothing else, behind the frame of the text.
const PLAIN: &[u8] = b"\"logprobs\":null,\"finish_reason\":null}]}\n\n";

/// What is equal in all events of a stream, and in the response that is not streamed.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) route: Route,
    /// Of the response, such as `chatcmpl-…`.
    pub(crate) id: String,
    /// Unix time in seconds.
    pub(crate) created: u64,
    /// As the client named it.
    pub(crate) model: String,
    /// The caller's span, where it has one.
    pub(crate) parent: Option<TraceParent>,
}

/// How the messages of a chat are written.
#[derive(Debug, Default)]
pub(crate) struct Style {
    pub(crate) reasoning: ReasoningFields,
    /// What stands before each answer.
    pub(crate) echo: Option<String>,
    /// Whether answers say when their tokens came.
    pub(crate) timed: bool,
    /// Whether every event of a stream counts the tokens so far.
    pub(crate) counted: bool,
}

/// What goes out with new text: token ids and log probabilities.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ids<'a> {
    /// Of the prompt, with the first text of a completion.
    pub(crate) prompt: Option<&'a [i32]>,
    /// Of the text; empty: none are asked for.
    pub(crate) tokens: &'a [i32],
    /// Of the tokens whose text it completes, where they are asked for.
    pub(crate) logprobs: Option<&'a Shown>,
}

impl Ids<'_> {
    fn is_empty(&self) -> bool {
        self.prompt.is_none() && self.tokens.is_empty() && self.logprobs.is_none()
    }

    fn write(self, buffer: &mut BytesMut) {
        if let Some(prompt) = self.prompt {
            buffer.extend_from_slice(b"\"prompt_token_ids\":");
            write_json(&mut buffer.writer(), prompt);
            buffer.put_u8(b',');
        }
        if !self.tokens.is_empty() {
            buffer.extend_from_slice(b"\"token_ids\":");
            write_json(&mut buffer.writer(), self.tokens);
            buffer.put_u8(b',');
        }
    }
}

/// Writes the events of one stream.
#[derive(Debug)]
pub(crate) struct EventWriter {
    route: Route,
    /// `data: {…,"choices":[{"index":`, without a usage.
    head: Vec<u8>,
    /// What stands before and behind the text where the first choice gains text and nothing else.
    plain: (Vec<u8>, Vec<u8>),
    /// The same where the event has a usage.
    usage_head: Vec<u8>,
    /// What events say of the tokens so far, where that is asked for.
    so_far: Option<Usage>,
    buffer: BytesMut,
}

#[derive(Serialize)]
struct Head<'a> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
}

impl EventWriter {
    /// Prepares the fixed parts. With `null_usage` every event but the usage's own says `"usage":null`.
    pub(crate) fn new(identity: &Identity, null_usage: bool) -> Self {
        let head = Head {
            id: &identity.id,
            object: identity.route.chunk_object(),
            created: identity.created,
            model: &identity.model,
        };
        let mut usage_head = b"data: ".to_vec();
        write_json(&mut usage_head, &head);
        usage_head.pop(); // the closing brace
        usage_head.push(b',');
        let mut head = usage_head.clone();
        if null_usage {
            head.extend_from_slice(b"\"usage\":null,");
        }
        head.extend_from_slice(b"\"choices\":[{\"index\":");
        let (open, close) = identity.route.text_frame();
        Self {
            route: identity.route,
            plain: ([&head[..], b"0,", open].concat(), [close, PLAIN].concat()),
            head,
            usage_head,
            so_far: None,
            buffer: BytesMut::with_capacity(BUFFER),
        }
    }

    /// Lets the events that follow tell the tokens so far.
    pub(crate) fn count(&mut self, usage: Usage) {
        self.so_far = Some(usage);
    }

    /// Writes the first event of a chat, which says who speaks and, if they are given, the prompt's token ids. Returns
    /// whether there is such an event.
    pub(crate) fn begin(&mut self, index: u32, prompt_ids: Option<&[i32]>) -> bool {
        if self.route != Route::Chat {
            return false;
        }
        let role = |buffer: &mut BytesMut| {
            buffer.extend_from_slice(br#""delta":{"role":"assistant","content":""},"#);
        };
        self.choice(index, role, None, None);
        if let Some(ids) = prompt_ids {
            self.buffer.truncate(self.buffer.len() - CLOSE.len());
            self.buffer.extend_from_slice(b",\"prompt_token_ids\":");
            write_json(&mut (&mut self.buffer).writer(), ids);
            self.buffer.extend_from_slice(CLOSE);
        }
        true
    }

    /// Writes new text.
    pub(crate) fn text(&mut self, index: u32, text: &str, ids: Ids<'_>) {
        if index == 0 && ids.is_empty() && self.so_far.is_none() {
            let (before, behind) = &self.plain;
            self.buffer.extend_from_slice(before);
            write_text(&mut self.buffer, text);
            self.buffer.extend_from_slice(behind);
            return;
        }
        let (open, close) = self.route.text_frame();
        self.choice(
            index,
            |buffer| {
                buffer.extend_from_slice(open);
                write_text(buffer, text);
                buffer.extend_from_slice(close);
                ids.write(buffer);
            },
            ids.logprobs,
            None,
        );
    }

    /// Writes what a chat's message gained other than plain text.
    pub(crate) fn delta(&mut self, index: u32, delta: &ChatDelta, ids: Ids<'_>) {
        let fields = |buffer: &mut BytesMut| {
            buffer.extend_from_slice(b"\"delta\":");
            write_json(&mut buffer.writer(), delta);
            buffer.put_u8(b',');
            ids.write(buffer);
        };
        self.choice(index, fields, ids.logprobs, None);
    }

    /// Writes the end of a choice.
    pub(crate) fn finish(&mut self, index: u32, reason: FinishReason, stop: Option<&StopReason>) {
        let empty = self.route.empty_frame();
        let fields = |buffer: &mut BytesMut| {
            buffer.extend_from_slice(empty);
            if let Some(stop) = stop {
                buffer.extend_from_slice(b"\"stop_reason\":");
                write_json(&mut buffer.writer(), stop);
                buffer.put_u8(b',');
            }
        };
        self.choice(index, fields, None, Some(reason));
    }

    /// Writes the usage, in an event without choices.
    pub(crate) fn usage(&mut self, usage: &Usage) {
        self.buffer.extend_from_slice(&self.usage_head);
        self.buffer.extend_from_slice(b"\"choices\":[],\"usage\":");
        write_json(&mut (&mut self.buffer).writer(), usage);
        self.buffer.extend_from_slice(b"}\n\n");
    }

    /// Adds to the last event, which must not have been taken, when the tokens came.
    pub(crate) fn timing(&mut self, timing: &RequestTiming) {
        self.add(b",\"metrics\":", timing);
    }

    /// Adds to the last event, which must not have been taken, whose weights made the tokens.
    pub(crate) fn weight_versions(&mut self, versions: &[String]) {
        self.add(b",\"weight_versions\":", versions);
    }

    fn add<T: serde::Serialize + ?Sized>(&mut self, name: &[u8], value: &T) {
        self.buffer.truncate(self.buffer.len() - CLOSE.len());
        self.buffer.extend_from_slice(name);
        write_json(&mut (&mut self.buffer).writer(), value);
        self.buffer.extend_from_slice(CLOSE);
    }

    /// Writes an error, after which only `done` may follow.
    pub(crate) fn error(&mut self, error: &ApiError) {
        self.buffer.extend_from_slice(b"data: ");
        self.buffer.extend_from_slice(&error_json(error));
        self.buffer.extend_from_slice(b"\n\n");
    }

    /// Writes a comment line, which clients skip.
    pub(crate) fn comment(&mut self, text: &'static str) {
        write_comment(&mut self.buffer, text);
    }

    /// Writes the last event.
    pub(crate) fn done(&mut self) {
        self.buffer.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// What was written and has not been taken.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    fn choice(
        &mut self,
        index: u32,
        fields: impl FnOnce(&mut BytesMut),
        logprobs: Option<&Shown>,
        reason: Option<FinishReason>,
    ) {
        let buffer = &mut self.buffer;
        match &self.so_far {
            None => buffer.extend_from_slice(&self.head),
            Some(usage) => {
                buffer.extend_from_slice(&self.usage_head);
                buffer.extend_from_slice(b"\"usage\":");
                write_json(&mut buffer.writer(), usage);
                buffer.extend_from_slice(b",\"choices\":[{\"index\":");
            }
        }
        write_json(&mut buffer.writer(), &index);
        buffer.put_u8(b',');
        fields(buffer);
        buffer.extend_from_slice(b"\"logprobs\":");
        write_json(&mut buffer.writer(), &logprobs);
        buffer.extend_from_slice(b",\"finish_reason\":");
        write_json(&mut buffer.writer(), &reason);
        buffer.extend_from_slice(b"}]");
        buffer.extend_from_slice(CLOSE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn writer(route: Route, null_usage: bool) -> EventWriter {
        let identity = Identity {
            route,
            id: "chatcmpl-\"1".to_owned(),
            created: 7,
            model: "m/\\".to_owned(),
            parent: None,
        };
        EventWriter::new(&identity, null_usage)
    }

    fn events(writer: &mut EventWriter) -> Vec<Value> {
        let bytes = writer.buffer().split();
        let text = std::str::from_utf8(&bytes).unwrap();
        text.split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }

    #[test]
    fn chat_events_are_what_serde_would_write() {
        let mut writer = writer(Route::Chat, false);
        let nasty = "line\nquote\" back\\ nul\0 tab\t \u{2028} 字 😀 data: x";
        writer.begin(0, None);
        writer.text(0, nasty, Ids::default());
        writer.finish(0, FinishReason::Stop, None);
        let event = |delta: Value, reason: Value| {
            json!({
                "id": "chatcmpl-\"1", "object": "chat.completion.chunk", "created": 7, "model": "m/\\",
                "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}],
            })
        };
        assert_eq!(
            events(&mut writer),
            [
                event(json!({"role": "assistant", "content": ""}), Value::Null),
                event(json!({"content": nasty}), Value::Null),
                event(json!({}), json!("stop")),
            ]
        );
        assert!(writer.buffer().is_empty());
    }

    #[test]
    fn text_alone_is_written_as_everything_is_and_every_character_arrives() {
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        let texts = all.chars().map(String::from);
        for text in texts.chain([String::new(), all.clone()]) {
            for route in [Route::Chat, Route::Completion] {
                let (mut short, mut long) = (writer(route, true), writer(route, true));
                short.text(0, &text, Ids::default());
                long.text(1, &text, Ids::default());
                let (short, mut long) = (events(&mut short).remove(0), events(&mut long).remove(0));
                long["choices"][0]["index"] = json!(0);
                assert_eq!(short, long);
                let choice = &short["choices"][0];
                let said = choice.get("text").unwrap_or(&choice["delta"]["content"]);
                assert_eq!(said, &json!(text));
            }
        }
    }

    #[test]
    fn completion_events_carry_text_and_no_role() {
        let mut writer = writer(Route::Completion, true);
        assert!(!writer.begin(1, Some(&[1])));
        assert!(writer.buffer().is_empty());
        writer.text(1, "a", Ids::default());
        writer.finish(1, FinishReason::Length, None);
        let events = events(&mut writer);
        assert_eq!(events[0]["object"], "text_completion");
        assert_eq!(
            events[0]["choices"],
            json!([{"index": 1, "text": "a", "logprobs": null, "finish_reason": null}])
        );
        assert_eq!(
            events[1]["choices"],
            json!([{"index": 1, "text": "", "logprobs": null, "finish_reason": "length"}])
        );
        assert_eq!(events[0]["usage"], Value::Null);
        assert!(events[0].as_object().unwrap().contains_key("usage"));
    }

    #[test]
    fn the_usage_stands_alone() {
        let mut writer = writer(Route::Chat, true);
        writer.usage(&Usage::new(5, 2, Some(4)));
        let events = events(&mut writer);
        assert_eq!(events[0]["choices"], json!([]));
        let details = json!({"cached_tokens": 4});
        assert_eq!(
            events[0]["usage"],
            json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": details})
        );
    }

    #[test]
    fn every_event_counts_where_that_is_asked_for() {
        for route in [Route::Chat, Route::Completion] {
            let mut writer = writer(route, true);
            for tokens in [1, 2] {
                writer.count(Usage::new(5, tokens, None));
                writer.text(0, "a", Ids::default());
            }
            writer.finish(0, FinishReason::Length, None);
            let events = events(&mut writer);
            let counts: Vec<_> = events
                .iter()
                .map(|event| event["usage"]["completion_tokens"].clone())
                .collect();
            assert_eq!(counts, [1, 2, 2]);
            assert_eq!(events[2]["choices"][0]["finish_reason"], "length");
        }
    }

    #[test]
    fn token_ids_go_out_where_they_are_asked_for() {
        let mut chat = writer(Route::Chat, false);
        assert!(chat.begin(0, Some(&[7, 8])));
        let ids = Ids {
            tokens: &[1, 2],
            ..Ids::default()
        };
        chat.text(0, "ab", ids);
        let events_of_chat = events(&mut chat);
        assert_eq!(events_of_chat[0]["prompt_token_ids"], json!([7, 8]));
        assert_eq!(events_of_chat[1]["choices"][0]["token_ids"], json!([1, 2]));

        let mut completion = writer(Route::Completion, false);
        let ids = Ids {
            prompt: Some(&[7]),
            tokens: &[1],
            logprobs: None,
        };
        completion.text(0, "", ids);
        let choice = &events(&mut completion)[0]["choices"][0];
        assert_eq!(choice["prompt_token_ids"], json!([7]));
        assert_eq!(choice["token_ids"], json!([1]));
        assert_eq!(choice["text"], "");
    }
}
