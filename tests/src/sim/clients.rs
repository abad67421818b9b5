//! Clients: each has one transaction at a time, and asks again, under the same id and wherever it can, until it has its verdict.

use tribunal_types::{Epoch, StoreId, TxnId, Verdict};

use crate::generate::START_MS;
use crate::scenario::{Action, Row, TxnSpec, Value};
use crate::sim::random::Random;
use std::collections::BTreeMap;
use tribunal_types::{Isolation, Version};

/// Rows that transactions use.
const ROWS: u64 = 40;
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

/// Of a thousand values, those that are long: enough for the logs to fill some segments.
const LONG_PER_MILLE: u64 = 150;
const LONG_BYTES: usize = 8_000;

impl Operation {
    /// Makes a transaction on rows of `stores` of a client that has read `versions`.
    #[must_use]
    pub fn draw(
        number: u64,
        time_us: u64,
        stores: &[StoreId],
        versions: &BTreeMap<Row, Version>,
        random: &mut Random,
    ) -> Operation {
        let level = random.one_of(&Isolation::ALL);
        let mut txn = TxnSpec::new(number, START_MS + time_us / 1000, level);
        let mut keys = Vec::new();
        for _ in 0..random.between(1, 4) {
            let key = format!("r{}", random.between(0, ROWS - 1));
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for key in keys {
            let row = Row { store: random.one_of(stores), key };
            if random.chance(600) {
                txn.reads.push((row.clone(), versions.get(&row).copied()));
            }
            let value = match random.chance(LONG_PER_MILLE) {
                true => Value::Text((0..LONG_BYTES / 16).map(|_| format!("{:016x}", random.number())).collect()),
                false => Value::Int(random.between(0, 99) as i64),
            };
            let action = match random.between(0, 9) {
                0 => Action::Delete,
                1 => Action::Insert(value),
                2 | 3 => Action::AddOr(1, 5),
                _ => Action::Put(value),
            };
            txn.writes.push((row, action));
        }
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
