//! How the resolver reaches its shards: one after the other, or on threads that the shell brings.

use crate::resolve::shard::Shard;

/// Runs a job on every shard. The order, and whether jobs overlap, cannot change any result.
pub trait ShardExecutor {
    /// Runs `job` once on each shard, and returns when all have finished.
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync));
}

/// Runs jobs one after the other on the caller's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl ShardExecutor for Inline {
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync)) {
        shards.iter_mut().for_each(job);
    }
}
