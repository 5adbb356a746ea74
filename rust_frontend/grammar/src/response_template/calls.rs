//! The field of calls.

use serde_json::{Map, Value, json};

use super::pattern::{Piece, ways};
use super::{Made, Making, closings, openings, texts, within};

/// How a call begins.
#[derive(Debug, Default)]
struct Begin {
    /// The texts that begin it.
    open: Vec<String>,
    /// A text between them and the name, behind white space.
    second: Option<String>,
    /// Whether the name stands behind.
    named: bool,
    /// The text that ends the name; none where the body does.
    name_end: Option<String>,
    /// Whether other text may stand between the name and its end.
    loose: bool,
}

/// Where name and arguments stand in what a body is read as.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// The key of the name; none where a group of the opening has it.
    name: Option<String>,
    /// The key of the arguments; none where the body is they.
    arguments: Option<String>,
}

/// Read the field into states and markers.
pub(super) fn read(making: &mut Making, field: &Map<String, Value>, path: &str) -> Made<()> {
    let begin = begin(field, path)?;
    let close = closings(field, path)?;
    let content = field
        .get("content")
        .and_then(Value::as_str)
        .unwrap_or("text");
    let args = field.get("content_args");
    let each = field.get("transform_each") == Some(&Value::Bool(true));
    let shape = shape(field, path, each)?;
    if begin.named != shape.name.is_none() {
        let message = "must take the name of the call from the group of open_pattern, or from the content, not both";
        return Err((within(path, "transform"), message.to_owned()));
    }
    making.marker("call_open", &begin.open);
    if !close.is_empty() {
        making.marker("call_close", &close);
    }
    making.first = Some(header(making, &begin));
    let body = match content {
        "json" => json_body(making, &shape, args, each, path)?,
        "xml-inline" if begin.named => tags_body(making, args, path)?,
        "python-call-list" if each => {
            making.state(
                "args",
                json!({ "kind": "args", "codec": "pythonic", "brackets": true }),
            );
            making
                .render
                .insert("arguments".to_owned(), json!("python"));
            Body {
                text: "[{name}({args})]".to_owned(),
                many: true,
                first: "[".to_owned(),
            }
        }
        other => {
            let message = format!(
                "{other:?} is not supported for calls here; use json, xml-inline or python-call-list"
            );
            return Err((within(path, "content"), message));
        }
    };
    finish(making, &begin, &body, &close);
    Ok(())
}

/// How the body of a call is written.
struct Body {
    text: String,
    /// Whether one body holds all calls.
    many: bool,
    /// The text with which it begins.
    first: String,
}

/// The states up to the body; returns the first of them.
fn header(making: &mut Making, begin: &Begin) -> &'static str {
    if !begin.named {
        return "args";
    }
    making.state("name", json!({ "kind": "name" }));
    if let Some(second) = &begin.second {
        making.state("section", json!({ "kind": "between" }));
        making.marker("name_open", std::slice::from_ref(second));
        making.edge("section", "name_open", json!("name"));
        return "section";
    }
    "name"
}

fn finish(making: &mut Making, begin: &Begin, body: &Body, close: &[String]) {
    let args = if making.states.contains_key("params") {
        "params"
    } else {
        "args"
    };
    if begin.named {
        match &begin.name_end {
            Some(end) => {
                making.marker("name_end", std::slice::from_ref(end));
                making.edge("name", "name_end", json!(args));
                if begin.loose {
                    making.state("skip", json!({ "kind": "params", "codec": "xml_params" }));
                    making.marker("gap", &[" ".to_owned(), "<|constrain|>".to_owned()]);
                    making.edge("name", "gap", json!("skip"));
                    making.edge("skip", "name_end", json!(args));
                }
            }
            None => {
                making.marker("body", std::slice::from_ref(&body.first));
                making.edge("name", "body", json!({ "to": args, "keep": true }));
            }
        }
    }
    if !close.is_empty() {
        for state in ["section", "name", "skip", "args", "params", "key", "value"] {
            if making.states.contains_key(state) {
                making.edge(state, "call_close", json!("return"));
            }
        }
    }
    let open = begin.open.first().cloned().unwrap_or_default();
    let shut = close.first().cloned().unwrap_or_default();
    let mut head = begin.second.clone().unwrap_or_default();
    if begin.named {
        head.push_str("{name}");
        head.push_str(begin.name_end.as_deref().unwrap_or(""));
    }
    let mut put = |key: &str, value: String| making.render.insert(key.to_owned(), json!(value));
    if body.many {
        let inner = body.text.trim_start_matches('[').trim_end_matches(']');
        put("open", format!("{open}["));
        put("close", format!("]{shut}"));
        put("join", ", ".to_owned());
        put("call", inner.to_owned());
    } else {
        put("call", format!("{open}{head}{}{shut}", body.text));
        put("join", "\n".to_owned());
    }
}

