//! What the supervisor tells this process: `octavo.config.FrontendConfig`, field by field.

use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_edge::Failure;
use octavo_http::PoolingModel;
use serde::Deserialize;

use crate::edge_config::EdgeConfig;
use crate::otlp;

/// The file's fields. Unknown ones are refused: a setting that does nothing would be worse.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// A bound and listening TCP socket that this process inherits.
    pub(crate) listen_fd: i32,
    /// Likewise for gRPC; `None`: there is none.
    #[serde(default)]
    pub(crate) grpc_listen_fd: Option<i32>,
    /// `ipc://…`, one for each data-parallel rank; this process binds them, engine cores connect.
    pub(crate) engine_endpoints: Vec<String>,
    /// tokenizer.json, `tokenizer_config.json`, `generation_config.json`, config.json, the chat template.
    pub(crate) tokenizer_dir: PathBuf,
    /// What the engine must show, in hexadecimal; empty: whoever connects is taken for it.
    #[serde(default)]
    pub(crate) link_key: String,
    /// At least one; the first is the main name.
    pub(crate) served_model_names: Vec<String>,
    /// Of the generator that requests without a seed draw theirs from; `None`: the system's randomness.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    /// More get 429.
    #[serde(default = "default_open_requests")]
    pub(crate) max_open_requests: usize,
    /// Alternatives that a request may ask for with each token; -1: any number.
    #[serde(default = "default_max_logprobs")]
    pub(crate) max_logprobs: i32,
    /// A stream whose engine stays away for longer ends with an error.
    #[serde(default = "default_replay_timeout")]
    pub(crate) replay_timeout_s: f64,
    /// Running requests get so long after SIGTERM.
    #[serde(default)]
    pub(crate) shutdown_timeout_s: f64,
    /// "fcfs" or "priority": whether requests may name a priority.
    #[serde(default = "default_policy")]
    pub(crate) scheduling_policy: String,
    /// A name of a format of tool calls, or "auto"; `None`: calls are text, and requests with tools are refused.
    #[serde(default)]
    pub(crate) tool_call_parser: Option<String>,
    /// A name of a format of reasoning, or "auto"; `None`: reasoning is content.
    #[serde(default)]
    pub(crate) reasoning_parser: Option<String>,
    /// Whether requests may leave it to the model to call tools.
    #[serde(default)]
    pub(crate) enable_auto_tool_choice: bool,
    /// Files of further output formats.
    #[serde(default)]
    pub(crate) format_files: Vec<PathBuf>,
    /// Keys with every role but admin. Without these and without a file, no key is asked for.
    #[serde(default)]
    pub(crate) api_keys: Vec<String>,
    /// Keys and their roles, read again when it changes.
    #[serde(default)]
    pub(crate) api_key_file: Option<PathBuf>,
    /// "debug", "info", "warning" or "error".
    #[serde(default = "default_log_level")]
    pub(crate) log_level: String,
    /// Whether requests may bring a chat template.
    #[serde(default)]
    pub(crate) trust_request_chat_template: bool,
    /// Whether prompts may be vectors.
    #[serde(default)]
    pub(crate) enable_prompt_embeds: bool,
    /// Whether chats and completions carry `metrics`: when their tokens came.
    #[serde(default)]
    pub(crate) enable_per_request_metrics: bool,
    /// File of the responses that are kept; `None`: memory.
    #[serde(default)]
    pub(crate) response_store: Option<PathBuf>,
    /// Of all of them together; 0: none are kept.
    #[serde(default = "default_store_bytes")]
    pub(crate) response_store_max_bytes: u64,
    /// Older ones are gone.
    #[serde(default = "default_store_age")]
    pub(crate) response_store_max_age_s: f64,
    /// The OTLP/HTTP address of a collector of traces; `None`: there are none.
    #[serde(default)]
    pub(crate) otlp_traces_endpoint: Option<String>,
    /// TLS, limits and time-outs.
    #[serde(default)]
    pub(crate) edge: EdgeConfig,
    /// How the model pools; `None`: it makes tokens.
    #[serde(default)]
    pub(crate) pooling: Option<PoolingModel>,
}

