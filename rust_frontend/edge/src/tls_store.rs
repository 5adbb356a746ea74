//! The TLS configuration that counts now: each connection takes the current one, a reload swaps it whole.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use crate::listener::Protocol;
use crate::reload::Reload;
use crate::tls::{TlsError, TlsFiles};

/// Certificates, key, roots and revocation lists together.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Current>,
}

/// One configuration for each protocol: they differ in what ALPN offers.
#[derive(Debug, Clone)]
struct Current {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
}

impl Current {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let config = files.load()?;
        let offering = |protocol: Protocol| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.alpn().to_vec()];
            Arc::new(config)
        };
        Ok(Self {
            http1: offering(Protocol::Http1),
            http2: offering(Protocol::Http2),
        })
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// As [`TlsFiles::load`].
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(Current::read(&files)?);
        Ok(Self { files, current })
    }

    /// What greets the next client. Connections keep the configuration that they began with.
    pub(crate) fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(match protocol {
            Protocol::Http1 => &current.http1,
            Protocol::Http2 => &current.http2,
        }))
    }
}

impl Reload for Tls {
    fn name(&self) -> &'static str {
        "TLS certificates"
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.paths()
    }

    fn reload(&self) -> Result<(), String> {
        let read = Current::read(&self.files).map_err(|error| error.to_string())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}
