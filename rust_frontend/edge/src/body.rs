//! Reads request bodies: bounded in bytes each and together, and in time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use octavo_api::{ApiError, ErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::admission::Lag;
use crate::refusal;
use crate::request_id::RequestId;
use crate::settings::Settings;

const KIB: usize = 1024;

/// So much of a body that is too large is read and thrown away, since a client that still sends sees no answer.
const DISCARD_FACTOR: usize = 4;

/// A whole body may take so many times as long as the next part of it.
const STALLS: u32 = 5;

/// So much of a body goes into the log at most.
const TOLD_BYTES: usize = 64 << 10;

/// Paths, as they are in the router, whose bodies may have so many bytes at most.
pub type BodyLimits = &'static [(&'static str, usize)];

/// A request body, and its part of the memory that all of them may take.
#[derive(Debug)]
pub struct JsonBody {
    /// What came.
    pub bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Reads JSON bodies within the limits.
#[derive(Debug, Clone)]
pub struct BodyReader {
    max_bytes: usize,
    /// Of routes that may have less.
    limits: BodyLimits,
    timeout: Duration,
    /// One permit a KiB.
    memory: Arc<Semaphore>,
    total: Duration,
    lag: Arc<Lag>,
    /// Whether bodies go into the log.
    tell: bool,
}

impl BodyReader {
    /// Reads within the limits of `settings`.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let permits = (settings.max_pending_bytes / KIB).min(Semaphore::MAX_PERMITS);
        Self {
            max_bytes: settings.max_body_bytes,
            limits: &[],
            timeout: settings.body_timeout,
            memory: Arc::new(Semaphore::new(permits)),
            total: settings.body_timeout.saturating_mul(STALLS),
            lag: Arc::default(),
            tell: settings.log_prompts,
        }
    }

    /// Reads less on some routes.
    #[must_use]
    pub fn with_limits(mut self, limits: BodyLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Bytes that the route may read.
    fn limit(&self, path: Option<&MatchedPath>) -> usize {
        let of = |path: &MatchedPath| {
            self.limits
                .iter()
                .find(|(known, _)| *known == path.as_str())
        };
        path.and_then(of)
            .map_or(self.max_bytes, |(_, limit)| self.max_bytes.min(*limit))
    }

    /// What the I/O threads are late; no body is read while that is too much.
    #[must_use]
    pub fn lag(&self) -> Arc<Lag> {
        Arc::clone(&self.lag)
    }

    /// Reads the whole body of a request that says it is JSON.
    ///
    /// # Errors
    /// 400 for another kind of content or a body that stops coming, 413 for one that is too large, 429 while too many are
    /// being read, 503 while the server lags.
    pub async fn read(&self, request: Request) -> Result<JsonBody, ApiError> {
        self.lag.check()?;
        check_content_type(request.headers())?;
        let (head, mut body) = request.into_parts();
        let read = self.bytes(&head, &mut body).await;
        if let (true, Ok(body)) = (self.tell, &read) {
            tell(head.extensions.get::<RequestId>(), &body.bytes);
        }
        read
    }

    /// Reads a whole body, whatever it is.
    ///
    /// # Errors
    /// As [`Self::read`], but for the kind of content.
    pub async fn bytes(&self, head: &Parts, body: &mut Body) -> Result<JsonBody, ApiError> {
        self.lag.check()?;
        let limit = self.limit(head.extensions.get::<MatchedPath>());
        let collected = timeout(self.total, self.collect(body, limit)).await;
        let collected =
            collected.unwrap_or_else(|_| Err(refusal::body_stalled(self.total.as_secs())));
        match collected {
            Err(error) if error.kind == ErrorKind::TooLarge => {
                self.discard(body, &head.headers, limit).await;
                Err(error)
            }
            other => other,
        }
    }

    async fn collect(&self, body: &mut Body, limit: usize) -> Result<JsonBody, ApiError> {
        let mut parts = BytesMut::new();
        let mut memory: Option<OwnedSemaphorePermit> = None;
        if http_body::Body::size_hint(body).lower() > limit as u64 {
            return Err(ApiError::too_large(limit));
        }
        while let Some(part) = self.next_part(body).await? {
            if parts.len() + part.len() > limit {
                return Err(ApiError::too_large(limit));
            }
            let more = self.reserve(part.len())?;
            match &mut memory {
                Some(held) => held.merge(more),
                None => memory = Some(more),
            }
            parts.extend_from_slice(&part);
        }
        Ok(JsonBody {
            bytes: parts.freeze(),
            _memory: memory,
        })
    }

    async fn next_part(&self, body: &mut Body) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Ok(frame) = timeout(self.timeout, body.frame()).await else {
                return Err(refusal::body_stalled(self.timeout.as_secs()));
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    return Err(refusal::bad_request(format!(
                        "The body could not be read: {error}."
                    )));
                }
            }
        }
    }

    fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let permits = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        Arc::clone(&self.memory)
            .try_acquire_many_owned(permits)
            .map_err(|_| {
                ApiError::overloaded("Too many large requests are being read. Try again.", 1)
            })
    }

    async fn discard(&self, body: &mut Body, headers: &HeaderMap, limit: usize) {
        if headers.contains_key(header::EXPECT) {
            return; // The client waits for our word before it sends.
        }
        let mut left = limit.saturating_mul(DISCARD_FACTOR);
        while let Ok(Some(part)) = self.next_part(body).await {
            left = left.saturating_sub(part.len());
            if left == 0 {
                return;
            }
        }
    }
}

/// Writes a body into the log, or its beginning.
fn tell(id: Option<&RequestId>, body: &[u8]) {
    let shown = String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES)]);
    let id = id.map_or("", RequestId::as_str);
    // As a JSON text it stays on one line.
    tracing::info!("prompt {}", serde_json::json!({"id": id, "body": shown}));
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or("(not text)"));
    let kind = given
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let got = given.map_or_else(
        || "no Content-Type".to_owned(),
        |given| format!("Content-Type {given:?}"),
    );
    Err(refusal::bad_request(format!(
        "The request has {got}. Send JSON with Content-Type: application/json."
    )))
}
