//! How large the batches of a node become before they are sealed.

use tribunal_types::limits;

use crate::config::EpochLength;

/// Maximum size of a member's batch, unless it is a single transaction.
pub const MEMBER_BYTES_MAX: usize = 1024 * 1024;

/// Maximum size of a batch that is sealed as soon as the previous one is durable, unless it is a single transaction. An
/// epoch of this size is decided within tens of milliseconds, which bounds the wait of the transactions after it; larger
/// ones would not be more efficient.
const ADAPTIVE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Returns the maximum size of a single node's batch. With a fixed epoch length, it bounds the throughput.
pub const fn single_node_bytes_max(epoch: &EpochLength) -> usize {
    match epoch {
        EpochLength::Adaptive => ADAPTIVE_BYTES_MAX,
        EpochLength::Fixed(_) => limits::BATCH_BYTES_MAX,
    }
}
