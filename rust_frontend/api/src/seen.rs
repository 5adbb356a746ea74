//! Messages of chats that came before, by the bytes that they came as.
//!
//! A conversation that grows is sent whole each time. What stands in a body where a list's entry begins, and begins with the
//! bytes of objects that were read before, is those objects again: they end where they end. So runs of messages of a kilobyte
//! or more are kept with their bytes, linked to those that followed them, and the beginning of a conversation that is known is
//! compared, not read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::message::Message;
use crate::shared::SharedMessage;

/// Bytes after which a run of messages ends.
const RUN: usize = 1 << 10;

/// Bodies of fewer bytes are read as they are.
const LEAST: usize = 4 * RUN;

/// Bytes of its beginning by which a run is found behind another: with the names of fields and some of the text.
const HEAD: usize = 128;

/// Bytes that one generation holds. There are two.
const GENERATION: usize = 24 << 20;

/// How many times its bytes a run takes: as it came, as it was read, and in another form.
const COPIES: usize = 3;

/// Bytes that a message takes besides.
const OVERHEAD: usize = 640;

/// The run in front of the first.
const NOTHING: u64 = 0;

/// What is known of chats. Shared between threads; its memory is bounded.
pub struct SeenMessages {
    hashing: RandomState,
    generations: Mutex<Generations>,
}

/// Messages that stood one behind the other.
struct Run {
    /// Drawn once, from 1 on.
    number: u64,
    /// From the beginning of the first to the end of the last.
    bytes: Box<[u8]>,
    messages: Box<[Arc<SharedMessage>]>,
}

/// The younger generation takes what is new or used; when it is full, it becomes the older and what was older goes.
#[derive(Default)]
struct Generations {
    young: Runs,
    old: Runs,
    bytes: usize,
    last: u64,
}

/// By the hash of the number of the run before and of its own beginning.
type Runs = HashMap<u64, Arc<Run>, RandomState>;

/// The fields of a chat but its messages, and those.
type Chat = (Map<String, Value>, Vec<Arc<SharedMessage>>);

