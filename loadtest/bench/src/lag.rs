//! Lag of the storage relative to the log when the load ends. It exposes a service that commits fast by pushing late.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::rpc::Rpc;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Lag of one store, measured as soon as the last reply has arrived.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Lag {
    /// Epochs committed but not yet applied.
    pub epochs: u64,
    /// Time until they were applied, milliseconds.
    pub caught_up_ms: u64,
}

/// Polls the store's watermarks until it has applied everything that was committed at the start.
///
/// # Errors
/// If the server does not return them, or the store does not catch up within a minute.
pub fn measure(mut rpc: Rpc, store: &str) -> Result<Lag, BenchError> {
    let start = Instant::now();
    let path = format!("/v1/snapshot?store={store}");
    let first = rpc.get_json(&path)?;
    let goal = watermark(&first, "committed")?;
    let epochs = goal.saturating_sub(watermark(&first, "applied")?);
    loop {
        if watermark(&rpc.get_json(&path)?, "applied")? >= goal {
            let caught_up_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Ok(Lag { epochs, caught_up_ms: if epochs == 0 { 0 } else { caught_up_ms } });
        }
        if start.elapsed() > TIMEOUT {
            return Err(BenchError::TooLate(format!("store {store} has not applied epoch {goal} within a minute")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Requests the newest epoch that a store has applied.
///
/// # Errors
/// If the server does not respond.
pub fn applied(addr: SocketAddr, store: &str) -> Result<u64, BenchError> {
    watermark(&Rpc::connect(addr)?.get_json(&format!("/v1/snapshot?store={store}"))?, "applied")
}

fn watermark(document: &serde_json::Value, name: &str) -> Result<u64, BenchError> {
    let text = document.get(name).and_then(serde_json::Value::as_str);
    text.and_then(|text| text.parse().ok()).ok_or(BenchError::Reply("a snapshot without its watermarks"))
}
