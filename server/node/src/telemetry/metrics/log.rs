//! Metrics of the log.

use std::sync::atomic::Ordering;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::kinds::{Level, seconds};
use super::registered::{registered, registered_as};

/// The metrics.
pub struct LogMetrics {
    /// Time to encode an epoch and hand it to the log.
    pub append_seconds: Histogram,
    /// Time of one sync.
    pub sync_seconds: Histogram,
    /// Syncs of the log, the commit path's.
    fdatasyncs: Counter,
    /// Syncs of the log's mark, off the commit path.
    mark_fdatasyncs: Counter,
    /// Bytes of entries and outcomes, including frames.
    appended_bytes: Counter,
    /// Bytes of the log's files.
    file_bytes: Level,
}

impl LogMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> LogMetrics {
        LogMetrics {
            append_seconds: registered_as(seconds(), registry, "append_seconds", "Time to encode and write an epoch"),
            sync_seconds: registered_as(seconds(), registry, "sync_seconds", "Time of the one sync of an epoch"),
            fdatasyncs: registered(registry, "log_fdatasyncs", "Syncs of the log"),
            mark_fdatasyncs: registered(registry, "log_mark_fdatasyncs", "Syncs of the log's mark"),
            appended_bytes: registered(registry, "log_appended_bytes", "Bytes of log records"),
            file_bytes: registered(registry, "log_file_bytes", "Bytes of the log's files"),
        }
    }

    /// Sets the log's own counters.
    pub fn set(&self, stats: tribunal_log::LogStats) {
        self.fdatasyncs.inner().store(stats.fdatasyncs, Ordering::Relaxed);
        self.mark_fdatasyncs.inner().store(stats.mark_fdatasyncs, Ordering::Relaxed);
        self.appended_bytes.inner().store(stats.appended_bytes, Ordering::Relaxed);
        self.file_bytes.set(stats.file_bytes);
    }
}
