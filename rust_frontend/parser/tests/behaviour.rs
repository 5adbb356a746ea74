//! Fields of a format file, each by what it changes; and ids in place of text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Choice, machine, registry, show};
use octavo_grammar::{Calls, Format, Grammar};
use octavo_parser::{
    Detokenize, Finish, Machine, Message, Options, Parser, Source, Specials, Start, Tools, parse,
};
use serde_json::json;

const BASE: &str = r#"
name = "mine"
tool = ["mine"]
reasoning = ["mine"]
doc = "A format of a user."
start = "reasoning"
#FIELD
[markers]
think_close = "</think>"
open = "<t>"
close = "</t>"
[states.reasoning]
kind = "reasoning"
on = { think_close = "content", open = "call" }
[states.content]
kind = "content"
on = { open = "call" }
[states.call]
kind = "args"
codec = "json_object_with_name"
name_keys = ["name"]
args_keys = ["arguments"]
on = { close = "return" }
"#;

fn mine(field: &str) -> Arc<Machine> {
    let format = Format::parse("mine.toml", &BASE.replace("#FIELD", field)).unwrap();
    Machine::new(Grammar::compose(
        Some(&format),
        Some(&format),
        Calls::Parse,
        true,
    ))
}

fn read(machine: &Arc<Machine>, options: Options, text: &str) -> Message {
    parse(machine, options, text, Finish::Stop)
}

const INTERRUPTED: &str = "one<t>{\"name\": \"f\", \"arguments\": {}}</t>two</think>three";

#[test]
fn after_call_says_where_a_call_inside_of_thoughts_leads() {
    let ended = read(
        &mine("after_call = \"content\""),
        Options::default(),
        INTERRUPTED,
    );
    assert_eq!(
        (ended.reasoning.as_str(), ended.content.as_str()),
        ("one", "two</think>three")
    );
    let resumed = read(
        &mine("after_call = \"resume_previous\""),
        Options::default(),
        INTERRUPTED,
    );
    assert_eq!(
        (resumed.reasoning.as_str(), resumed.content.as_str()),
        ("onetwo", "three")
    );
}

#[test]
fn calls_inside_of_thoughts_may_be_text() {
    let text = "one<t>two</think>three";
    let field = "interrupts_reasoning = false\n";
    let without = BASE
        .replace("#FIELD", field)
        .replace(", open = \"call\" }", " }");
    let format = Format::parse("mine.toml", &without).unwrap();
    let machine = Machine::new(Grammar::compose(
        Some(&format),
        Some(&format),
        Calls::Parse,
        true,
    ));
    let message = read(&machine, Options::default(), text);
    assert_eq!(
        (message.reasoning.as_str(), message.content.as_str()),
        ("one<t>two", "three")
    );
}

#[test]
fn unknown_tools_pass_are_text_or_are_dropped() {
    let tools = Tools::from_json(&[json!({"type": "function", "function": {"name": "known"}})]);
    let options = Options {
        tools,
        start: Start::Content,
        ..Options::default()
    };
    let text = "<t>{\"name\": \"f\", \"arguments\": {}}</t>";
    let passed = read(&mine(""), options.clone(), text);
    assert_eq!(passed.calls.len(), 1, "{}", show(&passed));
    let shown = read(&mine("unknown_tool = \"text\""), options.clone(), text);
    assert_eq!(
        (shown.calls.len(), shown.content.starts_with("{\"name\"")),
        (0, true),
        "{}",
        show(&shown)
    );
    let dropped = read(&mine("unknown_tool = \"drop\""), options, text);
    assert_eq!(
        (dropped.calls.len(), dropped.content.as_str()),
        (0, ""),
        "{}",
        show(&dropped)
    );
    assert!(dropped.malformed.contains('f'), "{}", show(&dropped));
}

#[test]
fn ids_follow_the_policy() {
    let registry = registry();
    let options = Options {
        seed: 7,
        ..Options::default()
    };
    let call = |name: &str, text: &str| {
        let machine = machine(
            &registry,
            Choice {
                tool: Some(name),
                ..Choice::default()
            },
        );
        read(&machine, options.clone(), text).calls.remove(0).id
    };
    let kimi = "<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|>";
    assert_eq!(call("kimi_k2", kimi), "functions.f:3");
    let mistral = call("mistral", "[TOOL_CALLS]f[ARGS]{}");
    assert!(
        mistral.len() == 9 && mistral.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "{mistral}"
    );
    let random = call("hermes", "<tool_call>{\"name\": \"f\"}</tool_call>");
    assert!(
        random.starts_with("call_") && random.len() == 29,
        "{random}"
    );
}

#[test]
fn a_marker_by_id_cannot_be_written_as_text() {
    let only = BASE.replace("#FIELD", "").replace(
        "open = \"<t>\"",
        "open = { text = [\"<t>\"], policy = \"id_only\" }",
    );
    let format = Format::parse("mine.toml", &only).unwrap();
    let machine = Machine::new(Grammar::compose(
        Some(&format),
        Some(&format),
        Calls::Parse,
        true,
    ));
    let body = "{\"name\": \"f\", \"arguments\": {}}</t>";
    let start = || Options {
        start: Start::Content,
        ..Options::default()
    };
    let text = read(&machine, start(), &format!("<t>{body}"));
    assert_eq!((text.calls.len(), text.content), (0, format!("<t>{body}")));
    let mut parser = Parser::new(&machine, start());
    parser.push_special("<t>");
    parser.push_text(body);
    let mut message: Message = parser.poll().iter().collect();
    parser
        .finish(Finish::Stop)
        .iter()
        .for_each(|event| message.add(event));
    assert_eq!((message.calls.len(), message.content.as_str()), (1, ""));
}

