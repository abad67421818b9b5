//! Pending events, ordered by time, and in the order of planning at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of events. The heap has small keys: events are large, and stay in place.
#[derive(Debug)]
pub struct Queue<T> {
    /// Time in microseconds, sequence number, and place.
    keys: BinaryHeap<Reverse<(u64, u64, usize)>>,
    places: Vec<Option<T>>,
    free: Vec<usize>,
    planned: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { keys: BinaryHeap::new(), places: Vec::new(), free: Vec::new(), planned: 0 }
    }
}

impl<T> Queue<T> {
    /// Adds an event at a time in microseconds, after all events already added for that time.
    pub fn add(&mut self, time_us: u64, what: T) {
        self.planned += 1;
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(what);
        self.keys.push(Reverse((time_us, self.planned, place)));
    }

    /// Removes the next event, and returns it with its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((time_us, _, place)) = self.keys.pop()?;
        self.free.push(place);
        Some((time_us, self.places[place].take().expect("a key has its place")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_time_and_then_as_they_were_planned() {
        let mut queue = Queue::default();
        for (time_us, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            queue.add(time_us, what);
        }
        assert_eq!(queue.pop(), Some((3, 'a')));
        queue.add(4, 'x');
        queue.add(3, 'y');
        let rest = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect::<String>();
        assert_eq!(rest, "byxcd");
        assert_eq!(queue.pop(), None);
    }
}
