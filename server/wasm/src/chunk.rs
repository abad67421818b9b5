//! Splits a batch into pieces that fit into an instance's memory. Invisible to plugins that keep their contract:
//! validators judge each transaction by itself, rules rank each transaction by its own columns. A pure function of the
//! columns, so all replicas split alike.

use std::borrow::Cow;
use std::ops::Range;

use tribunal_core::policy::ValidatorColumns;

/// Size of a transaction's own columns, including its ends of rows.
const TXN_BYTES: usize = 8 + 8 + 8 + 1 + 4 + 4 + 8 + (8 + 8 + 8 + 1) + 3 * 4;
/// Size of a read's columns, including its epochs.
const READ_BYTES: usize = 8 + 8 + 8 + 8;
/// Size of a range's columns.
const RANGE_BYTES: usize = 1;
/// Size of a write's columns, including its epochs.
const WRITE_BYTES: usize = 1 + 1 + 8 + 8;

/// Consecutive transactions and their rows.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub txns: Range<usize>,
    pub reads: Range<usize>,
    pub ranges: Range<usize>,
    pub writes: Range<usize>,
    pub read_ends: Cow<'a, [u32]>,
    pub range_ends: Cow<'a, [u32]>,
    pub write_ends: Cow<'a, [u32]>,
}

impl Piece<'_> {
    /// Returns the number of operations.
    pub(crate) fn ops(&self) -> usize {
        self.reads.len() + self.ranges.len() + self.writes.len()
    }

    /// Returns the number of operations of the piece's transaction `t`.
    pub(crate) fn ops_of(&self, t: usize) -> u32 {
        let own = |ends: &[u32]| ends[t] - if t == 0 { 0 } else { ends[t - 1] };
        own(&self.read_ends) + own(&self.range_ends) + own(&self.write_ends)
    }
}

/// Splits the columns into pieces of at most `bytes_max`; a larger transaction forms a separate piece. Most batches are
/// one piece.
pub(crate) fn pieces(columns: &ValidatorColumns, bytes_max: usize) -> Vec<Piece<'_>> {
    let n = columns.len();
    let ends = [&columns.reads.ends[..], &columns.ranges.ends[..], &columns.writes.ends[..]];
    assert!(ends.iter().all(|ends| ends.len() == n), "the core gives an end for every transaction");
    if bytes_between([0; 3], at(ends, n)) + n * TXN_BYTES <= bytes_max {
        return vec![piece(ends, 0..n)];
    }
    let mut pieces = Vec::new();
    let mut start = 0;
    for t in 1..=n {
        let bytes = |end| bytes_between(at(ends, start), at(ends, end)) + (end - start) * TXN_BYTES;
        if t == n || bytes(t + 1) > bytes_max {
            pieces.push(piece(ends, start..t));
            start = t;
        }
    }
    pieces
}

/// Returns the maximum number of transactions per call of a rule.
pub(crate) fn rule_txns_max(bytes_max: usize) -> usize {
    // The columns of the input and the ranks of the output.
    (bytes_max / (8 + 8 + 8 + 1 + 4 + 4 + 8 + 16)).max(1)
}

/// Returns the ends of the rows of the first `txns` transactions.
fn at(ends: [&[u32]; 3], txns: usize) -> [usize; 3] {
    ends.map(|ends| if txns == 0 { 0 } else { ends[txns - 1] as usize })
}

fn bytes_between(from: [usize; 3], to: [usize; 3]) -> usize {
    let [reads, ranges, writes] = [0, 1, 2].map(|kind| to[kind] - from[kind]);
    reads * READ_BYTES + ranges * RANGE_BYTES + writes * WRITE_BYTES
}

fn piece(ends: [&[u32]; 3], txns: Range<usize>) -> Piece<'_> {
    let (from, to) = (at(ends, txns.start), at(ends, txns.end));
    let [read_ends, range_ends, write_ends] = [0, 1, 2].map(|kind| {
        let own = &ends[kind][txns.clone()];
        if from[kind] == 0 {
            return Cow::Borrowed(own);
        }
        // Cannot truncate: it is not larger than an end of the whole batch.
        own.iter().map(|end| end - from[kind] as u32).collect()
    });
    Piece {
        txns,
        reads: from[0]..to[0],
        ranges: from[1]..to[1],
        writes: from[2]..to[2],
        read_ends,
        range_ends,
        write_ends,
    }
}