fn default_store_bytes() -> u64 {
    256 << 20
}

fn default_store_age() -> f64 {
    30.0 * 86400.0
}

fn default_open_requests() -> usize {
    1024
}

fn default_max_logprobs() -> i32 {
    20
}

fn default_replay_timeout() -> f64 {
    300.0
}

fn default_policy() -> String {
    "fcfs".to_owned()
}

fn default_log_level() -> String {
    "info".to_owned()
}

impl Config {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read(path)
            .map_err(|error| Failure::config(format!("cannot read {shown}: {error}")))?;
        let config: Self = serde_json::from_slice(&text).map_err(|error| {
            Failure::config(format!("{shown} is not a frontend configuration: {error}"))
        })?;
        config
            .check()
            .map_err(|problem| Failure::config(format!("{shown}: {problem}")))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.listen_fd < 3 {
            return Err(format!(
                "listen_fd is {}; it must be 3 or more, an inherited socket",
                self.listen_fd
            ));
        }
        if let Some(fd) = self.grpc_listen_fd.filter(|fd| *fd < 3) {
            return Err(format!(
                "grpc_listen_fd is {fd}; it must be 3 or more, an inherited socket"
            ));
        }
        if self.served_model_names.is_empty() {
            return Err("served_model_names is empty; name at least one".to_owned());
        }
        if self.engine_endpoints.is_empty() {
            return Err("engine_endpoints is empty; give one for each engine core".to_owned());
        }
        if self.max_open_requests == 0 {
            return Err("max_open_requests is 0; it must be at least 1".to_owned());
        }
        if !["fcfs", "priority"].contains(&self.scheduling_policy.as_str()) {
            return Err(format!(
                "scheduling_policy is {:?}; it must be fcfs or priority",
                self.scheduling_policy
            ));
        }
        if !octavo_telemetry::LEVELS.contains(&self.log_level.as_str()) {
            return Err(format!(
                "log_level is {:?}; it must be one of {}",
                self.log_level,
                octavo_telemetry::LEVELS.join(", ")
            ));
        }
        self.link_key()?;
        self.replay_timeout()?;
        self.shutdown_timeout()?;
        self.response_store_max_age()?;
        self.edge.settings(1)?;
        self.edge.tls_files()?;
        if let Some(endpoint) = &self.otlp_traces_endpoint {
            otlp::check(endpoint)?;
        }
        Ok(())
    }

    /// What `/server_info` tells of the settings: no keys, and no paths but those of TLS.
    pub(crate) fn about(&self) -> serde_json::Value {
        serde_json::json!({
            "seed": self.seed,
            "max_open_requests": self.max_open_requests,
            "replay_timeout_s": self.replay_timeout_s,
            "shutdown_timeout_s": self.shutdown_timeout_s,
            "scheduling_policy": self.scheduling_policy,
            "tool_call_parser": self.tool_call_parser,
            "reasoning_parser": self.reasoning_parser,
            "enable_auto_tool_choice": self.enable_auto_tool_choice,
            "asks_for_keys": !self.api_keys.is_empty() || self.api_key_file.is_some(),
            "trust_request_chat_template": self.trust_request_chat_template,
            "enable_prompt_embeds": self.enable_prompt_embeds,
            "enable_per_request_metrics": self.enable_per_request_metrics,
            "log_level": self.log_level,
            "traces": self.otlp_traces_endpoint.is_some(),
            "edge": self.edge,
        })
    }

    pub(crate) fn link_key(&self) -> Result<Vec<u8>, String> {
        let (pairs, rest) = self.link_key.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let key: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        key.filter(|_| rest.is_empty())
            .ok_or_else(|| "link_key is not hexadecimal".to_owned())
    }

    pub(crate) fn replay_timeout(&self) -> Result<Duration, String> {
        seconds("replay_timeout_s", self.replay_timeout_s)
    }

    pub(crate) fn response_store_max_age(&self) -> Result<Duration, String> {
        seconds("response_store_max_age_s", self.response_store_max_age_s)
    }

    pub(crate) fn shutdown_timeout(&self) -> Result<Duration, String> {
        seconds("shutdown_timeout_s", self.shutdown_timeout_s)
    }
}

