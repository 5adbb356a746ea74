//! Templates that remember render as those that do not: every prefix of every conversation, growing, branching and going back.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use octavo_template::{ChatTemplate, Clock, Conversation};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use support::shared;

/// A template as it is, and one that remembers.
struct Pair {
    plain: ChatTemplate,
    remembering: ChatTemplate,
}

impl Pair {
    fn new(name: &str, source: &str) -> Self {
        let compile = || {
            let clock = Clock::fixed("2026-03-04T05:06:07").unwrap();
            ChatTemplate::compile(name, source, clock).unwrap()
        };
        Self {
            plain: compile(),
            remembering: compile().remembering(),
        }
    }

    /// Whether both give the same, a refusal included.
    fn agree(&self, conversation: &Conversation) -> bool {
        self.plain.render(conversation) == self.remembering.render(conversation)
    }
}

/// A conversation of the first messages of one.
fn first(count: usize, conversation: &Conversation) -> Conversation {
    let mut shorter = conversation.clone();
    shorter.messages.truncate(count);
    shorter
}

fn templates(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in std::fs::read_dir(root.join("jinja")).unwrap() {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(root.join("jinja")).unwrap();
            let source = std::fs::read_to_string(&path).unwrap();
            found.insert(name.to_string_lossy().into_owned(), source);
        }
    }
    found
}

/// Each conversation of the oracle, message by message.
#[test]
fn conversations_of_the_oracle_grow() {
    let Some(root) = shared() else { return };
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut rendered = 0;
    for file in ["transformers.jsonl.gz", "served.jsonl.gz"] {
        for mut row in support::rows(&root.join(file)) {
            let pair = pairs.entry(row.template.clone()).or_insert_with(|| {
                let path = root.join("jinja").join(&row.template);
                Pair::new(&row.template, &std::fs::read_to_string(path).unwrap())
            });
            let conversation = row.conversation();
            for count in 1..=conversation.messages.len() {
                let shorter = first(count, &conversation);
                assert!(
                    pair.agree(&shorter),
                    "{} {} {count}",
                    row.template,
                    row.case
                );
                rendered += 1;
            }
        }
    }
    let passes = pairs.values().map(|pair| pair.remembering.passes());
    let (skipped, all) = passes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!(
        "{rendered} conversations in {} templates; {skipped} of {all} passes were left out",
        pairs.len()
    );
    assert!(skipped > 0);
}

/// What people and models say.
fn message(kind: usize, number: usize) -> Vec<Value> {
    let call = |name: &str| json!({"id": "call12345", "type": "function", "function": {"name": name, "arguments": {"x": number}}});
    match kind {
        0 => vec![
            json!({"role": "user", "content": format!("question {number}")}),
            json!({"role": "assistant", "content": format!("answer {number}")}),
        ],
        1 => vec![
            json!({"role": "user", "content": format!("call {number}")}),
            json!({"role": "assistant", "content": "", "tool_calls": [call("f")]}),
            json!({"role": "tool", "content": format!("result {number}"), "tool_call_id": "call12345", "name": "f"}),
            json!({"role": "assistant", "content": format!("answer {number}")}),
        ],
        2 => vec![
            json!({"role": "user", "content": format!("think {number}")}),
            json!({"role": "assistant", "content": format!("<think>\nhm {number}\n</think>\n\nanswer"), "reasoning_content": format!("hm {number}")}),
        ],
        _ => vec![
            json!({"role": "user", "content": [{"type": "text", "text": format!("part {number}")}]}),
            json!({"role": "assistant", "content": format!("answer {number}")}),
        ],
    }
}

