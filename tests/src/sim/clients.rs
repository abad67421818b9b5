//! Clients: each has one transaction at a time, and asks again, under the same id and wherever it can, until it has its verdict.

use tribunal_types::{Epoch, TxnId, Verdict};

use crate::scenario::TxnSpec;
use crate::sim::random::Random;

/// Attempts after which a client gives up: the outcome stays unknown to it.
const ATTEMPTS_MAX: u32 = 12;

/// What became of a transaction, as far as its client knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// It waits, or has given up.
    Nothing,
    /// It has this verdict.
    Verdict(Verdict),
    /// It was fenced, or is too old to be executed: it never commits.
    Never,
}

/// A transaction of a client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The transaction.
    pub txn: TxnSpec,
    /// What its client knows.
    pub known: Known,
    /// Attempts so far.
    pub attempts: u32,
    /// An attempt had no answer, or one that leaves the outcome open.
    pub in_doubt: bool,
}

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The client.
    pub client: usize,
    /// The machine that was asked.
    pub node: u16,
    /// When, microseconds.
    pub since_us: u64,
    /// The last epoch of which anybody had been told a verdict by then.
    pub acknowledged: Epoch,
}

/// A client.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Its operation.
    pub operation: Option<usize>,
    /// Number of its last attempt: answers to earlier ones come too late.
    pub attempt: u64,
}

impl Operation {
    /// A client begins this transaction.
    #[must_use]
    pub fn of(txn: TxnSpec) -> Operation {
        Operation { txn, known: Known::Nothing, attempts: 0, in_doubt: false }
    }

    /// Its client does not ask again, because it was told that the transaction was not taken.
    pub fn refuse(&mut self) {
        self.attempts = ATTEMPTS_MAX;
    }

    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.txn.id
    }

    /// Returns whether its client goes on asking.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.known == Known::Nothing && self.attempts < ATTEMPTS_MAX
    }
}

/// Returns another one of these machines than the one that was asked, if there is one.
#[must_use]
pub fn another(asked: u16, machines: &[u16], random: &mut Random) -> u16 {
    let others = machines.iter().copied().filter(|node| *node != asked).collect::<Vec<_>>();
    if others.is_empty() { machines.first().copied().unwrap_or(asked) } else { random.one_of(&others) }
}