impl SeenMessages {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hashing: RandomState::new(),
            generations: Mutex::default(),
        }
    }

    /// Reads a chat's body: its messages, and all other fields. `None` for one that is not large, or that is left to a
    /// reader who says what is wrong with it.
    pub(crate) fn read(&self, body: &[u8]) -> Option<Chat> {
        if body.len() < LEAST {
            return None;
        }
        let mut text = Text { bytes: body, at: 0 };
        text.expect(b'{')?;
        let (mut fields, mut messages) = (Map::new(), None);
        loop {
            text.skip_space();
            let name: String = text.value()?;
            text.expect(b':')?;
            match name.as_str() {
                "messages" if messages.is_some() => return None,
                "messages" => messages = Some(self.messages(&mut text)?),
                _ => {
                    let value = text.value()?;
                    fields.insert(name, value);
                }
            }
            match text.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        text.skip_space();
        (text.at == body.len()).then_some((fields, messages?))
    }

    /// Reads a list of messages.
    fn messages(&self, text: &mut Text<'_>) -> Option<Vec<Arc<SharedMessage>>> {
        text.expect(b'[')?;
        text.skip_space();
        let (mut found, mut before) = (Vec::new(), NOTHING);
        while let Some(run) = self.next(before, text.rest()) {
            found.extend_from_slice(&run.messages);
            before = run.number;
            text.at += run.bytes.len();
            if text.ends_list()? {
                return Some(found);
            }
        }
        let mut first = (text.at, found.len());
        loop {
            // Others are judged elsewhere, and would not show where they end.
            if text.rest().first() != Some(&b'{') {
                return None;
            }
            let message = Message::read(found.len(), text.value()?).ok()?;
            found.push(Arc::new(message.into()));
            if text.at - first.0 >= RUN {
                before = self.keep(before, &text.bytes[first.0..text.at], &found[first.1..]);
                first.1 = found.len();
            }
            if text.ends_list()? {
                return Some(found);
            }
            if first.1 == found.len() {
                first.0 = text.at;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the run behind another one is found, if it begins as `rest` does.
    fn place(&self, before: u64, rest: &[u8]) -> u64 {
        self.hashing
            .hash_one((before, &rest[..rest.len().min(HEAD)]))
    }

    /// The run that is known to follow another one and that `rest` begins with.
    fn next(&self, before: u64, rest: &[u8]) -> Option<Arc<Run>> {
        if rest.len() < RUN {
            return None;
        }
        let place = self.place(before, rest);
        let known = self.lock().get(place)?;
        rest.starts_with(&known.bytes).then_some(known)
    }

    /// Keeps a run. Returns its number.
    fn keep(&self, before: u64, bytes: &[u8], messages: &[Arc<SharedMessage>]) -> u64 {
        let place = self.place(before, bytes);
        let mut generations = self.lock();
        generations.last += 1;
        let run = Run {
            number: generations.last,
            bytes: bytes.into(),
            messages: messages.into(),
        };
        generations.put(place, Arc::new(run));
        generations.last
    }
}

impl Default for SeenMessages {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SeenMessages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SeenMessages")
            .field("bytes", &self.lock().bytes)
            .finish_non_exhaustive()
    }
}

impl Generations {
    fn get(&mut self, place: u64) -> Option<Arc<Run>> {
        if let Some(known) = self.young.get(&place) {
            return Some(Arc::clone(known));
        }
        let known = self.old.remove(&place)?;
        self.put(place, Arc::clone(&known));
        Some(known)
    }

    fn put(&mut self, place: u64, run: Arc<Run>) {
        let size = size(&run);
        if size > GENERATION / 2 {
            return;
        }
        if self.bytes + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        let gone = self.young.insert(place, run);
        self.bytes += size;
        self.bytes -= gone.map_or(0, |gone| self::size(&gone));
    }
}

/// Bytes of memory, about.
fn size(run: &Run) -> usize {
    COPIES * run.bytes.len() + OVERHEAD * (1 + run.messages.len())
}

/// JSON that is read piece by piece.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn skip_space(&mut self) {
        let space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\t' | b'\r');
        self.at += self.rest().iter().take_while(space).count();
    }

    /// The next sign behind white space.
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        let sign = self.rest().first().copied();
        self.at += 1;
        sign
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// Whether a list ends behind an entry; else goes to the next one.
    fn ends_list(&mut self) -> Option<bool> {
        let sign = self.next()?;
        self.skip_space();
        match sign {
            b']' => Some(true),
            b',' => Some(false),
            _ => None,
        }
    }

    /// The value that begins here.
    fn value<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut values = serde_json::Deserializer::from_slice(self.rest()).into_iter();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Body;
    use crate::chat::ChatRequest;
    use crate::error::ApiError;
    use proptest::prelude::*;

    fn plain(body: &[u8]) -> Result<ChatRequest, ApiError> {
        ChatRequest::from_body(Body::parse(body)?)
    }

    fn chat(body: &[u8], seen: &SeenMessages) -> Result<ChatRequest, ApiError> {
        ChatRequest::from_body(Body::parse_chat(body, seen)?)
    }

    fn message(role: &str, text: &str) -> String {
        format!("{{\"role\": \"{role}\", \"content\": \"{text}\"}}")
    }

    fn body(messages: &[String]) -> Vec<u8> {
        format!("{{\"messages\": [{}], \"n\": 1}}", messages.join(", ")).into_bytes()
    }

    #[test]
    fn what_grows_is_read_once() {
        let (seen, mut messages) = (SeenMessages::new(), Vec::new());
        let mut before: Vec<Arc<SharedMessage>> = Vec::new();
        for turn in 0..60 {
            messages.push(message("user", &format!("{turn} {}", "x".repeat(700))));
            let request = chat(&body(&messages), &seen).unwrap();
            assert_eq!(request, plain(&body(&messages)).unwrap());
            let same = std::iter::zip(&before, &request.messages)
                .filter(|(old, new)| Arc::ptr_eq(old, new))
                .count();
            // Of less than a run and of a short body nothing is kept.
            assert!(turn < 8 || same + 2 >= before.len(), "{turn}: {same}");
            before = request.messages;
        }
    }

    #[test]
    fn what_is_wrong_is_said_by_the_plain_reader() {
        let seen = SeenMessages::new();
        let long: Vec<_> = (0..20)
            .map(|turn| message("user", &format!("{turn}{}", "y".repeat(400))))
            .collect();
        let right = String::from_utf8(body(&long)).unwrap();
        chat(right.as_bytes(), &seen).unwrap();
        let with = |from: &str, to: &str| right.replacen(from, to, 1);
        for wrong in [
            right[..right.len() - 1].to_owned(),
            format!("{right}]"),
            with("}], \"n\"", "}; \"n\""),
            with("}], \"n\"", "},], \"n\""),
            with("}], \"n\"", "}, [1]], \"n\""),
            with("}], \"n\"", "}, {\"role\": 1}], \"n\""),
            with("\"n\": 1", "\"n\": 1, \"messages\": []"),
            with("\"n\": 1", "\"n\": 01"),
            with("\"n\": 1", "1: \"n\""),
            with("\"n\": 1", "\"n\": -1"),
            with("[{", "[7, {"),
            with("[{", "{"),
        ] {
            let said = chat(wrong.as_bytes(), &seen).map_err(|error| error.message);
            assert!(said.is_err(), "{wrong}");
            assert_eq!(said, plain(wrong.as_bytes()).map_err(|error| error.message));
        }
        // Of a name that comes twice the last value holds.
        let twice = with(
            "\"n\": 1",
            "\"messages\": [{\"role\": \"user\", \"content\": \"z\"}]",
        );
        assert_eq!(chat(twice.as_bytes(), &seen).unwrap().messages.len(), 1);
        let mut bytes = right.clone().into_bytes();
        let at = right.find("yyy").unwrap();
        bytes[at] = 0xff;
        assert!(chat(&bytes, &seen).is_err() && plain(&bytes).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let seen = SeenMessages::new();
        for turn in 0..80 {
            let text = format!("{turn}{}", "x".repeat(1 << 20));
            chat(&body(&[message("user", &text)]), &seen).unwrap();
            let generations = seen.lock();
            for runs in [&generations.young, &generations.old] {
                let held: usize = runs.values().map(|run| size(run)).sum();
                assert!(held <= GENERATION, "{held} bytes");
            }
        }
        let huge = body(&[message("user", &"x".repeat(GENERATION / 2))]);
        chat(&huge, &seen).unwrap();
        let messages = chat(&huge, &seen).unwrap().messages;
        assert_eq!(
            Arc::strong_count(&messages[0]),
            1,
            "what is too large is not kept"
        );
    }

    fn parts() -> impl Strategy<Value = Vec<String>> {
        let text = prop_oneof![
            3 => "[a-z é世]{0,40}",
            1 => (0..4usize, 200..1500usize).prop_map(|(kind, length)| ["a", "\\\"", "}, {", "é"][kind].repeat(length / 2)),
            1 => Just("}], \\\"messages\\\": [{\\n\\u00e9\\\\".to_owned()),
        ];
        let spaces = prop::sample::select(vec!["", " ", "\n\t "]);
        let one = (
            prop::sample::select(vec!["user", "assistant", "tool"]),
            text,
            spaces,
            0..3usize,
        );
        let one = one.prop_map(|(role, text, space, kind)| match kind {
            0 => format!("{{{space}\"content\":{space}\"{text}\",{space}\"role\": \"{role}\"{space}}}{space}"),
            1 => format!("{space}{{\"role\": \"{role}\", \"content\": [{{\"type\": \"text\", \"text\": \"{text}\"}}], \"x\": [1.5, {{}}]}}"),
            _ => message(role, &text),
        });
        prop::collection::vec(one, 1..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever was read before, and wherever conversations part, a body is read as it is without.
        #[test]
        fn what_was_seen_changes_nothing(
            lists in prop::collection::vec(parts(), 1..4),
            joins in prop::collection::vec((0..4usize, 0..4usize, 1..4usize), 1..10),
            fields in prop::sample::select(vec!["", ", \"temperature\": 0.5", ", \"x\": {\"messages\": [1]}"]),
        ) {
            let seen = SeenMessages::new();
            for (one, other, times) in joins {
                let list = &lists[one % lists.len()];
                let mut messages = vec![list.as_slice(); times].concat();
                messages.extend_from_slice(&lists[other % lists.len()]);
                let body = format!("{{\"model\": \"m\", \"messages\": [{}]{fields}}}", messages.join(","));
                for _ in 0..2 {
                    prop_assert_eq!(chat(body.as_bytes(), &seen), plain(body.as_bytes()));
                }
            }
        }
    }
}
