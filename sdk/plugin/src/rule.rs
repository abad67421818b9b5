//! The world `conflict-rule`: orders transactions that contend for rows.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

pub use crate::bindings::rule::exports::tribunal::plugin::rule::{Columns, Ranks, Txns};
use crate::{Fault, Plugin};

/// A conflict rule. How it orders two transactions follows from their own columns and `epoch` alone.
pub trait Rule: Plugin {
    /// Columns that [`Rule::rank`] looks at; the others arrive empty.
    const NEEDS: Columns;

    /// Ranks every transaction: the lower rank wins, equal ranks by CSN.
    ///
    /// # Errors
    /// If the plugin cannot go on; the host's native fallback then ranks the batch.
    fn rank(&self, txns: Txns) -> Result<Ranks, Fault>;
}

/// Ranks `count` transactions by comparing two at a time (`Less` wins): sorts here and gives each its place. Indices
/// are those of the columns. The order must be total; transactions that compare as equal get the same rank.
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

/// Configuration text as it arrives.
#[doc(hidden)]
pub type ConfigText = alloc::string::String;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_becomes_ranks() {
        let priority = [5u8, 9, 5, 1];
        let ranks = rank_by(4, |a, b| priority[b].cmp(&priority[a]));
        assert_eq!(ranks.hi, [1, 0, 1, 3]);
        assert_eq!(ranks.lo, [0; 4]);
        assert!(rank_by(0, |_, _| Ordering::Equal).hi.is_empty());
    }
}
