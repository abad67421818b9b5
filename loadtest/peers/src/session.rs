//! The tasks of every peer's client, whatever its protocol: begin a transaction, and determine from the peer's bytes
//! the next bytes to send and the outcome. No I/O and no clock: the engine has both, and treats all peers alike.

use std::net::TcpStream;

use tribunal_bench::error::BenchError;
use tribunal_bench::plan::Plan;

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as durable as this peer makes it.
    Committed,
    /// It lost, for this reason.
    Aborted(&'static str),
}

/// Returns the name in tables of one of Tribunal's reasons.
#[must_use]
pub fn reason_of(reason: &str) -> &'static str {
    const KNOWN: [&str; 6] =
        ["read_conflict", "write_conflict", "order_conflict", "snapshot_too_old", "row_exists", "row_missing"];
    KNOWN.into_iter().find(|known| *known == reason).unwrap_or("other")
}

/// One connection's side of a protocol.
pub trait Session {
    /// Begins a transaction for one of the connection's clients, and appends the first bytes to send.
    fn begin(&mut self, slot: usize, plan: Plan, out: &mut Vec<u8>);

    /// Processes received bytes and returns how many of them were consumed. Appends the next bytes to send to `out`,
    /// and ended transactions to `done`.
    ///
    /// # Errors
    /// If the peer violates its protocol.
    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError>;
}

/// A connection that is ready for transactions.
pub struct Client {
    /// The connection.
    pub stream: TcpStream,
    /// Its protocol state.
    pub session: Box<dyn Session>,
    /// Clients that share it, each with one transaction in flight.
    pub slots: usize,
}
