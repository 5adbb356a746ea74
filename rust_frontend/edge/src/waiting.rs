//! Closes connections on which no request comes: idle ones late, those that began a head and do not end it soon.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::held::Watch;
use crate::layer::pass_writes_on;

/// What the requests of a connection tell its socket.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests that began so far.
    begun: AtomicUsize,
    /// Requests whose answer is not complete.
    open: AtomicUsize,
    /// Of the connection's task: whoever reads must look at the clock again when the last request is over.
    reader: AtomicWaker,
}

impl Activity {
    /// Tells of a request, until what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.open.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Watch for Busy {}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.reader.wake();
    }
}

/// How long a connection may go without a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a whole head: from its first byte, and for the first one from the beginning of the connection.
    pub(crate) head: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// For nothing: a request is being answered.
    None,
    /// For the first byte of a request.
    Request,
    /// For the rest of a head.
    Head,
}

/// A connection that reads as ended when no request comes in time.
#[derive(Debug)]
pub(crate) struct WaitGuard<T> {
    inner: T,
    activity: Arc<Activity>,
    patience: Patience,
    timer: Pin<Box<Sleep>>,
    wait: Wait,
    /// Requests that had begun when the wait began.
    begun: usize,
}

impl<T> WaitGuard<T> {
    pub(crate) fn new(inner: T, activity: Arc<Activity>, patience: Patience) -> Self {
        Self {
            inner,
            activity,
            patience,
            timer: Box::pin(tokio::time::sleep(patience.head)),
            wait: Wait::None,
            begun: 0,
        }
    }

    fn below(&mut self) -> io::Result<Pin<&mut T>>
    where
        T: Unpin,
    {
        Ok(Pin::new(&mut self.inner))
    }

    /// Follows what happened since the last call.
    fn follow(&mut self) {
        let begun = self.activity.begun.load(Ordering::Acquire);
        if self.activity.open.load(Ordering::Acquire) > 0 {
            self.wait = Wait::None;
        } else if self.wait == Wait::None || begun != self.begun {
            self.begun = begun;
            let limit = if begun == 0 {
                self.patience.head
            } else {
                self.patience.idle
            };
            self.start(Wait::Request, limit);
        }
    }

    fn start(&mut self, wait: Wait, limit: Duration) {
        self.wait = wait;
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WaitGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.follow();
        let before = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(result) => {
                if self.wait == Wait::Request && buf.filled().len() > before {
                    let limit = self.patience.head;
                    self.start(Wait::Head, limit);
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                if self.wait == Wait::None {
                    self.activity.reader.register(cx.waker());
                    self.follow(); // a request may have ended meanwhile
                }
                if self.wait == Wait::None {
                    return Poll::Pending;
                }
                // Nothing was read: for the reader this is the end of the stream.
                self.timer.as_mut().poll(cx).map(Ok)
            }
        }
    }
}

pass_writes_on!(WaitGuard);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(30),
        idle: Duration::from_secs(120),
    };

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_however_it_drips() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut guard = WaitGuard::new(ours, Arc::default(), PATIENCE);
        let drip = tokio::spawn(async move {
            while theirs.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(7)).await;
            }
        });
        let began = Instant::now();
        let mut all = Vec::new();
        guard.read_to_end(&mut all).await.unwrap();
        assert_eq!(began.elapsed(), PATIENCE.head);
        assert_eq!(all, b"xxxxx");
        drip.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_stay_longer_and_busy_ones_stay() {
        let (ours, theirs) = tokio::io::duplex(64);
        let activity = Arc::<Activity>::default();
        let mut guard = WaitGuard::new(ours, Arc::clone(&activity), PATIENCE);
        let busy = activity.begin();
        let mut byte = [0];
        let hour = Duration::from_secs(3600);
        assert!(
            tokio::time::timeout(hour, guard.read(&mut byte))
                .await
                .is_err()
        );
        drop(busy);
        let began = Instant::now();
        assert_eq!(guard.read(&mut byte).await.unwrap(), 0);
        assert_eq!(began.elapsed(), PATIENCE.idle);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_came_and_went_between_two_reads_is_over() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let activity = Arc::<Activity>::default();
        let mut guard = WaitGuard::new(ours, Arc::clone(&activity), PATIENCE);
        theirs.write_all(b"x").await.unwrap();
        let mut byte = [0];
        assert_eq!(guard.read(&mut byte).await.unwrap(), 1);
        drop(activity.begin());
        let began = Instant::now();
        assert_eq!(guard.read(&mut byte).await.unwrap(), 0);
        assert_eq!(began.elapsed(), PATIENCE.idle);
    }
}
