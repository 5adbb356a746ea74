//! TLS: certificates from files, with client certificates where they are asked for. rustls on aws-lc-rs, no other provider.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

/// What the server asks of its clients: `--ssl-cert-reqs` 0, 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// Nothing.
    #[default]
    None,
    /// A client may show a certificate, which must then be good.
    Optional,
    /// No connection without a good certificate.
    Required,
}

impl ClientCertificates {
    /// Reads the number of `--ssl-cert-reqs`; `None` for any other.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Optional),
            2 => Some(Self::Required),
            _ => None,
        }
    }
}

/// The PEM files of a server.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate and those between it and a root.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The roots that client certificates must come from.
    pub client_roots: Option<PathBuf>,
    /// The lists of revoked certificates, one of every issuer of clients.
    pub client_crl: Option<PathBuf>,
    /// What is asked of clients.
    pub client_certificates: ClientCertificates,
}

/// Why TLS cannot work with these files. Messages name the flag and the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read as PEM.
    #[error("{0} {1}: {2}")]
    File(&'static str, PathBuf, String),
    /// Files that do not fit each other.
    #[error("{0}")]
    Mismatch(String),
}

const CERTIFICATES: &str = "--ssl-certfile";
const KEY: &str = "--ssl-keyfile";
const ROOTS: &str = "--ssl-ca-certs";
const CRL: &str = "--ssl-crl";

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that is missing or no PEM, a key that is not the certificate's, client certificates without roots.
    pub fn load(&self) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Mismatch(error.to_string()))?;
        let builder = match self.client_certificates {
            ClientCertificates::None => builder.with_no_client_auth(),
            wanted => builder.with_client_cert_verifier(self.verifier(wanted)?),
        };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| self.keyless(&error))?;
        let chain = certificates(CERTIFICATES, &self.certificates)?;
        builder.with_single_cert(chain, key).map_err(|error| {
            TlsError::Mismatch(format!(
                "{CERTIFICATES} {} and {KEY} {} cannot serve TLS together: {error}",
                self.certificates.display(),
                self.key.display()
            ))
        })
    }

    /// Why there is no key, and where one may be.
    fn keyless(&self, error: &pem::Error) -> TlsError {
        let none = matches!(error, pem::Error::NoItemsFound);
        if none && self.key == self.certificates {
            let help = format!("it holds no private key: add it, or name its file with {KEY}");
            return named(CERTIFICATES, &self.key, &help);
        }
        if none {
            return named(KEY, &self.key, &"it holds no private key");
        }
        let sealed = |text: &String| text.contains("ENCRYPTED");
        if std::fs::read_to_string(&self.key).is_ok_and(|text| sealed(&text)) {
            let help = "its key is encrypted, and nobody is asked for a password: write it without one, with \
                        `openssl pkey -in FILE -out NEW`";
            return named(KEY, &self.key, &help);
        }
        named(KEY, &self.key, error)
    }

    /// All files that are read.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let asked = [&self.client_roots, &self.client_crl];
        let mut paths = vec![self.certificates.clone(), self.key.clone()];
        paths.extend(asked.into_iter().flatten().cloned());
        paths
    }

    fn verifier(
        &self,
        wanted: ClientCertificates,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let roots = Arc::new(self.roots()?);
        let mut verifier =
            WebPkiClientVerifier::builder_with_provider(roots, Arc::new(default_provider()));
        if let Some(path) = &self.client_crl {
            verifier = verifier.with_crls(crls(path)?);
        }
        if wanted == ClientCertificates::Optional {
            verifier = verifier.allow_unauthenticated();
        }
        verifier
            .build()
            .map_err(|error| TlsError::Mismatch(error.to_string()))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let path = self.client_roots.as_deref().ok_or_else(|| {
            TlsError::Mismatch(format!(
                "--ssl-cert-reqs asks for client certificates, and there is no {ROOTS} to check them against"
            ))
        })?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ROOTS, path)? {
            roots
                .add(certificate)
                .map_err(|error| named(ROOTS, path, &error))?;
        }
        Ok(roots)
    }
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| named(flag, path, &error))?;
    if found.is_empty() {
        return Err(named(flag, path, &"it holds no certificate"));
    }
    Ok(found)
}

fn crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let found = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| named(CRL, path, &error))?;
    if found.is_empty() {
        return Err(named(CRL, path, &"it holds no revocation list"));
    }
    Ok(found)
}

fn named(flag: &'static str, path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::File(flag, path.to_owned(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> TlsFiles {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            certificates: write("cert.pem", made.cert.pem()),
            key: write("key.pem", made.signing_key.serialize_pem()),
            client_roots: None,
            client_crl: None,
            client_certificates: ClientCertificates::None,
        }
    }

    #[test]
    fn good_files_load_and_wrong_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let good = files(folder.path());
        assert!(good.load().is_ok());
        let said = |files: TlsFiles| files.load().map(|_| ()).unwrap_err().to_string();
        let missing = TlsFiles {
            key: folder.path().join("absent.pem"),
            ..good.clone()
        };
        assert!(said(missing).contains("absent.pem"));
        let keyless = TlsFiles {
            key: good.certificates.clone(),
            ..good.clone()
        };
        assert!(said(keyless).contains("name its file with --ssl-keyfile"));
        let sealed = TlsFiles {
            key: folder.path().join("sealed.pem"),
            ..good.clone()
        };
        let text = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAA==\n-----END EC PRIVATE KEY-----\n";
        std::fs::write(&sealed.key, text).unwrap();
        assert!(said(sealed).contains("openssl pkey"));
        let swapped = TlsFiles {
            certificates: good.key.clone(),
            ..good.clone()
        };
        assert!(said(swapped).contains("holds no certificate"));
        let other = tempfile::tempdir().unwrap();
        let mixed = TlsFiles {
            key: files(other.path()).key,
            ..good.clone()
        };
        assert!(said(mixed).contains("together"));
        let rootless = TlsFiles {
            client_certificates: ClientCertificates::Required,
            ..good
        };
        assert!(said(rootless.clone()).contains("no --ssl-ca-certs"));
        let listless = TlsFiles {
            client_roots: Some(rootless.certificates.clone()),
            client_crl: Some(rootless.certificates.clone()),
            ..rootless
        };
        assert!(said(listless).contains("--ssl-crl"));
    }
}
