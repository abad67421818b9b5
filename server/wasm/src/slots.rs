//! Counts the instances alive, so that the pool is never asked for more than it has: who finds none waits.
//!
//! An instance at rest keeps its place. At most half of the places may rest, so that who waits waits for calls only,
//! which are bounded by fuel.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

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
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

/// Leave to rest; given back when dropped.
#[derive(Debug)]
pub(crate) struct Rest(Arc<Slots>);

impl Slots {
    pub(crate) fn new(count: u32) -> Arc<Slots> {
        Arc::new(Slots { state: Mutex::new(State { free: count, rests: count / 2 }), freed: Condvar::new() })
    }

    /// Takes a place, waiting for one if need be.
    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        let mut state = self.state.lock();
        while state.free == 0 {
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
        self.0.freed.notify_one();
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
        let first = slots.take();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(slots.take()));
            assert!(!second.is_finished());
            drop(first);
        });
        assert_eq!(slots.state.lock().free, 1);
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
