//! A histogram that somebody else observes: it shows what it was told last.

use std::fmt;

use octavo_wire::frontend::Histogram;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::sync::Arc;

/// Shared by the registry, which writes it, and its owner, who sets it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latest(Arc<Mutex<Option<Histogram>>>);

impl Latest {
    /// Shows this from now on.
    pub(crate) fn set(&self, histogram: &Histogram) {
        *self.0.lock() = Some(histogram.clone());
    }
}

impl EncodeMetric for Latest {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let guard = self.0.lock();
        let Some(histogram) = guard.as_ref() else {
            return encoder.encode_histogram::<NoLabelSet>(0.0, 0, &[], None);
        };
        let bounds = histogram
            .bounds
            .iter()
            .copied()
            .chain(std::iter::once(f64::INFINITY));
        let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts.iter().copied()).collect();
        let count = histogram.counts.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(histogram.total, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