/// Ids are characters; 0 is a special token, 1 the first byte of a pair that the next id completes.
#[derive(Default)]
struct Letters {
    half: bool,
}

impl Detokenize for Letters {
    fn push(&mut self, id: u32, out: &mut String) {
        if id == 1 {
            self.half = true;
        } else if std::mem::take(&mut self.half) {
            out.push('é');
        } else {
            out.extend(char::from_u32(id));
        }
    }

    fn flush(&mut self, out: &mut String) {
        if std::mem::take(&mut self.half) {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[test]
fn ids_become_text_and_tokens_are_attributed() {
    let machine = machine(
        &registry(),
        Choice {
            reasoning: Some("deepseek_r1"),
            ..Choice::default()
        },
    );
    let specials = Arc::new(Specials::new([(0, "</think>".to_owned())]));
    let ids = [97, 1, 2, 98, 0, 99, 1];
    for size in 1..=ids.len() {
        let mut parser = Parser::new(&machine, Options::default());
        let mut source = Source::new(Arc::clone(&specials), Letters::default());
        let mut message = Message::default();
        for part in ids.chunks(size) {
            source
                .feed(&mut parser, part)
                .iter()
                .for_each(|event| message.add(event));
        }
        source.flush(&mut parser);
        parser
            .finish(Finish::Stop)
            .iter()
            .for_each(|event| message.add(event));
        assert_eq!(message.reasoning, "aéb");
        assert_eq!(message.content, "c\u{fffd}");
        assert_eq!(message.reasoning_tokens, 4, "in parts of {size}");
    }
}

#[test]
fn thinking_off_makes_tags_text() {
    let registry = registry();
    let choice = Choice {
        reasoning: Some("qwen3"),
        off: true,
        ..Choice::default()
    };
    let message = read(
        &machine(&registry, choice),
        Options::default(),
        "a</think>b",
    );
    assert_eq!(
        (message.reasoning.as_str(), message.content.as_str()),
        ("", "a</think>b")
    );
}

#[test]
fn only_the_last_turn_of_a_prompt_counts() {
    let format = Format::parse("mine.toml", &BASE.replace("#FIELD", "turns = [\"<a>\"]")).unwrap();
    let grammar = Grammar::compose(Some(&format), Some(&format), Calls::Parse, true);
    assert_eq!(grammar.start_after("say </think> now<a>"), None);
    assert_eq!(
        grammar.start_after("<a>hm</think>\n"),
        Some(grammar.content)
    );
}

#[test]
fn a_limit_completes_nothing() {
    let machine = machine(
        &registry(),
        Choice {
            tool: Some("qwen3_coder"),
            ..Choice::default()
        },
    );
    let text = "<tool_call>\n<function=f>\n<parameter=a>\nhalf";
    let cut = parse(&machine, Options::default(), text, Finish::Length);
    assert_eq!(cut.calls[0].arguments, "{\"a\": \"half");
    assert!(!cut.stopped_for_calls());
    let ended = parse(&machine, Options::default(), text, Finish::Stop);
    assert_eq!(ended.calls[0].arguments, "{\"a\": \"half\"}");
}

#[test]
fn kept_markers_in_a_circle_end() {
    let text = "name = \"c\"\ntool = [\"c\"]\ndoc = \"A circle.\"\nstart = \"content\"\n[markers]\nm = \"<m>\"\n\
        [states.content]\nkind = \"content\"\non = { m = { to = \"b\", keep = true } }\n\
        [states.b]\nkind = \"between\"\non = { m = { to = \"content\", keep = true } }\n";
    let format = Format::parse("c.toml", text).unwrap();
    let machine = Machine::new(Grammar::compose(Some(&format), None, Calls::Parse, true));
    let message = read(&machine, Options::default(), "a<m>b<m>");
    assert_eq!(message.content, "a<m>b<m>");
}

/// A reasoning format, the end of a prompt, and whether it leaves thoughts open.
const PROMPTS: &[(&str, &str, bool)] = &[
    (
        "qwen3",
        "<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n",
        false,
    ),
    (
        "qwen3",
        "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        false,
    ),
    (
        "qwen3",
        "say </think><|im_end|>\n<|im_start|>assistant\n<think>\n",
        true,
    ),
    (
        "minimax_m2",
        "example: <think>x</think>[e~[\n]~b]ai\n<think>\n",
        true,
    ),
    ("glm45", "<|assistant|></think>", false),
    ("deepseek_v4", "<｜Assistant｜><think>", true),
    ("gemma4", "<|turn>model\n<|channel>thought\n", true),
    (
        "gemma4",
        "<|turn>model\n<|channel>thought\n<channel|>",
        false,
    ),
    (
        "cohere_command4",
        "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>",
        false,
    ),
    ("kimi_k3", "<|open|>think<|sep|>", true),
    ("kimi_k3", "<|open|>response<|sep|>", false),
    (
        "openai_gptoss",
        "<|start|>assistant<|channel|>analysis<|message|>",
        true,
    ),
];

#[test]
fn prompts_say_where_an_answer_begins() {
    let registry = registry();
    for (name, prompt, thoughts) in PROMPTS {
        let machine = machine(
            &registry,
            Choice {
                reasoning: Some(name),
                ..Choice::default()
            },
        );
        let options = Options {
            start: Start::After((*prompt).to_owned()),
            ..Options::default()
        };
        let message = read(&machine, options, "word");
        assert_eq!(
            message.reasoning == "word",
            *thoughts,
            "{name}: {prompt} -> {}",
            show(&message)
        );
        assert_eq!(
            message.content == "word",
            !*thoughts,
            "{name}: {prompt} -> {}",
            show(&message)
        );
    }
}
