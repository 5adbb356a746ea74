//! Checks of a format file that types cannot express.

use std::collections::BTreeSet;

use crate::error::{FormatError, line_of};
use crate::format::Format;
use crate::state::{Codec, Kind, State};

struct Check<'a> {
    file: &'a str,
    text: &'a str,
}

impl Check<'_> {
    fn fail<T>(&self, path: &[&str], message: String) -> Result<T, FormatError> {
        Err(FormatError {
            file: self.file.to_owned(),
            line: line_of(self.text, path),
            key: path.join("."),
            message,
        })
    }
}

/// Check that every name refers to something, and that every state can do its work.
pub(crate) fn validate(file: &str, text: &str, format: &Format) -> Result<(), FormatError> {
    let check = Check { file, text };
    if format.tool.is_empty() && format.reasoning.is_empty() {
        return check.fail(
            &["name"],
            "give at least one name in `tool` or `reasoning`".to_owned(),
        );
    }
    if format.doc.trim().is_empty() {
        return check.fail(&["doc"], "say what the format is".to_owned());
    }
    if !format.states.contains_key("content") {
        return check.fail(&["states"], "there is no state `content`".to_owned());
    }
    for (name, kind) in [("content", Kind::Content), ("reasoning", Kind::Reasoning)] {
        if format
            .states
            .get(name)
            .is_some_and(|state| state.kind != kind)
        {
            return check.fail(
                &["states", name, "kind"],
                format!("state `{name}` must be of that kind"),
            );
        }
    }
    if !format.states.contains_key(&format.start) {
        return check.fail(&["start"], format!("there is no state `{}`", format.start));
    }
    markers(&check, format)?;
    for (name, state) in &format.states {
        edges(&check, format, name, state)?;
        abilities(&check, name, state)?;
    }
    Ok(())
}

fn markers(check: &Check<'_>, format: &Format) -> Result<(), FormatError> {
    let used: BTreeSet<&str> = format
        .states
        .values()
        .flat_map(|state| state.on.keys().chain(&state.close_followed_by))
        .map(String::as_str)
        .collect();
    for (name, marker) in &format.markers {
        let (texts, _) = marker.texts();
        if texts.is_empty() || texts.iter().any(String::is_empty) {
            return check.fail(
                &["markers", name],
                "a marker is a text of at least one character".to_owned(),
            );
        }
        if !used.contains(name.as_str()) {
            return check.fail(&["markers", name], "no state uses this marker".to_owned());
        }
    }
    Ok(())
}

fn edges(check: &Check<'_>, format: &Format, name: &str, state: &State) -> Result<(), FormatError> {
    for (marker, to) in &state.on {
        if !format.markers.contains_key(marker) {
            return check.fail(
                &["states", name, "on", marker],
                format!("there is no marker `{marker}`"),
            );
        }
        let (target, keep) = to.parts();
        if target == name && keep {
            return check.fail(
                &["states", name, "on", marker],
                "a kept marker must lead elsewhere".to_owned(),
            );
        }
        let special = target == "return" || (target == "route" && state.kind == Kind::Header);
        if !special && !format.states.contains_key(target) {
            return check.fail(
                &["states", name, "on", marker],
                format!("there is no state `{target}`"),
            );
        }
    }
    for marker in &state.close_followed_by {
        if !format.markers.contains_key(marker) {
            return check.fail(
                &["states", name, "close_followed_by"],
                format!("there is no marker `{marker}`"),
            );
        }
    }
    let others = state.routes.iter().map(|route| ("routes", &route.to));
    for (key, target) in others.chain(state.then.iter().map(|then| ("then", then))) {
        if target != "return" && !format.states.contains_key(target) {
            return check.fail(
                &["states", name, key],
                format!("there is no state `{target}`"),
            );
        }
    }
    Ok(())
}

fn abilities(check: &Check<'_>, name: &str, state: &State) -> Result<(), FormatError> {
    let path = |key: &'static str| ["states", name, key];
    match (state.kind, state.codec) {
        (Kind::Args, None) => {
            return check.fail(
                &path("kind"),
                "say by `codec` how the arguments are written".to_owned(),
            );
        }
        (Kind::Args, Some(Codec::JsonObjectWithName))
            if !state.name_is_key && (state.name_keys.is_empty() || state.args_keys.is_empty()) =>
        {
            return check.fail(
                &path("codec"),
                "give `name_keys` and `args_keys`".to_owned(),
            );
        }
        (Kind::Args, Some(Codec::TypedKv | Codec::XmlTree)) if state.quote.is_empty() => {
            return check.fail(&path("codec"), "give the `quote` token".to_owned());
        }
        (Kind::Args, Some(Codec::XmlParams | Codec::KvTags | Codec::Dsml)) => {
            return check.fail(
                &path("codec"),
                "this codec belongs to a state of kind `params`".to_owned(),
            );
        }
        (Kind::Params, Some(Codec::XmlParams | Codec::KvTags | Codec::Dsml)) | (Kind::Args, _) => {}
        (Kind::Params, _) => {
            return check.fail(
                &path("kind"),
                "`codec` is one of xml_params, kv_tags, dsml".to_owned(),
            );
        }
        (_, Some(_)) => {
            return check.fail(
                &path("codec"),
                "only `args` and `params` have a codec".to_owned(),
            );
        }
        _ => {}
    }
    if state.kind == Kind::Header && !state.on.values().any(|to| to.parts().0 == "route") {
        return check.fail(
            &path("on"),
            "a header needs a marker that leads to `route`".to_owned(),
        );
    }
    if state.syntax == crate::state::Syntax::Attributes && state.attribute.is_empty() {
        return check.fail(
            &path("syntax"),
            "say in `attribute` which attribute is the name".to_owned(),
        );
    }
    Ok(())
}