/// Reads a number of seconds.
pub(crate) fn seconds(name: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| format!("{name} is {value}; it must be a number of seconds, 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frontend.json");
        std::fs::write(&path, text).unwrap();
        Config::read(&path)
    }

    const LEAST: &str = r#"{"listen_fd": 7, "engine_endpoints": ["ipc:///x"], "tokenizer_dir": "/m", "served_model_names": ["m"]"#;

    #[test]
    fn defaults_are_those_of_the_python_record() {
        let config = parse(&format!("{LEAST}}}")).unwrap();
        assert_eq!(config.seed, None);
        assert_eq!(config.max_open_requests, 1024);
        assert_eq!(config.max_logprobs, 20);
        assert_eq!(config.replay_timeout().unwrap(), Duration::from_secs(300));
        assert_eq!(config.shutdown_timeout().unwrap(), Duration::ZERO);
        assert_eq!(config.scheduling_policy, "fcfs");
        assert_eq!(config.log_level, "info");
    }

    /// The names of the fields of a record in a Python file.
    fn fields_of<'a>(source: &'a str, record: &str) -> Vec<&'a str> {
        let (_, record) = source.split_once(&format!("class {record}(")).unwrap();
        let (record, _) = record.split_once("\n\n\n").unwrap();
        let fields = record
            .lines()
            .filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        fields
            .map(|(name, _)| name)
            .filter(|name| !name.contains('"'))
            .collect()
    }

    /// Refuses names that the record does not have.
    fn knows<T: serde::de::DeserializeOwned>(names: &[&str], least: usize) {
        assert!(names.len() >= least, "{names:?}");
        for name in names {
            // No field is a map of maps.
            let text = format!("{{\"{name}\": {{\"x\": {{}}}}}}");
            let error = serde_json::from_str::<T>(&text)
                .err()
                .map(|error| error.to_string());
            let unknown = format!("unknown field `{name}`");
            assert!(
                !error.is_some_and(|error| error.contains(&unknown)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_fields_are_those_of_the_python_records() {
        let edge = include_str!("../../../python/edge_config.py");
        let whole = include_str!("../../../python/config.py");
        knows::<Config>(&fields_of(whole, "FrontendConfig"), 9);
        knows::<EdgeConfig>(&fields_of(edge, "EdgeConfig"), 4);
        knows::<crate::edge_config::TlsConfig>(&fields_of(edge, "TlsConfig"), 5);
    }

    #[test]
    fn the_edge_is_checked_too() {
        for (field, said) in [
            (r#""max_body_bytes": 0"#, "edge.max_body_bytes is 0"),
            (r#""idle_timeout_s": -1"#, "edge.idle_timeout_s is -1"),
            (
                r#""tls": {"certfile": "c", "keyfile": "k", "cert_reqs": 3}"#,
                "edge.tls.cert_reqs is 3",
            ),
        ] {
            let error = parse(&format!("{LEAST}, \"edge\": {{{field}}}}}")).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("{", "EOF"),
            (&format!("{LEAST}, \"colour\": 1}}"), "colour"),
            (r#"{"listen_fd": 7}"#, "engine_endpoints"),
            (
                &format!("{LEAST}, \"max_open_requests\": 0}}"),
                "max_open_requests is 0",
            ),
            (
                &format!("{LEAST}, \"scheduling_policy\": \"lifo\"}}"),
                "scheduling_policy is",
            ),
            (
                &format!("{LEAST}, \"log_level\": \"loud\"}}"),
                "log_level is",
            ),
            (
                &format!("{LEAST}, \"shutdown_timeout_s\": -1}}"),
                "shutdown_timeout_s is -1",
            ),
            (&format!("{}}}", LEAST.replace('7', "1")), "listen_fd is 1"),
            (
                &format!("{}}}", LEAST.replace("[\"m\"]", "[]")),
                "served_model_names",
            ),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains("frontend.json"),
                "{error}"
            );
        }
    }
}
