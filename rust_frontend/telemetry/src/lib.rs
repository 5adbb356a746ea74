//! Metrics and logging
