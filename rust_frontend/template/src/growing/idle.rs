//! Loops that have nothing more to do: those that look for something and go on when they have found it.
//!
//! Such a loop is `{% for … %}{% set … %}{% if ns.flag and … %}…{% endif %}{% endfor %}`. When the flag is false, the rest of
//! its iterations do nothing: what it sets is forgotten behind each, and nobody sets the flag again.

use minijinja::machinery::ast::{BinOpKind, Expr, ForLoop, Stmt};

use super::survey::{MESSAGES, Survey};
use crate::syntax::{attribute, parts, variable};

/// The attribute of a namespace without which a loop does nothing.
pub(crate) fn flag<'a>(survey: &Survey<'_, 'a>, node: &ForLoop<'a>) -> Option<(&'a str, &'a str)> {
    if !node.else_body.is_empty() || node.filter_expr.is_some() || node.recursive {
        return None;
    }
    let mut found = None;
    for stmt in &node.body {
        match stmt {
            Stmt::EmitRaw(raw) if raw.raw.is_empty() => {}
            Stmt::Set(set) if variable(&set.target).is_some() && cannot_fail(survey, &set.expr) => {
            }
            Stmt::IfCond(condition) if found.is_none() && condition.false_body.is_empty() => {
                found = Some(first(&condition.expr));
            }
            _ => return None,
        }
    }
    let (space, name) = attribute(found?)?;
    // A namespace, and none that the loop itself makes or hides.
    let own =
        |stmt: &Stmt<'_>| matches!(stmt, Stmt::Set(set) if variable(&set.target) == Some(space));
    let known = survey.assigned.get(space) == Some(&true)
        && variable(&node.target) != Some(space)
        && !node.body.iter().any(own);
    known.then_some((space, name))
}

/// What is looked at first of conditions that must all hold.
fn first<'t, 'a>(expr: &'t Expr<'a>) -> &'t Expr<'a> {
    match expr {
        Expr::BinOp(node) if matches!(node.op, BinOpKind::ScAnd) => first(&node.left),
        other => other,
    }
}

/// Whether an expression is a sum or difference of whole numbers, whatever the conversation is.
fn cannot_fail(survey: &Survey<'_, '_>, expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Const(node) => node.value.is_integer(),
        Expr::GetAttr(_) => matches!(
            attribute(expr),
            Some((
                "loop",
                "index" | "index0" | "length" | "revindex" | "revindex0"
            ))
        ),
        Expr::Filter(node) => {
            matches!(node.name, "length" | "count")
                && node.args.is_empty()
                && node.expr.as_ref().and_then(variable) == Some(MESSAGES)
                && !survey.assigned.contains_key(MESSAGES)
        }
        Expr::BinOp(node) => {
            matches!(node.op, BinOpKind::Add | BinOpKind::Sub)
                && parts(expr)
                    .into_iter()
                    .all(|part| cannot_fail(survey, part))
        }
        _ => false,
    }
}
