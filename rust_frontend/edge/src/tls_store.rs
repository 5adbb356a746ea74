//! The TLS configuration that counts now: each connection takes the current one, a reload swaps it whole.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use crate::reload::Reload;
use crate::tls::{TlsError, TlsFiles};

/// Certificates, key, roots and revocation lists together.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// As [`TlsFiles::load`].
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(files.load()?);
        Ok(Self { files, current })
    }

    /// What greets the next client. Connections keep the configuration that they began with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current))
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
        let read = self.files.load().map_err(|error| error.to_string())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}
