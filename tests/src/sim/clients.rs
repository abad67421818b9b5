//! Clients: each has one transaction at a time, and retries it under the same id, at any node it can reach, until it
//! has its verdict.

use tribunal_types::{Epoch, TxnId, Verdict};

use crate::scenario::TxnSpec;
use crate::sim::random::Random;

/// Attempts after which a client gives up: the outcome remains unknown to it.
const ATTEMPTS_MAX: u32 = 12;

/// The fate of a transaction, as far as its client knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// The client is waiting, or has given up.
    Nothing,
    /// The transaction has this verdict.
    Verdict(Verdict),
    /// The transaction was fenced, or is too old to be executed: it never commits.
    Never,
}

/// A transaction of a client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The transaction.
    pub txn: TxnSpec,
    /// The client's knowledge of its fate.
    pub known: Known,
    /// Number of attempts so far.
    pub attempts: u32,
    /// An attempt had no answer, or one that leaves the outcome open.
    pub in_doubt: bool,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The client.
    pub client: usize,
    /// The queried machine.
    pub node: u16,
    /// Time of the request, microseconds.
    pub since_us: u64,
    /// The last epoch for which any client had received a verdict by then.
    pub acknowledged: Epoch,
}

/// A client.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// The index of its operation.
    pub operation: Option<usize>,
    /// Number of its current attempt: answers to earlier ones come too late.
    pub attempt: u64,
}

impl Operation {
    /// Creates the operation of a client that begins this transaction.
    #[must_use]
    pub fn of(txn: TxnSpec) -> Operation {
        Operation { txn, known: Known::Nothing, attempts: 0, in_doubt: false }
    }

    /// Stops the retries: the client accepts the reply that the transaction was not taken.
    pub fn refuse(&mut self) {
        self.attempts = ATTEMPTS_MAX;
    }

    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.txn.id
    }

    /// Returns whether its client keeps retrying.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.known == Known::Nothing && self.attempts < ATTEMPTS_MAX
    }
}

/// Returns one of these machines other than the queried one, if there is one.
#[must_use]
pub fn another(asked: u16, machines: &[u16], random: &mut Random) -> u16 {
    let others = machines.iter().copied().filter(|node| *node != asked).collect::<Vec<_>>();
    if others.is_empty() { machines.first().copied().unwrap_or(asked) } else { random.one_of(&others) }
}
