//! Where everything that is read becomes events: order, white space between parts, calls and their ids.

use octavo_grammar::{IdPolicy, Trim, UnknownTool};

use crate::event::{Event, Malformed};
use crate::ids::Ids;
use crate::tools::Tools;

/// What a name became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A call.
    Open,
    /// Nothing; what follows of it is not shown.
    Hidden,
    /// Text; the caller gives it back.
    Text,
}

/// The call that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    None,
    Open {
        index: usize,
        any: bool,
    },
    /// Not shown, as the request wants none.
    Hidden,
    /// Not shown, as it cannot be a call: reported.
    Broken,
}

/// Collects events; neighbours of one kind are joined.
#[derive(Debug)]
pub(crate) struct Sink {
    events: Vec<Event>,
    ids: Ids,
    policy: IdPolicy,
    pub(crate) tools: Tools,
    unknown: UnknownTool,
    drop_calls: bool,
    parallel: bool,
    calls: usize,
    current: Current,
    /// White space before the first letter of a part of the answer: layout if a call follows.
    space: String,
    spoke: bool,
    /// White space of the thoughts that may be their end.
    thought_space: String,
    thinking: bool,
    /// Tokens of thoughts that no event has told yet.
    tokens: u32,
    /// What broke the format last, and white space behind it.
    broken: Option<(Malformed, String)>,
    /// Nothing more is shown: the one allowed call is complete.
    cut: bool,
}

impl Sink {
    pub(crate) fn new(tools: Tools, policy: IdPolicy, unknown: UnknownTool, seed: u64) -> Self {
        Self {
            events: Vec::new(),
            ids: Ids::new(seed),
            policy,
            tools,
            unknown,
            drop_calls: false,
            parallel: true,
            calls: 0,
            current: Current::None,
            space: String::new(),
            spoke: false,
            thought_space: String::new(),
            thinking: false,
            tokens: 0,
            broken: None,
            cut: false,
        }
    }

    pub(crate) fn restrict(&mut self, drop_calls: bool, parallel: bool) {
        self.drop_calls = drop_calls;
        self.parallel = parallel;
    }

    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// More of the answer.
    pub(crate) fn content(&mut self, text: &str) {
        if self.cut || text.is_empty() {
            return;
        }
        if !self.spoke {
            let start = text.len() - text.trim_start().len();
            self.space.push_str(&text[..start]);
            if start == text.len() {
                return;
            }
            let space = std::mem::take(&mut self.space);
            self.spoke = true;
            self.push_content(&space);
            self.push_content(&text[start..]);
            return;
        }
        self.push_content(text);
    }

    fn push_content(&mut self, new: &str) {
        if new.is_empty() {
            return;
        }
        self.broken = None;
        if let Some(Event::ContentDelta { text }) = self.events.last_mut() {
            text.push_str(new);
        } else {
            self.events.push(Event::ContentDelta {
                text: new.to_owned(),
            });
        }
    }

    /// What follows may be layout before a call: white space that it begins with waits.
    pub(crate) fn pause(&mut self) {
        self.spoke = false;
    }

    /// More of the thoughts.
    pub(crate) fn reasoning(&mut self, text: &str, trim: Trim) {
        if self.cut || text.is_empty() {
            return;
        }
        let mut text = text;
        if !self.thinking && trim == Trim::Both {
            text = text.trim_start();
        }
        if text.is_empty() {
            return;
        }
        self.thinking = true;
        let end = match trim {
            Trim::End | Trim::Both => text.trim_end().len(),
            Trim::None | Trim::Newline => text.len(),
        };
        if end > 0 {
            let space = std::mem::take(&mut self.thought_space);
            self.push_reasoning(&space);
            self.push_reasoning(&text[..end]);
        }
        self.thought_space.push_str(&text[end..]);
    }

    fn push_reasoning(&mut self, new: &str) {
        if new.is_empty() && self.tokens == 0 {
            return;
        }
        let told = std::mem::take(&mut self.tokens);
        if let Some(Event::ReasoningDelta { text, tokens }) = self.events.last_mut() {
            text.push_str(new);
            *tokens += told;
        } else {
            self.events.push(Event::ReasoningDelta {
                text: new.to_owned(),
                tokens: told,
            });
        }
    }

