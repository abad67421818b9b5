//! The generations in which the releases of a run decide, and the rule of each.

use tribunal_core::policy::native::NativeRule;
use tribunal_types::{Generation, Generations};

/// The generation after an upgrade.
pub const NEWER: Generation = Generation::NEWEST;
/// The generations that the release before an upgrade supports.
pub const BEFORE: Generations = Generations { oldest: Generation::FIRST, newest: Generation(NEWER.0 - 1) };
/// The generations that the release after it supports.
pub const AFTER: Generations = Generations { oldest: Generation::FIRST, newest: NEWER };

/// Returns the rule of a generation.
#[must_use]
pub fn rule_of(generation: Generation) -> &'static NativeRule {
    if generation == Generation::FIRST { &NativeRule::FirstWriterWins } else { &NativeRule::Priority }
}
