//! A separate OpenTelemetry collector for measurements of telemetry: it accepts everything and discards it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::BenchError;
use crate::rpc::Rpc;

const STARTUP: Duration = Duration::from_secs(60);

/// A running collector. Killed by its process id when dropped.
#[derive(Debug)]
pub struct Collector {
    addr: SocketAddr,
    child: Child,
    config: PathBuf,
}

/// Outcomes of the server's spans, including the warm-up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spans {
    /// Received by the collector.
    pub sent: f64,
    /// Dropped by the server for lack of room.
    pub dropped: f64,
    /// Not accepted by the collector.
    pub lost: f64,
}

impl Collector {
    /// Starts `binary` on a free port, with its configuration in `folder`, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(binary: &Path, folder: &Path) -> Result<Collector, BenchError> {
        let probe = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let addr = probe.map_err(BenchError::io("find a free port"))?;
        let config = folder.join(format!("tribunal-bench-collector-{}.yaml", std::process::id()));
        let text = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{addr}'}}}}}}}}\n\
             exporters: {{file: {{path: /dev/null}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
             traces: {{receivers: [otlp], exporters: [file]}}\n    metrics: {{receivers: [otlp], exporters: [file]}}\n"
        );
        std::fs::write(&config, text).map_err(BenchError::io(format!("write {}", config.display())))?;
        let child = Command::new(binary)
            .arg("--config")
            .arg(format!("file:{}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(BenchError::io(format!("start {}", binary.display())))?;
        let mut collector = Collector { addr, child, config };
        let start = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if let Ok(Some(status)) = collector.child.try_wait() {
                return Err(BenchError::TooLate(format!("the collector stopped before it listened: {status}")));
            }
            if start.elapsed() > STARTUP {
                return Err(BenchError::TooLate(format!("the collector does not listen at {addr}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(collector)
    }

    /// Returns the value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

impl Spans {
    /// Parses the counters from a server's `/metrics`.
    ///
    /// # Errors
    /// If it does not respond.
    pub fn of(addr: SocketAddr) -> Result<Spans, BenchError> {
        let mut rpc = Rpc::connect(addr)?;
        let (_, body) = rpc.get("/metrics")?;
        Ok(Spans::parse(&String::from_utf8_lossy(body)))
    }

    fn parse(text: &str) -> Spans {
        let of = |fate: &str| {
            let name = format!("tribunal_telemetry_spans_total{{fate=\"{fate}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0.0)
        };
        Spans { sent: of("sent"), dropped: of("dropped"), lost: of("lost") }
    }

    /// Returns the counters as a line of text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("spans: {} sent, {} dropped, {} lost\n", self.sent, self.dropped, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_by_result() {
        let text = "# TYPE tribunal_telemetry_spans counter\ntribunal_telemetry_spans_total{fate=\"sent\"} 12\n\
                    tribunal_telemetry_spans_total{fate=\"dropped\"} 3\n# EOF\n";
        let spans = Spans::parse(text);
        assert_eq!((spans.sent, spans.dropped, spans.lost), (12.0, 3.0, 0.0));
    }
}
