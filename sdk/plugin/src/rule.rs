//! The world `conflict-rule`: orders transactions that contend for rows.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

pub use crate::bindings::rule::exports::tribunal::plugin::rule::{Columns, Ranks, Txns};
use crate::{Fault, Plugin};

/// A conflict rule. The order of two transactions must depend only on their own columns and `epoch`.
pub trait Rule: Plugin {
    /// Columns that [`Rule::rank`] reads; the others arrive empty.
    const NEEDS: Columns;

    /// Ranks every transaction: the lowest rank wins, and equal ranks are ordered by CSN.
    ///
    /// # Errors
    /// If the plugin fails; the host's native fallback then ranks the batch.
    fn rank(&self, txns: Txns) -> Result<Ranks, Fault>;
}

/// Ranks `count` transactions by comparing two at a time (`Less` wins): sorts them, and returns the position of each. The
/// arguments of `compare` are indices into the columns. The order must be total; transactions that compare as equal get the
/// same rank.
pub fn rank_by(count: u32, mut compare: impl FnMut(usize, usize) -> Ordering) -> Ranks {
    let count = count as usize;
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by(|&a, &b| compare(a as usize, b as usize));
    let mut hi = vec![0; count];
    let mut place = 0;
    for at in 1..count {
        let (before, this) = (order[at - 1] as usize, order[at] as usize);
        if compare(before, this) != Ordering::Equal {
            place = at as u64;
        }
        hi[this] = place;
    }
    Ranks { hi, lo: vec![0; count] }
}

impl Txns {
    /// Returns `count` transactions with a value in every column, for tests. They only differ in their ascending arrival
    /// stamps.
    #[must_use]
    pub fn sample(count: u32) -> Txns {
        const EPOCH: u64 = 9;
        let n = count as usize;
        Txns {
            count,
            epoch: EPOCH,
            csn: (1..=u64::from(count)).collect(),
            start: vec![EPOCH; n],
            origin: vec![1; n],
            priority: vec![100; n],
            reads: vec![0; n],
            writes: vec![1; n],
            first_attempt: vec![1_767_225_600_000; n],
        }
    }

    /// Empties the columns that a rule does not name in [`Rule::NEEDS`], as the host does.
    #[must_use]
    pub fn only(mut self, needs: Columns) -> Txns {
        fn keep<T>(column: &mut Vec<T>, keep: bool) {
            if !keep {
                column.clear();
            }
        }
        keep(&mut self.csn, needs.contains(Columns::CSN));
        keep(&mut self.start, needs.contains(Columns::START));
        keep(&mut self.origin, needs.contains(Columns::ORIGIN));
        keep(&mut self.priority, needs.contains(Columns::PRIORITY));
        keep(&mut self.reads, needs.contains(Columns::READS));
        keep(&mut self.writes, needs.contains(Columns::WRITES));
        keep(&mut self.first_attempt, needs.contains(Columns::FIRST_ATTEMPT));
        self
    }
}

/// Exports a type that implements [`Rule`] as this crate's component.
#[macro_export]
macro_rules! export_rule {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::lifecycle::exports::tribunal::plugin::lifecycle;
            use $crate::bindings::rule::exports::tribunal::plugin::rule;

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

            impl rule::Guest for Exported {
                fn needs() -> rule::Columns {
                    <$plugin as $crate::Rule>::NEEDS
                }

                fn rank(batch: rule::Txns) -> Result<rule::Ranks, $crate::Fault> {
                    $crate::Rule::rank(INSTANCE.get()?, batch)
                }
            }

    $crate::bindings::lifecycle::export_lifecycle!(Exported with_types_in $crate::bindings::lifecycle);
    $crate::bindings::rule::export_rule_interface!(Exported with_types_in $crate::bindings::rule);
        };
    };
}

/// The configuration text that `init` gets.
#[doc(hidden)]
pub type ConfigText = alloc::string::String;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_every_column_and_only_keeps_those_needed() {
        let sample = Txns::sample(2);
        assert_eq!((sample.csn.len(), sample.writes.len(), sample.first_attempt.len()), (2, 2, 2));
        let given = sample.only(Columns::CSN.union(Columns::FIRST_ATTEMPT));
        assert_eq!((given.count, given.csn.len(), given.writes.len(), given.first_attempt.len()), (2, 2, 0, 2));
    }

    #[test]
    fn comparisons_are_converted_to_ranks() {
        let priority = [5u8, 9, 5, 1];
        let ranks = rank_by(4, |a, b| priority[b].cmp(&priority[a]));
        assert_eq!(ranks.hi, [1, 0, 1, 3]);
        assert_eq!(ranks.lo, [0; 4]);
        assert!(rank_by(0, |_, _| Ordering::Equal).hi.is_empty());
    }
}
