//! Semantics that templates lean on, one by one; expected texts are those of Jinja2 3.1.6 and Transformers 5.24.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use octavo_template::{ChatTemplate, Clock, Conversation, RenderError, TemplateSet};
use serde_json::{Map, Value, json};

fn compile(source: &str) -> ChatTemplate {
    ChatTemplate::compile(
        "default",
        source,
        Clock::fixed("2026-03-04T05:06:07").unwrap(),
    )
    .unwrap()
}

/// Renders with variables; `messages` and `tools` among them go where they belong.
fn try_render(source: &str, variables: &Value) -> Result<String, RenderError> {
    let mut variables: Map<String, Value> = variables.as_object().unwrap().clone();
    let mut list = |name: &str| {
        variables
            .shift_remove(name)
            .map(|value| value.as_array().unwrap().clone())
    };
    let (messages, tools) = (list("messages").unwrap_or_default(), list("tools"));
    compile(source).render(&Conversation {
        messages: messages.into_iter().map(Arc::new).collect(),
        tools,
        variables,
        ..Conversation::default()
    })
}

fn render(source: &str, variables: &Value) -> String {
    try_render(source, variables).unwrap()
}

#[test]
fn white_space_is_that_of_transformers() {
    assert_eq!(
        render("A\n{% if true %}\n  B\n{% endif %}\nC\n", &json!({})),
        "A\n  B\nC"
    );
    assert_eq!(
        render("A{% generation %}b{% endgeneration %}C", &json!({})),
        "AbC"
    );
    let body = "{% for i in [1, 2] %}\n  {% generation %}\n  b{{ i }}\n  {% endgeneration %}\n{% endfor %}";
    assert_eq!(render(body, &json!({})), "  b1\n  b2\n");
    assert_eq!(
        render("{% raw %}\n{{ x }}{% endraw %}\ny", &json!({})),
        "\n{{ x }}y"
    );
}

#[test]
fn a_generation_block_has_a_scope_of_its_own() {
    let source = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}";
    assert_eq!(render(source, &json!({})), "21");
}

#[test]
fn what_an_assistant_wrote_is_found() {
    let source = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}\n  {%- generation -%}\n {{ m.content }}!{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    let template = compile(source);
    assert!(template.marks_assistant());
    let messages = ["user", "assistant", "user", "assistant"]
        .map(|role| Arc::new(json!({"role": role, "content": "hé"})))
        .to_vec();
    let conversation = Conversation {
        messages,
        ..Conversation::default()
    };
    let rendered = template.render_parts(&conversation).unwrap();
    assert_eq!(
        rendered.text,
        "<user>hé<assistant>hé!<user>hé<assistant>hé!"
    );
    assert_eq!(rendered.text, template.render(&conversation).unwrap());
    assert_eq!(rendered.assistant, [19..22, 41..44]);
    let none = compile("{{ messages[0].content }}");
    assert!(!none.marks_assistant());
    assert_eq!(none.render_parts(&conversation).unwrap().assistant, []);
    // In a macro, in a loop over what a macro gave, and open at the end.
    let source = "{% macro turn(m) %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endmacro %}{{ turn(messages[0]) }}{% set x = turn(messages[1]) %}{{ x }}";
    let rendered = compile(source).render_parts(&conversation).unwrap();
    assert_eq!(
        (rendered.text.as_str(), rendered.assistant),
        ("[hé][hé]", vec![1..3, 5..7])
    );
    let changed =
        compile("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x | length }}");
    assert!(matches!(
        changed.render_parts(&conversation),
        Err(RenderError::Failed(_))
    ));
}

