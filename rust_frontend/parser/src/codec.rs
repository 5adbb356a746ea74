//! The codecs that read arguments character by character.

use octavo_grammar::{Codec as Named, State};

use crate::codec_calls::JsonCalls;
use crate::codec_python::Python;
use crate::codec_tree::Tree;
use crate::codec_typed::TypedKv;
use crate::event::Finish;
use crate::json::{JsonScan, Scan};
use crate::sink::Sink;
use crate::tools::Parameters;

/// What one character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It was taken.
    More,
    /// It was taken and completes the value.
    Done,
    /// The value is complete without it.
    Before,
    /// The text is not what the codec reads; the character was not taken.
    Fail,
}

/// One value being read.
#[derive(Debug)]
pub(crate) enum Codec {
    /// `json_passthrough`.
    Json { scan: JsonScan, started: bool },
    /// `json_object_with_name`.
    Calls(Box<JsonCalls>),
    /// `pythonic`.
    Python(Box<Python>),
    /// `typed_kv`.
    Typed(Box<TypedKv>),
    /// `xml_tree`.
    Tree(Box<Tree>),
    /// `verbatim`.
    Verbatim,
}

impl Codec {
    /// Return the codec of a state of kind `args`.
    pub(crate) fn new(state: &State, parameters: Option<Parameters>) -> Self {
        match state.codec {
            Some(Named::JsonObjectWithName) => Self::Calls(Box::new(JsonCalls::new(state))),
            Some(Named::Pythonic) => Self::Python(Box::new(Python::new(state))),
            Some(Named::TypedKv) => Self::Typed(Box::new(TypedKv::new(&state.quote, parameters))),
            Some(Named::XmlTree) => Self::Tree(Box::new(Tree::new(&state.quote, parameters))),
            Some(Named::Verbatim) => Self::Verbatim,
            _ => Self::Json {
                scan: JsonScan::default(),
                started: false,
            },
        }
    }

    /// Whether the codec finds names itself, so that entering it begins a call.
    pub(crate) fn names(named: Option<Named>) -> bool {
        matches!(named, Some(Named::JsonObjectWithName | Named::Pythonic))
    }

    /// Whether markers mean something at this place: not inside of a string.
    pub(crate) fn markers_count(&self) -> bool {
        match self {
            Self::Json { scan, .. } => !scan.in_string(),
            Self::Calls(calls) => !calls.in_string(),
            Self::Python(python) => !python.in_string(),
            Self::Typed(typed) => !typed.in_string(),
            Self::Tree(_) | Self::Verbatim => true,
        }
    }

    /// Whether a call has been opened since the codec began, or it can open none.
    pub(crate) fn committed(&self) -> bool {
        match self {
            Self::Calls(calls) => calls.committed(),
            Self::Python(python) => python.committed(),
            Self::Json { .. } | Self::Typed(_) | Self::Tree(_) | Self::Verbatim => true,
        }
    }

    pub(crate) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        match self {
            Self::Json { scan, started } => {
                if !*started && c.is_whitespace() {
                    return Step::More;
                }
                *started = true;
                let scanned = scan.push(c);
                if scanned != Scan::Before {
                    sink.args(c.encode_utf8(&mut [0; 4]));
                }
                match scanned {
                    Scan::More => Step::More,
                    Scan::Last => Step::Done,
                    Scan::Before => Step::Before,
                }
            }
            Self::Calls(calls) => calls.push(c, sink),
            Self::Python(python) => python.push(c, sink),
            Self::Typed(typed) => typed.push(c, sink),
            Self::Tree(tree) => tree.push(c, sink),
            Self::Verbatim => {
                sink.args(c.encode_utf8(&mut [0; 4]));
                Step::More
            }
        }
    }

    /// Return the white space and separators that were read behind the value.
    pub(crate) fn gap(&mut self) -> String {
        match self {
            Self::Calls(calls) => calls.gap(),
            _ => String::new(),
        }
    }

    /// The text ended, or a marker did. What the codec writes itself is completed unless generation was cut.
    pub(crate) fn finish(&mut self, sink: &mut Sink, finish: Finish) {
        match self {
            Self::Calls(calls) => calls.finish(sink, finish),
            Self::Python(python) => python.finish(sink, finish),
            Self::Typed(typed) => typed.finish(sink, finish),
            Self::Tree(tree) => tree.finish(sink, finish),
            Self::Json { .. } | Self::Verbatim => {}
        }
    }
}
