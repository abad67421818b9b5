//! Permits that bound the number of live instances to the capacity of the pool. A call without a permit waits for one.
//!
//! A cached instance keeps its permit. At most half of the permits can belong to cached instances, so that a waiting
//! call only waits for other calls, which are bounded by fuel. A quarter is reserved for rules and validators: an
//! adaptor's call may take long, and an epoch must not wait for it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::world::World;

/// The permits of a pool.
#[derive(Debug)]
pub(crate) struct InstancePermits {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    free: u32,
    /// Number of further instances that may be cached.
    cacheable: u32,
    /// Number of permits that adaptors never take.
    reserved: u32,
}

/// Permission to create an instance; returned when dropped.
#[derive(Debug)]
pub(crate) struct InstancePermit(Arc<InstancePermits>);

/// Permission to cache an instance between calls; returned when dropped.
#[derive(Debug)]
pub(crate) struct CachePermit(Arc<InstancePermits>);

impl InstancePermits {
    pub(crate) fn new(count: u32) -> Arc<InstancePermits> {
        let state = State { free: count, cacheable: count / 2, reserved: count / 4 };
        Arc::new(InstancePermits { state: Mutex::new(state), freed: Condvar::new() })
    }

    /// Takes a permit for a plugin of this world, waiting for one if necessary.
    pub(crate) fn acquire(self: &Arc<Self>, world: World) -> InstancePermit {
        let mut state = self.state.lock();
        let reserved = if world == World::LogAdaptor { state.reserved } else { 0 };
        while state.free <= reserved {
            self.freed.wait(&mut state);
        }
        state.free -= 1;
        InstancePermit(Arc::clone(self))
    }

    /// Takes a permit to cache an instance; `None` if half of the pool is cached already.
    pub(crate) fn try_acquire_cache(self: &Arc<Self>) -> Option<CachePermit> {
        let mut state = self.state.lock();
        state.cacheable = state.cacheable.checked_sub(1)?;
        Some(CachePermit(Arc::clone(self)))
    }
}

impl Drop for InstancePermit {
    fn drop(&mut self) {
        self.0.state.lock().free += 1;
        // Wake all threads: a single one might belong to an adaptor that must leave this permit to a policy.
        self.0.freed.notify_all();
    }
}

impl Drop for CachePermit {
    fn drop(&mut self) {
        self.0.state.lock().cacheable += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_permit_waits_for_one() {
        let permits = InstancePermits::new(1);
        let first = permits.acquire(World::ConflictRule);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(permits.acquire(World::LogAdaptor)));
            assert!(!second.is_finished());
            drop(first);
        });
        assert_eq!(permits.state.lock().free, 1);
    }

    #[test]
    fn a_quarter_of_the_permits_is_reserved_for_policies() {
        let permits = InstancePermits::new(4);
        let mut adaptors: Vec<_> = (0..3).map(|_| permits.acquire(World::LogAdaptor)).collect();
        std::thread::scope(|scope| {
            let fourth = scope.spawn(|| drop(permits.acquire(World::LogAdaptor)));
            drop(permits.acquire(World::IsolationValidator));
            assert!(!fourth.is_finished(), "a validator has a permit, an adaptor has none");
            adaptors.pop();
        });
    }

    #[test]
    fn at_most_half_of_the_instances_are_cached() {
        let permits = InstancePermits::new(3);
        let first = permits.try_acquire_cache().expect("one of three");
        assert!(permits.try_acquire_cache().is_none());
        drop(first);
        assert!(permits.try_acquire_cache().is_some());
        assert!(InstancePermits::new(1).try_acquire_cache().is_none(), "the only permit is for calls");
    }
}
