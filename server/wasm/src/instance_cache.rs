//! Caches one instance of an adaptor between batches of its store.
//!
//! Zeroing and faulting in the memory of an instance takes longer than encoding a batch, and unlike policies, adaptors
//! decide nothing that replicas must agree on. Still, the effect of state that an instance retains from earlier batches is
//! limited: an instance serves a bounded number of calls, and a job that fails in a used instance is retried in a fresh
//! one, so that no record is rejected because of an earlier record. The conformance kit compares used instances with
//! fresh ones.

use parking_lot::Mutex;

use crate::call::Call;
use crate::fault::Fault;
use crate::instance_permits::CachePermit;
use crate::module::Module;

/// Maximum number of calls that one instance serves.
const CALLS_MAX: u32 = 256;
/// Larger instances are not cached: they would occupy memory while their store is idle.
const MEMORY_BYTES_MAX: usize = 16 << 20;

/// At most one idle instance.
#[derive(Default)]
pub(crate) struct InstanceCache(Mutex<Option<CachedInstance>>);

struct CachedInstance {
    call: Call,
    calls_left: u32,
    // Declared last, so that the permit is returned after the instance has been dropped.
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
