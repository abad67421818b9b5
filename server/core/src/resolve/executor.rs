//! How the resolver runs jobs on its shards: sequentially, or on threads provided by the shell.

use crate::resolve::shard::Shard;

/// Runs a job on every shard. The order, and whether jobs overlap, cannot change any result.
pub trait ShardExecutor {
    /// Runs `job` once on each shard, and returns when all runs have finished.
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync));
}

/// Runs jobs sequentially on the caller's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl ShardExecutor for Inline {
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync)) {
        shards.iter_mut().for_each(job);
    }
}
