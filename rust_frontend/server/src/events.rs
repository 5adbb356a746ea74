//! What the supervisor is told, one JSON line on stdout each.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use octavo_edge::Shutdown;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Of the pulse.
const PULSE: Duration = Duration::from_secs(1);

/// Writes an event; the version goes with it. Nobody has to read it: by hand, stdout may be closed.
pub(crate) fn report(name: &str, mut fields: Value) {
    fields["event"] = json!(name);
    fields["version"] = json!(octavo_wire::VERSION);
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{fields}").and_then(|()| stdout.flush());
}

/// Reports a pulse each second while the runtime turns. A thread writes, so that a parent that reads nothing holds up
/// no task.
pub(crate) fn beat() -> std::io::Result<()> {
    let turns = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&turns);
    tokio::spawn(async move {
        let mut ticker = tokio::time::interval(PULSE / 2);
        loop {
            ticker.tick().await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let watch = move || {
        let mut seen = 0;
        loop {
            std::thread::sleep(PULSE);
            let now = turns.load(Ordering::Relaxed);
            if now != seen {
                seen = now;
                report("pulse", json!({}));
            }
        }
    };
    std::thread::Builder::new()
        .name("pulse".to_owned())
        .spawn(watch)?;
    Ok(())
}

/// Reports when requests that may have killed engine cores begin to be tried, and when that is over.
pub(crate) async fn report_trials(rank: usize, mut trial: watch::Receiver<bool>) {
    while trial.changed().await.is_ok() {
        let active = *trial.borrow_and_update();
        report("trial", json!({"active": active, "rank": rank}));
    }
}

/// Tells the supervisor that a client asks for the end of the server.
pub(crate) async fn report_asked(shutdown: Shutdown) {
    shutdown.asked().await;
    report("shutdown", json!({}));
}
