//! The world `isolation-validator`: judges transactions of one isolation level against the state before their epoch.
//!
//! # What a validator sees
//!
//! [`Evidence`], in columns: one item per transaction, or per operation, with the operations of transaction `t` at
//! `ends[t - 1]..ends[t]`. Only the groups in [`Validator::NEEDS`] are filled. `wit/validator.wit` describes each
//! column.
//!
//! | group | about each transaction |
//! |---|---|
//! | `TXNS` | arrival, epoch at Begin, client, priority, number of rows and ranges read and of rows written, first attempt |
//! | `SNAPSHOTS` | its newest snapshot, and the epochs in which all that it has read was current |
//! | `READS` | the version that it saw of each row and the version now; 0 for an absent row |
//! | `RANGES` | whether a row in each range was written after its snapshot |
//! | `WRITES` | kind of each write, version of the row now, and [`write_flag`]s |
//! | `EPOCHS` | the epochs of these versions |
//!
//! A level whose validator needs `SNAPSHOTS`, `WRITES` or `EPOCHS` has no transactions with snapshots older than the history
//! that is kept (60 seconds): they abort with `snapshot_too_old`. Without these groups, only those with ranges or with rows of a
//! store of declared existence do. (Level `snapshot` always needs them.)
//!
//! It sees no keys, values or store names, and nothing of other epochs, and cannot request more. Transactions that were
//! aborted earlier (a snapshot that is too old, a required row that does not exist) are missing. Conflicts *within* the
//! epoch are not the validators' concern: the conflict rule decides them afterwards, among the accepted transactions.
//! The version map has partitions, and each calls the validator with its own operations: a transaction can take part in
//! several, and is rejected if any of them rejects it. Its `TXNS` and `SNAPSHOTS` are the same in all of them. A
//! read-only commit and a dry run are judged in the same way, in a separate call.
//!
//! # What a validator must do
//!
//! An upload checks this with the configuration of the upload, an activation with that of the activation:
//!
//! * Reject at least everything that the level of its slot forbids: the anomalies of the conformance kit, and all
//!   random evidence that the built-in validator of the level rejects. `tribunal plugin test` prints the levels that
//!   the plugin enforces, and for each other level an anomaly that it accepts.
//! * Accept the transaction without conflicts. It has the newest snapshot; of the two rows that it has read, one is
//!   current and one is still absent; its range has not changed; it updates the row that it read, and puts one that
//!   does not exist. It began 7 epochs ago and has priority 100. A validator may otherwise be stricter than its level,
//!   but one that rejects this transaction would reject nearly everything, so it is refused as well.
//! * Judge each transaction by itself, regardless of the rest of the batch and of its order.
//! * Accept a transaction if and only if it accepts each part of its operations, in any division into parts. So it
//!   cannot count operations of the evidence; the counts in `TXNS` are those of the whole transaction.
//! * Return the same answer, for the same fuel, in each new instance.
//!
//! # What it answers
//!
//! For each transaction, a code and a witness. The code is [`ACCEPT`], one of Tribunal's reasons, or a reason of the
//! plugin's own, which the client gets as `plugin_code`: 1 to 63 if the same work may be accepted when repeated with
//! fresh reads; from [`FIRST_FINAL`] to 127 if it would be rejected again: `retryable` is then `false`. The witness is
//! the operation to blame, which the client gets with its row, or [`NO_WITNESS`]: then the first operation is reported,
//! without another transaction. A code that is not a reason, or a witness past the end of the operations, is a fault:
//! then the built-in validator of the level decides.

use alloc::vec;
use alloc::vec::Vec;

pub use crate::bindings::validator::exports::tribunal::plugin::validator::{
    Epochs, Evidence, Groups, Ranges, Reads, Snapshots, Txns, Validation, Writes,
};
use crate::{Fault, Plugin};

/// Accepts a transaction.
pub const ACCEPT: u8 = 0;
/// Built-in reason: a row that was read has another version now.
pub const READ_CONFLICT: u8 = 128;
/// Built-in reason: a row was written by another transaction.
pub const WRITE_CONFLICT: u8 = 129;
/// Built-in reason: a range has changed.
pub const RANGE_CONFLICT: u8 = 130;
/// The first of the plugin's own reasons, up to 127, after which the same work would be rejected again.
pub const FIRST_FINAL: u8 = 64;
/// Witness that names no operation.
pub const NO_WITNESS: u32 = u32::MAX;

/// Returns the epoch of a version; 0 for version 0, an absent row. The group `epochs` contains the epochs of all
/// versions.
#[must_use]
pub fn epoch_of(version: u64) -> u64 {
    version >> POSITION_BITS
}

/// Number of lower bits of a version that are the position in its epoch's serial order. The bits above are the epoch.
pub const POSITION_BITS: u32 = 20;

/// Flags of a write.
pub mod write_flag {
    /// The row exists now.
    pub const EXISTS: u8 = 1;
    /// The row is in the transaction's own read set.
    pub const WAS_READ: u8 = 2;
    /// That read is still current. At the snapshot level, if the row was read as absent, also that no transaction has
    /// written and deleted it since the reads held together. Meaningless without `WAS_READ`.
    pub const READ_CURRENT: u8 = 4;
    /// The row changed after the transaction's snapshot.
    pub const CHANGED_SINCE_SNAPSHOT: u8 = 8;
}

