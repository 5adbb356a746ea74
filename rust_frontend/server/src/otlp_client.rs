//! The HTTP of OTLP: one POST over one connection, on this process's runtime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A whole exchange; the exporter tries again.
const LIMIT: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// Where a collector listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Host and port as they stand in the URL.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// Reads `http://HOST[:PORT][/PATH]`; without a path it is `/v1/traces`.
    ///
    /// # Errors
    /// What is wrong, and what to give instead.
    pub(crate) fn parse(endpoint: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            format!(
                "--otlp-traces-endpoint {endpoint:?} {why}; give the HTTP address of a collector, such as \
                 http://127.0.0.1:4318/v1/traces"
            )
        };
        let uri: http::Uri = endpoint.parse().map_err(|_| refuse("is no URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(refuse(
                    "asks for TLS, which a collector beside the server does without",
                ));
            }
            _ => return Err(refuse("does not begin with http://")),
        }
        let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
        let rest = authority.as_str().strip_prefix(authority.host());
        let port = match rest.map(|rest| rest.strip_prefix(':').ok_or(rest)) {
            Some(Err("")) => 80,
            Some(Ok(digits)) => digits
                .parse()
                .map_err(|_| refuse("has a port that is none"))?,
            _ => return Err(refuse("names a user")),
        };
        if authority.host().is_empty() {
            return Err(refuse("has no host"));
        }
        let path = match uri.path() {
            "" | "/" => "/v1/traces",
            path => path,
        };
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: authority.host().to_owned(),
            port,
            path: path.to_owned(),
        })
    }

    /// The whole URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }

    /// Host and port, to be looked up.
    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Posts spans. The exporter's thread has no runtime of its own, so that work is handed to ours.
#[derive(Debug)]
pub(crate) struct OtlpClient {
    target: Target,
    runtime: Handle,
    /// Whether the last spans were not taken.
    failing: AtomicBool,
}

impl OtlpClient {
    pub(crate) fn new(target: Target, runtime: Handle) -> Self {
        Self {
            target,
            runtime,
            failing: AtomicBool::new(false),
        }
    }

    /// Says in the log when the collector stops taking spans, and when it does again.
    fn note(&self, answer: Result<u16, &HttpError>) {
        let problem = match answer {
            Ok(status) if (200..300).contains(&status) => None,
            Ok(status) => Some(format!("it answers {status}")),
            Err(error) => Some(error.to_string()),
        };
        let url = self.target.url();
        if self.failing.swap(problem.is_some(), Ordering::Relaxed) == problem.is_some() {
            return;
        }
        match problem {
            Some(problem) => tracing::warn!("traces are lost: {url}: {problem}"),
            None => tracing::info!("traces go to {url} again"),
        }
    }
}

#[async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (sender, answer) = oneshot::channel();
        let target = self.target.clone();
        self.runtime.spawn(async move {
            let posted = timeout(LIMIT, post(&target, request)).await;
            let posted = posted.unwrap_or_else(|_| Err("the collector does not answer".into()));
            // Nobody waits any more at the end of the server.
            let _ = sender.send(posted);
        });
        let answer = answer.await?;
        self.note(answer.as_ref().map(|answer| answer.status().as_u16()));
        answer
    }
}

async fn post(target: &Target, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let stream = TcpStream::connect(target.address()).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let (mut head, body) = request.into_parts();
    head.headers
        .insert(http::header::HOST, target.authority.parse()?);
    head.uri = target.path.parse()?;
    // Dropped, and with it the connection, when the answer is there or nobody waits for it any more.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // What goes wrong shows in the answer.
        let _ = connection.await;
    });
    let request = http::Request::from_parts(head, Full::new(body));
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
