//! What the parser says, in the order of the text.

/// How generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// By itself: an end token or a stop string.
    Stop,
    /// At a limit: nothing that was cut is completed.
    Length,
    /// By the client or a fault: as at a limit.
    Abort,
}

/// Why text was neither shown nor part of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Text inside a section of calls that belongs to none.
    Stray,
    /// A call without a name that can be one.
    Name,
    /// A call of a tool that the request does not have.
    UnknownTool,
    /// A parameter without a name that can be one.
    Parameter,
    /// Arguments that are not what the format promises.
    Arguments,
    /// The text ended before the call had a name.
    Cut,
    /// A message head that leads nowhere.
    Header,
}

/// One event. Events only append: nothing that was said is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More thoughts.
    ReasoningDelta {
        /// Their text; empty where only tokens are told.
        text: String,
        /// How many tokens ended in this text; zero in text mode.
        tokens: u32,
    },
    /// More of the answer.
    ContentDelta {
        /// Its text, never empty.
        text: String,
    },
    /// A call begins; its name is complete.
    CallOpen {
        /// Its place among the calls, from 0, without gaps.
        index: usize,
        /// Its id, as the format's policy says.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// More of a call's arguments; all of them joined are JSON where the model closed them.
    ArgsDelta {
        /// Its place.
        index: usize,
        /// The text, never empty.
        json: String,
    },
    /// A call is complete, or nothing more will come of it.
    CallClose {
        /// Its place.
        index: usize,
    },
    /// Text that broke the format; for logs, not an error.
    Malformed {
        /// Why.
        kind: Malformed,
        /// The text, without markers.
        raw: String,
    },
    /// The last event.
    End {
        /// How generation ended.
        finish: Finish,
    },
}