fn json_body(
    making: &mut Making,
    shape: &Shape,
    args: Option<&Value>,
    each: bool,
    path: &str,
) -> Made<Body> {
    let option = |key: &str| args.and_then(|args| args.get(key));
    let unquoted = option("unquoted_keys") == Some(&Value::Bool(true));
    if unquoted || option("string_delims").is_some() {
        return pairs_body(making, shape, option("string_delims"), unquoted, path);
    }
    let Some(name) = &shape.name else {
        if shape.arguments.is_some() {
            return Err((
                within(path, "transform"),
                "must take the whole content as arguments".to_owned(),
            ));
        }
        making.state(
            "args",
            json!({ "kind": "args", "codec": "json_passthrough" }),
        );
        return Ok(Body {
            text: "{args}".to_owned(),
            many: false,
            first: "{".to_owned(),
        });
    };
    let arguments = shape
        .arguments
        .clone()
        .unwrap_or_else(|| "arguments".to_owned());
    making.state(
        "args",
        json!({
            "kind": "args", "codec": "json_object_with_name", "brackets": each,
            "name_keys": [name], "args_keys": [arguments],
        }),
    );
    let text = format!(
        "{{{}: {{name_json}}, {}: {{args}}}}",
        json!(name),
        json!(arguments)
    );
    let text = if each { format!("[{text}]") } else { text };
    Ok(Body {
        text,
        many: each,
        first: "{".to_owned(),
    })
}

/// JSON without quotes around keys, and with a token in place of those around texts.
fn pairs_body(
    making: &mut Making,
    shape: &Shape,
    quotes: Option<&Value>,
    unquoted: bool,
    path: &str,
) -> Made<Body> {
    let pairs: Vec<(&str, &str)> = quotes
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((pair.get(0)?.as_str()?, pair.get(1)?.as_str()?)))
        .collect();
    let fits = unquoted && shape.name.is_none() && pairs.len() == 1 && pairs[0].0 == pairs[0].1;
    if !fits {
        let message = "is supported with unquoted_keys, one pair of equal string_delims and the name in front";
        return Err((within(path, "content_args"), message.to_owned()));
    }
    let quote = pairs[0].0;
    making.state(
        "args",
        json!({ "kind": "args", "codec": "typed_kv", "quote": quote }),
    );
    let mut put = |key: &str, value: &str| making.render.insert(key.to_owned(), json!(value));
    put("arguments", "typed_kv");
    put("quote", quote);
    Ok(Body {
        text: "{args}".to_owned(),
        many: false,
        first: "{".to_owned(),
    })
}

/// Arguments in tags: the pieces of `tag_pattern` are key and value with texts around them.
fn tags_body(making: &mut Making, args: Option<&Value>, path: &str) -> Made<Body> {
    let fail = |message: String| (within(path, "content_args.tag_pattern"), message);
    let option = |key: &str| args.and_then(|args| args.get(key));
    if option("merge_duplicates") == Some(&Value::Bool(true)) {
        let message = "is not supported: a name may be given once".to_owned();
        return Err((within(path, "content_args.merge_duplicates"), message));
    }
    let pattern = option("tag_pattern").and_then(Value::as_str);
    let pattern = pattern.ok_or_else(|| fail("is missing".to_owned()))?;
    let ([open, middle, shut], trimmed) = tag_texts(pattern).map_err(fail)?;
    making.marker("tag_open", std::slice::from_ref(&open));
    making.marker("key_end", std::slice::from_ref(&middle));
    making.marker("tag_close", std::slice::from_ref(&shut));
    making.state("params", json!({ "kind": "params", "codec": "xml_params" }));
    making.edge("params", "tag_open", json!("key"));
    making.edge("params", "tag_close", json!("params"));
    making.state("key", json!({ "kind": "key" }));
    making.edge("key", "key_end", json!("value"));
    let trim = if trimmed { "both" } else { "none" };
    making.state("value", json!({ "kind": "value", "trim": trim }));
    making.edge("value", "tag_close", json!("params"));
    let json_values =
        option("value_parser").is_some_and(|parser| parser.get("name") == Some(&json!("json")));
    making.arguments.insert(
        "untyped".to_owned(),
        json!(if json_values { "json" } else { "string" }),
    );
    making
        .render
        .insert("arguments".to_owned(), json!("params"));
    making.render.insert(
        "param".to_owned(),
        json!(format!("{open}{{key}}{middle}{{value}}{shut}")),
    );
    Ok(Body {
        text: "{args}".to_owned(),
        many: false,
        first: open.clone(),
    })
}

