//! Rows of the template oracle.
#![allow(clippy::unwrap_used, unreachable_pub, dead_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_template::Conversation;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A template and a conversation.
#[derive(Deserialize)]
pub struct Row {
    pub template: String,
    pub case: String,
    pub messages: Vec<Value>,
    /// What the server made of the messages; absent in rows of Transformers.
    pub conversation: Option<Vec<Value>>,
    pub tools: Option<Vec<Value>>,
    pub documents: Option<Vec<Value>>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    pub special: Map<String, Value>,
    #[serde(alias = "chat_template_kwargs")]
    pub kwargs: Map<String, Value>,
    pub now: String,
    pub expected: Option<String>,
    pub error: Option<Failure>,
}

/// What an error of the oracle says.
#[derive(Deserialize)]
pub struct Failure {
    pub raise_exception: bool,
    pub message: String,
}

impl Row {
    /// What the template is given.
    pub fn conversation(&mut self) -> Conversation {
        let mut variables = std::mem::take(&mut self.special);
        let served = self.conversation.take();
        if served.is_some() {
            variables.retain(|_, value| value.as_str() != Some(""));
            self.tools = self.tools.take().filter(|tools| !tools.is_empty());
        }
        variables.extend(std::mem::take(&mut self.kwargs));
        Conversation {
            messages: served
                .unwrap_or_else(|| std::mem::take(&mut self.messages))
                .into_iter()
                .map(Arc::new)
                .collect(),
            tools: self.tools.take(),
            documents: self.documents.take(),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            variables,
        }
    }
}

/// The folder of the oracle; `None`, with a word on stdout, where it is absent.
pub fn shared() -> Option<PathBuf> {
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

/// All rows of a file.
pub fn rows(file: &Path) -> impl Iterator<Item = Row> {
    let gzip = file.extension().is_some_and(|extension| extension == "gz");
    let file = std::fs::File::open(file).unwrap();
    let lines: Box<dyn BufRead> = match gzip {
        true => Box::new(BufReader::new(flate2::read::GzDecoder::new(file))),
        false => Box::new(BufReader::new(file)),
    };
    lines
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}
