//! The states of a format: what text means in each, and which marker leads where.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What the text of a state is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Answer to the user.
    #[default]
    Content,
    /// Thoughts.
    Reasoning,
    /// Layout between messages, shown to nobody.
    Ignore,
    /// Layout inside a section of tool calls, shown to nobody.
    Between,
    /// Head of a message, which decides by `routes` what its body is.
    Header,
    /// Name of a call.
    Name,
    /// Arguments in one value, read by `codec`.
    Args,
    /// Inside a call whose arguments stand in markers, between two of them.
    Params,
    /// Name of one argument.
    Key,
    /// Value of one argument.
    Value,
}

impl Kind {
    /// Whether the state belongs to tool calls.
    pub fn is_call(self) -> bool {
        matches!(
            self,
            Self::Between | Self::Name | Self::Args | Self::Params | Self::Key | Self::Value
        )
    }

    /// Whether the state is inside of one call.
    pub fn is_inside_call(self) -> bool {
        self.is_call() && self != Self::Between
    }
}

/// How arguments are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// One JSON object, passed on byte by byte.
    JsonPassthrough,
    /// One JSON object, or a list of them, that holds name and arguments.
    JsonObjectWithName,
    /// `<parameter=name>value`; a newline at each end of a value is layout.
    XmlParams,
    /// Keys and values in markers of their own; values are taken as they are.
    KvTags,
    /// As `xml_params`, and an attribute says whether the value is text.
    Dsml,
    /// Call expressions of Python with literal arguments.
    Pythonic,
    /// `{key:value}` with a token in place of quotes.
    TypedKv,
    /// Nested elements, each tag behind a token.
    XmlTree,
    /// Text passed on as it is.
    Verbatim,
}

/// How the head of a name or key is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Syntax {
    /// The text is the name.
    #[default]
    Plain,
    /// XML attributes, of which one is the name.
    Attributes,
}

/// Which names a `name` state accepts beside plain ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamePattern {
    /// Any text without white space, `<` and `>`.
    #[default]
    Word,
    /// `functions.name:0` or `name:0`: the call's id holds its name.
    Indexed,
    /// Any text, empty too.
    Any,
}

/// White space that belongs to layout, not to the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trim {
    /// None.
    #[default]
    None,
    /// At the end.
    End,
    /// At both ends.
    Both,
    /// One newline at each end.
    Newline,
}

/// When a marker that is one token of the vocabulary matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// As that token and as text.
    #[default]
    IdOrText,
    /// As that token only.
    IdOnly,
}

/// What text of a call section that belongs to no call becomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextRule {
    /// Not shown; reported as malformed.
    #[default]
    Drop,
    /// Content.
    Content,
}

/// The texts of a marker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MarkerText {
    /// One text.
    One(String),
    /// Any of several.
    Any(Vec<String>),
    /// With a policy.
    With {
        /// Any of these.
        text: Vec<String>,
        /// When they match.
        #[serde(default)]
        policy: Policy,
    },
}

impl MarkerText {
    /// Return the texts and the policy.
    pub fn texts(&self) -> (&[String], Policy) {
        match self {
            Self::One(text) => (std::slice::from_ref(text), Policy::IdOrText),
            Self::Any(texts) => (texts, Policy::IdOrText),
            Self::With { text, policy } => (text, *policy),
        }
    }
}

/// Where a marker leads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum To {
    /// To a state by name, `return` (where the call began) or `route` (by the header).
    State(String),
    /// Likewise, and the marker's text is read again there.
    Keep {
        /// Name of the state.
        to: String,
        /// Whether the marker's text belongs to the new state.
        keep: bool,
    },
}

impl To {
    /// Return the state's name and whether the marker's text is kept.
    pub fn parts(&self) -> (&str, bool) {
        match self {
            Self::State(to) => (to, false),
            Self::Keep { to, keep } => (to, *keep),
        }
    }
}

/// One rule of a header; the first that fits decides.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// What follows `to=`; a final `*` stands for the name of the call.
    #[serde(default)]
    pub recipient: Option<String>,
    /// The word after the channel marker.
    #[serde(default)]
    pub channel: Option<String>,
    /// The state that follows.
    pub to: String,
}

/// One state of a format file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// What its text is.
    pub kind: Kind,
    /// Marker to state.
    #[serde(default)]
    pub on: BTreeMap<String, To>,
    /// White space that is layout.
    #[serde(default)]
    pub trim: Trim,
    /// How arguments are written (`args`, `params`).
    #[serde(default)]
    pub codec: Option<Codec>,
    /// The state that follows a complete value when other text comes than a marker.
    #[serde(default)]
    pub then: Option<String>,
    /// How the name or key is written.
    #[serde(default)]
    pub syntax: Syntax,
    /// Which attributes hold the name or key.
    #[serde(default)]
    pub attribute: Vec<String>,
    /// Text before a name that does not belong to it.
    #[serde(default)]
    pub prefix: Vec<String>,
    /// Which names are accepted.
    #[serde(default)]
    pub pattern: NamePattern,
    /// What text between calls becomes.
    #[serde(default)]
    pub text: TextRule,
    /// Markers of which one must follow a value's end; else the end belongs to the value.
    #[serde(default)]
    pub close_followed_by: Vec<String>,
    /// Whether text after a key begins its value without a marker.
    #[serde(default)]
    pub implicit_value: bool,
    /// Whether the call begins without a marker: text that turns out to be none stays text.
    #[serde(default)]
    pub bare: bool,
    /// Keys that hold the name.
    #[serde(default)]
    pub name_keys: Vec<String>,
    /// Keys that hold the arguments.
    #[serde(default)]
    pub args_keys: Vec<String>,
    /// Whether the only key is the name and its value the arguments.
    #[serde(default)]
    pub name_is_key: bool,
    /// Whether an object without arguments is no call.
    #[serde(default)]
    pub require_args: bool,
    /// Whether arguments may be JSON inside a JSON string.
    #[serde(default)]
    pub string_args: bool,
    /// Characters between two calls that follow each other.
    #[serde(default)]
    pub separators: String,
    /// Whether several calls stand in brackets.
    #[serde(default)]
    pub brackets: bool,
    /// The token in place of quotes, or before each tag.
    #[serde(default)]
    pub quote: String,
    /// Rules of a header.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Texts with which a header begins; other text is content.
    #[serde(default)]
    pub openers: Vec<String>,
    /// The marker before the channel's name.
    #[serde(default)]
    pub channel: String,
}
