//! The command line.

use std::path::PathBuf;

use clap::Parser;
use octavo_edge::{ClientCertificates, TlsFiles};
use octavo_render::ParserSettings;

/// Text to token ids and back for one model, in front of any engine.
///
/// Renders chat templates, tokenizes and detokenizes as Transformers does, over HTTP or as a
/// filter. Needs a model's folder (tokenizer.json, config.json, the chat template), no weights.
#[derive(Debug, Parser)]
#[command(name = "octavo-renderer", version, verbatim_doc_comment, after_long_help = MORE)]
pub(crate) struct Args {
    /// The model's folder
    pub(crate) model: PathBuf,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Port to listen on; 0: a free one
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// Names that requests may use; the first is the main one [default: MODEL]
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub(crate) served_model_name: Vec<String>,
    /// Tokens of prompt and output together [default: what config.json says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    max_model_len: Option<u32>,
    /// Read JSON lines from stdin and write JSON lines to stdout instead of listening
    #[arg(long)]
    pub(crate) filter: bool,
    /// Threads that render and tokenize [default: the machine's cores, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// File with a chat template, or the template itself [default: the model's]
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<String>,
    /// Render with the chat template that a request brings; templates are programs
    #[arg(long)]
    pub(crate) trust_request_chat_template: bool,
    /// Keys that clients must send, else all is open [default: OCTAVO_API_KEY]
    #[arg(long, num_args = 1.., value_name = "KEY")]
    api_key: Vec<String>,
    /// File of lines ROLE[,ROLE] KEY, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Format of the model's tool calls, for derender; auto: found in the model's files
    #[arg(long, value_name = "NAME|auto")]
    tool_call_parser: Option<String>,
    /// Format of the model's reasoning, for derender; auto: found in the model's files
    #[arg(long, value_name = "NAME|auto")]
    reasoning_parser: Option<String>,
    /// Let requests leave it to the model to call tools
    #[arg(long, requires = "tool_call_parser")]
    enable_auto_tool_choice: bool,
    /// File of a further output format; may be given several times
    #[arg(long, value_name = "FILE")]
    format_file: Vec<PathBuf>,
    /// PEM file with the server's certificate, and those between it and a root
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile")]
    ssl_certfile: Option<PathBuf>,
    /// PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    ssl_keyfile: Option<PathBuf>,
    /// PEM file with the roots that client certificates must come from
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    ssl_ca_certs: Option<PathBuf>,
    /// Client certificates: 0 not asked for, 1 checked where shown, 2 required
    #[arg(long, value_name = "0|1|2", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    ssl_cert_reqs: u8,
    /// PEM file with revocation lists, one of every issuer of clients
    #[arg(long, value_name = "FILE", requires = "ssl_ca_certs")]
    ssl_crl: Option<PathBuf>,
    /// How much to log: debug, info, warning or error
    #[arg(long, default_value = "info", value_parser = octavo_telemetry::LEVELS)]
    pub(crate) log_level: String,
}

const MORE: &str = "\
Routes:
  POST /v1/chat/completions/render     a chat to a body of /inference/v1/generate
  POST /v1/completions/render          a completion to a list of such bodies
  POST /v1/chat/completions/derender   what that route answered to a chat's answer
  POST /v1/completions/derender        the same for completions
  POST /tokenize, /detokenize          text or messages to ids, ids to text
  GET  /v1/models, /health, /ready, /version, /metrics

As a filter, each line is the body of one of the POST routes: with messages a chat, with prompt
a completion, with tokens a detokenize, with generate_response, generate_responses or
generate_chunk a derender; \"url\" in the line names the route instead. Each line that is not
blank gives one line, in order; a bad one gives {\"error\": ...} and does not end the filter.

SIGTERM or Ctrl-C lets running requests finish; a second one leaves at once.

Exit codes:
  0  ended as asked
  2  the command line or the files it names cannot work
  1  anything else";

impl Args {
    /// The served names.
    pub(crate) fn model_names(&self) -> Vec<String> {
        if self.served_model_name.is_empty() {
            return vec![self.model.display().to_string()];
        }
        self.served_model_name.clone()
    }

    pub(crate) fn max_model_len(&self) -> Option<usize> {
        self.max_model_len
            .and_then(|length| usize::try_from(length).ok())
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || {
            std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(8)
        };
        self.threads.map_or_else(cores, usize::from)
    }

    /// The keys of the command line, or else those of the environment, with commas between them.
    pub(crate) fn api_keys(&self) -> Vec<String> {
        if !self.api_key.is_empty() {
            return self.api_key.clone();
        }
        let keys = std::env::var("OCTAVO_API_KEY").unwrap_or_default();
        let keys = keys.split(',').filter(|key| !key.is_empty());
        keys.map(str::to_owned).collect()
    }

    /// The parsers of outputs.
    pub(crate) fn parsers(&self) -> ParserSettings {
        ParserSettings {
            tool: self.tool_call_parser.clone(),
            reasoning: self.reasoning_parser.clone(),
            auto_tool_choice: self.enable_auto_tool_choice,
            format_files: self.format_file.clone(),
        }
    }

    /// The files of TLS; `None`: plain HTTP.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        let (certificates, key) = self.ssl_certfile.clone().zip(self.ssl_keyfile.clone())?;
        Some(TlsFiles {
            certificates,
            key,
            client_roots: self.ssl_ca_certs.clone(),
            client_crl: self.ssl_crl.clone(),
            client_certificates: ClientCertificates::from_number(self.ssl_cert_reqs)
                .unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_its_help_is_narrow() {
        let mut command = Args::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
        for route in octavo_render_http::TextRoute::ALL {
            let path = route.path().trim_start_matches("/v1");
            assert!(help.contains(path), "{path}");
        }
    }

    #[test]
    fn names_default_to_the_folder_and_a_certificate_needs_a_key() {
        let plain = Args::try_parse_from(["octavo-renderer", "/models/a"]).unwrap();
        assert_eq!(plain.model_names(), ["/models/a"]);
        assert!(plain.tls().is_none());
        let named = ["octavo-renderer", "/m", "--served-model-name", "a", "b"];
        assert_eq!(
            Args::try_parse_from(named).unwrap().model_names(),
            ["a", "b"]
        );
        let half = ["octavo-renderer", "/m", "--ssl-certfile", "cert.pem"];
        assert!(Args::try_parse_from(half).is_err());
    }
}
