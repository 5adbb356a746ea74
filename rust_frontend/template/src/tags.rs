//! Tags that minijinja reads otherwise than Jinja2, rewritten before it sees them. Lines stay lines.
//!
//! - `{% generation %}` marks what the assistant wrote. minijinja has no tags of our own: the pair becomes `{% with %}` for
//!   the scope of its own that the original has, and in it a filter (see `spans`), which writes its body as it is.
//! - A loop over None is an error, and so it is made one: `{% for x in y %}` becomes `{% for x in (y)|... %}`.
//! - After `{% raw %}` Jinja2 keeps the newline that `trim_blocks` removes after other tags: it is doubled.

/// The filter that says what a loop runs over.
pub(crate) const ITERABLE: &str = "octavo_iterable";

/// Rewrites a template. What stands between tags is copied, and so are white space marks (`-`, `+`).
pub(crate) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (text, tail) = rest.split_at(at);
        out.push_str(text);
        let kind = tail.as_bytes().get(1).copied();
        let length = match kind {
            Some(b'#') => tail.find("#}").map_or(tail.len(), |end| end + 2),
            Some(b'{') => closing(tail, "}}"),
            Some(b'%') => closing(tail, "%}"),
            _ => 1,
        };
        let (tag, after) = tail.split_at(length);
        rest = after;
        if kind == Some(b'%') {
            match word(tag) {
                "raw" => {
                    let end = raw_end(rest);
                    out.push_str(tag);
                    if !tag.ends_with("-%}") && rest.starts_with(['\n', '\r']) {
                        out.push('\n');
                    }
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                    continue;
                }
                "generation" => {
                    let pair = format!("with %}}{{% filter {}", crate::spans::FILTER);
                    out.push_str(&tag.replacen("generation", &pair, 1));
                }
                "endgeneration" => {
                    let pair = "endfilter %}{% endwith";
                    out.push_str(&tag.replacen("endgeneration", pair, 1));
                }
                "for" => out.push_str(&checked_loop(tag)),
                _ => out.push_str(tag),
            }
        } else {
            out.push_str(tag);
        }
    }
    out.push_str(rest);
    out
}

/// The first word of a tag.
fn word(tag: &str) -> &str {
    let inner = tag
        .trim_start_matches("{%")
        .trim_start_matches(['-', '+'])
        .trim_start();
    let end = inner
        .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .unwrap_or(inner.len());
    &inner[..end]
}

/// The length of a tag up to and with its end, which does not count inside a string.
pub(crate) fn closing(tag: &str, end: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in tag.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if tag[at..].starts_with(end) => return at + end.len(),
            None => {}
        }
    }
    tag.len()
}

/// Wraps what a loop runs over: from the word `in` to `if`, `recursive` or the end of the tag.
fn checked_loop(tag: &str) -> String {
    let Some(start) = outer_word(tag, 0, &["in"]).map(|at| at + "in".len()) else {
        return tag.to_owned();
    };
    let close = tag
        .trim_end_matches("%}")
        .trim_end_matches(['-', '+'])
        .len();
    let end = outer_word(tag, start, &["if", "recursive"])
        .unwrap_or(close)
        .max(start);
    let (head, rest) = tag.split_at(start);
    let (iter, tail) = rest.split_at(end - start);
    if iter.trim().is_empty() {
        return tag.to_owned();
    }
    format!("{head} ({})|{ITERABLE} {tail}", iter.trim_matches(' '))
}

/// Finds one of these words outside strings and brackets.
pub(crate) fn outer_word(tag: &str, from: usize, words: &[&str]) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    let mut depth = 0usize;
    let mut word = None;
    for (at, letter) in tag.char_indices().filter(|(at, _)| *at >= from) {
        if let Some(open) = quote {
            match letter {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if letter == open => quote = None,
                _ => {}
            }
            continue;
        }
        if letter.is_alphanumeric() || letter == '_' {
            word.get_or_insert(at);
            continue;
        }
        if let Some(start) = word.take()
            && depth == 0
            && words.contains(&&tag[start..at])
        {
            return Some(start);
        }
        match letter {
            '"' | '\'' => quote = Some(letter),
            '(' | '[' | '{' if at >= 2 => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Where the text of a raw block ends.
fn raw_end(rest: &str) -> usize {
    let mut from = 0;
    while let Some(at) = rest[from..].find("{%") {
        if word(&rest[from + at..]) == "endraw" {
            return from + at;
        }
        from += at + 2;
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use proptest::prelude::*;

    #[test]
    fn renames_the_pair_and_keeps_marks() {
        assert_eq!(
            rewrite("A{%- generation -%}b{%+ endgeneration %}C"),
            "A{%- with %}{% filter octavo_generation -%}b{%+ endfilter %}{% endwith %}C"
        );
    }

    #[test]
    fn checks_what_a_loop_runs_over() {
        for (from, to) in [
            ("{% for x in y %}", "{% for x in (y)|octavo_iterable %}"),
            (
                "{%- for k, v in d.items() if v is not none -%}",
                "{%- for k, v in (d.items())|octavo_iterable if v is not none -%}",
            ),
            (
                "{% for x in (a if b else c) recursive %}",
                "{% for x in ((a if b else c))|octavo_iterable recursive %}",
            ),
            (
                "{% for x in ['if', \"in\"] %}",
                "{% for x in (['if', \"in\"])|octavo_iterable %}",
            ),
            (
                "{% for inner in index %}",
                "{% for inner in (index)|octavo_iterable %}",
            ),
        ] {
            assert_eq!(rewrite(from), to);
        }
    }

    #[test]
    fn keeps_the_newline_after_raw() {
        assert_eq!(
            rewrite("{% raw %}\n{% endraw %}"),
            "{% raw %}\n\n{% endraw %}"
        );
        assert_eq!(
            rewrite("{% raw -%}\n{% endraw %}"),
            "{% raw -%}\n{% endraw %}"
        );
    }

    #[test]
    fn leaves_everything_else() {
        for same in [
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{%- endraw %}",
            "{{ '{% generation %}' }}",
            "{% set x = '%} {% generation %}' %}",
            "{% if generation %}{{ generation }}{% endif %}",
            "{",
            "{{ unclosed",
        ] {
            assert_eq!(rewrite(same), same);
        }
    }

    proptest! {
        /// Whatever a file holds: no panic, and nothing lost but a renamed tag.
        #[test]
        fn loses_nothing(parts in prop::collection::vec(
            prop::sample::select(vec!["{%", "%}", "{{", "}}", "{#", "#}", "-", " for x in ", "é", "\n", "'", "\"", "raw", "endraw", " in ", "if", "(", "generation"]),
            0..24,
        )) {
            let source = parts.concat();
            let rewritten = rewrite(&source);
            let mut letters = rewritten.chars();
            let unchanged = source.replace("generation", "").replace(' ', "");
            prop_assert!(unchanged.chars().all(|letter| letters.any(|other| other == letter)), "{source:?} {rewritten:?}");
        }
    }
}
