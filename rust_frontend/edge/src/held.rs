//! A body that holds something until its last byte is written or its client is gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Drops what it holds with the body.
pub(crate) struct HeldBody<T> {
    inner: Body,
    held: T,
}

/// What is held may look at the frames that go out.
pub(crate) trait Watch {
    /// So many bytes go out now.
    fn wrote(&mut self, _bytes: usize) {}

    /// The body is complete.
    fn ended(&mut self) {}
}

impl<T> HeldBody<T> {
    pub(crate) fn new(inner: Body, held: T) -> Self {
        Self { inner, held }
    }
}

impl<T: Watch + Unpin> http_body::Body for HeldBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.held.wrote(data.len());
                }
                if self.inner.is_end_stream() {
                    self.held.ended();
                }
            }
            Poll::Ready(None) => self.held.ended(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
