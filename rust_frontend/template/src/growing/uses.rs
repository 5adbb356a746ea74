//! What the body of a loop reads and writes besides its messages.

use std::collections::BTreeSet;

use minijinja::machinery::Span;
use minijinja::machinery::ast::{BinOpKind, CompareOpKind, Expr, Macro, Stmt};

use super::plan::Relation;
use super::survey::Survey;
use crate::syntax::{arguments, attribute, bodies, expressions, parts, variable};

/// What a loop may ask of `loop`.
const KNOWN: [&str; 9] = [
    "index0",
    "index",
    "first",
    "last",
    "length",
    "revindex",
    "revindex0",
    "previtem",
    "nextitem",
];

/// Functions whose result is not given by their arguments.
const IMPURE: [&str; 6] = ["strftime_now", "debug", "caller", "super", "self", "loop"];

/// Most variables that are watched.
const MOST_WATCHED: usize = 32;

/// A variable, or an attribute of one.
pub(crate) type Name<'a> = (&'a str, Option<&'a str>);

/// Whose `loop` it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// That of the loop that is looked at.
    This,
    /// That of a loop inside.
    Inner,
    /// Not known: it must not be named.
    Nobody,
}

/// A comparison of the place in the loop with a value that stays as it is while the loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Compared<'a> {
    pub(crate) with: Name<'a>,
    pub(crate) relation: Relation,
    /// What is added to the place, which counts from 0.
    pub(crate) shift: i64,
}

