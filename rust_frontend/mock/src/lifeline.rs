//! A mock must not outlive whoever started it.

use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::parent_id;
use std::time::Duration;

/// How often the parent is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// Ends the process with its parent: when a pipe on stdin reaches its end, or when another process has become the
/// parent. A stdin that is no pipe says nothing, so that a mock may be started by hand.
pub(crate) fn watch() {
    let parent = parent_id();
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(INTERVAL);
        }
        leave();
    });
    let piped = std::fs::metadata("/proc/self/fd/0").is_ok_and(|stdin| stdin.file_type().is_fifo());
    if piped {
        std::thread::spawn(|| {
            let mut stdin = std::io::stdin().lock();
            let mut ignored = [0; 64];
            while stdin.read(&mut ignored).is_ok_and(|count| count > 0) {}
            leave();
        });
    }
}

fn leave() {
    tracing::warn!("the parent is gone: leaving at once");
    std::process::exit(1);
}
