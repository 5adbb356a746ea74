//! The expressions of response templates, as far as a format's markers can say the same.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Most ways to read one expression.
const MAX_WAYS: usize = 64;

/// A piece of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// This text.
    Text(String),
    /// White space, or none.
    Space,
    /// Any text.
    Anything,
    /// A text that has this name.
    Named(String),
    /// The beginning of the answer.
    Begin,
}

/// All ways to read an expression, each a sequence of pieces.
///
/// # Errors
/// What of the expression has no counterpart.
pub(super) fn ways(pattern: &str) -> Result<Vec<Vec<Piece>>, String> {
    let hir = regex_syntax::ParserBuilder::new()
        .dot_matches_new_line(true)
        .build()
        .parse(pattern)
        .map_err(|error| format!("is no regular expression: {error}"))?;
    let ways = read(&hir)?;
    Ok(ways.into_iter().map(joined).collect())
}

fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (out.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(more)) => before.push_str(&more),
            (Some(Piece::Space), Piece::Space) => {}
            (_, piece) => out.push(piece),
        }
    }
    out
}

type Ways = Result<Vec<Vec<Piece>>, String>;

fn read(hir: &Hir) -> Ways {
    match hir.kind() {
        HirKind::Empty => Ok(vec![Vec::new()]),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).map_err(|_| "matches bytes".to_owned())?;
            Ok(vec![vec![Piece::Text(text.to_owned())]])
        }
        HirKind::Look(Look::Start) => Ok(vec![vec![Piece::Begin]]),
        // The end of the answer closes whatever is open.
        HirKind::Look(Look::End) => Ok(Vec::new()),
        HirKind::Look(look) => Err(format!(
            "has an assertion that markers cannot say: {look:?}"
        )),
        HirKind::Class(class) => characters(class),
        HirKind::Repetition(repetition) => repeated(repetition),
        HirKind::Capture(capture) => match &capture.name {
            Some(name) => Ok(vec![vec![Piece::Named(name.to_string())]]),
            None => read(&capture.sub),
        },
        HirKind::Concat(parts) => {
            let mut out = vec![Vec::new()];
            for part in parts {
                let next = read(part)?;
                out = bounded(
                    out.iter()
                        .flat_map(|before| {
                            next.iter()
                                .map(|after| [before.clone(), after.clone()].concat())
                        })
                        .collect(),
                )?;
            }
            Ok(out)
        }
        HirKind::Alternation(parts) => {
            let mut out = Vec::new();
            for part in parts {
                out.extend(read(part)?);
            }
            bounded(out)
        }
    }
}

fn bounded(ways: Vec<Vec<Piece>>) -> Ways {
    if ways.len() > MAX_WAYS {
        return Err("can be read in too many ways".to_owned());
    }
    Ok(ways)
}

fn is_space(class: &Class) -> bool {
    match class {
        Class::Unicode(class) => class
            .ranges()
            .iter()
            .all(|range| (range.start()..=range.end()).all(char::is_whitespace)),
        Class::Bytes(class) => class
            .ranges()
            .iter()
            .all(|range| (range.start()..=range.end()).all(|byte| byte.is_ascii_whitespace())),
    }
}

fn characters(class: &Class) -> Ways {
    if is_space(class) {
        return Ok(vec![vec![Piece::Space]]);
    }
    let Class::Unicode(class) = class else {
        return Err("matches bytes".to_owned());
    };
    let count: u32 = class
        .ranges()
        .iter()
        .map(|range| u32::from(range.end()) - u32::from(range.start()) + 1)
        .sum();
    if count > 4 {
        return Err("has a class of characters outside of a group with a name".to_owned());
    }
    Ok(class
        .ranges()
        .iter()
        .flat_map(|range| range.start()..=range.end())
        .map(|c| vec![Piece::Text(c.to_string())])
        .collect())
}

fn repeated(repetition: &regex_syntax::hir::Repetition) -> Ways {
    if let HirKind::Class(class) = repetition.sub.kind() {
        let optional = repetition.max == Some(1);
        return match (is_space(class), optional) {
            (true, _) => Ok(vec![vec![Piece::Space]]),
            (false, false) => Ok(vec![vec![Piece::Anything]]),
            (false, true) => {
                let mut out = characters(class)?;
                out.insert(0, Vec::new());
                Ok(out)
            }
        };
    }
    let inner = read(&repetition.sub)?;
    if inner == [vec![Piece::Space]] {
        return Ok(inner);
    }
    match (repetition.min, repetition.max) {
        (0, Some(1)) => bounded([vec![Vec::new()], inner].concat()),
        (1, Some(1)) => Ok(inner),
        // A repeated line break is layout.
        _ if inner
            .iter()
            .flatten()
            .all(|piece| matches!(piece, Piece::Text(text) if text.trim().is_empty())) =>
        {
            Ok(vec![vec![Piece::Space]])
        }
        _ => Err("repeats more than one character".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Piece, ways};

    #[test]
    fn expressions_become_pieces() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let name = Piece::Named("name".to_owned());
        assert_eq!(
            ways(r"<tool_call>\s*<function=(?P<name>\w+)>"),
            Ok(vec![vec![
                text("<tool_call>"),
                Piece::Space,
                text("<function="),
                name.clone(),
                text(">")
            ]])
        );
        assert_eq!(
            ways(r"(?:^|<think>\s*)"),
            Ok(vec![
                vec![Piece::Begin],
                vec![text("<think>"), Piece::Space]
            ])
        );
        assert_eq!(
            ways(r"to=(?P<name>\w+).*?<\|message\|>"),
            Ok(vec![vec![
                text("to="),
                name,
                Piece::Anything,
                text("<|message|>")
            ]])
        );
        assert!(ways("(?:ab)+").is_err());
        assert!(ways("[a-z]x").is_err());
        assert!(ways("(").is_err());
    }
}
