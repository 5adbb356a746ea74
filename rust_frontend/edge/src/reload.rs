//! What is read from files, and read again when they change or when SIGHUP comes.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Something that is made from files. A reload takes over all of them or none.
pub trait Reload: Send + Sync {
    /// For the log: what counts from now on, or stays as it was.
    fn name(&self) -> &'static str;

    /// The files.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files again.
    ///
    /// # Errors
    /// Says what is wrong with them; then all is as before.
    fn reload(&self) -> Result<(), String>;
}

/// Reloads each when one of its files changes, and all at SIGHUP, for as long as the server runs.
pub async fn watch(parts: Vec<Arc<dyn Reload>>) {
    let mut hangups = signal(SignalKind::hangup()).ok();
    let mut seen: Vec<_> = parts.iter().map(|part| stamps(&part.files())).collect();
    loop {
        let asked = tokio::select! {
            () = tokio::time::sleep(LOOK) => false,
            () = hangup(&mut hangups) => true,
        };
        if asked {
            tracing::info!("SIGHUP: reading files again");
        }
        for (part, seen) in parts.iter().zip(&mut seen) {
            let now = stamps(&part.files());
            if !asked && now == *seen {
                continue;
            }
            *seen = now;
            match part.reload() {
                Ok(()) => tracing::info!("{} read again: they count from now on", part.name()),
                Err(problem) => {
                    tracing::error!("{problem}; the {} of before stay", part.name());
                }
            }
        }
    }
}

async fn hangup(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// What changes when a file is written or replaced, also behind a link.
type Stamp = (i64, i64, u64, u64);

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.mtime(), about.mtime_nsec(), about.len(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Part(PathBuf, AtomicUsize);

    impl Reload for Part {
        fn name(&self) -> &'static str {
            "words"
        }

        fn files(&self) -> Vec<PathBuf> {
            vec![self.0.clone()]
        }

        fn reload(&self) -> Result<(), String> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Err("nothing good".to_owned())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changes_behind_a_link_is_read_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["one", "two"] {
            std::fs::write(path(name), "same length").unwrap();
        }
        std::os::unix::fs::symlink(path("one"), path("link")).unwrap();
        let part = Arc::new(Part(path("link"), AtomicUsize::new(0)));
        let watch = tokio::spawn(watch(vec![Arc::clone(&part) as Arc<dyn Reload>]));
        tokio::time::sleep(3 * LOOK).await;
        assert_eq!(part.1.load(Ordering::SeqCst), 0);
        std::os::unix::fs::symlink(path("two"), path("new")).unwrap();
        std::fs::rename(path("new"), path("link")).unwrap();
        tokio::time::sleep(3 * LOOK).await;
        assert_eq!(part.1.load(Ordering::SeqCst), 1);
        watch.abort();
    }
}
