//! Metrics of the process, under the names that Prometheus clients of all languages use.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

type Level = Gauge<u64, AtomicU64>;

/// The metrics.
pub struct ProcessMetrics {
    cpu_seconds: Counter<f64, AtomicU64>,
    resident_memory_bytes: Level,
    open_fds: Level,
    max_fds: Level,
}

impl ProcessMetrics {
    /// Creates and registers the metrics. The process is taken to have started now.
    pub fn registered(registry: &mut Registry) -> ProcessMetrics {
        let metrics = ProcessMetrics {
            cpu_seconds: Counter::default(),
            resident_memory_bytes: Level::default(),
            open_fds: Level::default(),
            max_fds: Level::default(),
        };
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        registry.register("process_start_time_seconds", "When the process was started, seconds since 1970", started);
        let help = "Processor time of the process, in user and system mode";
        registry.register("process_cpu_seconds", help, metrics.cpu_seconds.clone());
        let resident = metrics.resident_memory_bytes.clone();
        registry.register("process_resident_memory_bytes", "Memory of the process that is in RAM", resident);
        registry.register("process_open_fds", "Open file descriptors", metrics.open_fds.clone());
        registry.register("process_max_fds", "Limit on open file descriptors", metrics.max_fds.clone());
        metrics
    }

    /// Reads the current values. One that cannot be read, for example because no descriptor is free, keeps its last value.
    pub fn refresh(&self) {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        self.cpu_seconds.inner().store(seconds.to_bits(), Ordering::Relaxed);
        if let Some(bytes) = resident_memory_bytes() {
            self.resident_memory_bytes.set(bytes);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // Without the descriptor of this listing.
            self.open_fds.set((open.count() as u64).saturating_sub(1));
        }
        self.max_fds.set(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    }
}

/// Reads the second field of `statm`, a number of pages (`man 5 proc_pid_statm`).
fn resident_memory_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
