//! The mock and the real engine client, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_engine::{EngineClient, EngineConfig, Generate, GenerateError, StepStream, Submission};
use octavo_mock::{Ending, Mock, MockError, Output, Script};
use octavo_wire::frontend::SamplingParams;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(20);

/// A client that listens, in a folder of its own.
struct Place {
    client: Arc<EngineClient>,
    endpoint: String,
    _folder: tempfile::TempDir,
}

/// A mock that plays.
struct Playing {
    task: JoinHandle<Result<Ending, MockError>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .unwrap();
        let endpoint = format!("ipc://{}/frontend.sock", folder.path().display());
        let client = EngineClient::start(EngineConfig::new(&endpoint))
            .await
            .unwrap();
        Self {
            client,
            endpoint,
            _folder: folder,
        }
    }

    /// Starts a mock; its steps take no time unless the script says so.
    fn play(&self, change: impl FnOnce(&mut Script)) -> Playing {
        let mut script = Script::new("m");
        script.step_time = Duration::ZERO;
        change(&mut script);
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // A handle that is dropped stops the mock too.
            let _ = stopped.await;
        };
        Playing {
            task: tokio::spawn(Mock::new(script, &self.endpoint).run(stopped)),
            stop: Some(stop),
        }
    }

    async fn ready(&self) {
        self.until("ready", |client| client.ready()).await;
    }

    async fn until(&self, what: &str, condition: impl Fn(&EngineClient) -> bool) {
        let end = Instant::now() + LIMIT;
        while !condition(&self.client) {
            assert!(Instant::now() < end, "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn submit(&self, prompt: &[i32], max_tokens: u64) -> StepStream {
        let sampling = SamplingParams::new(7, max_tokens);
        self.submit_with(prompt, sampling)
    }

    fn submit_with(&self, prompt: &[i32], sampling: SamplingParams) -> StepStream {
        let submission = Submission {
            name: "r".to_owned(),
            prompt: prompt.to_vec(),
            sampling,
            priority: 0,
            grammar: None,
            domain: None,
            rank: None,
            session: None,
            pooling: None,
            embeds: None,
        };
        self.client.submit(submission).unwrap()
    }
}

impl Playing {
    async fn ended(self) -> Result<Ending, MockError> {
        tokio::time::timeout(LIMIT, self.task)
            .await
            .unwrap()
            .unwrap()
    }

    async fn stop(mut self) -> Result<Ending, MockError> {
        self.stop.take().unwrap().send(()).unwrap();
        self.ended().await
    }
}

/// Reads to the end: tokens and the reason.
async fn read(stream: &mut StepStream) -> Result<(Vec<i32>, String), GenerateError> {
    let mut tokens = Vec::new();
    loop {
        let next = tokio::time::timeout(LIMIT, stream.next()).await.unwrap();
        let step = next.unwrap()?;
        assert_eq!(step.start, tokens.len(), "tokens lost or repeated");
        tokens.extend(step.tokens);
        if let Some(finish) = step.finish {
            return Ok((tokens, finish.reason));
        }
    }
}

/// What a mock with this output sends.
fn expected(output: &Output, prompt: &[i32], count: u64) -> Vec<i32> {
    (0..count).map(|at| output.token(prompt, 7, at)).collect()
}

fn length(tokens: Vec<i32>) -> Result<(Vec<i32>, String), GenerateError> {
    Ok((tokens, "length".to_owned()))
}

#[tokio::test]
async fn tokens_are_those_of_the_script() {
    let place = Place::new().await;
    let output = Output::Random {
        low: 10,
        high: 5000,
    };
    let playing = place.play(|script| {
        script.output = output.clone();
        script.info.max_num_seqs = 4;
        script.info.max_model_len = 99;
    });
    place.ready().await;
    assert_eq!(place.client.info().unwrap().max_model_len, 99);
    let prompts: Vec<[i32; 2]> = (0..20).map(|lane| [lane, 1]).collect();
    let mut streams: Vec<_> = prompts
        .iter()
        .map(|prompt| place.submit(prompt, 30))
        .collect();
    for (prompt, stream) in prompts.iter().zip(&mut streams) {
        assert_eq!(read(stream).await, length(expected(&output, prompt, 30)));
    }
    assert_eq!(playing.stop().await, Ok(Ending::Stopped));
    place.until("away", |client| !client.ready()).await;
}

#[tokio::test]
async fn stop_ids_rules_and_the_context_hold() {
    let place = Place::new().await;
    let _playing = place.play(|script| {
        script.rejects = vec!["overloaded:max_tokens>1000".parse().unwrap()];
    });
    place.ready().await;
    let sampling = SamplingParams {
        stop_token_ids: vec![6],
        ..SamplingParams::new(7, 50)
    };
    let mut stopped = place.submit_with(&[5, 6, 7], sampling);
    assert_eq!(
        read(&mut stopped).await,
        Ok((vec![5, 6], "stop".to_owned()))
    );
    let mut refused = place.submit(&[1], 1001);
    assert!(matches!(
        read(&mut refused).await,
        Err(GenerateError::Overloaded { .. })
    ));
    let mut long = place.submit(&vec![1; 8192], 1);
    let Err(GenerateError::Rejected { code, .. }) = read(&mut long).await else {
        panic!("taken")
    };
    assert_eq!(code, "too_long");
}

#[tokio::test]
async fn rows_and_prefill_decide_what_comes_when() {
    let place = Place::new().await;
    let _playing = place.play(|script| {
        script.step_time = Duration::from_millis(5);
        script.info.max_num_seqs = 1;
        script.prefill_chunk = 10;
    });
    place.ready().await;
    // Five steps of prompt, the last with a token, and three more tokens; then the other's six.
    let began = Instant::now();
    let mut one = place.submit(&[1; 50], 4);
    let mut two = place.submit(&[2; 10], 6);
    let first = async { (two.next().await, Instant::now()) };
    let ((answer, done), (step, first)) = tokio::time::timeout(LIMIT, async {
        tokio::join!(async { (read(&mut one).await, Instant::now()) }, first)
    })
    .await
    .unwrap();
    assert_eq!(answer, length(vec![1; 4]));
    assert_eq!(step.unwrap().unwrap().tokens[0], 2);
    // Never earlier than the script says; how much later is the machine's affair.
    assert!(done - began >= Duration::from_millis(8 * 5));
    assert!(first - began >= Duration::from_millis(9 * 5));
    while two.next().await.is_some() {}
    let of = |client: &EngineClient| {
        client
            .stats()
            .map(|stats| (stats.steps, stats.generated_tokens))
    };
    place
        .until("statistics", |client| of(client) == Some((8 + 6, 10)))
        .await;
}

#[tokio::test]
async fn lost_messages_change_nothing_that_a_reader_sees() {
    let place = Place::new().await;
    let _playing = place.play(|script| {
        script.step_time = Duration::from_millis(1);
        script.faults = vec!["lose@5/20".parse().unwrap()];
    });
    place.ready().await;
    let prompts = [[1, 2, 3], [4, 5, 6]];
    let mut streams: Vec<_> = prompts
        .iter()
        .map(|prompt| place.submit(prompt, 60))
        .collect();
    for (prompt, stream) in prompts.iter().zip(&mut streams) {
        let tokens = expected(&Output::Echo, prompt, 60);
        assert_eq!(read(stream).await, length(tokens));
    }
}

#[tokio::test]
async fn a_mock_that_dies_is_followed_by_another() {
    let place = Place::new().await;
    let output = Output::Random { low: 0, high: 9999 };
    let change = |script: &mut Script| {
        script.output = output.clone();
        script.step_time = Duration::from_millis(1);
    };
    let playing = place.play(|script| {
        change(script);
        script.faults = vec!["die@20".parse().unwrap()];
    });
    place.ready().await;
    let mut stream = place.submit(&[1], 50);
    assert_eq!(playing.ended().await, Ok(Ending::Died { step: 20 }));
    let _second = place.play(change);
    assert_eq!(read(&mut stream).await, length(expected(&output, &[1], 50)));
    assert_eq!(place.client.engine_restarts(), 1);
}

#[tokio::test]
async fn workers_that_come_back_go_on_and_those_that_do_not_end_it() {
    let place = Place::new().await;
    let playing = place.play(|script| {
        script.step_time = Duration::from_millis(1);
        script.faults = ["fault@5:0.05", "stall@10:0.05", "freeze@15:0.05", "fail@40"]
            .iter()
            .map(|fault| fault.parse().unwrap())
            .collect();
    });
    place.ready().await;
    let mut stream = place.submit(&[3, 4], 30);
    assert_eq!(
        read(&mut stream).await,
        length(expected(&Output::Echo, &[3, 4], 30))
    );
    let mut failed = place.submit(&[1], 30);
    assert!(matches!(
        read(&mut failed).await,
        Err(GenerateError::Failed { .. })
    ));
    assert_eq!(playing.ended().await, Ok(Ending::Failed));
    assert!(!place.client.alive());
}

#[tokio::test]
async fn a_dropped_stream_frees_its_row() {
    let place = Place::new().await;
    let _playing = place.play(|script| {
        script.step_time = Duration::from_millis(1);
        script.info.max_num_seqs = 1;
    });
    place.ready().await;
    let mut endless = place.submit(&[1], 8000);
    endless.next().await.unwrap().unwrap();
    drop(endless);
    let mut next = place.submit(&[2], 3);
    assert_eq!(read(&mut next).await, length(vec![2; 3]));
}
