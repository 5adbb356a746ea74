//! A walk over a parsed template: names that nobody defines, operations that minijinja reads otherwise, and constructs
//! that would render wrongly.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{BinOpKind, Expr, Stmt};
use minijinja::machinery::{Span, parse};
use minijinja::{Environment, context};

use crate::error::describe;
use crate::operators::{self, Call};
use crate::syntax::{bodies, expressions, parts};

/// Filters whose result Jinja2 marks as HTML.
const MARKUP: [&str; 4] = ["safe", "escape", "e", "forceescape"];

/// Names that stand for something callable without being defined in the template.
const IMPLIED: [&str; 4] = ["caller", "loop", "super", "self"];

/// What stands in a template.
pub(crate) struct Found {
    /// Filters, tests and functions that it names and nobody defines, with their lines.
    pub(crate) unknown: Vec<String>,
    /// Operations that must become calls.
    pub(crate) calls: Vec<Call>,
}

/// Checks a template.
///
/// # Errors
/// Syntax, or a construct that is not supported, with its line.
pub(crate) fn check(env: &Environment<'static>, source: &str) -> Result<Found, String> {
    let root =
        parse(source, "chat template", env.syntax().clone()).map_err(|error| describe(&error))?;
    let mut walk = Walk {
        env,
        defined: BTreeSet::new(),
        called: Vec::new(),
        unknown: BTreeSet::new(),
        calls: Vec::new(),
        refused: None,
    };
    walk.stmt(&root);
    if let Some(reason) = walk.refused {
        return Err(reason);
    }
    let globals: BTreeSet<&str> = env.globals().map(|(name, _)| name).chain(IMPLIED).collect();
    for (name, line) in walk.called {
        if !globals.contains(name) && !walk.defined.contains(name) {
            walk.unknown
                .insert(format!("function {name} (line {line})"));
        }
    }
    Ok(Found {
        unknown: walk.unknown.into_iter().collect(),
        calls: walk.calls,
    })
}

struct Walk<'a, 'env> {
    env: &'env Environment<'static>,
    /// Names that the template assigns.
    defined: BTreeSet<&'a str>,
    /// Names that it calls, with their lines.
    called: Vec<(&'a str, u16)>,
    unknown: BTreeSet<String>,
    calls: Vec<Call>,
    refused: Option<String>,
}

impl<'a> Walk<'a, '_> {
    fn refuse(&mut self, what: &str, span: Span) {
        self.refused
            .get_or_insert_with(|| format!("{what} is not supported (line {})", span.start_line));
    }

    fn body(&mut self, body: &[Stmt<'a>]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt<'a>) {
        match stmt {
            Stmt::ForLoop(node) => self.define(&node.target),
            Stmt::WithBlock(node) => {
                let targets = node.assignments.iter().map(|(target, _)| target);
                targets.for_each(|target| self.define(target));
            }
            Stmt::Set(node) => self.define(&node.target),
            Stmt::SetBlock(node) => self.define(&node.target),
            Stmt::Macro(node) => {
                self.defined.insert(node.name);
                node.args.iter().for_each(|arg| self.define(arg));
                self.body(&node.body);
            }
            Stmt::CallBlock(node) => {
                node.macro_decl.args.iter().for_each(|arg| self.define(arg));
                self.body(&node.macro_decl.body);
            }
            Stmt::Block(node) => self.body(&node.body),
            Stmt::Do(node) => self.refuse("the tag do", node.span()),
            Stmt::AutoEscape(node) => self.refuse("the tag autoescape", node.span()),
            Stmt::Extends(node) => self.refuse("the tag extends", node.span()),
            Stmt::Include(node) => self.refuse("the tag include", node.span()),
            Stmt::Import(node) => self.refuse("the tag import", node.span()),
            Stmt::FromImport(node) => self.refuse("the tag from", node.span()),
            _ => {}
        }
        let read = expressions(stmt).into_iter();
        read.for_each(|expr| self.expr(expr));
        bodies(stmt).into_iter().for_each(|body| self.body(body));
    }

    fn define(&mut self, target: &Expr<'a>) {
        match target {
            Expr::Var(node) => {
                self.defined.insert(node.id);
            }
            Expr::List(node) => node.items.iter().for_each(|item| self.define(item)),
            Expr::Tuple(node) => node.items.iter().for_each(|item| self.define(item)),
            other => self.expr(other),
        }
    }

    fn expr(&mut self, expr: &Expr<'a>) {
        match expr {
            Expr::BinOp(node) => self.operator(node.op, &node.left, &node.right, node.span()),
            Expr::Filter(node) => self.named("filter", node.name, node.span()),
            Expr::Test(node) => self.named("test", node.name, node.span()),
            Expr::Call(node) => {
                if let Expr::Var(name) = &node.expr {
                    self.called.push((name.id, name.span().start_line));
                }
            }
            _ => {}
        }
        parts(expr).into_iter().for_each(|part| self.expr(part));
    }

    /// Notes a filter or test that does not exist: a branch that reaches it fails, all others render.
    fn named(&mut self, kind: &str, name: &str, span: Span) {
        let known = self
            .env
            .compile_expression(if kind == "filter" {
                "name is filter"
            } else {
                "name is test"
            })
            .and_then(|expression| expression.eval(context! { name }))
            .is_ok_and(|found| found.is_true());
        if !known {
            self.unknown
                .insert(format!("{kind} {name} (line {})", span.start_line));
        }
    }

    /// Notes operators whose Python meaning minijinja does not have.
    fn operator(&mut self, op: BinOpKind, left: &Expr<'a>, right: &Expr<'a>, span: Span) {
        let (symbol, function) = match op {
            BinOpKind::Rem if !is_number(left) => ('%', operators::PERCENT),
            BinOpKind::Add if is_markup(left) || is_markup(right) => ('+', operators::PLUS),
            _ => return,
        };
        let place = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
        self.calls.push(Call {
            start: place(span.start_offset),
            end: place(span.end_offset),
            symbol,
            function,
        });
    }
}

/// Whether an expression is marked as HTML.
fn is_markup(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Filter(node) => MARKUP.contains(&node.name),
        Expr::BinOp(node) if matches!(node.op, BinOpKind::Add) => {
            is_markup(&node.left) || is_markup(&node.right)
        }
        _ => false,
    }
}

/// Whether an expression is a number for certain: minijinja's own remainder will do.
fn is_number(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Const(node) => node.value.is_number(),
        Expr::GetAttr(node) => {
            matches!(&node.expr, Expr::Var(var) if var.id == "loop")
                && node.name.starts_with("index")
        }
        _ => false,
    }
}
