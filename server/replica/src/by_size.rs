//! Keeps small epochs on the calling thread: handing them over would cost more than the work.

use tribunal_core::executor::{Inline, ShardExecutor};
use tribunal_core::shard::Shard;

/// Chooses between workers and inline by the size of the epoch.
pub struct BySize<'a, E> {
    /// The workers.
    pub workers: &'a E,
    /// Operations of the epoch.
    pub operations: usize,
}

/// Below this many operations (some 100 us of work), an epoch is resolved on one thread.
const PARALLEL_OPERATIONS_MIN: usize = 4096;

impl<E: ShardExecutor> ShardExecutor for BySize<'_, E> {
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync)) {
        if self.operations < PARALLEL_OPERATIONS_MIN {
            Inline.for_each(shards, job);
        } else {
            self.workers.for_each(shards, job);
        }
    }
}