/// Expected texts are those of Jinja2 3.1.6 with MarkupSafe.
#[test]
fn operators_are_pythons() {
    let given = json!({"a": "x<y", "n": 7, "l": [1, 2], "d": {"k": "v"}});
    for (expression, wanted) in [
        ("'%s is %03d' % (a, n)", "x<y is 007"),
        ("'%s' % a ~ '|' ~ '%s' % n", "x<y|7"),
        ("'%(k)s' % d", "v"),
        ("'%s' % l", "[1, 2]"),
        ("'a%sb' % 'x' + 'c'", "axbc"),
        ("n % 4 + -n % 4", "4"),
        ("(n - 1) % 4", "2"),
        ("n % 2 == 1 and a % () == a", "True"),
        ("'%s: %s'|format('k', n)", "k: 7"),
        ("'%(k)s'|format(k=n)", "7"),
        ("'<b>'|safe + a", "<b>x&lt;y"),
        ("a + '<b>'|safe + a", "x&lt;y<b>x&lt;y"),
        ("a + a", "x<yx<y"),
        (
            "'<'|safe + d|tojson + l|string",
            "<{&#34;k&#34;: &#34;v&#34;}[1, 2]",
        ),
        ("a + 1|safe", "x&lt;y1"),
        ("'<b>'|safe ~ a", "<b>x<y"),
    ] {
        assert_eq!(
            render(&format!("{{{{ {expression} }}}}"), &given),
            wanted,
            "{expression}"
        );
    }
    for expression in ["'%d' % a", "'%s %s' % a", "n % 0", "l % 2", "n + 'x'|safe"] {
        let outcome = try_render(&format!("{{{{ {expression} }}}}"), &given);
        assert!(
            matches!(outcome, Err(RenderError::Failed(_))),
            "{expression}: {outcome:?}"
        );
    }
}

