//! Spreads the shards of the version map over worker threads.
//!
//! Shards share nothing within a phase, so every schedule gives the same outcome. Small epochs stay on the calling
//! thread: handing them over would cost more than the work itself.

use rayon::prelude::*;
use tribunal_core::executor::{Inline, ShardExecutor};
use tribunal_core::shard::Shard;

/// Runs the shards' phases on a pool of worker threads.
pub struct Workers {
    pool: Option<rayon::ThreadPool>,
}

impl Workers {
    /// Starts `threads` workers; with one, everything runs inline.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub fn start(threads: usize) -> Result<Workers, String> {
        if threads <= 1 {
            return Ok(Workers { pool: None });
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("shard-{i}"))
            .build()
            .map(|pool| Workers { pool: Some(pool) })
            .map_err(|error| format!("cannot start {threads} shard workers: {error}"))
    }
}

impl ShardExecutor for Workers {
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync)) {
        match &self.pool {
            Some(pool) if shards.len() > 1 => pool.install(|| shards.par_iter_mut().for_each(job)),
            _ => Inline.for_each(shards, job),
        }
    }
}
