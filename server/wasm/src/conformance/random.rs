//! Pseudo-random columns: the same sequence on every machine.

use tribunal_core::policy::{RangeColumns, ReadColumns, TxnColumns, ValidatorColumns, WriteColumns};

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Shuffles (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Returns a column of `n` values below `end`, a few of them of any size.
    pub fn column(&mut self, n: usize, end: u64) -> Vec<u64> {
        (0..n).map(|_| if self.below(20) == 0 { self.number() } else { self.below(end) }).collect()
    }

    /// Returns a column of `n` bytes below `end`.
    pub fn bytes(&mut self, n: usize, end: u64) -> Vec<u8> {
        (0..n).map(|_| self.below(end) as u8).collect()
    }

    /// Returns the ends of rows of `n` transactions with up to `most` rows each.
    pub fn ends(&mut self, n: usize, most: u64) -> Vec<u32> {
        let mut end = 0;
        (0..n)
            .map(|_| {
                end += self.below(most + 1) as u32;
                end
            })
            .collect()
    }

    /// Returns `n` distinct arrival stamps in random order.
    pub fn stamps(&mut self, n: usize) -> Vec<u64> {
        let mut stamp = self.below(1 << 40);
        let mut stamps: Vec<u64> = (0..n)
            .map(|_| {
                stamp += 1 + self.below(1000);
                stamp
            })
            .collect();
        self.shuffle(&mut stamps);
        stamps
    }

    /// Returns columns of `n` transactions.
    pub fn txns(&mut self, n: usize) -> TxnColumns {
        let small = |random: &mut Random| (0..n).map(|_| random.below(9) as u32).collect::<Vec<_>>();
        TxnColumns {
            csn: self.stamps(n),
            epoch: 2 + self.below(50),
            start: self.column(n, 50),
            origin: (0..n).map(|_| self.number()).collect(),
            priority: self.bytes(n, 256),
            reads: small(self),
            writes: small(self),
            first_attempt: self.column(n, 1 << 41),
        }
    }

    /// Returns evidence about `n` transactions.
    pub fn evidence(&mut self, n: usize) -> ValidatorColumns {
        let (reads, writes, ranges) = (self.ends(n, 4), self.ends(n, 4), self.ends(n, 2));
        let rows = |ends: &[u32]| ends.last().map_or(0, |&end| end as usize);
        ValidatorColumns {
            txns: self.txns(n),
            snapshot: self.column(n, 40),
            current_from: self.column(n, 40),
            current_until: self.column(n, 60),
            multi_version: self.bytes(n, 2),
            reads: ReadColumns {
                seen: self.column(rows(&reads), 2),
                latest: self.column(rows(&reads), 2),
                ends: reads,
            },
            writes: WriteColumns {
                kind: self.bytes(rows(&writes), 5),
                flags: self.bytes(rows(&writes), 16),
                latest: self.column(rows(&writes), 50),
                ends: writes,
            },
            ranges: RangeColumns {
                changed: (0..rows(&ranges)).map(|_| u8::from(self.below(6) == 0)).collect(),
                ends: ranges,
            },
        }
    }
}
