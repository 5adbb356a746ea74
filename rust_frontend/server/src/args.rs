//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// The HTTP frontend of octavo.
///
/// Speaks HTTP with clients, turns messages into tokens and tokens into text, and hands requests
/// to engine cores over ZeroMQ. `octavo serve` starts it; by hand it is rarely useful.
#[derive(Debug, Parser)]
#[command(name = "octavo-frontend", version, verbatim_doc_comment, after_long_help = MORE)]
pub(crate) struct Args {
    /// The configuration: a JSON object with the fields below
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Only check the configuration, its keys and its certificates, and leave with 0 or 2
    #[arg(long)]
    pub(crate) check: bool,
}

const MORE: &str = "\
Fields of the configuration (octavo.config.FrontendConfig):
  listen_fd            number of an inherited TCP or Unix socket that is bound and listens
  grpc_listen_fd       likewise for gRPC; null: there is none
  engine_endpoints     where engine cores connect, by rank: a list of ipc:///run/… sockets
  link_key             what engine cores must show, in hexadecimal; empty: nothing
  tokenizer_dir        folder with tokenizer.json, tokenizer_config.json, chat template, ...
  served_model_names   names that requests may use; the first is the main one
  seed                 of the generator of seeds for requests without one; null: the system
  max_open_requests    more get 429 (1024)
  max_logprobs         log probabilities with each token that requests may ask for (20); -1: any
  replay_timeout_s     streams whose engine stays away for longer end with an error (300)
  shutdown_timeout_s   how long running requests may go on after SIGTERM (0)
  scheduling_policy    fcfs or priority: whether requests may name a priority (fcfs)
  tool_call_parser     name of the format of tool calls, or \"auto\"; null: none
  reasoning_parser     name of the format of reasoning, or \"auto\"; null: none
  enable_auto_tool_choice
                       whether requests may leave it to the model to call tools (false)
  format_files         files of further output formats ([])
  api_keys             keys with every role but admin; none, and no file: no key is asked for
  api_key_file         lines of ROLE[,ROLE] KEY, read again when the file changes
  log_level            debug, info, warning or error (info)
  trust_request_chat_template
                       whether requests may bring a chat template (false)
  enable_prompt_embeds whether prompts of completions may be vectors (false)
  enable_per_request_metrics
                       whether chats and completions say when their tokens came (false)
  response_store       file of the responses that are kept; null: memory
  response_store_max_bytes
                       of all of them; 0: none are kept (256 MiB)
  response_store_max_age_s
                       older ones are gone (30 days)
  otlp_traces_endpoint HTTP address of a collector of traces; null: there are none
  pooling              an object: how the model pools; null: it makes tokens
  edge                 an object: TLS, limits and time-outs (octavo.edge_config.EdgeConfig)

Life:
  stdin     must be a pipe that the parent holds open; at its end the program leaves at once
  stdout    JSON lines: {\"event\":\"listening\",...} when requests are answered, then a
            \"pulse\" each second
  stderr    the log
  SIGHUP    reads keys and certificates again, as it does by itself when their files change
  SIGTERM   takes no more requests, lets running ones finish for shutdown_timeout_s, ends the
            rest with an error that clients can read, and leaves; a second one: leaves at once

Exit codes:
  0  ended as asked
  2  the configuration or the files it names cannot work; starting again does not help
  1  anything else";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_command_line_is_sound_and_help_names_every_field() {
        let mut command = Args::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        // Serde names all fields when it finds one that is none.
        let refused = serde_json::from_str::<Config>(r#"{"no_such_field": 0}"#);
        let message = refused.unwrap_err().to_string();
        let fields: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        assert!(fields.len() > 20, "{message}");
        for field in fields {
            assert!(
                help.contains(&format!("  {field} ")) || help.contains(&format!("  {field}\n")),
                "{field}"
            );
        }
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
    }
}
