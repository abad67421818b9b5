//! An adaptor's instance between two batches of its store.
//!
//! Wiping a batch's memory and touching it anew cost more than encoding the batch, and unlike policies, adaptors decide
//! nothing that replicas must agree on. What an instance may have kept from earlier batches is bounded all the same: it
//! serves so many calls, and whatever fails in a used one is tried in a fresh one, so that a record is never refused for
//! what came before it. The conformance kit compares used instances with fresh ones.

use parking_lot::Mutex;

use crate::call::Call;
use crate::fault::Fault;
use crate::module::Module;
use crate::slots::Rest;

/// So many calls an instance serves.
const CALLS_MAX: u32 = 256;
/// An instance that has grown beyond this does not rest: its memory would be held while its store is idle.
const MEMORY_BYTES_MAX: usize = 16 << 20;

/// The place where an instance rests.
#[derive(Default)]
pub(crate) struct Resting(Mutex<Option<Used>>);

struct Used {
    call: Call,
    calls_left: u32,
    // Declared last: given back after the instance is gone.
    rest: Rest,
}

impl Resting {
    /// Does `job` with `fuel`, in the instance that rests here or in a fresh one.
    ///
    /// # Errors
    /// What `job` fails with in a fresh instance.
    pub(crate) fn serve<T>(
        &self,
        module: &Module,
        fuel: u64,
        job: impl Fn(&mut Call) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let resting = self.0.lock().take();
        if let Some(mut used) = resting {
            used.call.refuel(fuel);
            if let Ok(done) = job(&mut used.call) {
                self.put(used);
                return Ok(done);
            }
        }
        let mut call = module.start(fuel)?;
        let done = job(&mut call)?;
        if let Some(rest) = module.engine.slots.rest() {
            self.put(Used { call, calls_left: CALLS_MAX, rest });
        }
        Ok(done)
    }

    fn put(&self, used: Used) {
        let Used { call, calls_left, rest } = used;
        let calls_left = calls_left - 1;
        if calls_left > 0 && call.memory_bytes() <= MEMORY_BYTES_MAX {
            *self.0.lock() = Some(Used { call, calls_left, rest });
        }
    }
}
