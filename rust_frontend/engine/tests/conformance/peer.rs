//! The Python end: tests/conformance/peer.py.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use octavo_engine::{EngineClient, EngineConfig, Generate, GenerateError, StepStream, Submission};
use octavo_wire::frontend::SamplingParams;

pub(crate) struct PythonPeer {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl PythonPeer {
    /// Starts the interpreter, without a core yet.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .unwrap();
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let python = std::env::var_os("OCTAVO_PYTHON")
            .map_or_else(|| root.join(".venv/bin/python"), PathBuf::from);
        let mut process = Command::new(&python)
            .args(["-m", "tests.conformance.peer"])
            .arg(endpoint(folder.path()))
            .arg(folder.path())
            .current_dir(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; set OCTAVO_PYTHON", python.display()));
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self {
            process,
            stdin,
            stdout,
            folder,
        }
    }

    pub(crate) fn config(&self) -> EngineConfig {
        EngineConfig::new(&endpoint(self.folder.path()))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("f.sock")
    }

    /// Whether the core has left a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder.path().join(name).exists()
    }

    /// Starts a core; returns its process id.
    pub(crate) fn start(&mut self) -> u32 {
        self.ask("start").parse().unwrap()
    }

    /// Kills, stops or continues the core, which must be alive.
    pub(crate) fn signal(&mut self, signal: &str) {
        assert_eq!(self.ask(signal), signal, "the core has ended by itself");
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for PythonPeer {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}

fn endpoint(folder: &Path) -> String {
    format!("ipc://{}/f.sock", folder.display())
}

/// The token that the peer generates.
pub(crate) fn token(first: i32, index: usize) -> i32 {
    let index = i64::try_from(index).unwrap();
    i32::try_from((i64::from(first) * 31 + index * 7) % 32_003).unwrap()
}

pub(crate) fn submission(name: &str, prompt: Vec<i32>, max_tokens: u64) -> Submission {
    Submission {
        name: name.to_owned(),
        prompt,
        sampling: SamplingParams::new(1, max_tokens),
        priority: 0,
        grammar: None,
        domain: None,
        rank: None,
        session: None,
        pooling: None,
        embeds: None,
    }
}

/// Waits until it is so; panics after half a minute.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..15_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {what}");
}

/// Reads a stream to its end and checks each token; `seen` is called with their number after each step.
pub(crate) async fn read(
    stream: &mut StepStream,
    first: i32,
    mut seen: impl FnMut(usize),
) -> Result<usize, GenerateError> {
    let mut count = 0;
    while let Some(step) = stream.next().await {
        let step = step?;
        assert_eq!(step.start, count, "tokens lost or repeated");
        for id in &step.tokens {
            assert_eq!(
                *id,
                token(first, count),
                "token {count} is not what was generated"
            );
            count += 1;
        }
        seen(step.tokens.len());
        if step.finish.is_some() {
            return Ok(count);
        }
    }
    panic!("the stream ended without a finish");
}

/// A client at the peer's endpoint, with an engine that is ready.
pub(crate) async fn client(
    peer: &PythonPeer,
    change: impl FnOnce(&mut EngineConfig),
) -> Arc<EngineClient> {
    let mut config = peer.config();
    change(&mut config);
    let client = EngineClient::start(config).await.unwrap();
    until("ready", || client.ready()).await;
    client
}

/// Resident memory of a process in MiB.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}
