//! Every template of the shared oracle renders as Transformers renders it, or stands in tests/oracle_failures.txt.
//!
//! The list may only shrink: a template on it that passes fails the test, as does one that is not on it and fails. Each
//! line is `template<TAB>wrong rows`; fewer wrong rows than listed also ask for an update of the list.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use octavo_template::{ChatTemplate, Clock, Conversation, RenderError};
use serde::Deserialize;
use serde_json::{Map, Value};

const KNOWN: &str = include_str!("oracle_failures.txt");

#[derive(Deserialize)]
struct Row {
    template: String,
    case: String,
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    documents: Option<Vec<Value>>,
    add_generation_prompt: bool,
    continue_final_message: bool,
    special: Map<String, Value>,
    kwargs: Map<String, Value>,
    now: String,
    expected: Option<String>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    raise_exception: bool,
    message: String,
}

/// What is wrong with a row; `None` where it is right.
fn judge(template: &ChatTemplate, row: Row) -> Option<String> {
    let mut variables = row.special;
    variables.extend(row.kwargs);
    let conversation = Conversation {
        messages: row.messages,
        tools: row.tools,
        documents: row.documents,
        add_generation_prompt: row.add_generation_prompt,
        continue_final_message: row.continue_final_message,
        variables,
    };
    match (template.render(&conversation), row.expected, row.error) {
        (Ok(text), Some(expected), _) if text == expected => None,
        (Ok(text), Some(expected), _) => {
            let at = text
                .bytes()
                .zip(expected.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let from = |text: &str| {
                String::from_utf8_lossy(
                    &text.as_bytes()
                        [at.saturating_sub(30).min(text.len())..(at + 50).min(text.len())],
                )
                .into_owned()
            };
            Some(format!(
                "at {at}: got {:?}, expected {:?}",
                from(&text),
                from(&expected)
            ))
        }
        (Err(RenderError::Refused(message)), _, Some(error))
            if error.raise_exception && message == error.message =>
        {
            None
        }
        (Err(_), _, Some(error)) if !error.raise_exception => None,
        (Err(error), Some(_), _) => Some(format!("refused: {error}")),
        (result, _, Some(error)) => Some(
            format!("expected refusal {:?}, got {result:?}", error.message)
                .chars()
                .take(300)
                .collect(),
        ),
        (result, None, None) => panic!("the oracle says nothing; got {result:?}"),
    }
}

fn shared() -> Option<PathBuf> {
    let root = std::env::var_os("OCTAVO_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join("oracles/templates");
    if !path.is_dir() {
        println!("skipped: {} is absent; set OCTAVO_SHARED", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn renders_as_transformers() {
    let Some(root) = shared() else { return };
    let file = std::fs::File::open(root.join("transformers.jsonl.gz")).unwrap();
    let mut templates: BTreeMap<String, Result<ChatTemplate, String>> = BTreeMap::new();
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows = 0;
    for line in BufReader::new(flate2::read::GzDecoder::new(file)).lines() {
        let row: Row = serde_json::from_str(&line.unwrap()).unwrap();
        let name = row.template.clone();
        let template = templates.entry(name.clone()).or_insert_with(|| {
            let source = std::fs::read_to_string(root.join("jinja").join(&name)).unwrap();
            ChatTemplate::compile(&name, &source, Clock::fixed(&row.now).unwrap())
                .map_err(|error| error.to_string())
        });
        let case = row.case.clone();
        let fault = match template {
            Ok(template) => judge(template, row),
            Err(reason) => Some(reason.clone()),
        };
        rows += 1;
        if let Some(fault) = fault {
            wrong
                .entry(name)
                .or_default()
                .push(format!("{case}: {fault}"));
        }
    }
    report(rows, templates.len(), &wrong);
    let now: BTreeMap<&str, usize> = wrong
        .iter()
        .map(|(name, faults)| (name.as_str(), faults.len()))
        .collect();
    let known: BTreeMap<&str, usize> = KNOWN
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, count)| (name, count.parse().unwrap()))
        .collect();
    assert_eq!(
        now, known,
        "tests/oracle_failures.txt must list exactly what fails, and may only shrink"
    );
}

fn report(rows: usize, templates: usize, wrong: &BTreeMap<String, Vec<String>>) {
    let failed: usize = wrong.values().map(Vec::len).sum();
    for (name, faults) in wrong {
        println!("{name}\t{}\n    {}", faults.len(), faults[0]);
        if std::env::var_os("OCTAVO_ORACLE_ALL").is_some() {
            faults
                .iter()
                .skip(1)
                .for_each(|fault| println!("    {fault}"));
        }
    }
    println!(
        "{} of {rows} rows right; {} of {templates} templates right in all",
        rows - failed,
        templates - wrong.len()
    );
}
