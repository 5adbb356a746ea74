//! Names, keys and message heads: short texts that stand before something.

use octavo_grammar::{NamePattern, Node, State, Syntax};

/// What the head of a call or parameter says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The name; none where the text holds none that can be one.
    pub(crate) name: Option<String>,
    /// The id that the model wrote.
    pub(crate) id: Option<String>,
    /// Whether an attribute says that the value is text, or that it is not.
    pub(crate) is_text: Option<bool>,
}

/// Read the text of a `name` or `key` state.
pub(crate) fn read(state: &State, text: &str, entities: bool) -> Head {
    match state.syntax {
        Syntax::Attributes => attributes(state, text, entities),
        Syntax::Plain => plain(state, text, entities),
    }
}

fn plain(state: &State, text: &str, entities: bool) -> Head {
    let mut text = text.trim();
    for prefix in &state.prefix {
        text = text.strip_prefix(prefix.as_str()).unwrap_or(text);
    }
    let text = text.trim();
    match state.pattern {
        NamePattern::Any => Head {
            name: Some(text.to_owned()),
            ..Head::default()
        },
        NamePattern::Word => {
            let fits = !text.is_empty()
                && !text.contains(|c: char| c.is_whitespace() || c == '<' || c == '>');
            Head {
                name: fits.then(|| unescape(text, entities)),
                ..Head::default()
            }
        }
        NamePattern::Indexed => indexed(text),
    }
}

/// `functions.name:0`, `name:0`, `functions_name_0`: the id holds the name.
fn indexed(id: &str) -> Head {
    let body = id
        .strip_prefix("functions")
        .and_then(|rest| rest.strip_prefix(['.', '_']))
        .unwrap_or(id);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match body.rsplit_once(':') {
        Some((name, index)) if digits(index) => Some(name),
        _ if id.starts_with("functions_") => body
            .rsplit_once('_')
            .filter(|(_, index)| digits(index))
            .map(|(name, _)| name),
        _ => None,
    };
    let name = name.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
    Head {
        name: name.map(str::to_owned),
        id: Some(id.to_owned()),
        is_text: None,
    }
}

fn attributes(state: &State, text: &str, entities: bool) -> Head {
    let mut head = Head::default();
    for (key, value) in pairs(text) {
        if state.attribute.iter().any(|name| name == key) {
            head.name = Some(unescape(value, entities)).filter(|name| !name.trim().is_empty());
        } else if key == "string" {
            head.is_text = Some(value == "true");
        } else if key == "type" {
            head.is_text = Some(value == "string");
        } else if key == "id" {
            head.id = Some(value.to_owned());
        }
    }
    head
}

/// The attributes `key="value"`, `key='value'` or `key=value` of a text.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let key = key
            .trim()
            .trim_start_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let key = key.rsplit(char::is_whitespace).next().unwrap_or(key);
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, next) = match quote {
            Some(quote) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        found.push((key, value));
        rest = next;
    }
    found
}

fn unescape(text: &str, entities: bool) -> String {
    if !entities {
        return text.to_owned();
    }
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// What a message head says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Which of the node's routes fits.
    pub(crate) index: Option<usize>,
    /// The name of the call, where the recipient is one.
    pub(crate) name: Option<String>,
    /// Whether the text is a head at all.
    pub(crate) is_head: bool,
    /// Text behind the channel's name, where the head names a channel and no recipient.
    pub(crate) body: String,
}

/// Read a message head: who it is for, and in which channel.
pub(crate) fn route(node: &Node, text: &str) -> Route {
    let recipient = text.find("to=").map(|at| word(&text[at + 3..]));
    let channel = &node.state.channel;
    let named = (!channel.is_empty())
        .then(|| text.rfind(channel.as_str()))
        .flatten();
    let behind = named.map(|at| text[at + channel.len()..].trim_start());
    let channel = behind.map(word);
    let mut found = Route {
        is_head: recipient.is_some() || channel.is_some(),
        ..Route::default()
    };
    for (index, rule) in node.state.routes.iter().enumerate() {
        if rule
            .channel
            .as_deref()
            .is_some_and(|wanted| channel != Some(wanted))
        {
            continue;
        }
        match (rule.recipient.as_deref(), recipient) {
            (None, _) => {}
            (Some(wanted), Some(given)) => match wanted.strip_suffix('*') {
                Some(prefix) if given.len() > prefix.len() && given.starts_with(prefix) => {
                    found.name = Some(given[prefix.len()..].to_owned());
                }
                None if wanted == given => {}
                _ => continue,
            },
            (Some(_), None) => continue,
        }
        found.index = Some(index);
        return found;
    }
    found
}

/// The word that a text begins with: up to white space or a marker.
fn word(text: &str) -> &str {
    text.split(|c: char| c.is_whitespace() || c == '<')
        .next()
        .unwrap_or("")
}
