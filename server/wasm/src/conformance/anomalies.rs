//! The anomalies that isolation levels forbid, each as evidence about one transaction: Adya's phenomena in the form of the
//! Hermitage tests, where rows changed in earlier epochs. A test compares the table of levels with the native validators.

use tribunal_core::policy::{RangeColumns, ReadColumns, TxnColumns, ValidatorColumns, WriteColumns, write_flag};
use tribunal_types::Isolation::{self, ReadCommitted, RepeatableRead, Serializable, Snapshot};
use tribunal_types::{Epoch, Version, WriteKind};

/// A transaction that some levels must reject.
pub(super) struct Anomaly {
    pub name: &'static str,
    pub forbidden_at: &'static [Isolation],
    pub evidence: ValidatorColumns,
}

/// The epoch being resolved.
const NOW: u64 = 100;

fn version(epoch: u64) -> u64 {
    Version::new(Epoch(epoch), 1).map_or(0, Version::bits)
}

/// A transaction of snapshot 92, without operations yet.
#[derive(Default)]
struct One {
    reads: Vec<(u64, u64)>,
    current: (u64, u64),
    ranges: Vec<u8>,
    writes: Vec<(WriteKind, u8, u64)>,
}

impl One {
    fn evidence(self) -> ValidatorColumns {
        let One { reads, current, ranges, writes } = self;
        // Cannot truncate: there are only a few rows.
        let end = |len: usize| vec![len as u32];
        ValidatorColumns {
            txns: TxnColumns {
                csn: vec![1],
                epoch: NOW,
                start: vec![93],
                origin: vec![0],
                priority: vec![100],
                reads: end(reads.len() + ranges.len()),
                writes: end(writes.len()),
                first_attempt: vec![0],
            },
            snapshot: vec![92],
            current_from: vec![current.0],
            current_until: vec![current.1],
            multi_version: vec![0],
            ranges: RangeColumns { ends: end(ranges.len()), changed: ranges },
            reads: ReadColumns {
                ends: end(reads.len()),
                seen: reads.iter().map(|read| read.0).collect(),
                latest: reads.iter().map(|read| read.1).collect(),
            },
            writes: WriteColumns {
                ends: end(writes.len()),
                kind: writes.iter().map(|write| write.0 as u8).collect(),
                flags: writes.iter().map(|write| write.1).collect(),
                latest: writes.iter().map(|write| write.2).collect(),
            },
        }
    }
}

const CURRENT: u8 = write_flag::EXISTS | write_flag::WAS_READ | write_flag::READ_CURRENT;
const STALE: u8 = write_flag::EXISTS | write_flag::WAS_READ | write_flag::CHANGED_SINCE_SNAPSHOT;

/// A transaction that every level accepts.
pub(super) fn harmless() -> ValidatorColumns {
    let evidence = One {
        reads: vec![(version(90), version(90)), (0, 0)],
        current: (90, u64::MAX),
        ranges: vec![0],
        writes: vec![(WriteKind::Update, CURRENT, version(90)), (WriteKind::Put, 0, 0)],
    }
    .evidence();
    // The newest possible snapshot.
    ValidatorColumns { snapshot: vec![NOW - 1], ..evidence }
}

/// All anomalies.
pub(super) fn anomalies() -> Vec<Anomaly> {
    let (old, new) = (version(90), version(95));
    let other = || (WriteKind::Put, 0, 0);
    let list: [(&'static str, &'static [Isolation], One); 8] = [
        (
            "an aborted or invented version was read (G1a, G1b)",
            &[RepeatableRead, Snapshot, Serializable],
            One {
                reads: vec![(version(91), old)],
                current: (u64::MAX, u64::MAX),
                writes: vec![other()],
                ..One::default()
            },
        ),
        (
            "lost update (P4): the row read and written has changed",
            &[RepeatableRead, Snapshot, Serializable],
            One {
                reads: vec![(old, new)],
                current: (90, 94),
                writes: vec![(WriteKind::Update, STALE, new)],
                ..One::default()
            },
        ),
        (
            "read skew (G-single): two rows without a common snapshot",
            &[RepeatableRead, Snapshot, Serializable],
            One { reads: vec![(old, new), (new, new)], current: (95, 94), writes: vec![other()], ..One::default() },
        ),
        (
            "an observed transaction vanishes (OTV)",
            &[RepeatableRead, Snapshot, Serializable],
            One {
                reads: vec![(new, version(97)), (version(97), version(97))],
                current: (97, 96),
                writes: vec![other()],
                ..One::default()
            },
        ),
        (
            "write skew (G2-item): a row that was read has changed, and another one is written",
            &[RepeatableRead, Serializable],
            One {
                reads: vec![(old, new), (old, old)],
                current: (90, 94),
                writes: vec![(WriteKind::Update, CURRENT, old)],
                ..One::default()
            },
        ),
        (
            "a row that was read as absent has appeared",
            &[RepeatableRead, Serializable],
            One { reads: vec![(0, new)], current: (0, 94), writes: vec![other()], ..One::default() },
        ),
        (
            "phantom (PMP, G2): a scanned range has changed",
            &[Snapshot, Serializable],
            One { current: (0, u64::MAX), ranges: vec![1], writes: vec![other()], ..One::default() },
        ),
        (
            "overwritten commit (G0): a row that is written without being read has changed since the snapshot",
            &[Snapshot],
            One {
                current: (0, u64::MAX),
                writes: vec![(WriteKind::Put, write_flag::EXISTS | write_flag::CHANGED_SINCE_SNAPSHOT, new)],
                ..One::default()
            },
        ),
    ];
    list.into_iter().map(|(name, forbidden_at, one)| Anomaly { name, forbidden_at, evidence: one.evidence() }).collect()
}

/// All levels, weakest first.
pub(super) const LEVELS: [Isolation; 4] = [ReadCommitted, RepeatableRead, Snapshot, Serializable];

#[cfg(test)]
mod tests {
    use tribunal_core::native::NativeValidator;
    use tribunal_core::policy::Validator;

    use super::*;

    #[test]
    fn native_validators_reject_exactly_the_anomalies_of_their_levels() {
        for level in LEVELS {
            let rejects = |evidence: &ValidatorColumns| {
                NativeValidator.validate(level, evidence).expect("natives never fail").code[0] != 0
            };
            assert!(!rejects(&harmless()), "{}", level.name());
            for anomaly in anomalies() {
                let forbidden = anomaly.forbidden_at.contains(&level);
                assert_eq!(rejects(&anomaly.evidence), forbidden, "{}: {}", level.name(), anomaly.name);
            }
        }
    }
}
