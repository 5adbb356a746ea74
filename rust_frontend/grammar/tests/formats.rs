//! The formats that ship are read, and errors name their place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use octavo_grammar::{ArgumentStyle, Format, Registry, RenderedCall, RenderedMessage};

#[test]
fn all_builtin_formats_are_valid() {
    let registry = Registry::builtin()
        .map_err(|error| error.to_string())
        .unwrap();
    assert!(registry.formats().len() > 30);
    for format in registry.formats() {
        assert!(format.doc.len() > 20, "{}", format.name);
    }
}

#[test]
fn names_are_given_once() {
    let registry = Registry::builtin().unwrap();
    for pick in [
        |format: &Format| format.tool.clone(),
        |format: &Format| format.reasoning.clone(),
    ] {
        let mut names: Vec<String> = registry.formats().iter().flat_map(pick).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

const GOOD: &str = "name = \"x\"\ntool = [\"x\"]\ndoc = \"A format.\"\nstart = \"content\"\n\n[markers]\nopen = \"<t>\"\n\
\n[states.content]\nkind = \"content\"\non = { open = \"call\" }\n\n[states.call]\nkind = \"args\"\ncodec = \"verbatim\"\n";

#[test]
fn a_good_format_is_read() {
    assert_eq!(
        Format::parse("x.toml", GOOD).map(|format| format.name),
        Ok("x".to_owned())
    );
}

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Format::parse("x.toml", &GOOD.replace(from, to))
        .map_err(|error| error.to_string())
        .unwrap_err()
}

#[test]
fn errors_name_file_line_and_key() {
    for (from, to, expected) in [
        (
            "= \"call\"",
            "= \"cal\"",
            "x.toml:11: states.content.on.open: there is no state `cal`",
        ),
        (
            "\"<t>\"",
            "\"\"",
            "x.toml:7: markers.open: a marker is a text of at least one character",
        ),
        (
            "start = \"content\"",
            "start = \"nowhere\"",
            "x.toml:4: start: there is no state `nowhere`",
        ),
        (
            "{ open",
            "{ close",
            "x.toml:7: markers.open: no state uses this marker",
        ),
        (
            "codec = \"verbatim\"\n",
            "",
            "x.toml:14: states.call.kind: say by `codec` how the arguments are written",
        ),
        (
            "tool = [\"x\"]\n",
            "",
            "x.toml:1: name: give at least one name in `tool` or `reasoning`",
        ),
    ] {
        assert_eq!(error(from, to), expected);
    }
    assert!(error("verbatim", "jsn").starts_with("x.toml:15: file: unknown variant `jsn`"));
    assert!(
        error("kind = \"args\"", "kin = \"args\"")
            .starts_with("x.toml:14: file: unknown field `kin`")
    );
}

#[test]
fn what_guided_decoding_forces_is_what_is_written() {
    let registry = Registry::builtin().unwrap();
    let mut shaped = 0;
    for format in registry.formats() {
        let Some(render) = &format.render else {
            continue;
        };
        let Some(shape) = render.shape("get_time", 0) else {
            assert!(
                format.tool.is_empty(),
                "{}: no shape of a call",
                format.name
            );
            continue;
        };
        let call = RenderedCall {
            name: "get_time".to_owned(),
            arguments: serde_json::Map::new(),
        };
        let written = render.write(&RenderedMessage {
            calls: vec![call],
            ..RenderedMessage::default()
        });
        let braces = matches!(
            shape.arguments,
            ArgumentStyle::Json | ArgumentStyle::TypedKv
        );
        let args = if braces { "{}" } else { "" };
        let forced = format!(
            "{}{}{args}{}{}",
            shape.open, shape.begin, shape.end, shape.close
        );
        assert_eq!(forced, written, "{}", format.name);
        assert!(written.starts_with(&render.trigger()), "{}", format.name);
        shaped += 1;
    }
    assert!(shaped > 35, "{shaped}");
}
