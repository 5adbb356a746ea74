//! The program as its supervisor sees it: exit codes, the lifeline, the event on stdout, signals.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../http/tests/support/model.rs"]
#[allow(dead_code, unreachable_pub)]
mod model;

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, PipeWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_octavo-frontend");
const LIMIT: Duration = Duration::from_secs(20);

/// The socket comes in as 0, the lifeline as 2: the shell moves them to where the supervisor puts them.
const SHELL: &str = r#"exec 3<&0 0<&2 2>"$LOG"; exec "$PROGRAM" --config "$CONFIG""#;

struct Program {
    child: Child,
    lifeline: Option<PipeWriter>,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Program {
    fn start(changes: &Value) -> Self {
        let folder = model::folder();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut config = json!({
            "listen_fd": 3,
            "engine_endpoints": [format!("ipc://{}/frontend.sock", folder.path().display())],
            "tokenizer_dir": folder.path(),
            "served_model_names": ["test"],
            "seed": 1,
            "max_open_requests": 8,
            "replay_timeout_s": 5.0,
            "shutdown_timeout_s": 0.0,
            "log_level": "info",
        });
        config
            .as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        let file = folder.path().join("frontend.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let (end, lifeline) = std::io::pipe().unwrap();
        let child = Command::new("sh")
            .args(["-c", SHELL])
            .env("PROGRAM", PROGRAM)
            .env("CONFIG", &file)
            .env("LOG", folder.path().join("log"))
            .stdin(OwnedFd::from(socket))
            .stdout(Stdio::piped())
            .stderr(OwnedFd::from(end))
            .spawn()
            .unwrap();
        Self {
            child,
            lifeline: Some(lifeline),
            address,
            folder,
        }
    }

    /// Waits for the event on stdout.
    fn listening(&mut self) -> Value {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?}; log:\n{}", self.log()))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until the log has a text.
    fn logs(&self, text: &str) {
        let end = Instant::now() + LIMIT;
        while !self.log().contains(text) {
            assert!(
                Instant::now() < end,
                "the log never says {text:?}:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < end,
                "the program does not end; log:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn version_and_help() {
    let version = format!("octavo-frontend {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(output(&["--version"]), (Some(0), version, String::new()));
    let (code, help, _) = output(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(
        help.contains("--config <FILE>") && help.contains("Exit codes:"),
        "{help}"
    );
}

#[test]
fn a_command_line_or_configuration_that_cannot_work_is_exit_code_2() {
    let (code, _, error) = output(&[]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--config"), "{error}");
    let (code, _, error) = output(&["--config", "/nowhere/frontend.json"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("ERROR   frontend  cannot read /nowhere/frontend.json"),
        "{error}"
    );
    for (changes, expected) in [
        (json!({"tokenizer_dir": "/nowhere/model"}), "/nowhere/model"),
        (json!({"listen_fd": 77}), "listen_fd 77"),
        (json!({"listen_fd": 2}), "listen_fd is 2"),
        (json!({"what": 1}), "what"),
    ] {
        let mut program = Program::start(&changes);
        assert_eq!(program.ended().code(), Some(2), "{}", program.log());
        assert!(program.log().contains(expected), "{}", program.log());
    }
}

#[test]
fn it_answers_and_ends_in_order() {
    let mut program = Program::start(&json!({}));
    let event = program.listening();
    assert_eq!(event["event"], "listening");
    assert_eq!(event["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(event["pid"], program.child.id());
    assert_eq!(event["address"], program.address.to_string());
    assert!(program.folder.path().join("frontend.sock").exists());
    assert!(program.get("/health").starts_with("HTTP/1.1 200 "));
    assert!(
        program.get("/ready").starts_with("HTTP/1.1 503 "),
        "no engine has come"
    );
    assert!(program.get("/v1/models").contains("\"id\":\"test\""));
    program.signal();
    assert_eq!(program.ended().code(), Some(0), "{}", program.log());
    assert!(
        program
            .log()
            .contains("INFO    frontend  SIGTERM: stopping"),
        "{}",
        program.log()
    );
    assert!(program.lifeline.is_some(), "the parent is still there");
}

#[test]
fn it_leaves_when_the_parent_is_gone() {
    let mut program = Program::start(&json!({}));
    program.listening();
    program.lifeline.take();
    assert_eq!(program.ended().code(), Some(1));
    assert!(
        program.log().contains("the parent is gone"),
        "{}",
        program.log()
    );
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut program = Program::start(&json!({"shutdown_timeout_s": 300.0}));
    program.listening();
    let mut half = TcpStream::connect(program.address).unwrap();
    half.set_read_timeout(Some(LIMIT)).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
        Expect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    half.write_all(head.as_bytes()).unwrap();
    half.read_exact(&mut [0; 12]).unwrap();
    program.signal();
    program.logs("SIGTERM: stopping");
    assert!(
        program.child.try_wait().unwrap().is_none(),
        "a request runs"
    );
    program.signal();
    assert_eq!(program.ended().code(), Some(1));
    assert!(program.log().contains("SIGTERM again"), "{}", program.log());
}