    /// A token ended inside of the thoughts.
    pub(crate) fn token_of_thought(&mut self) {
        self.tokens += 1;
    }

    /// The thoughts end; white space at their end was layout where the format says so.
    pub(crate) fn end_reasoning(&mut self) {
        self.thought_space.clear();
        self.thinking = false;
        self.push_reasoning("");
    }

    /// Text that broke the format.
    pub(crate) fn malformed(&mut self, kind: Malformed, text: &str) {
        if self.cut {
            return;
        }
        // White space counts only between other characters, however the text was cut.
        let (mut raw, rest) = match self.broken.take() {
            Some((last, space)) if last == kind => (space, text),
            _ => (String::new(), text.trim_start()),
        };
        let end = rest.trim_end().len();
        if end == 0 {
            raw.push_str(rest);
            self.broken = (!raw.is_empty()).then_some((kind, raw));
            return;
        }
        raw.push_str(&rest[..end]);
        self.broken = Some((kind, rest[end..].to_owned()));
        if let Some(Event::Malformed {
            kind: last,
            raw: before,
        }) = self.events.last_mut()
            && *last == kind
        {
            before.push_str(&raw);
            return;
        }
        self.events.push(Event::Malformed { kind, raw });
    }

    /// A call's name is known.
    pub(crate) fn open(&mut self, name: &str, id: Option<&str>) -> Verdict {
        self.close();
        self.broken = None;
        if self.drop_calls || self.cut {
            self.flush_space();
            self.current = Current::Hidden;
            return Verdict::Hidden;
        }
        if !self.tools.knows(name) {
            match self.unknown {
                UnknownTool::Pass => {}
                UnknownTool::Text => return Verdict::Text,
                UnknownTool::Drop => {
                    self.malformed(Malformed::UnknownTool, name);
                    self.current = Current::Broken;
                    return Verdict::Hidden;
                }
            }
        }
        self.space.clear();
        self.spoke = false;
        let index = self.calls;
        self.calls += 1;
        let id = self.ids.next(self.policy, id);
        self.events.push(Event::CallOpen {
            index,
            id,
            name: name.to_owned(),
        });
        self.current = Current::Open { index, any: false };
        Verdict::Open
    }

    /// The call cannot be one; what follows of it is not shown.
    pub(crate) fn hide(&mut self) {
        self.close();
        self.current = Current::Broken;
    }

    /// More of the call's arguments.
    pub(crate) fn args(&mut self, new: &str) {
        if self.current == Current::Broken {
            self.malformed(Malformed::Arguments, new);
        }
        let Current::Open { index, any } = &mut self.current else {
            return;
        };
        if new.is_empty() {
            return;
        }
        *any = true;
        let at = *index;
        if let Some(Event::ArgsDelta { index, json }) = self.events.last_mut()
            && *index == at
        {
            json.push_str(new);
            return;
        }
        self.events.push(Event::ArgsDelta {
            index: at,
            json: new.to_owned(),
        });
    }

    /// The call is complete, or nothing more comes of it. A call without arguments has none: `{}`.
    pub(crate) fn close(&mut self) {
        if let Current::Open { index, any } = self.current {
            if !any {
                self.args("{}");
            }
            self.events.push(Event::CallClose { index });
            self.cut = !self.parallel;
        }
        self.current = Current::None;
    }

    /// The call was cut: what there is, is all. A call without arguments is completed only when `whole`.
    pub(crate) fn close_cut(&mut self, whole: bool) {
        if let Current::Open { index, any } = self.current {
            if !any && whole {
                self.args("{}");
            }
            self.events.push(Event::CallClose { index });
        }
        self.current = Current::None;
    }

    fn flush_space(&mut self) {
        let space = std::mem::take(&mut self.space);
        self.push_content(&space);
    }

    /// Everything held back is said; white space after calls was layout.
    pub(crate) fn finish(&mut self) {
        if self.calls == 0 {
            self.flush_space();
        }
        self.end_reasoning_cut();
    }

    fn end_reasoning_cut(&mut self) {
        self.thought_space.clear();
        self.push_reasoning("");
    }

    pub(crate) fn end(&mut self, finish: crate::event::Finish) {
        self.events.push(Event::End { finish });
    }
}