/// A validator. It must judge every transaction by itself, and accept it if and only if it accepts each of its
/// operations.
pub trait Validator: Plugin {
    /// Groups of columns that [`Validator::validate`] reads; the columns of other groups arrive empty.
    const NEEDS: Groups;

    /// Judges every transaction.
    ///
    /// # Errors
    /// If the plugin fails; the host's native fallback then judges the batch.
    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault>;
}

impl Evidence {
    /// Returns evidence about `count` transactions with a value in every group, for tests: each has read a row and
    /// writes it, and no other transaction has changed it.
    #[must_use]
    pub fn sample(count: u32) -> Evidence {
        const EPOCH: u64 = 9;
        const WRITTEN: u64 = 5;
        let n = count as usize;
        let ends: Vec<u32> = (1..=count).collect();
        let version = WRITTEN << POSITION_BITS;
        Evidence {
            count,
            epoch: EPOCH,
            txns: Txns {
                csn: (1..=u64::from(count)).collect(),
                start: vec![EPOCH; n],
                origin: vec![1; n],
                priority: vec![100; n],
                reads: vec![1; n],
                writes: vec![1; n],
                first_attempt: vec![1_767_225_600_000; n],
            },
            snapshots: Snapshots {
                named: vec![EPOCH - 1; n],
                current_from: vec![WRITTEN; n],
                current_until: vec![u64::MAX; n],
                multi_version: vec![0; n],
            },
            reads: Reads { ends: ends.clone(), seen: vec![version; n], latest: vec![version; n] },
            ranges: Ranges { ends: vec![0; n], changed: vec![] },
            writes: Writes {
                ends,
                kind: vec![2; n],
                flags: vec![write_flag::EXISTS | write_flag::WAS_READ | write_flag::READ_CURRENT; n],
                latest: vec![version; n],
            },
            epochs: Epochs { seen: vec![WRITTEN; n], latest: vec![WRITTEN; n], written: vec![WRITTEN; n] },
        }
    }

    /// Empties the groups that a validator does not name in [`Validator::NEEDS`], as the host does.
    #[must_use]
    pub fn only(mut self, needs: Groups) -> Evidence {
        let none = Evidence::sample(0);
        if !needs.contains(Groups::TXNS) {
            self.txns = none.txns;
        }
        if !needs.contains(Groups::SNAPSHOTS) {
            self.snapshots = none.snapshots;
        }
        if !needs.contains(Groups::READS) {
            self.reads = none.reads;
        }
        if !needs.contains(Groups::RANGES) {
            self.ranges = none.ranges;
        }
        if !needs.contains(Groups::WRITES) {
            self.writes = none.writes;
        }
        if !needs.contains(Groups::EPOCHS) {
            self.epochs = none.epochs;
        }
        self
    }
}

/// Accepts `count` transactions.
#[must_use]
pub fn accept_all(count: u32) -> Validation {
    let count = count as usize;
    Validation { code: alloc::vec![ACCEPT; count], witness: alloc::vec![NO_WITNESS; count] }
}

/// Judges each transaction with a function that gets its index and returns `None` (accepted) or a reason and a witness.
pub fn judge_each(count: u32, mut judge: impl FnMut(usize) -> Option<(u8, u32)>) -> Validation {
    let mut answer =
        Validation { code: Vec::with_capacity(count as usize), witness: Vec::with_capacity(count as usize) };
    for t in 0..count as usize {
        let (code, witness) = judge(t).unwrap_or((ACCEPT, NO_WITNESS));
        answer.code.push(code);
        answer.witness.push(witness);
    }
    answer
}

/// Exports a type that implements [`Validator`] as this crate's component.
#[macro_export]
macro_rules! export_validator {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::lifecycle::exports::tribunal::plugin::lifecycle;
            use $crate::bindings::validator::exports::tribunal::plugin::validator;

            static INSTANCE: $crate::Instance<$plugin> = $crate::Instance::new();
            struct Exported;

            impl lifecycle::Guest for Exported {
                fn describe() -> lifecycle::Description {
                    lifecycle::Description {
                        name: <$plugin as $crate::Plugin>::NAME.into(),
                        version: env!("CARGO_PKG_VERSION").into(),
                        about: <$plugin as $crate::Plugin>::ABOUT.into(),
                    }
                }

                fn init(config: $crate::rule::ConfigText) -> Result<(), $crate::Fault> {
                    INSTANCE.fill(<$plugin as $crate::Plugin>::init(&config)?)
                }
            }

            impl validator::Guest for Exported {
                fn needs() -> validator::Groups {
                    <$plugin as $crate::Validator>::NEEDS
                }

                fn validate(evidence: validator::Evidence) -> Result<validator::Validation, $crate::Fault> {
                    $crate::Validator::validate(INSTANCE.get()?, evidence)
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Exported with_types_in $crate::bindings::lifecycle);
            $crate::bindings::validator::export_validator_interface!(Exported with_types_in $crate::bindings::validator);
        };
    };
}
