//! Which loops of a template can be resumed, and the template that resumes them.

use minijinja::machinery::ast::{ForLoop, Stmt};
use minijinja::machinery::{Span, parse};
use minijinja::{Environment, Value};

use super::idle;
use super::survey::Survey;
use super::uses::{Name, Uses};
use crate::syntax::{mentions, variable};
use crate::tags;

/// The function that a loop begins with.
pub(crate) const START: &str = "octavo_turns";

/// What a rewritten loop is called.
const WALK: &str = "octavo_turn_";

/// A variable of the template, or an attribute of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) attr: Option<String>,
}

impl Place {
    fn of((name, attr): Name<'_>) -> Self {
        Self {
            name: name.to_owned(),
            attr: attr.map(str::to_owned),
        }
    }

    /// Its value now; undefined where there is none.
    pub(crate) fn value(&self, lookup: super::run::Lookup<'_>) -> Value {
        let value = lookup(&self.name).unwrap_or_default();
        match &self.attr {
            Some(attr) => value.get_attr(attr).unwrap_or_default(),
            None => value,
        }
    }
}

/// How two numbers may stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relation {
    Equal,
    Other,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Relation {
    /// The same with the sides changed.
    pub(crate) fn turned(self) -> Self {
        match self {
            Self::Less => Self::More,
            Self::More => Self::Less,
            Self::AtMost => Self::AtLeast,
            Self::AtLeast => Self::AtMost,
            same => same,
        }
    }
}

/// A comparison of the place in a loop with a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) relation: Relation,
    /// What is added to the place, which counts from 0.
    pub(crate) shift: i64,
}

impl Guard {
    /// What the comparison gives.
    pub(crate) fn holds(self, place: usize, value: i64) -> bool {
        let place = i64::try_from(place)
            .unwrap_or(i64::MAX)
            .saturating_add(self.shift);
        match self.relation {
            Relation::Equal => place == value,
            Relation::Other => place != value,
            Relation::Less => place < value,
            Relation::AtMost => place <= value,
            Relation::More => place > value,
            Relation::AtLeast => place >= value,
        }
    }
}

/// A loop that can be resumed.
#[derive(Debug, Default)]
pub(crate) struct LoopPlan {
    /// What must have the same value when it begins.
    pub(crate) reads: Vec<Place>,
    /// What the place in the loop is compared with, and how.
    pub(crate) guarded: Vec<Place>,
    pub(crate) guards: Vec<Guard>,
    /// Attributes of namespaces that it sets.
    pub(crate) writes: Vec<Place>,
    /// Variables that are made of messages: who reads them is taken down.
    pub(crate) watched: Vec<String>,
}

/// A rewritten template.
pub(crate) struct Plan {
    pub(crate) loops: Vec<LoopPlan>,
    pub(crate) source: String,
}

/// Reads a template that compiles. `None` where nothing can be resumed.
pub(crate) fn read(env: &Environment<'static>, source: &str) -> Option<Plan> {
    let root = parse(source, "chat template", env.syntax().clone()).ok()?;
    let survey = Survey::of(&root);
    if survey.blocks {
        return None;
    }
    let mut found = Vec::new();
    top_loops(std::slice::from_ref(&root), &mut |span, node| {
        found.push((span, node))
    });
    let mut rewriting = Rewriting {
        source,
        edits: Vec::new(),
    };
    let mut loops = Vec::new();
    for (span, node) in found {
        if let Some((space, name)) = idle::flag(&survey, node) {
            rewriting.leave(span, space, name)?;
            continue;
        }
        let Some((uses, plan)) = resumable(&survey, node) else {
            continue;
        };
        let marks = uses
            .marks
            .iter()
            .map(|(span, name)| (*span, format!("loop.{name}"), (*name).to_owned()));
        let watches = uses.watches.iter().map(|(span, number)| {
            (
                *span,
                plan.watched[*number].clone(),
                format!("read_{number}"),
            )
        });
        rewriting.replace(loops.len(), span, &plan, marks.chain(watches))?;
        loops.push(plan);
    }
    (!loops.is_empty()).then(|| Plan {
        loops,
        source: rewriting.done(),
    })
}

/// Loops that run once in a rendering, and whose output is the template's.
fn top_loops<'t, 'a>(body: &'t [Stmt<'a>], found: &mut dyn FnMut(Span, &'t ForLoop<'a>)) {
    for stmt in body {
        match stmt {
            Stmt::Template(node) => top_loops(&node.children, found),
            Stmt::ForLoop(node) => found(node.span(), node),
            Stmt::IfCond(node) => {
                top_loops(&node.true_body, found);
                top_loops(&node.false_body, found);
            }
            _ => {}
        }
    }
}

