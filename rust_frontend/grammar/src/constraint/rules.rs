//! Rules of a Lark grammar in the making.

use super::lark::{ANY_TEXT, Specials, literal};

/// Collects rules; names are given out in order.
pub(crate) struct Rules<'a> {
    pub(crate) specials: &'a Specials,
    rules: Vec<String>,
    count: usize,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(specials: &'a Specials) -> Self {
        Self {
            specials,
            rules: Vec::new(),
            count: 0,
        }
    }

    /// Give out a name for a rule that is defined later.
    pub(crate) fn reserve(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count - 1)
    }

    /// Define a rule under a name that was given out.
    pub(crate) fn define(&mut self, name: &str, body: &str) {
        self.rules.push(format!("{name}: {body}"));
    }

    /// Add a rule and return its name.
    pub(crate) fn rule(&mut self, body: &str) -> String {
        let name = self.reserve();
        self.define(&name, body);
        name
    }

    /// Add a terminal and return its name.
    pub(crate) fn terminal(&mut self, body: &str) -> String {
        let name = self.reserve().to_uppercase();
        self.define(&name, body);
        name
    }

    /// A place to come back to.
    pub(crate) fn mark(&self) -> usize {
        self.rules.len()
    }

    /// Forget the rules since a place.
    pub(crate) fn reset(&mut self, mark: usize) {
        self.rules.truncate(mark);
    }

    /// A terminal whose texts hold none of `without`.
    pub(crate) fn apart(&mut self, body: &str, without: &[String]) -> String {
        let apart: Vec<&str> = without.iter().map(String::as_str).collect();
        if apart.is_empty() {
            return self.terminal(body);
        }
        self.terminal(&format!("{body} & {}", free_of(&apart)))
    }

    /// The whole grammar.
    pub(crate) fn grammar(&self, start: &str) -> String {
        format!("start: {start}\n{}\n", self.rules.join("\n"))
    }

    /// Text up to and with `end`, of the form `body` where there is one. The text holds neither `end` nor any of
    /// `without`, so that whoever looks for them finds the end where the grammar has it.
    pub(crate) fn until(&mut self, end: &str, without: &[String], body: Option<&str>) -> String {
        let (text, rest) = self.specials.split(end);
        let mut apart: Vec<&str> = without
            .iter()
            .map(String::as_str)
            .filter(|other| !other.is_empty() && !end.contains(other))
            .collect();
        let any = body.unwrap_or(ANY_TEXT);
        if text.is_empty() {
            // A token ends the text; spelled in letters it must not stand there either.
            apart.push(end);
            let free = self.terminal(&format!("{any} & {}", free_of(&apart)));
            return format!("{free} {}", self.specials.expression(end));
        }
        let mut whole = format!("{any} {}", literal(text));
        if !apart.is_empty() {
            whole = format!("{whole} & {}", free_of(&apart));
        }
        if body.is_some() {
            whole = format!("{whole} & ~({ANY_TEXT} {} /(?s:.+)/)", literal(text));
        }
        let name = self.reserve();
        self.define(&format!("{name}[lazy]"), &whole);
        if rest.is_empty() {
            return name;
        }
        format!("{name} {}", self.specials.expression(rest))
    }

    /// Any text that holds none of these.
    pub(crate) fn free_text(&mut self, without: &[String]) -> String {
        let apart: Vec<&str> = without
            .iter()
            .map(String::as_str)
            .filter(|text| !text.is_empty())
            .collect();
        if apart.is_empty() {
            return self.rule(ANY_TEXT);
        }
        self.terminal(&format!("{ANY_TEXT} & {}", free_of(&apart)))
    }

    /// Items in their order with the expression `join` between those that are there, each with whether it must be; then any
    /// number of `more`.
    pub(crate) fn sequence(
        &mut self,
        items: &[(String, bool)],
        join: &str,
        more: Option<&str>,
    ) -> String {
        // The rest of the sequence where nothing stands before it, and where something does.
        let (mut first, mut later) = match more {
            None => (literal(""), literal("")),
            Some(more) => (
                self.rule(&format!("({more} ({join} {more})*)?")),
                self.rule(&format!("({join} {more})*")),
            ),
        };
        for (item, required) in items.iter().rev() {
            let begins = format!("{item} {later}");
            let (begin, go_on) = if *required {
                (begins, format!("{join} {item} {later}"))
            } else {
                (
                    format!("{begins} | {first}"),
                    format!("({join} {item})? {later}"),
                )
            };
            first = self.rule(&begin);
            later = self.rule(&go_on);
        }
        first
    }
}

/// A condition on terminals: none of these stands in the text.
fn free_of(apart: &[&str]) -> String {
    let texts: Vec<String> = apart.iter().map(|text| literal(text)).collect();
    format!("~({ANY_TEXT} ({}) {ANY_TEXT})", texts.join(" | "))
}
