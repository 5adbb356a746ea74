//! Every template of the shared oracle renders as Transformers renders it: each string equal, each refusal a refusal.
//!
//! Two files: messages as Transformers takes them, and messages as vLLM's server hands them to templates.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use octavo_template::{ChatTemplate, Clock, RenderError};

use support::{Row, shared};

/// What is wrong with a row; `None` where it is right.
fn judge(template: &ChatTemplate, mut row: Row) -> Option<String> {
    let conversation = row.conversation();
    match (template.render(&conversation), row.expected, row.error) {
        (Ok(text), Some(expected), _) if text == expected => None,
        (Ok(text), Some(expected), _) => {
            let same = |(a, b): &(u8, u8)| a == b;
            let at = text.bytes().zip(expected.bytes()).take_while(same).count();
            let part = |text: &str| {
                let range = at.saturating_sub(30).min(text.len())..(at + 50).min(text.len());
                String::from_utf8_lossy(&text.as_bytes()[range]).into_owned()
            };
            Some(format!(
                "at {at}: got {:?}, expected {:?}",
                part(&text),
                part(&expected)
            ))
        }
        (Err(RenderError::Refused(message)), _, Some(error))
            if error.raise_exception && message == error.message =>
        {
            None
        }
        (Err(_), _, Some(error)) if !error.raise_exception => None,
        (Err(error), Some(_), _) => Some(format!("refused: {error}")),
        (result, _, Some(error)) => {
            let fault = format!("expected refusal {:?}, got {result:?}", error.message);
            Some(fault.chars().take(300).collect())
        }
        (result, None, None) => panic!("the oracle says nothing; got {result:?}"),
    }
}

/// Renders all rows of a file; prints the counts. `OCTAVO_ORACLE` names another file of the same form, whose templates lie
/// in the folder that `OCTAVO_ORACLE_TEMPLATES` names.
fn check(rows: &Path, templates: &Path) {
    let mut compiled: BTreeMap<String, Result<ChatTemplate, String>> = BTreeMap::new();
    let mut wrong: Vec<String> = Vec::new();
    let (mut strings, mut errors) = (0, 0);
    for row in support::rows(rows) {
        let name = row.template.clone();
        let template = compiled.entry(name.clone()).or_insert_with(|| {
            let source = std::fs::read_to_string(templates.join(&name)).unwrap();
            let clock = Clock::fixed(&row.now).unwrap();
            ChatTemplate::compile(&name, &source, clock).map_err(|error| error.to_string())
        });
        let count = if row.expected.is_some() {
            &mut strings
        } else {
            &mut errors
        };
        *count += 1;
        let case = row.case.clone();
        let fault = match template {
            Ok(template) => judge(template, row),
            Err(reason) => Some(reason.clone()),
        };
        wrong.extend(fault.map(|fault| format!("{name} {case}: {fault}")));
    }
    println!(
        "{}: {} templates, {strings} strings, {errors} errors; {} rows differ",
        rows.file_name().unwrap_or_default().display(),
        compiled.len(),
        wrong.len()
    );
    wrong.iter().for_each(|fault| println!("    {fault}"));
    assert!(strings > 0, "the oracle is empty");
    assert!(wrong.is_empty(), "{} rows differ", wrong.len());
}

#[test]
fn renders_as_transformers() {
    let Some(root) = shared() else { return };
    check(&root.join("transformers.jsonl.gz"), &root.join("jinja"));
}

#[test]
fn renders_as_served() {
    let Some(root) = shared() else { return };
    check(&root.join("served.jsonl.gz"), &root.join("jinja"));
}

/// Rows that `make oracle` wrote.
#[test]
fn renders_as_the_oracle_made_here() {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    match (given("OCTAVO_ORACLE"), given("OCTAVO_ORACLE_TEMPLATES")) {
        (Some(rows), Some(templates)) => check(&rows, &templates),
        _ => println!(
            "skipped: OCTAVO_ORACLE and OCTAVO_ORACLE_TEMPLATES name no file and folder; `make oracle` sets them"
        ),
    }
}
