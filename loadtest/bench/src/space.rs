//! Bytes stored per row and per transaction, and syncs per epoch: read from the server's own `/metrics` before and
//! after a known number of transactions.

use std::time::Duration;

use serde::Serialize;

use crate::error::BenchError;
use crate::measure::Bench;
use crate::options::Common;
use crate::report::Report;
use crate::rpc::Rpc;
use crate::traffic::Mode;

/// Bytes of a key of the point workload: `row/` and seven digits.
const KEY_BYTES: usize = 11;
/// How long the idle service is observed for syncs.
const IDLE: Duration = Duration::from_secs(3);

/// Values of `/metrics` at one moment; `None` if the server does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    rows: Option<f64>,
    row_bytes: Option<f64>,
    epochs: Option<f64>,
    syncs: Option<f64>,
    appended_bytes: Option<f64>,
}

/// Storage and disk costs of commits.
#[derive(Clone, Debug, Serialize)]
pub struct Space {
    /// Bytes of version map per tracked row.
    pub bytes_per_row: Option<f64>,
    /// Bytes of keys and values per transaction.
    pub payload_bytes: usize,
    /// Bytes of encoded log per committed transaction, minus its payload.
    pub encoded_overhead_bytes: Option<f64>,
    /// Bytes of encoded log per answered transaction, minus its payload: aborted ones are logged as well.
    pub answered_overhead_bytes: Option<f64>,
    /// Syncs on the commit path per epoch.
    pub syncs_per_epoch: Option<f64>,
    /// Committed transactions per epoch.
    pub txns_per_epoch: Option<f64>,
    /// Syncs of the service while it received no requests.
    pub idle_syncs: Option<f64>,
    /// The load that was measured.
    pub load: Report,
}

impl Space {
    /// Returns the figures as lines of text.
    #[must_use]
    pub fn text(&self) -> String {
        let show = |figure: Option<f64>| figure.map_or("unknown".to_owned(), |figure| format!("{figure:.2}"));
        format!(
            "{}space: {} bytes a tracked row; over {} bytes of keys and values a transaction: {} encoded \
             for a committed one, {} for an answered one\n  {} syncs an epoch of {} commits, {} syncs in {} idle seconds\n",
            self.load.text(),
            show(self.bytes_per_row),
            self.payload_bytes,
            show(self.encoded_overhead_bytes),
            show(self.answered_overhead_bytes),
            show(self.syncs_per_epoch),
            show(self.txns_per_epoch),
            show(self.idle_syncs),
            IDLE.as_secs(),
        )
    }
}

/// Measures one mode of the point workload.
///
/// # Errors
/// If the server or the traffic fails.
pub fn measure(common: &Common, mode: Mode) -> Result<Space, BenchError> {
    let mut bench = Bench::prepare(common)?;
    let mut rpc = bench.server().rpc()?;
    std::thread::sleep(IDLE);
    let before = read(&mut rpc)?;
    let load = bench.turn_and_lag(mode)?;
    // Outcomes and the mark follow with a later sync.
    std::thread::sleep(Duration::from_millis(500));
    let after = read(&mut rpc)?;
    std::thread::sleep(IDLE);
    let later = read(&mut rpc)?;
    let payload_bytes = common.shape.writes * (KEY_BYTES + common.shape.value_bytes);
    let committed = load.counts.committed.max(1) as f64;
    let appended = grown(before.appended_bytes, after.appended_bytes);
    let overhead = |txns: f64| appended.map(|bytes| bytes / txns - payload_bytes as f64);
    let epochs = grown(before.epochs, after.epochs).map(|epochs| epochs.max(1.0));
    Ok(Space {
        bytes_per_row: after.row_bytes.zip(after.rows).map(|(bytes, rows)| bytes / rows.max(1.0)),
        payload_bytes,
        encoded_overhead_bytes: overhead(committed),
        answered_overhead_bytes: overhead(load.counts.attempted.max(1) as f64),
        syncs_per_epoch: grown(before.syncs, after.syncs).zip(epochs).map(|(syncs, epochs)| syncs / epochs),
        txns_per_epoch: epochs.map(|epochs| committed / epochs),
        idle_syncs: grown(after.syncs, later.syncs),
        load,
    })
}

fn grown(from: Option<f64>, to: Option<f64>) -> Option<f64> {
    from.zip(to).map(|(from, to)| to - from)
}

fn read(rpc: &mut Rpc) -> Result<Figures, BenchError> {
    let (_, body) = rpc.get("/metrics")?;
    Ok(parse(&String::from_utf8_lossy(body)))
}

fn parse(text: &str) -> Figures {
    let of = |name: &str| {
        let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.split(' ').nth(1)?.parse().ok()
    };
    Figures {
        rows: of("tribunal_rows"),
        row_bytes: of("tribunal_row_bytes"),
        epochs: of("tribunal_epochs_total"),
        syncs: of("tribunal_log_fdatasyncs_total").or_else(|| of("tribunal_sync_seconds_count")),
        appended_bytes: of("tribunal_log_appended_bytes_total").or_else(|| of("tribunal_log_appended_bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_full_name() {
        let text = "# HELP tribunal_rows x\ntribunal_rows_more 9\ntribunal_rows 4\ntribunal_sync_seconds_count 7\n";
        let figures = parse(text);
        assert_eq!((figures.rows, figures.syncs, figures.epochs), (Some(4.0), Some(7.0), None));
        assert_eq!(grown(figures.rows, Some(6.0)), Some(2.0));
    }
}
