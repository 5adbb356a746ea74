//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::client::Plan;

/// Sends streaming requests to an OpenAI-compatible server and tells how it went, as one JSON line.
///
/// Made to cost little, so that server and client fit on a small machine. With --rate requests
/// start when their time has come, whether or not others have ended (open loop); without it,
/// each connection sends the next as soon as it has an answer (closed loop).
#[derive(Debug, Parser)]
#[command(name = "octavo-load", version, verbatim_doc_comment, after_long_help = MORE)]
pub(crate) struct Args {
    /// Where the server listens, such as 127.0.0.1:8000
    #[arg(long, value_name = "HOST:PORT")]
    address: String,

    /// Where to post
    #[arg(long, value_name = "PATH", default_value = "/v1/completions")]
    path: String,

    /// Request bodies, one JSON object a line; they are used in turn
    #[arg(long, value_name = "FILE")]
    bodies: PathBuf,

    /// Connections; with --rate: at most so many, more requests than that count as failed
    #[arg(long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Requests a second, at random times (Poisson)
    #[arg(long, value_name = "R")]
    rate: Option<f64>,

    /// Stop after so many requests, all of them answered
    #[arg(long, value_name = "N", required_unless_present = "seconds")]
    num_requests: Option<u64>,

    /// Stop after so many seconds, and count what ended in them; what is open then is cut off
    #[arg(long, value_name = "S", conflicts_with = "num_requests")]
    seconds: Option<f64>,

    /// With --seconds: so many seconds before them do not count
    #[arg(long, value_name = "S", default_value_t = 0.0, requires = "seconds")]
    warmup: f64,

    /// Of the arrival times
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

const MORE: &str = "\
Fields of the JSON line:
  seconds            that counted
  requests, failed   answered with 200 and to the end; all others
  tokens             completion_tokens of the answers; bodies must ask for usage in the stream
                     (\"stream_options\": {\"include_usage\": true})
  events, bytes      of the answers' bodies
  ttft_ms, total_ms  p50, p90, p99, max: from the start of a request to its first byte, to its end
  late_ms            p99: how late requests were started (with --rate)
  error              the first failure, if any

Example:
  octavo-load --address 127.0.0.1:8000 --bodies bodies.jsonl --connections 64 --seconds 10";

impl Args {
    pub(crate) fn plan(&self) -> Plan {
        let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
        Plan {
            address: self.address.clone(),
            connections: self.connections,
            rate: self.rate.filter(|rate| *rate > 0.0),
            count: self.num_requests.unwrap_or(u64::MAX),
            window: self.seconds.map(seconds),
            warmup: seconds(self.warmup),
            seed: self.seed,
        }
    }

    /// The bytes of each request.
    pub(crate) fn requests(&self) -> Result<Vec<Vec<u8>>, String> {
        let shown = self.bodies.display();
        let text = std::fs::read_to_string(&self.bodies)
            .map_err(|error| format!("cannot read {shown}: {error}"))?;
        let requests: Vec<Vec<u8>> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|body| {
                format!(
                    "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    self.path,
                    self.address,
                    body.len()
                )
                .into_bytes()
            })
            .collect();
        if requests.is_empty() {
            return Err(format!(
                "{shown} has no bodies; write one JSON object a line"
            ));
        }
        Ok(requests)
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
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
    }
}
