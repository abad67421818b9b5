//! Counts the instances alive, so that the pool is never asked for more than it has: who finds none waits.
//!
//! An instance at rest keeps its place. At most half of the places may rest, so that who waits waits for calls only,
//! which are bounded by fuel. A quarter is kept for rules and validators: an adaptor's call may take long, and an epoch must
//! not wait for it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::world::World;

/// The places of a pool.
#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    free: u32,
    /// How many more may rest.
    rests: u32,
    /// Places that adaptors leave to others.
    reserved: u32,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

/// Leave to rest; given back when dropped.
#[derive(Debug)]
pub(crate) struct Rest(Arc<Slots>);

impl Slots {
    pub(crate) fn new(count: u32) -> Arc<Slots> {
        let state = State { free: count, rests: count / 2, reserved: count / 4 };
        Arc::new(Slots { state: Mutex::new(state), freed: Condvar::new() })
    }

    /// Takes a place for a plugin of this world, waiting for one if need be.
    pub(crate) fn take(self: &Arc<Self>, world: World) -> Slot {
        let mut state = self.state.lock();
        let left = if world == World::LogAdaptor { state.reserved } else { 0 };
        while state.free <= left {
            self.freed.wait(&mut state);
        }
        state.free -= 1;
        Slot(Arc::clone(self))
    }

    /// Lets one more instance rest; `None` if as many do as may.
    pub(crate) fn rest(self: &Arc<Self>) -> Option<Rest> {
        let mut state = self.state.lock();
        state.rests = state.rests.checked_sub(1)?;
        Some(Rest(Arc::clone(self)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.state.lock().free += 1;
        // Whoever is woken may be one who has to leave this place to others.
        self.0.freed.notify_all();
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.state.lock().rests += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_place_waits_for_one() {
        let slots = Slots::new(1);
        let first = slots.take(World::ConflictRule);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(slots.take(World::LogAdaptor)));
            assert!(!second.is_finished());
            drop(first);
        });
        assert_eq!(slots.state.lock().free, 1);
    }

    #[test]
    fn adaptors_leave_a_quarter_of_the_places_to_what_decides() {
        let slots = Slots::new(4);
        let mut adaptors: Vec<_> = (0..3).map(|_| slots.take(World::LogAdaptor)).collect();
        std::thread::scope(|scope| {
            let fourth = scope.spawn(|| drop(slots.take(World::LogAdaptor)));
            drop(slots.take(World::IsolationValidator));
            assert!(!fourth.is_finished(), "a validator had a place, an adaptor has none");
            adaptors.pop();
        });
    }

    #[test]
    fn at_most_half_of_the_places_rest() {
        let slots = Slots::new(3);
        let first = slots.rest().expect("one of three");
        assert!(slots.rest().is_none());
        drop(first);
        assert!(slots.rest().is_some());
        assert!(Slots::new(1).rest().is_none(), "the only place is for calls");
    }
}
