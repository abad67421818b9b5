//! The connections of unauthenticated callers, oldest first: closed when there is no room left.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::connection::Activity;

/// List length below which the list is never cleaned.
const ENTRIES_MIN: usize = 1024;

/// All connections that were strangers at the last check.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    queue: VecDeque<Weak<Activity>>,
    /// Length above which the list is cleaned again: twice the length after the last cleaning.
    clean_at: usize,
}

fn is_stranger(activity: &Weak<Activity>) -> bool {
    activity.upgrade().is_some_and(|activity| !activity.known().load(std::sync::atomic::Ordering::Relaxed))
}

impl Strangers {
    /// Adds a new connection.
    pub fn add(&self, activity: &Arc<Activity>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.queue.push_back(Arc::downgrade(activity));
        if list.queue.len() > list.clean_at.max(ENTRIES_MIN) {
            list.queue.retain(is_stranger);
            list.clean_at = 2 * list.queue.len();
        }
    }

    /// Closes the oldest stranger without a request in flight; returns whether there was one.
    pub fn evict(&self) -> bool {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..list.queue.len() {
            let Some(oldest) = list.queue.pop_front() else { return false };
            let Some(activity) = oldest.upgrade() else { continue };
            if activity.is_idle_stranger() {
                activity.evict();
                return true;
            }
            if is_stranger(&oldest) {
                list.queue.push_back(oldest);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn the_oldest_idle_stranger_is_closed() {
        let strangers = Strangers::default();
        let [gone, known, working, idle] = std::array::from_fn(|_| Arc::new(Activity::new()));
        for activity in [&gone, &known, &working, &idle] {
            strangers.add(activity);
        }
        drop(gone);
        known.known().store(true, Ordering::Relaxed);
        let request = working.request_began(false);
        assert!(strangers.evict(), "the idle one");
        assert!(!strangers.evict(), "the other one works");
        drop(request);
        assert!(strangers.evict());
        assert!(!strangers.evict());
    }

    #[test]
    fn connections_that_ended_are_forgotten() {
        let strangers = Strangers::default();
        for _ in 0..10 * ENTRIES_MIN {
            strangers.add(&Arc::new(Activity::new()));
        }
        assert!(strangers.0.lock().unwrap().queue.len() <= ENTRIES_MIN + 1);
    }
}
