//! Keeps one instance of an adaptor from one batch of its store to the next.
//!
//! Wiping and faulting in the memory of a batch costs more than encoding the batch, and adaptors, unlike policies, decide
//! nothing that replicas must agree on. What an instance can retain from earlier batches is bounded all the same: it
//! serves a limited number of calls, and a job that fails in a used instance is tried again in a fresh one, so that no
//! record is refused because of an earlier record. The conformance kit compares used instances with fresh ones.

use parking_lot::Mutex;

use crate::call::Call;
use crate::fault::Fault;
use crate::instance_permits::CachePermit;
use crate::module::Module;

/// Calls that one instance serves.
const CALLS_MAX: u32 = 256;
/// An instance that has grown larger is not cached: its memory would be held while its store is idle.
const MEMORY_BYTES_MAX: usize = 16 << 20;

/// At most one idle instance.
#[derive(Default)]
pub(crate) struct InstanceCache(Mutex<Option<CachedInstance>>);

struct CachedInstance {
    call: Call,
    calls_left: u32,
    // Declared last: returned once the instance is gone.
    permit: CachePermit,
}

impl InstanceCache {
    /// Runs `job` with `fuel`, in the cached instance or in a fresh one.
    ///
    /// # Errors
    /// The failure of `job` in a fresh instance.
    pub(crate) fn run<T>(
        &self,
        module: &Module,
        fuel: u64,
        job: impl Fn(&mut Call) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let cached = self.0.lock().take();
        if let Some(mut cached) = cached {
            cached.call.refuel(fuel);
            if let Ok(done) = job(&mut cached.call) {
                self.put(cached);
                return Ok(done);
            }
        }
        let mut call = module.start(fuel)?;
        let done = job(&mut call)?;
        if let Some(permit) = module.engine.permits.try_acquire_cache() {
            self.put(CachedInstance { call, calls_left: CALLS_MAX, permit });
        }
        Ok(done)
    }

    fn put(&self, cached: CachedInstance) {
        let CachedInstance { call, calls_left, permit } = cached;
        let calls_left = calls_left - 1;
        if calls_left > 0 && call.memory_bytes() <= MEMORY_BYTES_MAX {
            *self.0.lock() = Some(CachedInstance { call, calls_left, permit });
        }
    }
}
