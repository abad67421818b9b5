//! The policies that decide one epoch.

use tribunal_types::Isolation;

use crate::policy::native::{NativeRule, NativeValidator};
use crate::policy::{ConflictRule, Validator};

/// The policies of one epoch.
#[derive(Clone, Copy)]
pub struct Policies<'a> {
    /// Ranks contended transactions.
    pub rule: &'a dyn ConflictRule,
    /// Judges the transactions of every level.
    pub validator: &'a dyn Validator,
    /// Decides in place of a failed rule.
    pub rule_fallback: NativeRule,
}

impl Policies<'_> {
    /// Returns the groups of columns that each level's validator needs, combined with those of its native fallback.
    pub(crate) fn needs(&self) -> [u8; 4] {
        let fallback = NativeValidator;
        Isolation::ALL.map(|level| self.validator.needs(level) | fallback.needs(level))
    }
}
