//! Counts the instances alive, so that the pool is never asked for more than it has: who finds none waits.

use parking_lot::{Condvar, Mutex};

/// The free places of a pool.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<u32>,
    freed: Condvar,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot<'a>(&'a Slots);

impl Slots {
    pub(crate) fn new(count: u32) -> Slots {
        Slots { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Takes a place, waiting for one if need be. Calls are bounded by fuel, so the wait is, too.
    pub(crate) fn take(&self) -> Slot<'_> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.freed.wait(&mut free);
        }
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
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
        assert_eq!(*slots.free.lock(), 1);
    }
}
