//! What the model says as blocks: a block begins where the kind of what is said changes.

use octavo_api::ContentBlock;
use octavo_parser::Event;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::partial::object;

/// What happens to the block with the number that comes along.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// It begins, and is empty.
    Begin(ContentBlock),
    /// It gains text.
    Text(&'a str),
    /// It gains thoughts.
    Thoughts(&'a str),
    /// The checksum of its thoughts, which are complete.
    Signature(String),
    /// The input of its call gains this.
    Input(&'a str),
    /// It is complete.
    End,
}

/// The block that is open.
enum Open {
    Text,
    /// With the checksum of the thoughts so far.
    Thinking(Sha256),
    /// A call, by its place.
    Call(usize),
}

/// Turns pieces into the changes of blocks.
///
/// White space behind text waits for what follows: it goes out with more text and at the end of the answer, and is dropped
/// before another block. So there are no blocks of white space between calls.
#[derive(Default)]
pub(crate) struct Blocks {
    /// Whether thoughts are shown.
    shown: bool,
    open: Option<Open>,
    /// Of the block that is open, or the next one.
    index: usize,
    held: String,
    /// Memory for the text that goes out.
    spare: String,
    /// Whether thoughts came that are not shown.
    hid: bool,
    /// Whether what is held are thoughts.
    held_thoughts: bool,
}

type Say<'a> = &'a mut dyn FnMut(usize, Change<'_>);

impl Blocks {
    pub(crate) fn new(shown: bool) -> Self {
        Self {
            shown,
            ..Self::default()
        }
    }

    /// Takes plain text, or what the parser makes of it; the events are gone then.
    pub(crate) fn piece(&mut self, text: &str, events: &mut Vec<Event>, say: Say<'_>) {
        self.text(text, say);
        for event in events.drain(..) {
            match event {
                Event::ContentDelta { text } => self.text(&text, say),
                Event::ReasoningDelta { text, .. } if self.shown => self.thoughts(&text, say),
                Event::CallOpen { index, id, name } => {
                    let input = Value::Object(Map::new());
                    let block = ContentBlock::ToolUse { id, name, input };
                    self.begin(Open::Call(index), block, say);
                }
                Event::ArgsDelta { index, json } => {
                    if matches!(self.open, Some(Open::Call(open)) if open == index) {
                        say(self.index, Change::Input(&json));
                    }
                }
                Event::CallClose { .. } => self.close(say),
                Event::ReasoningDelta { .. } => self.hid = true,
                Event::Malformed { .. } | Event::End { .. } => {}
            }
        }
    }

    /// Ends the block that is open.
    pub(crate) fn end(&mut self, say: Say<'_>) {
        if matches!(self.open, Some(Open::Text)) && !self.held.is_empty() {
            let text = std::mem::take(&mut self.held);
            say(self.index, Change::Text(&text));
        }
        self.close(say);
    }

    fn text(&mut self, text: &str, say: Say<'_>) {
        let open = matches!(self.open, Some(Open::Text));
        let Some(text) = self.certain(text, open, false, say) else {
            return;
        };
        if !open {
            let text = String::new();
            self.begin(Open::Text, ContentBlock::Text { text }, say);
        }
        say(self.index, Change::Text(&text));
        self.spare = text;
    }

    fn thoughts(&mut self, text: &str, say: Say<'_>) {
        let open = matches!(self.open, Some(Open::Thinking(_)));
        let Some(thinking) = self.certain(text, open, true, say) else {
            return;
        };
        if !open {
            let block = ContentBlock::Thinking {
                thinking: String::new(),
                signature: String::new(),
            };
            self.begin(Open::Thinking(Sha256::new()), block, say);
        }
        if let Some(Open::Thinking(checksum)) = &mut self.open {
            checksum.update(thinking.as_bytes());
        }
        say(self.index, Change::Thoughts(&thinking));
        self.spare = thinking;
    }

    /// The part of new text that can go out: all but white space at its end. `same`: the block that is open goes on.
    fn certain(&mut self, text: &str, same: bool, thoughts: bool, say: Say<'_>) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        if !same && self.open.is_some() {
            self.close(say);
        }
        if self.held_thoughts != thoughts {
            self.held.clear();
            self.held_thoughts = thoughts;
        }
        let mut all = std::mem::take(&mut self.spare);
        all.clear();
        all.push_str(&self.held);
        all.push_str(text);
        // Space at the beginning of the answer may continue what the client put into the assistant's mouth.
        if !same && (thoughts || self.hid || self.index > 0) {
            all.drain(..all.len() - all.trim_start().len());
        }
        let certain = all.trim_end().len();
        self.held.clear();
        self.held.push_str(&all[certain..]);
        all.truncate(certain);
        if all.is_empty() {
            self.spare = all;
            return None;
        }
        Some(all)
    }

    fn begin(&mut self, open: Open, block: ContentBlock, say: Say<'_>) {
        self.close(say);
        self.open = Some(open);
        say(self.index, Change::Begin(block));
    }

    fn close(&mut self, say: Say<'_>) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.held.clear();
        if let Open::Thinking(checksum) = open {
            let signature = hex(&checksum.finalize());
            say(self.index, Change::Signature(signature));
        }
        say(self.index, Change::End);
        self.index += 1;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The fold of the changes: the blocks of an answer that is not streamed.
#[derive(Default)]
pub(crate) struct Gathered {
    blocks: Vec<ContentBlock>,
    /// Input of the call that came last, as text.
    input: String,
}

impl Gathered {
    pub(crate) fn add(&mut self, change: Change<'_>) {
        match (self.blocks.last_mut(), change) {
            (_, Change::Begin(block)) => self.blocks.push(block),
            (Some(ContentBlock::Text { text }), Change::Text(more)) => text.push_str(more),
            (Some(ContentBlock::Thinking { thinking, .. }), Change::Thoughts(more)) => {
                thinking.push_str(more);
            }
            (Some(ContentBlock::Thinking { signature, .. }), Change::Signature(whole)) => {
                *signature = whole;
            }
            (_, Change::Input(more)) => self.input.push_str(more),
            (Some(ContentBlock::ToolUse { input, .. }), Change::End) => {
                *input = object(&std::mem::take(&mut self.input));
            }
            _ => {}
        }
    }

    pub(crate) fn blocks(self) -> Vec<ContentBlock> {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: char, text: &str) -> Event {
        let text = text.to_owned();
        match kind {
            'r' => Event::ReasoningDelta { text, tokens: 1 },
            'o' => Event::CallOpen {
                index: 0,
                id: "i".to_owned(),
                name: text,
            },
            'a' => Event::ArgsDelta {
                index: 0,
                json: text,
            },
            'x' => Event::CallClose { index: 0 },
            _ => Event::ContentDelta { text },
        }
    }

    fn blocks(events: &[(char, &str)]) -> Vec<ContentBlock> {
        let (mut blocks, mut gathered) = (Blocks::new(true), Gathered::default());
        for (kind, text) in events {
            blocks.piece("", &mut vec![said(*kind, text)], &mut |_, change| {
                gathered.add(change)
            });
        }
        blocks.end(&mut |_, change| gathered.add(change));
        gathered.blocks()
    }

    fn text(text: &str) -> ContentBlock {
        ContentBlock::Text {
            text: text.to_owned(),
        }
    }

    #[test]
    fn space_stays_inside_a_text_and_at_its_ends_and_goes_between_blocks() {
        assert_eq!(
            blocks(&[('c', " 3"), ('c', " \n"), ('c', "4\n")]),
            [text(" 3 \n4\n")]
        );
        assert_eq!(blocks(&[('c', "\n"), ('c', " ")]), []);
        assert_eq!(blocks(&[('r', "\n"), ('c', "a")]), [text("a")]);
        let found = blocks(&[
            ('r', "\nhm"),
            ('r', "\n"),
            ('c', "\n\n"),
            ('c', "a\n"),
            ('o', "f"),
            ('a', "{}"),
            ('x', ""),
            ('c', "\n"),
            ('o', "g"),
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(
            matches!(&found[0], ContentBlock::Thinking { thinking, signature } if thinking == "hm" && signature.len() == 64)
        );
        assert_eq!(found[1], text("a"));
        assert!(matches!(&found[3], ContentBlock::ToolUse { name, .. } if name == "g"));
    }

    #[test]
    fn thoughts_that_are_not_shown_leave_no_trace() {
        let (mut blocks, mut count) = (Blocks::new(false), 0);
        blocks.piece("", &mut vec![said('r', "hm")], &mut |_, _| count += 1);
        blocks.end(&mut |_, _| count += 1);
        assert_eq!(count, 0);
    }
}
