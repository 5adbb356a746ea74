//! What a whole template assigns and defines.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::machinery::ast::{Expr, Macro, Stmt};

use crate::syntax::{bodies, mentions, variable};

/// The variable that holds the conversation.
pub(crate) const MESSAGES: &str = "messages";

/// A template's names.
#[derive(Default)]
pub(crate) struct Survey<'t, 'a> {
    /// All that are assigned, with whether a namespace is all that they ever hold.
    pub(crate) assigned: BTreeMap<&'a str, bool>,
    /// Macros; `None` for those that are defined twice, or not for the whole template.
    pub(crate) macros: BTreeMap<&'a str, Option<&'t Macro<'a>>>,
    /// Names that may hold messages.
    pub(crate) holders: BTreeSet<&'a str>,
    /// Whether there are blocks, whose order of rendering is another.
    pub(crate) blocks: bool,
}

impl<'t, 'a> Survey<'t, 'a> {
    pub(crate) fn of(root: &'t Stmt<'a>) -> Self {
        let mut survey = Self::default();
        survey.holders.insert(MESSAGES);
        survey.body(std::slice::from_ref(root), 0);
        // A name may get its messages from one that is assigned further down, in a loop.
        loop {
            let before = survey.holders.len();
            survey.hold(std::slice::from_ref(root));
            if survey.holders.len() == before {
                return survey;
            }
        }
    }

    fn body(&mut self, body: &'t [Stmt<'a>], depth: usize) {
        body.iter().for_each(|stmt| self.stmt(stmt, depth));
    }

    fn stmt(&mut self, stmt: &'t Stmt<'a>, depth: usize) {
        match stmt {
            Stmt::ForLoop(node) => self.assign(&node.target, false),
            Stmt::WithBlock(node) => {
                node.assignments
                    .iter()
                    .for_each(|(target, _)| self.assign(target, false));
            }
            Stmt::Set(node) => self.assign(&node.target, is_namespace(&node.expr)),
            Stmt::SetBlock(node) => self.assign(&node.target, false),
            Stmt::Macro(node) => {
                let top = (depth == 1).then_some(&**node);
                let known = self.macros.entry(node.name);
                known.and_modify(|known| *known = None).or_insert(top);
                node.args.iter().for_each(|arg| self.assign(arg, false));
                self.body(&node.body, depth + 1);
            }
            Stmt::CallBlock(node) => {
                node.macro_decl
                    .args
                    .iter()
                    .for_each(|arg| self.assign(arg, false));
                self.body(&node.macro_decl.body, depth + 1);
            }
            Stmt::Block(_) => self.blocks = true,
            _ => {}
        }
        for inner in bodies(stmt) {
            self.body(inner, depth + 1);
        }
    }

    fn assign(&mut self, target: &Expr<'a>, space: bool) {
        match target {
            Expr::Var(node) => {
                let always = self.assigned.entry(node.id).or_insert(true);
                *always &= space;
            }
            Expr::List(node) => node.items.iter().for_each(|item| self.assign(item, false)),
            Expr::Tuple(node) => node.items.iter().for_each(|item| self.assign(item, false)),
            _ => {}
        }
    }

    fn hold(&mut self, body: &[Stmt<'a>]) {
        for stmt in body {
            if let Stmt::Set(node) = stmt
                && let Some(name) = variable(&node.target)
                && mentions(&node.expr, &|name| self.holders.contains(name))
            {
                self.holders.insert(name);
            }
            bodies(stmt).into_iter().for_each(|inner| self.hold(inner));
        }
    }
}

/// Whether an expression makes a namespace.
fn is_namespace(expr: &Expr<'_>) -> bool {
    matches!(expr, Expr::Call(node) if variable(&node.expr) == Some("namespace"))
}