/// The texts before the key, between key and value, and behind the value; whether white space around it is layout.
fn tag_texts(pattern: &str) -> Result<([String; 3], bool), String> {
    let found = ways(pattern)?;
    let [way] = found.as_slice() else {
        return Err("must be readable in one way".to_owned());
    };
    let pieces: Vec<&Piece> = way.iter().filter(|piece| **piece != Piece::Space).collect();
    match pieces.as_slice() {
        [
            Piece::Text(open),
            Piece::Named(key),
            Piece::Text(middle),
            Piece::Named(value),
            Piece::Text(shut),
        ] if key == "key" && value == "value" => Ok((
            [open.clone(), middle.clone(), shut.clone()],
            way.contains(&Piece::Space),
        )),
        _ => Err("must be a text, the group key, a text, the group value and a text".to_owned()),
    }
}

fn begin(field: &Map<String, Value>, path: &str) -> Made<Begin> {
    let found = openings(field, path)?;
    let key = within(path, "open_pattern");
    if found.is_empty() {
        return Err((
            within(path, "open"),
            "is missing: calls need a beginning".to_owned(),
        ));
    }
    let is_named = |piece: &Piece| matches!(piece, Piece::Named(_));
    if !found
        .iter()
        .any(|opening| opening.pieces.iter().any(is_named))
    {
        return Ok(Begin {
            open: texts(&found, &key)?.0,
            ..Begin::default()
        });
    }
    let mut out = Begin {
        named: true,
        ..Begin::default()
    };
    for opening in &found {
        let (open, second, end, loose) =
            around_name(&opening.pieces).map_err(|message| (key.clone(), message.to_owned()))?;
        if !out.open.is_empty() && (out.second != second || out.name_end != end) {
            return Err((key, "must go on in one way behind its beginning".to_owned()));
        }
        out.open.push(open);
        (out.second, out.name_end, out.loose) = (second, end, loose);
    }
    out.open.dedup();
    Ok(out)
}

/// The texts before a name, the text behind it, and whether anything may stand before that.
type AroundName = (String, Option<String>, Option<String>, bool);

fn around_name(pieces: &[Piece]) -> Result<AroundName, &'static str> {
    let pieces: Vec<&Piece> = pieces
        .iter()
        .filter(|piece| **piece != Piece::Space)
        .collect();
    let at = pieces
        .iter()
        .position(|piece| matches!(piece, Piece::Named(_)))
        .ok_or("has the group of the name in some ways only")?;
    let (open, second) = match &pieces[..at] {
        [Piece::Text(open)] => (open.clone(), None),
        [Piece::Text(open), Piece::Text(second)] => (open.clone(), Some(second.clone())),
        _ => return Err("must begin with one or two texts before the name"),
    };
    let (end, loose) = match &pieces[at + 1..] {
        [] => (None, false),
        [Piece::Text(end)] => (Some(end.clone()), false),
        [Piece::Anything, Piece::Text(end)] => (Some(end.clone()), true),
        _ => return Err("must end with one text behind the name"),
    };
    Ok((open, second, end, loose))
}

/// Where a transform takes name and arguments from.
fn shape(field: &Map<String, Value>, path: &str, each: bool) -> Made<Shape> {
    let fail = |message: &str| (within(path, "transform"), message.to_owned());
    let whole = || Shape {
        name: Some("name".to_owned()),
        arguments: Some("arguments".to_owned()),
    };
    let Some(transform) = field.get("transform") else {
        return Ok(whole());
    };
    let function = transform.get("function").unwrap_or(transform);
    if function == "{content}" {
        return Ok(whole());
    }
    let placeholder = |key: &str| {
        function
            .get(key)
            .and_then(Value::as_str)
            .and_then(|text| text.strip_prefix('{')?.strip_suffix('}'))
            .ok_or_else(|| fail("must have name and arguments, each one placeholder"))
    };
    let (name, arguments) = (placeholder("name")?, placeholder("arguments")?);
    let inside = |text: &str| match text.strip_prefix("content.") {
        Some(key) => Some(key.to_owned()),
        None => (each && text != "content").then(|| text.to_owned()),
    };
    let shape = Shape {
        name: inside(name),
        arguments: inside(arguments),
    };
    let keys = [&shape.name, &shape.arguments];
    if keys
        .iter()
        .any(|key| key.as_ref().is_some_and(|key| key.contains('.')))
    {
        return Err(fail("may descend one level into the content"));
    }
    Ok(shape)
}