/// How much of a long conversation each template leaves out, and that it is right at each message of it.
#[test]
fn long_conversations_go_on_where_they_were() {
    const TURNS: usize = 24;
    let Some(root) = shared() else { return };
    let mut shares = Vec::new();
    for (name, source) in templates(&root) {
        let pair = Pair::new(&name, &source);
        let mut conversation = Conversation {
            add_generation_prompt: true,
            variables: [("bos_token", "<s>"), ("eos_token", "</s>")]
                .map(|(name, text)| (name.to_owned(), json!(text)))
                .into_iter()
                .collect(),
            ..Conversation::default()
        };
        for number in 0..TURNS {
            for message in message(0, number) {
                conversation.messages.push(message.into());
                assert!(
                    pair.agree(&conversation),
                    "{name} {}",
                    conversation.messages.len()
                );
            }
        }
        let (skipped, all) = pair.remembering.passes();
        #[allow(clippy::cast_precision_loss)]
        shares.push((skipped as f64 / all.max(1) as f64, skipped, all, name));
    }
    shares.sort_by(|left, right| left.0.total_cmp(&right.0));
    for (share, skipped, all, name) in &shares {
        println!("{:3.0}% {skipped}/{all} {name}", share * 100.0);
    }
    let most = shares.iter().filter(|(share, ..)| *share > 0.8).count();
    println!(
        "{most} of {} templates leave out more than four fifths",
        shares.len()
    );
    assert!(most * 10 > shares.len() * 7, "{most} of {}", shares.len());
}

/// A way through conversations: grow by something, go back to a beginning, change a message, change what is around.
#[derive(Debug, Clone)]
enum Move {
    Grow(usize),
    Back(usize),
    Change(usize, String),
    Around(bool, bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0..4usize).prop_map(Move::Grow),
        2 => (0..20usize).prop_map(Move::Back),
        2 => (0..20usize, "[ab\n<>/think]{0,12}").prop_map(|(place, text)| Move::Change(place, text)),
        1 => any::<(bool, bool)>().prop_map(|(prompt, tools)| Move::Around(prompt, tools)),
    ];
    prop::collection::vec(one, 1..14)
}

/// Goes a way with a template. Returns where it differs.
fn walk(pair: &Pair, way: &[Move]) -> Option<Conversation> {
    let tool = json!({"type": "function", "function": {"name": "f", "description": "d", "parameters": {
        "type": "object", "properties": {"x": {"type": "integer", "description": "x"}}, "required": ["x"]}}});
    let mut conversation = Conversation {
        messages: vec![json!({"role": "system", "content": "be brief"}).into()],
        add_generation_prompt: true,
        ..Conversation::default()
    };
    for (number, one) in way.iter().enumerate() {
        let place = |place: &usize| place % conversation.messages.len();
        match one {
            Move::Grow(kind) => {
                let more = message(*kind, number).into_iter().map(Arc::new);
                conversation.messages.extend(more);
            }
            Move::Back(to) => conversation.messages.truncate(1 + place(to)),
            Move::Change(at, text) => {
                let at = place(at);
                Arc::make_mut(&mut conversation.messages[at])["content"] = json!(text);
            }
            Move::Around(prompt, tools) => {
                conversation.add_generation_prompt = *prompt;
                conversation.tools = tools.then(|| vec![tool.clone()]);
            }
        }
        if !pair.agree(&conversation) {
            return Some(conversation);
        }
    }
    None
}

#[test]
fn any_way_through_conversations_is_the_same() {
    let Some(root) = shared() else { return };
    let config = Config {
        cases: 6,
        failure_persistence: None,
        ..Config::default()
    };
    for (number, (name, source)) in templates(&root).into_iter().enumerate() {
        let pair = Pair::new(&name, &source);
        let seed = [u8::try_from(number % 251).unwrap(); 32];
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(config.clone(), rng);
        let same = |way: Vec<Move>| {
            let wrong = walk(&pair, &way);
            prop_assert!(wrong.is_none(), "{}: {:?}", name, wrong);
            Ok(())
        };
        runner.run(&moves(), same).unwrap();
    }
}