#[test]
fn tojson_is_json_dumps() {
    let tool = json!({"type": "function", "function": {"name": "zeta", "description": "it's <b> & é", "parameters": {
        "type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}}});
    let wanted = r#"{"type": "function", "function": {"name": "zeta", "description": "it's <b> & é", "parameters": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}}}"#;
    assert_eq!(
        render("{{ tools[0] | tojson }}", &json!({"tools": [tool]})),
        wanted
    );
    let x = json!({"b": [1, 2.5, 1e16, true, null], "a": "é\n\u{7f}\u{1f}😀", "e": [], "o": {}});
    for (call, wanted) in [
        (
            "tojson",
            "{\"b\": [1, 2.5, 1e+16, true, null], \"a\": \"é\\n\u{7f}\\u001f😀\", \"e\": [], \"o\": {}}",
        ),
        (
            "tojson(ensure_ascii=true)",
            "{\"b\": [1, 2.5, 1e+16, true, null], \"a\": \"\\u00e9\\n\u{7f}\\u001f\\ud83d\\ude00\", \"e\": [], \"o\": {}}",
        ),
        (
            "tojson(true)",
            "{\"b\": [1, 2.5, 1e+16, true, null], \"a\": \"\\u00e9\\n\u{7f}\\u001f\\ud83d\\ude00\", \"e\": [], \"o\": {}}",
        ),
        (
            "tojson(separators=(',', ':'), sort_keys=true)",
            "{\"a\":\"é\\n\u{7f}\\u001f😀\",\"b\":[1,2.5,1e+16,true,null],\"e\":[],\"o\":{}}",
        ),
        (
            "tojson(indent=2)",
            "{\n  \"b\": [\n    1,\n    2.5,\n    1e+16,\n    true,\n    null\n  ],\n  \"a\": \"é\\n\u{7f}\\u001f😀\",\n  \"e\": [],\n  \"o\": {}\n}",
        ),
    ] {
        assert_eq!(
            render(&format!("{{{{ x | {call} }}}}"), &json!({"x": x})),
            wanted,
            "{call}"
        );
    }
    assert!(matches!(
        try_render("{{ nothing | tojson }}", &json!({})),
        Err(RenderError::Failed(_))
    ));
}

#[test]
fn values_print_as_in_python() {
    let x = json!({"b": 1, "a": true, "c": null, "f": 1e-7, "s": "it's"});
    assert_eq!(
        render("{{ x }}", &json!({"x": x})),
        "{'b': 1, 'a': True, 'c': None, 'f': 1e-07, 's': \"it's\"}"
    );
    assert_eq!(
        render(
            "{{ x }}|{{ x | string }}|{{ [x, 1] | join('-') }}",
            &json!({"x": 1e20})
        ),
        "1e+20|1e+20|1e+20-1"
    );
    assert_eq!(
        render("{{ x }}{{ y }}{{ none }}", &json!({"x": null})),
        "NoneNone"
    );
    let loops = "[{{ s | trim }}]{% for a in l %}{{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}{% for k, v in d|items %}{{k}}={{v}};{% endfor %}";
    let given = json!({"s": "　 x \t\n", "l": [1, 2, 3], "d": {"b": 1, "a": true, "c": null}});
    assert_eq!(render(loops, &given), "[x]|2;1|3;2|;b=1;a=True;c=None;");
}

#[test]
fn python_methods_are_there() {
    for (expression, wanted) in [
        ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
        ("' a  b '.split()", "['a', 'b']"),
        ("' a  b c '.rsplit(none, 1)", "[' a  b', 'c']"),
        ("'k=v=w'.partition('=')", "('k', '=', 'v=w')"),
        ("'k=v=w'.rpartition('=')", "('k=v', '=', 'w')"),
        ("'x'.partition('=')", "('x', '', '')"),
        ("'<think>'.removeprefix('<').removesuffix('>')", "think"),
        ("'abcb'.index('b')", "1"),
        ("'abcb'.rindex('b')", "3"),
        ("'-7'.zfill(4)", "-007"),
        ("'ab'.center(5, '*')", "**ab*"),
        ("'ab'.ljust(4) ~ '|' ~ 'ab'.rjust(4)", "ab  |  ab"),
        ("'aB'.swapcase()", "Ab"),
        ("'a\\r\\nb\\u2028c'.splitlines()", "['a', 'b', 'c']"),
        ("'xxaxx'.strip('x')", "a"),
        ("[1, 2].index(2)", "1"),
        ("'abc'[::-1]", "cba"),
        ("{'a': 1}.get('b', 2)", "2"),
        ("x if x is sequence else 'no'", "text"),
        ("true is number", "True"),
    ] {
        assert_eq!(
            render(&format!("{{{{ {expression} }}}}"), &json!({"x": "text"})),
            wanted,
            "{expression}"
        );
    }
}

#[test]
fn attributes_and_arguments_parse_as_in_jinja() {
    let source = "{% if m.content is iterable and m.content is not mapping and m.content.0.type == 'text' %}yes{% endif %}";
    assert_eq!(
        render(source, &json!({"m": {"content": [{"type": "text"}]}})),
        "yes"
    );
    let source = "{% set ns = namespace(name=x if x else 'd') %}{{ ns.name }}";
    assert_eq!(render(source, &json!({"x": ""})), "d");
    assert_eq!(render(source, &json!({"x": "q"})), "q");
    assert_eq!(
        render("{{ strftime_now('%d %b %Y %-d %H:%M') }}", &json!({})),
        "04 Mar 2026 4 05:06"
    );
}

#[test]
fn missing_is_not_none() {
    let source = "{% for m in messages %}{% if m.content is defined %}{{ m.content }}{% else %}-{% endif %}{% endfor %}";
    assert_eq!(
        render(
            source,
            &json!({"messages": [{"role": "a"}, {"role": "a", "content": null}]})
        ),
        "-None"
    );
    for source in [
        "{% for x in none %}{% endfor %}",
        "{{ none | list }}",
        "{{ a.b.c }}",
        "{{ none + 'x' }}",
        "{% for x in 5 %}{% endfor %}",
    ] {
        assert!(
            matches!(try_render(source, &json!({})), Err(RenderError::Failed(_))),
            "{source}"
        );
    }
    assert_eq!(
        render(
            "{% for x in nothing %}{% endfor %}{{ a.b }}",
            &json!({"a": {}})
        ),
        ""
    );
}

#[test]
fn a_message_is_continued_where_it_ends() {
    let source = "{% for m in messages %}<{{m.role}}>{{ m.content | trim }}<end>{% endfor %}";
    let render = |last: &str, source: &str| {
        compile(source).render(&Conversation {
            messages: vec![
                json!({"role": "user", "content": last}).into(),
                json!({"role": "assistant", "content": last}).into(),
            ],
            continue_final_message: true,
            ..Conversation::default()
        })
    };
    for last in ["OK!\n", "OK! ", "OK!\t", "OK!"] {
        assert_eq!(
            render(last, source).unwrap(),
            "<user>OK!<end><assistant>OK!"
        );
    }
    assert_eq!(render("a ", "{{ messages[1].content }}|").unwrap(), "a ");
    assert!(matches!(
        render("x", "{{ messages[0].content }}"),
        Err(RenderError::Continuation(_))
    ));
}

#[test]
fn refusals_carry_the_templates_words() {
    let error = try_render("{{ raise_exception('Only ' ~ 'user') }}", &json!({})).unwrap_err();
    assert_eq!(error, RenderError::Refused("Only user".to_owned()));
    let nested = "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}";
    assert_eq!(
        try_render(nested, &json!({})).unwrap_err(),
        RenderError::Refused("deep".to_owned())
    );
}

#[test]
fn work_is_bounded() {
    for source in [
        "{% for a in range(9000) %}{% for b in range(9000) %}{% for c in range(9000) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x'.center(999999999) }}",
        "{{ range(999999999) | list }}",
        "{{ [[[[1]]]] | tojson(indent=99999999) }}",
    ] {
        assert!(try_render(source, &json!({})).is_err(), "{source}");
    }
}

#[test]
fn what_is_not_supported_is_refused_at_load_by_name() {
    let clock = || Clock::fixed("2026-03-04T05:06:07").unwrap();
    for (source, said) in [
        ("{% if %}", "syntax error"),
        ("{% include 'x' %}", "include"),
        ("{% do x.append(1) %}", "the tag do"),
    ] {
        let error = ChatTemplate::compile("default", source, clock())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(said) && error.contains("\"default\""),
            "{error}"
        );
    }
    let source = "{% if false %}{{ a | fromjson }}{{ now() }}{{ b is odd_one }}{% endif %}{% macro own() %}{% endmacro %}{{ own() }}";
    let template = ChatTemplate::compile("default", source, clock()).unwrap();
    assert_eq!(
        template.unknown(),
        [
            "filter fromjson (line 1)",
            "function now (line 1)",
            "test odd_one (line 1)"
        ]
    );
    assert_eq!(template.render(&Conversation::default()).unwrap(), "");
}

#[test]
fn templates_are_found_where_models_keep_them() {
    let dir = tempfile::tempdir().unwrap();
    let load =
        |config: Value| TemplateSet::load(dir.path(), config.as_object().unwrap(), &Clock::System);
    let shown = |set: &TemplateSet, tools: bool| {
        set.choose(tools)
            .map(|template| template.source().to_owned())
    };
    assert_eq!(shown(&load(json!({})).unwrap(), false), None);
    assert_eq!(
        shown(&load(json!({"chat_template": "text"})).unwrap(), true).unwrap(),
        "text"
    );
    let list = json!({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]});
    let set = load(list.clone()).unwrap();
    assert_eq!(
        (shown(&set, false).unwrap(), shown(&set, true).unwrap()),
        ("d".to_owned(), "t".to_owned())
    );
    assert!(
        load(json!({"chat_template": 5}))
            .unwrap_err()
            .to_string()
            .contains("chat_template")
    );
    assert!(load(json!({"chat_template": [{"name": "x"}]})).is_err());
    std::fs::write(
        dir.path().join("chat_template.json"),
        r#"{"chat_template": "older"}"#,
    )
    .unwrap();
    assert_eq!(shown(&load(json!({})).unwrap(), false).unwrap(), "older");
    assert_eq!(shown(&load(list.clone()).unwrap(), false).unwrap(), "d");
    std::fs::write(dir.path().join("chat_template.jinja"), "file").unwrap();
    std::fs::create_dir(dir.path().join("additional_chat_templates")).unwrap();
    std::fs::write(
        dir.path().join("additional_chat_templates/tool_use.jinja"),
        "more",
    )
    .unwrap();
    let set = load(list).unwrap();
    assert_eq!(
        (shown(&set, false).unwrap(), shown(&set, true).unwrap()),
        ("file".to_owned(), "more".to_owned())
    );
}
