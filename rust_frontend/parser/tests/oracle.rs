//! The recorded cases of the parser oracle, against a list of known differences that may only shrink.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use common::{Choice, machine, registry, same_calls, shared, show};
use octavo_grammar::Registry;
use octavo_parser::{Event, Finish, Message, Options, Parser, Start, Tools};
use serde_json::Value;

const KNOWN: &str = include_str!("known_differences.txt");

struct Case {
    row: Value,
}

impl Case {
    fn text(&self, key: &str) -> &str {
        self.row.get(key).and_then(Value::as_str).unwrap_or("")
    }

    fn names(&self, key: &str) -> Vec<&str> {
        self.row
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    fn kwarg(&self, key: &str) -> Option<&Value> {
        [
            "/request/chat_template_kwargs",
            "/init/chat_template_kwargs",
        ]
        .iter()
        .find_map(|path| self.row.pointer(path)?.get(key))
    }

    /// Whether the request turns thinking on or off, by any of the names for it.
    fn thinking(&self) -> Option<bool> {
        let flag = ["enable_thinking", "thinking"]
            .iter()
            .find_map(|key| self.kwarg(key)?.as_bool());
        let mode = self.kwarg("thinking_mode").map(|mode| mode == "enabled");
        flag.or(mode).or_else(|| {
            self.kwarg("reasoning_effort")
                .map(|effort| effort != "no_think")
        })
    }

    fn start(&self) -> Start {
        match (self.text("start"), self.thinking()) {
            (_, Some(false)) => Start::Content,
            ("content", _) => Start::Content,
            ("reasoning", _) | (_, Some(true)) => Start::Reasoning,
            _ => Start::Default,
        }
    }

    fn choices(&self) -> Vec<(Choice<'_>, Start)> {
        let choice_of = self
            .row
            .pointer("/request/tool_choice")
            .and_then(Value::as_str);
        let base = Choice {
            none: choice_of == Some("none"),
            off: self.thinking() == Some(false),
            ..Choice::default()
        };
        let bare = self.row.pointer("/init/strict_tool_calling") == Some(&Value::Bool(false));
        let mut out = Vec::new();
        for name in self.names("parser") {
            let others = self.names("reasoning_parser");
            if self.text("kind") == "reasoning" {
                out.push((
                    Choice {
                        reasoning: Some(name),
                        ..base
                    },
                    self.start(),
                ));
            } else if others.is_empty() {
                let tool = if bare { "json_list" } else { name };
                out.push((
                    Choice {
                        tool: Some(tool),
                        ..base
                    },
                    Start::Default,
                ));
            }
            for other in others {
                out.push((
                    Choice {
                        tool: Some(name),
                        reasoning: Some(other),
                        ..base
                    },
                    self.start(),
                ));
            }
        }
        out
    }

    fn expected_calls(&self) -> Vec<(String, String)> {
        let calls = self
            .row
            .pointer("/result/calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let text = |call: &Value, key: &str| {
            call.get(key)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        calls
            .map(|call| (text(call, "name"), text(call, "arguments")))
            .collect()
    }

    fn matches(&self, message: &Message) -> bool {
        let want = |key: &str| {
            self.row
                .pointer(&format!("/result/{key}"))
                .and_then(Value::as_str)
                .unwrap_or("")
        };
        let kind = self.text("kind");
        let mut message = message.clone();
        if self.row.pointer("/request/include_reasoning") == Some(&Value::Bool(false)) {
            message.reasoning.clear();
        }
        if self.kwarg("force_nonempty_content") == Some(&Value::Bool(true))
            && message.content.is_empty()
        {
            message.content = std::mem::take(&mut message.reasoning);
        }
        message.content == want("content")
            && (kind == "tool" || message.reasoning == want("reasoning"))
            && (kind == "reasoning" || same_calls(&message.calls, &self.expected_calls()))
    }
}

/// Feed a text in which some parts are special tokens.
fn feed(parser: &mut Parser, text: &str, specials: &[&str]) -> Vec<Event> {
    let mut rest = text;
    while let Some((at, special)) = specials
        .iter()
        .filter_map(|special| rest.find(special).map(|at| (at, *special)))
        .min()
    {
        parser.push_text(&rest[..at]);
        parser.push_special(special);
        rest = &rest[at + special.len()..];
    }
    parser.push_text(rest);
    parser.poll()
}

/// The message before and after the end.
fn run(
    registry: &Registry,
    case: &Case,
    choice: Choice<'_>,
    start: &Start,
    whole: bool,
) -> (Message, Message) {
    let tools = case
        .row
        .get("tools")
        .and_then(Value::as_array)
        .filter(|tools| !tools.is_empty());
    let options = Options {
        tools: tools
            .map(|tools| Tools::from_json(tools))
            .unwrap_or_default(),
        start: start.clone(),
        ..Options::default()
    };
    let mut parser = Parser::new(&machine(registry, choice), options);
    let specials: Vec<&str> = case
        .row
        .pointer("/init/special_tokens")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let deltas = case.names("deltas");
    let mut events = Vec::new();
    if whole || deltas.is_empty() {
        events.extend(feed(&mut parser, case.text("input"), &specials));
    } else {
        deltas
            .iter()
            .for_each(|delta| events.extend(feed(&mut parser, delta, &specials)));
    }
    let before: Message = events.iter().collect();
    events.extend(parser.finish(Finish::Stop));
    (before, events.iter().collect())
}

fn known() -> BTreeMap<String, String> {
    let mut reason = String::new();
    let mut known = BTreeMap::new();
    for line in KNOWN.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix('#') {
            Some(text) => reason = text.trim().to_owned(),
            None => {
                known.insert(line.to_owned(), reason.clone());
            }
        }
    }
    known
}

/// Run a case under all its names; add what differs to the report.
fn passes(registry: &Registry, case: &Case, tell: bool, report: &mut String) -> bool {
    let mut passed = true;
    for (choice, start) in case.choices() {
        let (before, after) = run(registry, case, choice, &start, false);
        let (_, whole) = run(registry, case, choice, &start, true);
        let id = case.text("id");
        assert_eq!(
            show(&after),
            show(&whole),
            "{id}: depends on how the text was cut"
        );
        let open = case.row.get("finished") == Some(&Value::Bool(false));
        if case.matches(&after) || (open && case.matches(&before)) {
            continue;
        }
        passed = false;
        if tell {
            *report += &format!(
                "\n{id} {choice:?} {start:?}\n  in   {:?}\n  want {}\n  got  {}\n",
                case.text("input"),
                case.row["result"],
                show(&after)
            );
        }
    }
    passed
}

fn recorded() -> Option<Vec<Case>> {
    let file = std::fs::File::open(shared()?.join("oracles/parser/cases.jsonl.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    Some(
        text.lines()
            .map(|line| Case {
                row: serde_json::from_str(line).unwrap(),
            })
            .collect(),
    )
}

#[test]
fn recorded_results() {
    let Some(cases) = recorded() else {
        eprintln!("skipped: no recorded material beside this checkout (OCTAVO_SHARED)");
        return;
    };
    let (registry, known) = (registry(), known());
    let mut failed = BTreeSet::new();
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut report = String::new();
    let all = std::env::var_os("SHOW_DIFFERENCES").is_some();
    for case in &cases {
        let tell = all || !known.contains_key(case.text("id"));
        let passed = passes(&registry, case, tell, &mut report);
        let count = counts
            .entry(case.names("parser").join(",") + " " + case.text("kind"))
            .or_default();
        count.0 += usize::from(passed);
        count.1 += 1;
        if !passed {
            failed.insert(case.text("id").to_owned());
        }
    }
    for (name, (passed, all)) in &counts {
        eprintln!("{passed:>4} of {all:>4}  {name}");
    }
    eprintln!("{} of {} differ", failed.len(), cases.len());
    if all {
        eprintln!("{report}");
    }
    let new = failed.iter().filter(|id| !known.contains_key(*id)).count();
    assert!(new == 0, "{new} new differences{report}");
    let gone: Vec<&String> = known.keys().filter(|id| !failed.contains(*id)).collect();
    assert!(
        gone.is_empty(),
        "no longer different, take them off the list: {gone:?}"
    );
    assert!(failed.len() * 20 <= cases.len(), "more than 5% differ");
}
