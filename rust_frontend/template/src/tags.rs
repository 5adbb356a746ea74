//! `{% generation %}`, which marks what the assistant wrote. minijinja has no tags of our own, so the pair is rewritten to
//! `{% with %}` and `{% endwith %}`, which render their body as it is and have a scope of their own, as the original.

/// What stands between tags is copied; the tags of the pair are renamed. White space marks (`-`, `+`) are kept.
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
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                    continue;
                }
                "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
                "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
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
    let inner = tag.trim_start_matches("{%").trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(inner.len());
    &inner[..end]
}

/// The length of a tag up to and with its end, which does not count inside a string.
fn closing(tag: &str, end: &str) -> usize {
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

    #[test]
    fn renames_the_pair_and_keeps_marks() {
        assert_eq!(rewrite("A{%- generation -%}b{%+ endgeneration %}C"), "A{%- with -%}b{%+ endwith %}C");
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
}
