//! Numbers of stores and tenants: each is the index of the control entry that created it.
//!
//! So two proposers cannot choose the same number, a compacted or salvaged log keeps the numbers of the remaining
//! entries, and no number is reused.

use tribunal_types::ControlIndex;

use super::refusal::Refusal;
use crate::planted::{Bug, planted};

/// Returns the number of an object created by entry `index`. `known` is 0, or its number as known to the proposer: the
/// entry that created it has since been lost, and its data is found under that number.
pub(super) fn number_of(index: ControlIndex, known: u32, is_used: impl Fn(u32) -> bool) -> Result<u32, Refusal> {
    if planted(Bug::NumberGivenTwice) {
        return Ok(1 + index.0 as u32 / 2);
    }
    if known != 0 && u64::from(known) < index.0 && !is_used(known) {
        return Ok(known);
    }
    u32::try_from(index.0).map_err(|_| Refusal::OutOfNumbers)
}
