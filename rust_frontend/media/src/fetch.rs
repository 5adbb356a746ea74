//! From a URL to bytes: each hop is checked, looked up once, checked again, and dialled by address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::error::MediaError;
use crate::http_get::{Answer, get, tls, unreachable};
use crate::policy::{MediaPolicy, Target};

/// Addresses, once they are known.
pub type Addresses<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Looks up the addresses of a name.
pub trait Resolve: Send + Sync {
    /// All addresses of a host.
    fn resolve<'a>(&'a self, host: &'a str) -> Addresses<'a>;
}

/// The machine's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> Addresses<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Fetches media within a policy. It keeps no connection, sends no cookie, no credentials, and asks no proxy.
#[derive(Clone)]
pub struct Fetcher {
    policy: Arc<MediaPolicy>,
    resolver: Arc<dyn Resolve>,
    tls: TlsConnector,
}

impl Fetcher {
    /// Fetches within `policy`, with addresses from `resolver`.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(policy: MediaPolicy, resolver: impl Resolve + 'static) -> Result<Self, String> {
        Ok(Self {
            policy: Arc::new(policy),
            resolver: Arc::new(resolver),
            tls: tls().map_err(|error| error.to_string())?,
        })
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &MediaPolicy {
        &self.policy
    }

    /// Fetches what a URL of a request names.
    ///
    /// # Errors
    /// The policy forbids it, it cannot be had, or it is too large.
    pub async fn fetch(&self, url: &str) -> Result<Bytes, MediaError> {
        if let Some(rest) = data_url(url) {
            return self.decode(rest);
        }
        let url = Url::parse(url).map_err(|_| MediaError::Url)?;
        let fetching = async {
            if url.scheme() == "file" {
                self.read_file(&url).await
            } else {
                self.follow(url).await
            }
        };
        let done = timeout(self.policy.timeout, fetching).await;
        done.map_err(|_| unreachable("it takes too long"))?
    }

    async fn follow(&self, mut url: Url) -> Result<Bytes, MediaError> {
        for _ in 0..=self.policy.max_redirects {
            let target = self.policy.target(&url)?;
            let addresses = self.look_up(&target).await?;
            match get(&self.policy, &self.tls, &url, &target, &addresses).await? {
                Answer::Found(bytes) => return Ok(bytes),
                Answer::Redirect(place) => {
                    let next = url.join(&place).map_err(|_| MediaError::Url)?;
                    if target.tls && next.scheme() == "http" {
                        return Err(MediaError::Refused("a redirect leads from https to http"));
                    }
                    url = next;
                }
            }
        }
        Err(MediaError::Redirects(self.policy.max_redirects))
    }

    /// Looks a host up, once, and checks what is found.
    async fn look_up(&self, target: &Target) -> Result<Vec<SocketAddr>, MediaError> {
        let found = match target.literal {
            Some(address) => vec![address],
            None => {
                let found = self.resolver.resolve(&target.host).await;
                found.map_err(|_| unreachable("the host is not known"))?
            }
        };
        self.policy.check_addresses(target, &found)?;
        if found.is_empty() {
            return Err(unreachable("the host is not known"));
        }
        let dial = |address: IpAddr| SocketAddr::new(address, target.port);
        Ok(found.into_iter().map(dial).collect())
    }

    fn decode(&self, rest: &str) -> Result<Bytes, MediaError> {
        let (head, data) = rest.split_once(',').ok_or(MediaError::Data)?;
        if !head.ends_with(";base64") {
            return Err(MediaError::Data);
        }
        if data.len() / 4 * 3 > self.policy.max_bytes + 3 {
            return Err(MediaError::TooLarge(self.policy.max_bytes));
        }
        let bytes = STANDARD.decode(data.trim()).map_err(|_| MediaError::Data)?;
        if bytes.len() > self.policy.max_bytes {
            return Err(MediaError::TooLarge(self.policy.max_bytes));
        }
        Ok(bytes.into())
    }

    async fn read_file(&self, url: &Url) -> Result<Bytes, MediaError> {
        let refused = MediaError::Refused("files are read from no folder, or not from this one");
        let Some(root) = &self.policy.local_root else {
            return Err(refused);
        };
        let path = url.to_file_path().map_err(|()| MediaError::Url)?;
        let Some(path) = inside(root, &path).await else {
            return Err(refused);
        };
        let missing = |_| unreachable("the file cannot be read");
        let file = tokio::fs::File::open(path).await.map_err(missing)?;
        if !file.metadata().await.map_err(missing)?.is_file() {
            return Err(unreachable("it is no file"));
        }
        let limit = self.policy.max_bytes as u64 + 1;
        let mut bytes = Vec::new();
        file.take(limit)
            .read_to_end(&mut bytes)
            .await
            .map_err(missing)?;
        if bytes.len() > self.policy.max_bytes {
            return Err(MediaError::TooLarge(self.policy.max_bytes));
        }
        Ok(bytes.into())
    }
}

/// The path with its links followed, if it lies in the folder.
async fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let root = tokio::fs::canonicalize(root).await.ok()?;
    let path = tokio::fs::canonicalize(path).await.ok()?;
    path.starts_with(&root).then_some(path)
}

/// What stands behind `data:`.
fn data_url(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once(':')?;
    scheme.eq_ignore_ascii_case("data").then_some(rest)
}
