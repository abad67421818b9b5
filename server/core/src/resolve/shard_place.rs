//! Which shard a row belongs to.

use tribunal_types::RowKey;

/// A shard's index, and the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardPlace {
    pub(crate) index: u32,
    pub(crate) count: u32,
}

impl ShardPlace {
    /// Returns whether the row belongs to this shard.
    #[inline(always)]
    pub(crate) fn owns(self, key: RowKey) -> bool {
        self.count == 1 || self.of(key) == self.index
    }

    /// Returns the number of the row's shard.
    #[inline(always)]
    pub(crate) fn of(self, key: RowKey) -> u32 {
        (((key.hi >> 32) * u64::from(self.count)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_shard() {
        for n in 0..10_000_u64 {
            let key = RowKey { hi: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), lo: n };
            for count in [1, 2, 3, 7] {
                let owners = (0..count).filter(|&index| ShardPlace { index, count }.owns(key)).count();
                assert_eq!(owners, 1);
            }
        }
    }
}
