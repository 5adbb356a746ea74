//! What was measured.

use std::time::Duration;

use serde_json::{Value, json};

/// Sums and latencies of requests.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) tokens: u64,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) first: Vec<Duration>,
    pub(crate) total: Vec<Duration>,
    pub(crate) late: Vec<Duration>,
    /// The first failure.
    pub(crate) error: Option<String>,
}

impl Figures {
    pub(crate) fn fail(&mut self, error: String) {
        self.failed += 1;
        self.error.get_or_insert(error);
    }

    pub(crate) fn report(&mut self, seconds: Duration) -> Value {
        json!({
            "seconds": seconds.as_secs_f64(),
            "requests": self.requests,
            "failed": self.failed,
            "tokens": self.tokens,
            "events": self.events,
            "bytes": self.bytes,
            "ttft_ms": percentiles(&mut self.first),
            "total_ms": percentiles(&mut self.total),
            "late_ms": percentiles(&mut self.late),
            "error": self.error,
        })
    }
}

fn percentiles(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    json!({
        "p50": at(times, 50), "p90": at(times, 90), "p99": at(times, 99), "max": at(times, 100),
    })
}

/// The smallest time that so many per cent do not exceed, in milliseconds (the nearest rank).
fn at(sorted: &[Duration], per_cent: usize) -> Option<f64> {
    let rank = (sorted.len() * per_cent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|time| 1000.0 * time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let found: Vec<_> = [50, 90, 99, 100]
            .iter()
            .map(|per_cent| at(&times, *per_cent))
            .collect();
        assert_eq!(found, [Some(100.0), Some(180.0), Some(198.0), Some(200.0)]);
        assert_eq!(at(&times[..1], 1), Some(1.0));
        assert_eq!(at(&[], 50), None);
    }
}