fn resumable<'s, 't, 'a>(
    survey: &'s Survey<'t, 'a>,
    node: &'t ForLoop<'a>,
) -> Option<(Uses<'s, 't, 'a>, LoopPlan)> {
    let target = variable(&node.target)?;
    if node.recursive
        || node.filter_expr.is_some()
        || !mentions(&node.iter, &|name| survey.holders.contains(name))
    {
        return None;
    }
    let uses = Uses::of(survey, target, &node.body)?;
    let guard = |compared: &super::uses::Compared<'_>| Guard {
        relation: compared.relation,
        shift: compared.shift,
    };
    let plan = LoopPlan {
        reads: uses.reads.iter().map(|name| Place::of(*name)).collect(),
        guarded: uses
            .compared
            .iter()
            .map(|compared| Place::of(compared.with))
            .collect(),
        guards: uses.compared.iter().map(guard).collect(),
        writes: uses
            .writes
            .iter()
            .map(|(name, attr)| Place::of((name, Some(attr))))
            .collect(),
        watched: uses.watched.iter().map(|name| (*name).to_owned()).collect(),
    };
    Some((uses, plan))
}

/// A template that is being rewritten.
struct Rewriting<'s> {
    source: &'s str,
    /// Where, how many bytes go, and what comes.
    edits: Vec<(usize, usize, String)>,
}

impl<'s> Rewriting<'s> {
    /// Rewrites a loop. `None` where its text is not where it should be.
    ///
    /// `marks` are places, what stands there, and the attribute of the loop that comes there.
    fn replace(
        &mut self,
        number: usize,
        span: Span,
        plan: &LoopPlan,
        marks: impl Iterator<Item = (Span, String, String)>,
    ) -> Option<()> {
        let (begin, tag) = self.tag(usize::try_from(span.start_offset).ok()?)?;
        let over = tags::outer_word(tag, 0, &["in"])? + "in".len();
        let end = tag.strip_suffix("%}")?.trim_end_matches(['-', '+']).len();
        let iterated = tag.get(over..end)?.trim();
        let mark = tag
            .chars()
            .nth(2)
            .filter(|letter| matches!(letter, '-' | '+'));
        let mark = mark.map(String::from).unwrap_or_default();
        let mut before =
            format!("{{%{mark} set {WALK}{number} = {START}({number}, {iterated}) %}}");
        if !plan.writes.is_empty() {
            before.push_str(&format!("{{% if {WALK}{number}.resumed %}}"));
            for (place, Place { name, attr }) in plan.writes.iter().enumerate() {
                let attr = attr.as_deref()?;
                before.push_str(&format!(
                    "{{% if {WALK}{number}.has_{place} %}}{{% set {name}.{attr} = {WALK}{number}.value_{place} %}}{{% endif %}}"
                ));
            }
            before.push_str("{% endif %}");
        }
        self.edits.push((begin, 0, before));
        self.edits
            .push((begin + over, end - over, format!(" {WALK}{number}.rest ")));
        for (span, wanted, name) in marks {
            let place = |offset: u32| usize::try_from(offset).ok();
            let (start, end) = (place(span.start_offset)?, place(span.end_offset)?);
            let text: String = self.source.get(start..end)?.split_whitespace().collect();
            if text != wanted {
                return None;
            }
            self.edits
                .push((start, end - start, format!("{WALK}{number}.{name}")));
        }
        Some(())
    }

    /// Lets a loop end when an attribute is false. `None` where its text is not where it should be.
    fn leave(&mut self, span: Span, space: &str, name: &str) -> Option<()> {
        let (begin, tag) = self.tag(usize::try_from(span.start_offset).ok()?)?;
        // Text behind the tag is stripped as it was.
        let before_end = tag.strip_suffix("%}")?.chars().next_back();
        let mark = before_end.filter(|letter| matches!(letter, '-' | '+'));
        let mark = mark.map(String::from).unwrap_or_default();
        let end = begin + tag.len();
        let leave = format!("{{% if not {space}.{name} %}}{{% break %}}{{% endif {mark}%}}");
        self.edits.push((end, 0, leave));
        Some(())
    }

    /// The tag that a statement begins with, whose first word is at `offset` or whose bracket is.
    fn tag(&self, offset: usize) -> Option<(usize, &'s str)> {
        let begin = match self.source.get(offset..)?.starts_with("{%") {
            true => offset,
            false => {
                let before = self.source[..offset]
                    .trim_end()
                    .trim_end_matches(['-', '+']);
                before.strip_suffix("{%")?.len()
            }
        };
        let rest = &self.source[begin..];
        Some((begin, &rest[..tags::closing(rest, "%}")]))
    }

