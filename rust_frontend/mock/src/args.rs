//! The command line.

use std::time::Duration;

use clap::Parser;
use octavo_mock::{Fault, Output, Reject, Script};

/// A scripted engine for octavo-frontend: it speaks the real protocol and computes nothing.
///
/// It takes the place of an engine core, so that what a frontend does can be measured and tested
/// without a model: each request gets tokens that are known beforehand, at a pace that is known
/// beforehand, and things go wrong where you want them to.
#[derive(Debug, Parser)]
#[command(name = "octavo-mock", version, verbatim_doc_comment, after_long_help = MORE)]
pub(crate) struct Args {
    /// Where the frontend listens for engines, such as ipc:///run/octavo/frontend.sock
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint)]
    pub(crate) endpoint: String,

    /// From the begin of a step to its tokens, in milliseconds; 0: as fast as the link takes them
    #[arg(long, value_name = "MS", default_value = "10", value_parser = milliseconds)]
    step_time: Duration,

    /// Tokens that each running request gets in a step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    tokens_per_step: usize,

    /// Prompt tokens of each request that one step computes; 0: all of them
    #[arg(long, value_name = "N", default_value_t = 0)]
    prefill_chunk: usize,

    /// Which tokens: echo (the prompt), random:LOW-HIGH (by seed), ids:5,6,7 or rules:FILE
    ///
    /// A line of it is {"when": [ids], "say": [ids]}: the first whose `when` is in the prompt
    #[arg(long, value_name = "OUTPUT", default_value = "echo")]
    output: Output,

    /// Requests that run at once; more wait
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count)]
    max_num_seqs: usize,

    /// Something that goes wrong: KIND@STEP[/EVERY][:SECONDS], see below; may be given again
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,

    /// Requests to refuse: CODE:CONDITION, see below; may be given again
    #[arg(long, value_name = "RULE")]
    reject: Vec<Reject>,

    /// From the open session to readiness, in milliseconds
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    startup_time: Duration,

    /// What the frontend is told: the model's name
    #[arg(long, value_name = "NAME", default_value = "mock")]
    model: String,

    /// What the frontend is told: longest prompt and output together, in tokens
    #[arg(long, value_name = "N", default_value_t = 8192)]
    max_model_len: u64,

    /// What the frontend is told: width of the logits
    #[arg(long, value_name = "N", default_value_t = 49152)]
    vocab_size: u64,

    /// What the frontend is told: KV blocks
    #[arg(long, value_name = "N", default_value_t = 65536)]
    num_blocks: u64,

    /// What the frontend is told: tokens a KV block
    #[arg(long, value_name = "N", default_value_t = 16)]
    block_size: u64,

    /// What the frontend is told: type of the weights
    #[arg(long, value_name = "DTYPE", default_value = "bfloat16")]
    dtype: String,

    /// debug, info, warning or error
    #[arg(long, value_name = "LEVEL", default_value = "info",
        value_parser = ["debug", "info", "warning", "error"])]
    pub(crate) log_level: String,
}

const MORE: &str = "\
Faults (steps count from 1 over the life of the process; /EVERY repeats):
  die@100        the process ends at step 100 without a word, with exit code 1
  stall@20:0.5   no step for half a second; the link lives
  freeze@20:5    nothing at all for 5 seconds: the link is silent too
  lose@10/5      the messages of steps 10, 15, 20, ... are lost on the way
  fault@50:1     the workers die and are back after a second; requests go on
  fail@50        the workers die for good; the process leaves with exit code 1

Rules (codes: invalid, too_long, overloaded):
  too_long:prompt>1000      prompts of more than 1000 tokens
  invalid:max_tokens>64     requests for more than 64 tokens
  overloaded:every=10       each tenth request

Example: 64 tokens a request, 20 ms each, and a crash in the middle
  octavo-mock --endpoint ipc:///run/octavo/frontend.sock --step-time 20 --fault die@32

Life:
  stdin     if it is a pipe: at its end, or when the parent ends, the program leaves at once
  stdout    one JSON line, {\"event\":\"ready\",...}, when requests may come
  stderr    the log
  SIGTERM   says goodbye to the frontend and leaves

Exit codes:
  0  stopped by a signal or by the frontend
  1  ended by the script, or with the parent
  2  the command line cannot work, or the frontend refuses (another version)";

impl Args {
    /// What the mock is to do.
    pub(crate) fn script(&self) -> Script {
        let mut script = Script::new(&self.model);
        let info = &mut script.info;
        info.max_model_len = self.max_model_len;
        info.vocab_size = self.vocab_size;
        info.num_blocks = self.num_blocks;
        info.block_tokens = self.block_size;
        info.max_num_seqs = self.max_num_seqs as u64;
        info.dtype.clone_from(&self.dtype);
        info.startup_ms = u64::try_from(self.startup_time.as_millis()).unwrap_or(u64::MAX);
        Script {
            startup: self.startup_time,
            step_time: self.step_time,
            tokens_per_step: self.tokens_per_step,
            prefill_chunk: self.prefill_chunk,
            output: self.output.clone(),
            faults: self.fault.clone(),
            rejects: self.reject.clone(),
            ..script
        }
    }
}

fn endpoint(text: &str) -> Result<String, String> {
    match text.strip_prefix("ipc://") {
        Some(path) if path.starts_with('/') => Ok(text.to_owned()),
        _ => Err("expected ipc:// and an absolute path".to_owned()),
    }
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let wrong = |_| "expected a number of milliseconds, 0 or more".to_owned();
    let value: f64 = text.parse().map_err(|_| wrong(()))?;
    Duration::try_from_secs_f64(value / 1000.0).map_err(|_| wrong(()))
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number, 1 or more".to_owned()),
        Ok(count) => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_fits_a_screen() {
        let mut command = Args::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        let long: Vec<&str> = help
            .lines()
            .filter(|line| line.chars().count() > 100)
            .collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn flags_become_a_script() {
        let words = "octavo-mock --endpoint ipc:///f --step-time 2.5 --max-num-seqs 3 --output ids:1 --fault die@2 \
            --reject overloaded:every=2";
        let script = Args::try_parse_from(words.split_whitespace())
            .unwrap()
            .script();
        assert_eq!(script.step_time, Duration::from_micros(2500));
        assert_eq!(script.info.max_num_seqs, 3);
        assert_eq!(script.output, Output::Ids(vec![1]));
        assert_eq!((script.faults.len(), script.rejects.len()), (1, 1));
    }

    #[test]
    fn what_cannot_work_is_named() {
        let error = |words: &str| {
            let words = format!("octavo-mock {words}");
            Args::try_parse_from(words.split_whitespace())
                .unwrap_err()
                .to_string()
        };
        let text = error("--endpoint tcp://x:1");
        assert!(
            text.contains("--endpoint") && text.contains("ipc://"),
            "{text}"
        );
        for (flag, value) in [
            ("--step-time", "fast"),
            ("--max-num-seqs", "0"),
            ("--fault", "die"),
            ("--reject", "odd:every=1"),
            ("--output", "text"),
        ] {
            let text = error(&format!("--endpoint ipc:///f {flag} {value}"));
            assert!(text.contains(flag) && text.contains(value), "{text}");
        }
    }
}