/// What a loop uses.
pub(crate) struct Uses<'s, 't, 'a> {
    survey: &'s Survey<'t, 'a>,
    owner: Owner,
    /// The loop's own variable.
    target: &'a str,
    /// Whether it is a macro's body that is looked at.
    in_macro: bool,
    /// Names that are a macro's own while its body is looked at.
    own: BTreeSet<&'a str>,
    /// Macros that were looked at.
    seen: BTreeSet<&'a str>,
    /// Names that the body assigns.
    assigned: BTreeSet<&'a str>,
    pub(crate) reads: BTreeSet<Name<'a>>,
    /// Variables made of messages, which change as the conversation grows. Who reads them is taken down when it does.
    pub(crate) watched: Vec<&'a str>,
    /// Where variables made of messages stand.
    places: Vec<(Span, &'a str)>,
    /// Names that macros read.
    in_macros: BTreeSet<&'a str>,
    pub(crate) writes: BTreeSet<(&'a str, &'a str)>,
    pub(crate) compared: BTreeSet<Compared<'a>>,
    /// Where `loop.x` stands.
    pub(crate) marks: Vec<(Span, &'a str)>,
    /// Where watched variables stand; which of them.
    pub(crate) watches: Vec<(Span, usize)>,
    refused: bool,
}

impl<'s, 't, 'a> Uses<'s, 't, 'a> {
    /// Looks at a loop's body. `None` where it does what cannot be followed.
    pub(crate) fn of(
        survey: &'s Survey<'t, 'a>,
        target: &'a str,
        body: &'t [Stmt<'a>],
    ) -> Option<Self> {
        let mut uses = Self {
            survey,
            owner: Owner::This,
            target,
            in_macro: false,
            own: BTreeSet::new(),
            seen: BTreeSet::new(),
            assigned: BTreeSet::from([target]),
            reads: BTreeSet::new(),
            watched: Vec::new(),
            watches: Vec::new(),
            places: Vec::new(),
            in_macros: BTreeSet::new(),
            writes: BTreeSet::new(),
            compared: BTreeSet::new(),
            marks: Vec::new(),
            refused: false,
        };
        uses.body(body);
        if uses.refused {
            return None;
        }
        let changes = |(name, attribute): Name<'a>| {
            uses.assigned.contains(name)
                || uses.writes.iter().any(|(space, written)| {
                    *space == name && attribute.is_none_or(|attribute| attribute == *written)
                })
        };
        let (fixed, changing) = std::mem::take(&mut uses.compared)
            .into_iter()
            .partition::<BTreeSet<_>, _>(|compared| !changes(compared.with));
        uses.reads
            .extend(changing.into_iter().map(|compared| compared.with));
        // What must be the same anyway decides nothing.
        let decides = |compared: &Compared<'a>| {
            !uses.reads.contains(&compared.with) && !uses.reads.contains(&(compared.with.0, None))
        };
        uses.compared = fixed.into_iter().filter(decides).collect();
        uses.watch();
        Some(uses)
    }

    /// Chooses what is watched: what the loop does not assign itself, and no macro reads.
    fn watch(&mut self) {
        for (span, name) in std::mem::take(&mut self.places) {
            if self.assigned.contains(name) || self.in_macros.contains(name) {
                continue;
            }
            let known = self.watched.iter().position(|watched| *watched == name);
            let number = known.unwrap_or(self.watched.len());
            if number == self.watched.len() {
                self.watched.push(name);
            }
            self.watches.push((span, number));
        }
        if self.watched.len() > MOST_WATCHED {
            self.watched.clear();
            self.watches.clear();
        }
        self.reads.retain(|(name, _)| !self.watched.contains(name));
    }

    fn body(&mut self, body: &'t [Stmt<'a>]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn with_owner(&mut self, owner: Owner, look: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.owner, owner);
        look(self);
        self.owner = before;
    }

    fn stmt(&mut self, stmt: &'t Stmt<'a>) {
        match stmt {
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::EmitExpr(_) | Stmt::IfCond(_) | Stmt::FilterBlock(_) => {
                let read = expressions(stmt).into_iter();
                read.for_each(|expr| self.expr(expr));
                bodies(stmt).into_iter().for_each(|body| self.body(body));
            }
            Stmt::ForLoop(node) => {
                self.expr(&node.iter);
                self.assign(&node.target);
                self.with_owner(Owner::Nobody, |uses| {
                    node.filter_expr.iter().for_each(|expr| uses.expr(expr));
                });
                self.with_owner(Owner::Inner, |uses| uses.body(&node.body));
                self.body(&node.else_body);
                self.refused |= node.recursive;
            }
            Stmt::WithBlock(node) => {
                for (target, expr) in &node.assignments {
                    self.expr(expr);
                    self.assign(target);
                }
                self.body(&node.body);
            }
            Stmt::Set(node) => {
                self.expr(&node.expr);
                self.assign(&node.target);
            }
            Stmt::SetBlock(node) => {
                self.body(&node.body);
                node.filter.iter().for_each(|expr| self.expr(expr));
                self.assign(&node.target);
            }
            _ => self.refused = true,
        }
    }

    fn assign(&mut self, target: &'t Expr<'a>) {
        match target {
            Expr::Var(node) => {
                self.assigned.insert(node.id);
            }
            Expr::List(node) => node.items.iter().for_each(|item| self.assign(item)),
            Expr::Tuple(node) => node.items.iter().for_each(|item| self.assign(item)),
            other => match attribute(other) {
                // Only where it is known which namespace a name holds.
                Some((space, name))
                    if self.survey.assigned.get(space) == Some(&true)
                        && !self.own.contains(space) =>
                {
                    self.writes.insert((space, name));
                }
                _ => self.refused = true,
            },
        }
    }

    fn expr(&mut self, expr: &'t Expr<'a>) {
        if self.owner == Owner::This
            && let Some(compared) = self.comparison(expr)
        {
            self.compared.insert(compared);
            return;
        }
        match expr {
            Expr::Var(node) => self.variable(node.id, node.span()),
            Expr::GetAttr(node) => match &node.expr {
                Expr::Var(of) if of.id == "loop" => self.of_loop(node.span(), node.name),
                Expr::Var(of) => self.read(of.id, Some(node.name), of.span()),
                other => self.expr(other),
            },
            Expr::Call(node) => {
                match &node.expr {
                    // A method is of the whole.
                    Expr::GetAttr(method) => self.expr(&method.expr),
                    other => self.expr(other),
                }
                arguments(&node.args).for_each(|arg| self.expr(arg));
            }
            other => parts(other).into_iter().for_each(|part| self.expr(part)),
        }
    }

    fn variable(&mut self, name: &'a str, span: Span) {
        match name {
            "loop" if self.owner == Owner::Inner => {}
            name if IMPURE.contains(&name) => self.refused = true,
            name => self.read(name, None, span),
        }
    }

    fn of_loop(&mut self, span: Span, name: &'a str) {
        match self.owner {
            Owner::Inner => {}
            Owner::This if KNOWN.contains(&name) => self.marks.push((span, name)),
            _ => self.refused = true,
        }
    }

    fn read(&mut self, name: &'a str, attribute: Option<&'a str>, span: Span) {
        // The loop's own variable is set by each iteration; macros do not see it.
        if self.own.contains(name) || (name == self.target && !self.in_macro) {
            return;
        }
        match self.survey.macros.get(name) {
            Some(Some(_)) if self.survey.assigned.contains_key(name) => self.refused = true,
            Some(Some(definition)) => {
                let definition: &'t Macro<'a> = definition;
                self.reach(definition);
            }
            Some(None) => self.refused = true,
            // What the template never assigns is a global function, or given with the conversation.
            None if self.survey.assigned.contains_key(name) => {
                self.reads.insert((name, attribute));
                if self.in_macro {
                    self.in_macros.insert(name);
                } else if self.survey.holders.contains(name)
                    && self.survey.assigned.get(name) == Some(&false)
                {
                    self.places.push((span, name));
                }
            }
            None => {}
        }
    }

    /// Looks at the body of a macro.
    fn reach(&mut self, definition: &'t Macro<'a>) {
        if !self.seen.insert(definition.name) {
            return;
        }
        let own = definition.args.iter().filter_map(variable).collect();
        let own = std::mem::replace(&mut self.own, own);
        let assigned = self.assigned.clone();
        let in_macro = std::mem::replace(&mut self.in_macro, true);
        self.with_owner(Owner::Nobody, |uses| {
            definition.defaults.iter().for_each(|expr| uses.expr(expr));
            uses.body(&definition.body);
        });
        // What a macro assigns is its own.
        self.assigned = assigned;
        self.in_macro = in_macro;
        self.own = own;
    }

    /// A comparison of `loop.index` or `loop.index0` with a variable or an attribute of one.
    fn comparison(&mut self, expr: &'t Expr<'a>) -> Option<Compared<'a>> {
        let (left, relation, right) = match expr {
            Expr::BinOp(node) => (&node.left, relation(node.op)?, &node.right),
            Expr::Compare(node) => match node.ops.as_slice() {
                [one] => (&node.expr, chained(one.op)?, &one.expr),
                _ => return None,
            },
            _ => return None,
        };
        let (place, relation, other) = match (shift(left), shift(right)) {
            (Some(_), None) => (left, relation, right),
            (None, Some(_)) => (right, relation.turned(), left),
            _ => return None,
        };
        let with = match (variable(other), attribute(other)) {
            (Some(name), _) => (name, None),
            (None, Some((name, attribute))) => (name, Some(attribute)),
            (None, None) => return None,
        };
        if !self.survey.assigned.contains_key(with.0) || self.survey.macros.contains_key(with.0) {
            return None;
        }
        let Expr::GetAttr(node) = place else {
            return None;
        };
        self.marks.push((node.span(), node.name));
        Some(Compared {
            with,
            relation,
            shift: shift(place)?,
        })
    }
}

/// What must be added to the place in the loop to give an expression; `None` where it is something else.
fn shift(expr: &Expr<'_>) -> Option<i64> {
    match attribute(expr)? {
        ("loop", "index0") => Some(0),
        ("loop", "index") => Some(1),
        _ => None,
    }
}

fn relation(op: BinOpKind) -> Option<Relation> {
    Some(match op {
        BinOpKind::Eq => Relation::Equal,
        BinOpKind::Ne => Relation::Other,
        BinOpKind::Lt => Relation::Less,
        BinOpKind::Lte => Relation::AtMost,
        BinOpKind::Gt => Relation::More,
        BinOpKind::Gte => Relation::AtLeast,
        _ => return None,
    })
}

fn chained(op: CompareOpKind) -> Option<Relation> {
    Some(match op {
        CompareOpKind::Eq => Relation::Equal,
        CompareOpKind::Ne => Relation::Other,
        CompareOpKind::Lt => Relation::Less,
        CompareOpKind::Lte => Relation::AtMost,
        CompareOpKind::Gt => Relation::More,
        CompareOpKind::Gte => Relation::AtLeast,
        CompareOpKind::In | CompareOpKind::NotIn => return None,
    })
}
