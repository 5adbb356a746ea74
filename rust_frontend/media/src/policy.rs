//! What may be fetched.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use crate::address::{AddressRange, is_public};
use crate::error::MediaError;
use crate::host::{HostRule, is_internal, usual};

/// The operator's word. The default fetches nothing from elsewhere: data URLs alone.
#[derive(Debug, Clone)]
pub struct MediaPolicy {
    /// Whether media may be fetched from public addresses of hosts that no rule names.
    pub any_public_host: bool,
    /// Hosts that media may come from.
    pub hosts: Vec<HostRule>,
    /// Addresses that are not public, and may be dialled for those hosts.
    pub addresses: Vec<AddressRange>,
    /// The folder that `file:` URLs may name files of; `None`: no file.
    pub local_root: Option<PathBuf>,
    /// Redirects of one fetch.
    pub max_redirects: usize,
    /// Bytes of one medium.
    pub max_bytes: usize,
    /// Width times height of one image.
    pub max_pixels: u64,
    /// For a connection to stand, TLS included.
    pub connect_timeout: Duration,
    /// For the whole fetch, redirects included.
    pub timeout: Duration,
}

impl Default for MediaPolicy {
    fn default() -> Self {
        Self {
            any_public_host: false,
            hosts: Vec::new(),
            addresses: Vec::new(),
            local_root: None,
            max_redirects: 3,
            max_bytes: 32 << 20,
            max_pixels: 64_000_000,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(20),
        }
    }
}

/// Where one hop goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// A name in lower case without a dot at its end, or an address.
    pub(crate) host: String,
    /// Of a host that is an address.
    pub(crate) literal: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// Whether a rule names the host.
    pub(crate) named: bool,
}

impl MediaPolicy {
    /// Checks a URL, of the first hop or of a redirect, before anything is looked up.
    pub(crate) fn target(&self, url: &Url) -> Result<Target, MediaError> {
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => {
                return Err(MediaError::Refused(
                    "only http, https and data URLs are read",
                ));
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(MediaError::Refused("the URL holds credentials"));
        }
        let port = url.port_or_known_default().ok_or(MediaError::Url)?;
        let (host, literal) = match url.host().ok_or(MediaError::Url)? {
            Host::Domain(name) => (name.trim_end_matches('.').to_ascii_lowercase(), None),
            Host::Ipv4(address) => (address.to_string(), Some(IpAddr::V4(address))),
            Host::Ipv6(address) => (address.to_string(), Some(IpAddr::V6(address))),
        };
        let named = self.hosts.iter().any(|rule| rule.fits(&host, port));
        if !named {
            self.check_unnamed(&host, literal, port)?;
        }
        Ok(Target {
            host,
            literal,
            port,
            tls,
            named,
        })
    }

    fn check_unnamed(
        &self,
        host: &str,
        literal: Option<IpAddr>,
        port: u16,
    ) -> Result<(), MediaError> {
        if !self.any_public_host {
            return Err(MediaError::Refused(
                "its host is not among those that are allowed",
            ));
        }
        if !usual(port) {
            return Err(MediaError::Refused("the port is neither 80 nor 443"));
        }
        if literal.is_none() && is_internal(host) {
            return Err(MediaError::Refused("the host is not a public one"));
        }
        Ok(())
    }

    /// Checks all addresses of a host: one that may not be dialled forbids the others too.
    pub(crate) fn check_addresses(
        &self,
        target: &Target,
        addresses: &[IpAddr],
    ) -> Result<(), MediaError> {
        let allowed = |address: &IpAddr| {
            is_public(*address)
                || (target.named && self.addresses.iter().any(|range| range.holds(*address)))
        };
        if addresses.iter().all(allowed) {
            return Ok(());
        }
        Err(MediaError::Refused("the host is not a public one"))
    }
}
