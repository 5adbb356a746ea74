//! Who is at the other end of a connection: the address, and the names of the certificate that was verified.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The peer of a connection, an extension of each of its requests.
#[derive(Debug, Clone)]
pub struct Peer {
    /// `None`: a Unix socket.
    pub address: Option<SocketAddr>,
    /// Subject alternative names of the client's certificate; empty without one.
    pub names: Arc<[San]>,
}

/// A subject alternative name. Common names are not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum San {
    /// A host name.
    Dns(String),
    /// A URI, such as a SPIFFE id.
    Uri(String),
}

impl fmt::Display for San {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => write!(f, "DNS:{name}"),
            Self::Uri(name) => write!(f, "URI:{name}"),
        }
    }
}

/// Reads the names of a certificate that rustls has verified.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Arc<[San]> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return Arc::default();
    };
    let dns = certificate
        .valid_dns_names()
        .map(|name| San::Dns(name.to_ascii_lowercase()));
    let uri = certificate
        .valid_uri_names()
        .map(|name| San::Uri(name.to_owned()));
    dns.chain(uri).collect()
}

/// Which certificates a line of the key file means: `DNS:worker.example`, `DNS:*.example`, `URI:spiffe://prod/ops/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SanRule {
    /// This name.
    Exactly(San),
    /// A host with one label before this, which begins with a dot.
    Below(String),
    /// A URI that begins so.
    Under(String),
}

impl SanRule {
    /// Reads what stands behind `san:`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("san:{text} must be san:DNS:NAME or san:URI:NAME");
        let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
        let stars = name.matches('*').count();
        match (kind, stars) {
            _ if name.is_empty() => Err(wrong()),
            ("DNS", 0) => Ok(Self::Exactly(San::Dns(name.to_ascii_lowercase()))),
            ("DNS", 1) if name.starts_with("*.") && name.len() > 2 => {
                Ok(Self::Below(name[1..].to_ascii_lowercase()))
            }
            ("URI", 0) => Ok(Self::Exactly(San::Uri(name.to_owned()))),
            ("URI", 1) if name.ends_with("/*") => {
                Ok(Self::Under(name[..name.len() - 1].to_owned()))
            }
            ("DNS" | "URI", _) => Err(format!(
                "san:{text}: * may stand for the first label of a host (DNS:*.example) or behind the last / of a URI"
            )),
            _ => Err(wrong()),
        }
    }

    /// Whether a certificate with this name is meant. A name with a `*` of its own fits no rule but the same name.
    pub(crate) fn fits(&self, name: &San) -> bool {
        match (self, name) {
            (Self::Exactly(wanted), name) => wanted == name,
            (Self::Below(suffix), San::Dns(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|label| !label.is_empty() && !label.contains(['.', '*'])),
            (Self::Under(prefix), San::Uri(name)) => name
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| !rest.is_empty() && !rest.split('/').any(|part| part == "..")),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_fit_what_they_name_and_nothing_near_it() {
        let dns = |name: &str| San::Dns(name.to_owned());
        let uri = |name: &str| San::Uri(name.to_owned());
        let cases = [
            ("DNS:a.example", dns("a.example"), true),
            ("DNS:A.Example", dns("a.example"), true),
            ("DNS:a.example", dns("b.a.example"), false),
            ("DNS:a.example", uri("a.example"), false),
            ("DNS:*.example", dns("a.example"), true),
            ("DNS:*.example", dns("a.b.example"), false),
            ("DNS:*.example", dns(".example"), false),
            ("DNS:*.example", dns("*.example"), false),
            ("DNS:*.example", dns("example"), false),
            ("DNS:*.example", dns("evilexample"), false),
            ("URI:spiffe://prod/ops", uri("spiffe://prod/ops"), true),
            ("URI:spiffe://prod/ops", uri("spiffe://prod/ops2"), false),
            (
                "URI:spiffe://prod/ops/*",
                uri("spiffe://prod/ops/a/b"),
                true,
            ),
            ("URI:spiffe://prod/ops/*", uri("spiffe://prod/ops/"), false),
            (
                "URI:spiffe://prod/ops/*",
                uri("spiffe://prod/ops/../x"),
                false,
            ),
            (
                "URI:spiffe://prod/ops/*",
                uri("spiffe://prod/opsx/a"),
                false,
            ),
        ];
        for (rule, name, fits) in cases {
            assert_eq!(
                SanRule::parse(rule).unwrap().fits(&name),
                fits,
                "{rule} {name}"
            );
        }
    }

    #[test]
    fn other_rules_are_refused() {
        for text in [
            "",
            "DNS:",
            "IP:127.0.0.1",
            "a.example",
            "DNS:*",
            "DNS:a*.b",
            "DNS:*.*.b",
            "URI:x*",
            "URI:*/x",
        ] {
            let error = SanRule::parse(text).unwrap_err();
            assert!(error.contains("san:"), "{text}: {error}");
        }
    }
}
