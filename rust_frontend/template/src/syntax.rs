//! The parts of a parsed template.

use minijinja::machinery::ast::{CallArg, Expr, Stmt};

/// The bodies of a statement. Those of macros and blocks are not among them.
pub(crate) fn bodies<'t, 'a>(stmt: &'t Stmt<'a>) -> Vec<&'t [Stmt<'a>]> {
    match stmt {
        Stmt::Template(node) => vec![node.children.as_slice()],
        Stmt::ForLoop(node) => vec![node.body.as_slice(), node.else_body.as_slice()],
        Stmt::IfCond(node) => vec![node.true_body.as_slice(), node.false_body.as_slice()],
        Stmt::WithBlock(node) => vec![node.body.as_slice()],
        Stmt::SetBlock(node) => vec![node.body.as_slice()],
        Stmt::FilterBlock(node) => vec![node.body.as_slice()],
        _ => Vec::new(),
    }
}

/// The expressions that a statement reads; what it assigns is not among them.
pub(crate) fn expressions<'t, 'a>(stmt: &'t Stmt<'a>) -> Vec<&'t Expr<'a>> {
    match stmt {
        Stmt::EmitExpr(node) => vec![&node.expr],
        Stmt::ForLoop(node) => std::iter::once(&node.iter)
            .chain(&node.filter_expr)
            .collect(),
        Stmt::IfCond(node) => vec![&node.expr],
        Stmt::WithBlock(node) => node.assignments.iter().map(|(_, expr)| expr).collect(),
        Stmt::Set(node) => vec![&node.expr],
        Stmt::SetBlock(node) => node.filter.iter().collect(),
        Stmt::FilterBlock(node) => vec![&node.filter],
        Stmt::Macro(node) => node.defaults.iter().collect(),
        Stmt::CallBlock(node) => std::iter::once(&node.call.expr)
            .chain(arguments(&node.call.args))
            .collect(),
        _ => Vec::new(),
    }
}

/// The parts of an expression.
pub(crate) fn parts<'t, 'a>(expr: &'t Expr<'a>) -> Vec<&'t Expr<'a>> {
    match expr {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(node) => {
            let bounds = [&node.start, &node.stop, &node.step];
            std::iter::once(&node.expr)
                .chain(bounds.into_iter().flatten())
                .collect()
        }
        Expr::UnaryOp(node) => vec![&node.expr],
        Expr::BinOp(node) => vec![&node.left, &node.right],
        Expr::Compare(node) => {
            let others = node.ops.iter().map(|op| &op.expr);
            std::iter::once(&node.expr).chain(others).collect()
        }
        Expr::IfExpr(node) => {
            let both = [&node.test_expr, &node.true_expr];
            both.into_iter().chain(&node.false_expr).collect()
        }
        Expr::Filter(node) => node.expr.iter().chain(arguments(&node.args)).collect(),
        Expr::Test(node) => std::iter::once(&node.expr)
            .chain(arguments(&node.args))
            .collect(),
        Expr::GetAttr(node) => vec![&node.expr],
        Expr::GetItem(node) => vec![&node.expr, &node.subscript_expr],
        Expr::Call(node) => std::iter::once(&node.expr)
            .chain(arguments(&node.args))
            .collect(),
        Expr::List(node) => node.items.iter().collect(),
        Expr::Tuple(node) => node.items.iter().collect(),
        Expr::Map(node) => node.keys.iter().chain(&node.values).collect(),
    }
}

/// The expressions of arguments.
pub(crate) fn arguments<'t, 'a>(args: &'t [CallArg<'a>]) -> impl Iterator<Item = &'t Expr<'a>> {
    args.iter().map(|arg| match arg {
        CallArg::Pos(expr)
        | CallArg::Kwarg(_, expr)
        | CallArg::PosSplat(expr)
        | CallArg::KwargSplat(expr) => expr,
    })
}

/// The name of a variable.
pub(crate) fn variable<'a>(expr: &Expr<'a>) -> Option<&'a str> {
    match expr {
        Expr::Var(node) => Some(node.id),
        _ => None,
    }
}

/// A variable's name and the attribute that is read of it.
pub(crate) fn attribute<'a>(expr: &Expr<'a>) -> Option<(&'a str, &'a str)> {
    match expr {
        Expr::GetAttr(node) => Some((variable(&node.expr)?, node.name)),
        _ => None,
    }
}

/// Whether an expression names one of these variables.
pub(crate) fn mentions(expr: &Expr<'_>, wanted: &dyn Fn(&str) -> bool) -> bool {
    variable(expr).is_some_and(wanted) || parts(expr).into_iter().any(|part| mentions(part, wanted))
}
