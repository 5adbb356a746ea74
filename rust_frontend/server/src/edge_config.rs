//! What the supervisor tells of the edge: `octavo.edge_config.EdgeConfig`, field by field.

use std::path::PathBuf;

use octavo_edge::{ClientCertificates, Settings, TlsFiles};
use serde::{Deserialize, Serialize};

use crate::config::seconds;

/// TLS, limits and time-outs.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EdgeConfig {
    /// `None`: plain HTTP.
    pub(crate) tls: Option<TlsConfig>,
    /// More wait to be accepted.
    pub(crate) max_connections: usize,
    /// Larger bodies get 413.
    pub(crate) max_body_bytes: usize,
    /// A connection without a request is closed after this time.
    pub(crate) idle_timeout_s: f64,
    /// A client that neither sends nor takes what is due for so long is disconnected.
    pub(crate) stall_timeout_s: f64,
    /// A request that is not answered for so long ends with an error; 0: never.
    pub(crate) request_timeout_s: f64,
    /// Tokens of all open requests; more get 429. `None`: any number.
    pub(crate) max_open_tokens: Option<u64>,
    /// Open requests of one key or certificate; more get 429. `None`: any number.
    pub(crate) max_requests_per_key: Option<usize>,
    /// Whether each request gets a line in the log.
    pub(crate) access_log: bool,
    /// Whether the log shows what clients send.
    pub(crate) log_prompts: bool,
}

/// The PEM files of TLS.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// The server's certificate and those between it and a root.
    pub(crate) certfile: PathBuf,
    /// Its key.
    pub(crate) keyfile: PathBuf,
    /// The roots that client certificates must come from.
    #[serde(default)]
    pub(crate) ca_certs: Option<PathBuf>,
    /// 0: not asked for; 1: checked where shown; 2: required.
    #[serde(default)]
    pub(crate) cert_reqs: u8,
    /// Revocation lists.
    #[serde(default)]
    pub(crate) crl: Option<PathBuf>,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            tls: None,
            max_connections: settings.max_connections,
            max_body_bytes: settings.max_body_bytes,
            idle_timeout_s: settings.idle_timeout.as_secs_f64(),
            stall_timeout_s: settings.write_timeout.as_secs_f64(),
            request_timeout_s: 0.0,
            max_open_tokens: None,
            max_requests_per_key: None,
            access_log: false,
            log_prompts: false,
        }
    }
}

impl EdgeConfig {
    /// The limits and time-outs of the HTTP side.
    ///
    /// # Errors
    /// Names a field with a value that cannot work.
    pub(crate) fn settings(&self, compute_threads: usize) -> Result<Settings, String> {
        for (name, value) in [
            ("max_connections", self.max_connections),
            ("max_body_bytes", self.max_body_bytes),
        ] {
            if value == 0 {
                return Err(format!("edge.{name} is 0; it must be at least 1"));
            }
        }
        let stall = seconds("edge.stall_timeout_s", self.stall_timeout_s)?;
        let request = seconds("edge.request_timeout_s", self.request_timeout_s)?;
        Ok(Settings {
            max_connections: self.max_connections,
            max_body_bytes: self.max_body_bytes,
            idle_timeout: seconds("edge.idle_timeout_s", self.idle_timeout_s)?,
            body_timeout: stall,
            write_timeout: stall,
            request_timeout: Some(request).filter(|limit| !limit.is_zero()),
            max_open_tokens: self.max_open_tokens,
            max_requests_per_key: self.max_requests_per_key,
            access_log: self.access_log,
            log_prompts: self.log_prompts,
            compute_threads,
            ..Settings::default()
        })
    }

    /// The files of TLS; `None`: plain HTTP.
    ///
    /// # Errors
    /// `cert_reqs` is none of 0, 1 and 2.
    pub(crate) fn tls_files(&self) -> Result<Option<TlsFiles>, String> {
        let Some(tls) = self.tls.clone() else {
            return Ok(None);
        };
        let wanted = ClientCertificates::from_number(tls.cert_reqs).ok_or_else(|| {
            format!(
                "edge.tls.cert_reqs is {}; it must be 0, 1 or 2",
                tls.cert_reqs
            )
        })?;
        Ok(Some(TlsFiles {
            certificates: tls.certfile,
            key: tls.keyfile,
            client_roots: tls.ca_certs,
            client_crl: tls.crl,
            client_certificates: wanted,
        }))
    }
}
