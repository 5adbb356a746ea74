//! Encoding and decoding equal reference tokenizers in Python, over rows that tests/tools/make_tokenizer_rows.py wrote.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use octavo_tokenizer::Tokenizer;

#[test]
fn rows_are_equal() {
    let Some(root) = std::env::var_os("OCTAVO_TOKENIZER_ROWS").map(PathBuf::from) else {
        println!(
            "skipped: OCTAVO_TOKENIZER_ROWS names no folder; tests/tools/make_tokenizer_rows.py writes one"
        );
        return;
    };
    let mut wrong = Vec::new();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    for folder in folders
        .iter()
        .filter(|folder| folder.join("rows.jsonl").is_file())
    {
        let tokenizer = Tokenizer::load(folder).unwrap();
        let rows = BufReader::new(std::fs::File::open(folder.join("rows.jsonl")).unwrap());
        let (mut count, mut tokens, before) = (0, 0, wrong.len());
        for line in rows.lines() {
            let (text, ids, shown): (String, Vec<u32>, Option<String>) =
                serde_json::from_str(&line.unwrap()).unwrap();
            let ours = tokenizer.encode(&text, false).unwrap();
            if ours != ids {
                let head: String = text.chars().take(80).collect();
                wrong.push(format!("{}: encode {head:?}", folder.display()));
            }
            if shown.is_some_and(|shown| tokenizer.decode(&ids) != shown) {
                wrong.push(format!("{}: decode {ids:?}", folder.display()));
            }
            count += 1;
            tokens += ids.len();
        }
        let name = folder.file_name().unwrap_or_default().display();
        println!(
            "{name}: {count} texts, {tokens} tokens, {} differ",
            wrong.len() - before
        );
    }
    assert!(wrong.is_empty(), "{:#?}", &wrong[..wrong.len().min(20)]);
}
