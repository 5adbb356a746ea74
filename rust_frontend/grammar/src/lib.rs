//! Output formats of language models as data: how a model marks its thoughts and its tool calls.
//!
//! A [`Format`] is read from a TOML file (`formats/` holds those that ship; a user may hand in more as text) and checked
//! when it is loaded; every error names the file, the key and the line. [`Grammar::compose`] joins a tool format and a
//! reasoning format into the one table that the streaming parser runs. `docs/parser.md` describes the files.

mod builtin;
mod compose;
pub mod constraint;
mod detect;
mod error;
mod format;
mod names;
mod render;
mod response_template;
mod state;
mod validate;

pub use builtin::Registry;
pub use compose::{Calls, Edge, Grammar, Node, Target};
pub use detect::{Detected, Found};
pub use error::FormatError;
pub use format::{AfterCall, Arguments, ChoiceNone, Format, IdPolicy, UnknownTool, Untyped};
pub use names::UnknownName;
pub use render::{ArgumentStyle, CallShape, Render, RenderedCall, RenderedMessage};
pub use response_template::NAME as RESPONSE_TEMPLATE;
pub use state::{
    Codec, Kind, MarkerText, NamePattern, Policy, Route, State, Syntax, TextRule, To, Trim,
};
