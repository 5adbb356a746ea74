//! The program as whoever starts it sees it: the event on stdout, exit codes, no orphan.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use octavo_engine::{EngineClient, EngineConfig, Generate, Submission};
use octavo_wire::frontend::SamplingParams;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_octavo-mock");
const LIMIT: Duration = Duration::from_secs(20);

fn private() -> tempfile::TempDir {
    tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .unwrap()
}

fn endpoint(folder: &tempfile::TempDir) -> String {
    format!("ipc://{}/frontend.sock", folder.path().display())
}

fn start(folder: &tempfile::TempDir, flags: &str) -> Child {
    Command::new(PROGRAM)
        .args(["--endpoint", &endpoint(folder)])
        .args(flags.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The next line on its stdout.
async fn event(child: &mut Child) -> Value {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(LIMIT, lines.next_line()).await;
    serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
}

/// Waits for its end. Holds its stdin open meanwhile, which tokio would close: the end of its lifeline is another reason
/// to leave.
async fn code(child: &mut Child) -> Option<i32> {
    let _lifeline = child.stdin.take();
    let status = tokio::time::timeout(LIMIT, child.wait()).await;
    status.unwrap().unwrap().code()
}

#[tokio::test]
async fn it_waits_for_a_frontend_says_when_it_is_ready_and_stops_when_told() {
    let folder = private();
    let mut child = start(&folder, "--max-model-len 77 --model some/name");
    let _client = EngineClient::start(EngineConfig::new(&endpoint(&folder)))
        .await
        .unwrap();
    let event = event(&mut child).await;
    assert_eq!(event["event"], "ready");
    assert_eq!(event["version"], octavo_wire::VERSION);
    let pid = child.id().unwrap().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(killed.unwrap().success());
    assert_eq!(code(&mut child).await, Some(0));
}

#[tokio::test]
async fn a_script_that_lets_it_die_gives_exit_code_1() {
    let folder = private();
    let client = EngineClient::start(EngineConfig::new(&endpoint(&folder)))
        .await
        .unwrap();
    let mut child = start(&folder, "--step-time 1 --fault die@3");
    event(&mut child).await;
    let submission = Submission {
        name: "r".to_owned(),
        prompt: vec![4],
        sampling: SamplingParams::new(1, 100),
        priority: 0,
        grammar: None,
        domain: None,
        rank: None,
        session: None,
        pooling: None,
        embeds: None,
    };
    let end = tokio::time::Instant::now() + LIMIT;
    while !client.ready() {
        assert!(tokio::time::Instant::now() < end, "never ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _stream = client.submit(submission).unwrap();
    assert_eq!(code(&mut child).await, Some(1));
}

#[tokio::test]
async fn it_leaves_with_its_parent_also_while_nobody_listens() {
    let folder = private();
    let mut child = start(&folder, "");
    drop(child.stdin.take());
    assert_eq!(code(&mut child).await, Some(1));
}

#[tokio::test]
async fn a_command_line_that_cannot_work_gives_exit_code_2() {
    let folder = private();
    let mut child = start(&folder, "--fault explode@1");
    assert_eq!(code(&mut child).await, Some(2));
}
