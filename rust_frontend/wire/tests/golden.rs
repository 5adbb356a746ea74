//! The same bytes as Python: every vector of tests/wire/golden.json, against values of our own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use octavo_wire::frontend::{
    AbortRequests, Ack, AddRequest, Control, ControlDone, CoreMessage, Delta, Deltas, Domain,
    EngineFault, EngineReady, Finish, FrontendMessage, Goodbye, Grammar, Header, Hello, Logprobs,
    Refuse, RepetitionDetection, RequestRejected, SamplingExtras, SamplingParams, Stats,
    ThinkingBudget, Welcome,
};
use octavo_wire::{Blob, DecodeError, Floats, Message, Tokens};

mod golden_info;
mod golden_pooling;
mod golden_stats;
use golden_info::{info, keyed, unusable};
use golden_pooling::{embeds, pooled, pooling, request};
use golden_stats::detail;

const MAX: u64 = u64::MAX;

#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once, never kept in numbers"
)]
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Header(Header),
    Frontend(FrontendMessage),
    Core(CoreMessage),
}

impl Value {
    fn decode(side: &str, bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(match side {
            "header" => Self::Header(Header::decode(bytes)?),
            "frontend" => Self::Frontend(FrontendMessage::decode(bytes)?),
            "core" => Self::Core(CoreMessage::decode(bytes)?),
            other => panic!("unknown side {other}"),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Header(header) => header.encode(&mut out),
            Self::Frontend(message) => message.encode(&mut out),
            Self::Core(message) => message.encode(&mut out),
        }
        out
    }
}

fn front(message: impl Into<FrontendMessage>) -> Value {
    Value::Frontend(message.into())
}

fn core(message: impl Into<CoreMessage>) -> Value {
    Value::Core(message.into())
}

fn header(numbers: [u64; 6]) -> Value {
    let [incarnation, session, seq, ack, credit, epoch] = numbers;
    Value::Header(Header {
        incarnation,
        session,
        seq,
        ack,
        credit,
        epoch,
    })
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn stats(n: [u64; 11], detail: Option<Box<octavo_wire::frontend::StepStats>>) -> Value {
    core(Stats {
        running: n[0],
        waiting: n[1],
        free_blocks: n[2],
        total_blocks: n[3],
        prompt_tokens: n[4],
        generated_tokens: n[5],
        prefix_queries: n[6],
        prefix_hits: n[7],
        preemptions: n[8],
        worker_restarts: n[9],
        steps: n[10],
        detail,
    })
}

fn delta(id: u64, start: u64, tokens: &[i32]) -> Delta {
    Delta::new(id, 1, start, tokens.to_vec())
}

fn handshake() -> Vec<(&'static str, Value)> {
    let hello = Hello {
        protocol: 1,
        version: "0.1.0".into(),
        role: "engine".into(),
        rank: 0,
        pid: 4242,
        proof: None,
    };
    let all = Hello {
        protocol: 2,
        version: "10.20.30".into(),
        role: "engine".into(),
        rank: 65_535,
        pid: 4_194_304,
        proof: Some(Blob((0..=255).collect())),
    };
    vec![
        ("Header/hello", header([1, 0, 0, 0, 65_536, 0])),
        (
            "Header/large",
            header([MAX, MAX - 1, 1 << 32, 1 << 31, 1 << 63, 300]),
        ),
        ("Hello/defaults", core(hello)),
        ("Hello/all", core(all)),
        (
            "Welcome/all",
            front(Welcome {
                protocol: 1,
                version: "0.1.0".into(),
            }),
        ),
        (
            "Refuse/unicode",
            front(Refuse {
                reason: "Versionen: 0.1.0 ≠ 0.2.0 – 更新 🦀".into(),
            }),
        ),
        (
            "Refuse/empty",
            front(Refuse {
                reason: String::new(),
            }),
        ),
        ("Ack/frontend", front(Ack { sent: 127 })),
        ("Ack/core", core(Ack { sent: MAX })),
        (
            "Goodbye/all",
            core(Goodbye {
                reason: "shutdown".into(),
            }),
        ),
    ]
}

fn full_request() -> AddRequest {
    AddRequest {
        id: MAX,
        attempt: 7,
        name: "chatcmpl-é".repeat(8),
        prompt: Tokens((0..300).collect()),
        emitted: Tokens(vec![5]),
        sampling: SamplingParams {
            seed: MAX,
            max_tokens: 4096,
            temperature: 0.25,
            top_p: 0.9,
            top_k: 40,
            stop_token_ids: vec![2, 128_000, i32::MAX],
            extras: None,
        },
        arrival_us: 1_764_500_000_000_000,
        priority: -5,
        grammar: Some(Grammar {
            kind: "regex".to_owned(),
            text: "[a-zé]+".to_owned(),
        }),
        domain: Some(Domain {
            salt: "sälz".into(),
            adapter: "adapter".into(),
            media: vec!["image".into(), "ä".into()],
        }),
        ..request(0, "")
    }
}

fn full_extras() -> SamplingExtras {
    SamplingExtras {
        min_p: 0.5,
        presence_penalty: -2.0,
        frequency_penalty: 2.0,
        repetition_penalty: 1.25,
        min_tokens: 5,
        bias_ids: Tokens(vec![1, 2]),
        biases: Floats(vec![-100.0, 0.5]),
        allowed_token_ids: Tokens(vec![3]),
        bad_words: vec![Tokens(vec![4, 5]), Tokens(vec![6])],
        logprobs: Some(-1),
        prompt_logprobs: Some(3),
        logprob_token_ids: Tokens(vec![10, 11]),
        repetition: Some(RepetitionDetection {
            max_pattern_size: 32,
            min_pattern_size: 2,
            min_count: 4,
        }),
        thinking: Some(ThinkingBudget {
            budget: 0,
            start: Tokens(vec![7]),
            end: Tokens(vec![8, 9]),
            close: Tokens(vec![9]),
        }),
        stream_interval: 8,
    }
}

fn with_extras(extras: SamplingExtras) -> Value {
    front(AddRequest {
        prompt: Tokens(vec![1]),
        sampling: SamplingParams {
            extras: Some(extras),
            ..SamplingParams::new(3, 4)
        },
        arrival_us: 5,
        ..request(2, "x")
    })
}

fn requests() -> Vec<(&'static str, Value)> {
    let mut many: Vec<u64> = (120..140).collect();
    many.extend([256, 65_536, 1 << 32, MAX]);
    let args = map(&[("grace", "5"), ("grund", "für später")]);
    vec![
        ("AddRequest/defaults", front(request(1, ""))),
        ("AddRequest/pooling", front(pooling(request(2, "x")))),
        ("AddRequest/embeds", front(embeds(request(2, "x")))),
        ("AddRequest/all", front(full_request())),
        ("AddRequest/extras", with_extras(full_extras())),
        (
            "AddRequest/no extras",
            with_extras(SamplingExtras::default()),
        ),
        (
            "AbortRequests/empty",
            front(AbortRequests {
                ids: vec![],
                reason: "client".into(),
            }),
        ),
        (
            "AbortRequests/many",
            front(AbortRequests {
                ids: many,
                reason: "stop".into(),
            }),
        ),
        (
            "Control/defaults",
            front(Control {
                id: 9,
                op: "shutdown".into(),
                args: map(&[]),
            }),
        ),
        (
            "Control/all",
            front(Control {
                id: 10,
                op: "shutdown".into(),
                args,
            }),
        ),
    ]
}

fn full_delta() -> Delta {
    let finish = Finish {
        reason: "stop".into(),
        stop_token: Some(2),
        message: Some("ünïcode".into()),
    };
    Delta {
        attempt: 3,
        finish: Some(finish),
        cached_tokens: Some(4096),
        queued_us: Some(1 << 40),
        ..delta(MAX, 70_000, &[1, -1, i32::MAX, i32::MIN])
    }
}

fn delta_with_logprobs() -> Delta {
    let logprobs = Logprobs {
        width: 2,
        ids: Tokens(vec![1, 5, 2, 6]),
        values: Floats(vec![-0.5, -1.5, 0.0, -4.25]),
        ranks: Tokens(vec![1, 70]),
    };
    Delta {
        cached_tokens: Some(0),
        logprobs: Some(logprobs.clone()),
        prompt_logprobs: Some(logprobs),
        ..delta(1, 0, &[1, 2])
    }
}

fn deltas(step: u64, items: Vec<Delta>) -> Value {
    core(Deltas { step, items })
}

fn control_done(id: u64, error: Option<&str>, result: &[(&str, &str)]) -> Value {
    core(ControlDone {
        id,
        error: error.map(str::to_owned),
        result: map(result),
        code: String::new(),
        param: None,
    })
}

fn control_refused(id: u64) -> Value {
    core(ControlDone {
        id,
        error: Some("not paused".into()),
        result: BTreeMap::new(),
        code: "conflict".into(),
        param: Some("mode".into()),
    })
}

fn rejected(code: &str, message: &str, param: Option<&str>) -> Value {
    core(RequestRejected {
        id: 3,
        attempt: 1,
        code: code.into(),
        message: message.into(),
        param: param.map(str::to_owned),
    })
}

fn answers() -> Vec<(&'static str, Value)> {
    let fault = EngineFault {
        kind: "worker_died".into(),
        message: "signal 9".into(),
        restarting: true,
    };
    let done = [("a", ""), ("b", &"x".repeat(40))];
    let powers = std::array::from_fn(|n| 10_u64.pow(u32::try_from(n).unwrap()));
    let some = vec![full_delta(), delta(2, 5, &[7])];
    let too_long = rejected("too_long", "9 > 8", Some("prompt"));
    vec![
        ("ControlDone/defaults", control_done(9, None, &[])),
        ("ControlDone/all", control_done(10, Some("no"), &done)),
        ("ControlDone/refused", control_refused(11)),
        ("Deltas/empty", deltas(0, vec![])),
        ("Deltas/defaults", deltas(1, vec![delta(1, 0, &[])])),
        ("Deltas/all", deltas(1 << 40, some)),
        ("Deltas/logprobs", deltas(1, vec![delta_with_logprobs()])),
        ("Deltas/pooled", deltas(1, vec![pooled(delta(1, 0, &[]))])),
        ("RequestRejected/defaults", rejected("invalid", "no", None)),
        ("RequestRejected/all", too_long),
        ("EngineReady/all", core(EngineReady { info: info() })),
        ("EngineReady/state", core(EngineReady { info: unusable() })),
        ("EngineReady/keys", core(EngineReady { info: keyed() })),
        ("EngineFault/all", core(fault)),
        ("Stats/zero", stats([0; 11], None)),
        ("Stats/large", stats(powers, None)),
        ("Stats/detail", stats([1; 11], Some(Box::new(detail())))),
    ]
}

fn values() -> BTreeMap<&'static str, Value> {
    [handshake(), requests(), answers()]
        .into_iter()
        .flatten()
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn golden() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/wire/golden.json");
    let rows: Vec<BTreeMap<String, String>> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let values = values();
    let mut seen = BTreeSet::new();
    for row in &rows {
        let bytes = unhex(&row["hex"]);
        let decoded = Value::decode(&row["side"], &bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", row["name"]));
        let name = row.get("equals").unwrap_or(&row["name"]).as_str();
        let expected = values
            .get(name)
            .unwrap_or_else(|| panic!("{name}: add it to this test"));
        assert_eq!(&decoded, expected, "{}", row["name"]);
        if !row.contains_key("equals") {
            assert_eq!(
                expected.encode(),
                bytes,
                "{name}: other bytes than Python's"
            );
            seen.insert(name);
        }
    }
    let known: BTreeSet<&str> = values.keys().copied().collect();
    assert_eq!(seen, known, "vectors that Python does not have");
}

#[test]
fn every_cut_is_an_error() {
    for (name, value) in values() {
        let bytes = value.encode();
        let side = match value {
            Value::Header(_) => "header",
            Value::Frontend(_) => "frontend",
            Value::Core(_) => "core",
        };
        for end in 0..bytes.len() {
            assert!(
                Value::decode(side, &bytes[..end]).is_err(),
                "{name} cut to {end} bytes"
            );
        }
    }
}

fn refused<T: Debug>(result: Result<T, DecodeError>) -> DecodeError {
    result.unwrap_err()
}

#[test]
fn errors_name_what_is_wrong() {
    let novelty = b"\x92\xa7Novelty\x01";
    assert_eq!(
        refused(FrontendMessage::decode(novelty)),
        DecodeError::UnknownTag("Novelty".into())
    );
    assert_eq!(
        refused(FrontendMessage::decode(b"\x91\xa6Refuse")),
        DecodeError::Missing {
            record: "Refuse",
            field: "reason"
        }
    );
    assert_eq!(
        refused(FrontendMessage::decode(b"\x92\xa3Ack\xff")),
        DecodeError::OutOfRange
    );
    assert_eq!(
        refused(FrontendMessage::decode(b"\x92\xa3Ack\x01\x01")),
        DecodeError::Trailing(1)
    );
    assert_eq!(
        refused(FrontendMessage::decode(b"\x92\xa6Refuse\xa1\xff")),
        DecodeError::Utf8
    );
    assert_eq!(
        refused(CoreMessage::decode(
            b"\x93\xa6Deltas\x01\x91\x94\x01\x01\x00\xc4\x03abc"
        )),
        DecodeError::Tokens(3)
    );
}

#[test]
fn false_lengths_reserve_no_memory() {
    let bytes = b"\x93\xadAbortRequests\xdd\xff\xff\xff\xff\x01";
    assert_eq!(
        refused(FrontendMessage::decode(bytes)),
        DecodeError::Truncated
    );
}

#[test]
fn deep_nesting_in_a_later_field_is_skipped() {
    let mut bytes = b"\x93\xa3Ack\x01".to_vec();
    bytes.extend(std::iter::repeat_n(0x91, 1 << 20));
    bytes.push(0xc0);
    assert_eq!(FrontendMessage::decode(&bytes), Ok(Ack { sent: 1 }.into()));
}