/// Templates that look at the conversation in every way a loop can.
#[test]
fn odd_templates_are_the_same() {
    let odd = [
        "{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ m.role }}{% endfor %}",
        "{% for m in messages %}{{ loop.revindex0 }}{{ loop.previtem.content }}{{ loop.nextitem.content }}{% endfor %}",
        "{% for m in messages %}{{ messages[loop.index0 + 1].content }}|{{ messages[-1].content }}{% endfor %}",
        "{% for m in messages[1:] %}{{ m.content }}{{ loop.last }}{% else %}none{% endfor %}",
        "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.content }}{% endfor %}",
        "{% for m in messages[:-1] %}{{ m.content }}{% endfor %}{{ messages[-1].content }}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endfor %}{{ ns.n }}",
        "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace() %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
         {% for m in messages %}{{ loop.index0 > ns.last }}{{ ns.last is defined }}{% endfor %}",
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% set ns.last = loop.index0 %}{% endfor %}\
         {% for m in messages %}{% if loop.index <= ns.last %}{{ m.content }}{% endif %}{% endfor %}",
        "{% set last = messages|length - 1 %}{% for m in messages %}{{ last == loop.index0 }}{{ m.content }}{% endfor %}",
        "{% set ns = namespace(m=none) %}{% for m in messages %}{% if ns.m %}{{ ns.m.content }}{% endif %}{% set ns.m = m %}{% endfor %}",
        "{% set ns = namespace(all=messages) %}{% for m in messages %}{{ ns.all|length }}{% endfor %}",
        "{% set ns = namespace(s=namespace(n=0)) %}{% for m in messages %}{{ ns.s.n }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% macro f() %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}{% for m in messages %}{{ f() }}{{ m.content }}{% endfor %}",
        "{% macro f(m) %}{{ m.content }}{{ messages|length }}{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}",
        "{% set x = messages[-1].content %}{% macro f() %}{{ x }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
        "{% macro f() %}{{ x }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}{% set x = messages|length %}{% for m in messages %}{{ f() }}{% endfor %}",
        "{% set m = messages|length %}{% macro f() %}{{ m }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
        "{% for m in messages %}{% if loop.index0 == 4 %}{% break %}{% endif %}{{ m.content }}{% endfor %}end",
        "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}",
        "{% for m in messages|selectattr('role', 'eq', 'user') %}{{ m.content }}{{ loop.last }}{% endfor %}",
        "{% for m in messages %}{% for n in messages %}{{ n.role[0] }}{% endfor %}{{ m.content }}\n{% endfor %}",
        "{% for m in messages %}{{ strftime_now('%Y') }}{{ m.content }}{% endfor %}",
        "   {% for m in messages %}\n  {{ m.content }}\n  {% endfor %}\n x",
        "a\n   {%- for m in messages -%}\n  {{ m.content }}\n  {%+ if true %} {% endif %}{%- endfor -%}\n x",
        "{% if messages|length > 3 %}{% for m in messages %}{{ m.content }}{% endfor %}{% else %}{% for m in messages %}{{ m.role }}{% endfor %}{% endif %}",
        "{% set messages = messages[1:] %}{% for m in messages %}{{ m.content }}{{ messages[0].content }}{% endfor %}",
        "{% for m in messages %}{% set x = m.content %}{{ x }}{{ y }}{% set y = x %}{% endfor %}{{ x }}",
        "{% for m in messages %}{{ m }}{{ m|tojson }}{{ m.items()|list }}{{ 'name' in m }}{{ m.get('name', 1) }}{% endfor %}",
        "{{ messages }}{{ messages|tojson }}{{ messages == messages|list }}{{ messages is sequence }}{{ messages + messages }}{% for m in messages %}{{ m == messages[0] }}{% endfor %}",
    ];
    let config = Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    };
    for source in odd {
        let pair = Pair::new("odd", source);
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(config.clone(), rng);
        let same = |way: Vec<Move>| {
            let wrong = walk(&pair, &way);
            prop_assert!(
                wrong.is_none(),
                "{}: {:?}",
                source,
                wrong.map(|wrong| (pair.plain.render(&wrong), pair.remembering.render(&wrong)))
            );
            Ok(())
        };
        runner.run(&moves(), same).unwrap();
    }
}

/// What is kept is bounded: many conversations, and one that is too large.
#[test]
fn memory_is_bounded() {
    let pair = Pair::new(
        "chat",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    );
    for number in 0..120 {
        let text = format!("{number} {}", "x".repeat(1 << 20));
        let messages =
            ["user", "assistant", "user"].map(|role| json!({"role": role, "content": text}));
        let conversation = Conversation {
            messages: messages.map(Arc::new).to_vec(),
            ..Conversation::default()
        };
        pair.remembering.render(&conversation).unwrap();
        assert!(pair.remembering.remembered_bytes() <= 64 << 20);
    }
    assert!(pair.remembering.remembered_bytes() > 0);
}
