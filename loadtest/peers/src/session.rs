//! What every peer's client has to do, whatever its protocol: begin a transaction, and find out from the peer's bytes
//! what to send next and how it ended. No I/O and no clock: the engine has both, and treats all peers alike.

use std::net::TcpStream;

use tribunal_bench::error::BenchError;
use tribunal_bench::workload::Plan;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as durable as this peer makes it.
    Committed,
    /// It lost, for this reason.
    Aborted(&'static str),
}

/// Returns a reason of Tribunal's as tables name it.
#[must_use]
pub fn reason_of(reason: &str) -> &'static str {
    const KNOWN: [&str; 6] =
        ["read_conflict", "write_conflict", "order_conflict", "snapshot_too_old", "row_exists", "row_missing"];
    KNOWN.into_iter().find(|known| *known == reason).unwrap_or("other")
}

/// One connection's side of a protocol.
pub trait Session {
    /// Begins a transaction for one of the connection's clients, and appends what is to be sent first.
    fn begin(&mut self, slot: usize, plan: Plan, out: &mut Vec<u8>);

    /// Takes in what has arrived and returns how many bytes of it were used. Appends what is to be sent next to `out`
    /// and ended transactions to `done`.
    ///
    /// # Errors
    /// If the peer says what it never should.
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
    /// What is said on it.
    pub session: Box<dyn Session>,
    /// Clients that share it, each with one transaction under way.
    pub slots: usize,
}