    fn done(mut self) -> String {
        self.edits.sort_by_key(|(at, width, _)| (*at, *width));
        let mut out = String::with_capacity(self.source.len() * 2);
        let mut done = 0;
        for (at, width, text) in self.edits {
            out.push_str(&self.source[done..at]);
            out.push_str(&text);
            done = at + width;
        }
        out.push_str(&self.source[done..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(source: &str) -> Option<Plan> {
        let mut env = Environment::new();
        env.set_syntax(minijinja::syntax::SyntaxConfig::default());
        read(&env, source)
    }

    #[test]
    fn a_loop_asks_where_to_begin() {
        let plan = rewritten(
            "{%- for m in messages -%}{{ m.role }}{% if loop.last %}!{% endif %}{% endfor %}",
        )
        .unwrap();
        assert_eq!(
            plan.source,
            "{%- set octavo_turn_0 = octavo_turns(0, messages) %}{%- for m in octavo_turn_0.rest -%}{{ m.role }}\
             {% if octavo_turn_0.last %}!{% endif %}{% endfor %}"
        );
        assert!(plan.loops[0].reads.is_empty() && plan.loops[0].writes.is_empty());
    }

    #[test]
    fn what_a_loop_reads_and_writes_is_found() {
        let source = "{% set ns = namespace(a=1, b=2) %}{% set head = messages[0] %}{% macro q(x) %}{{ x }}{{ ns.c }}{% endmacro %}\
                      {% for m in messages[1:] %}{{ q(head) }}{% set ns.a = loop.index0 > ns.b %}{% if tools %}{{ loop.index == ns.a }}{% endif %}{% endfor %}";
        let plan = rewritten(source).unwrap();
        let place = |name: &str, attr: Option<&str>| Place::of((name, attr));
        let LoopPlan {
            reads,
            guarded,
            guards,
            writes,
            watched,
        } = &plan.loops[0];
        assert_eq!(*reads, [place("ns", Some("a")), place("ns", Some("c"))]);
        assert_eq!(*watched, ["head"]);
        assert!(plan.source.contains("{{ q(octavo_turn_0.read_0) }}"));
        assert_eq!(*guarded, [place("ns", Some("b"))]);
        assert_eq!(
            *guards,
            [Guard {
                relation: Relation::More,
                shift: 0
            }]
        );
        assert_eq!(*writes, [place("ns", Some("a"))]);
    }

    #[test]
    fn a_loop_that_looks_for_something_ends_when_it_has_it() {
        let main = "{% for m in messages %}{{ m }}{% endfor %}";
        let head = "{% set ns = namespace(seek=true, at=0) %}{% for m in messages[::-1] -%} ";
        let body = "{%- set i = (messages|length - 1) - loop.index0 %}{% if ns.seek and m.role == 'user' %}{% set ns.seek = false %}{% endif %}";
        let plan = rewritten(&format!("{head}{body}{{% endfor %}}{main}")).unwrap();
        assert!(
            plan.source.contains(
                "messages[::-1] -%}{% if not ns.seek %}{% break %}{% endif -%} {%- set i"
            )
        );
        assert_eq!(plan.loops.len(), 1);
        for other in [
            body.replace("ns.seek and", "ns.seek or"),
            body.replace("loop.index0", "m.x"),
            body.replace("{% endif %}", "{% else %}{% set ns.at = 1 %}{% endif %}"),
            format!("{body}x"),
            format!("{body}{{% set ns.seek = true %}}"),
        ] {
            let plan = rewritten(&format!("{head}{other}{{% endfor %}}{main}")).unwrap();
            assert!(!plan.source.contains("break"), "{other}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_left_alone() {
        for source in [
            "{{ messages }}",
            "{% for t in tools %}{{ t }}{% endfor %}",
            "{% for m in messages if m.a %}{{ m }}{% endfor %}",
            "{% for m in messages recursive %}{{ m }}{% endfor %}",
            "{% for a, b in messages %}{{ a }}{% endfor %}",
            "{% for m in messages %}{{ loop }}{% endfor %}",
            "{% for m in messages %}{{ loop['index'] }}{% endfor %}",
            "{% for m in messages %}{{ loop.cycle('a', 'b') }}{% endfor %}",
            "{% for m in messages %}{{ loop.changed(m.role) }}{% endfor %}",
            "{% for m in messages %}{{ strftime_now('%Y') }}{% endfor %}",
            "{% for m in messages %}{% for x in m if loop.first %}{% endfor %}{% endfor %}",
            "{% set x %}{% for m in messages %}{{ m }}{% endfor %}{% endset %}",
            "{% macro x() %}{% for m in messages %}{{ m }}{% endfor %}{% endmacro %}{{ x() }}",
            "{% for i in range(2) %}{% for m in messages %}{{ m }}{% endfor %}{% endfor %}",
            "{% set a = namespace() %}{% set b = a %}{% for m in messages %}{% set b.x = 1 %}{% endfor %}",
            "{% for m in messages %}{% macro x() %}{% endmacro %}{% endfor %}",
            "{% if a %}{% macro x() %}{% endmacro %}{% endif %}{% for m in messages %}{{ x() }}{% endfor %}",
        ] {
            assert!(rewritten(source).is_none(), "{source}");
        }
    }
}
