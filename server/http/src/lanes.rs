//! Threads that each drive connections of their own, with an event queue and a run queue that nobody else touches.
//!
//! A commit waits twice, for its body and for its verdict, and costs a few microseconds beside that. Among threads that
//! share their work each of these waits ends on whichever thread is free: queues are locked, the other thread is woken to
//! steal half of what came, and memory changes caches. On a lane a connection is read, parsed and answered by one thread.
//! The price: a lane has no help. So whatever takes long must not run here; [`Front`](crate::front::Front) sends it to the
//! threads that share.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

thread_local! {
    static HERE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the index of the lane that this thread is, if it is one.
#[must_use]
pub fn here() -> Option<usize> {
    HERE.get()
}

/// All lanes of a server. They end when this is dropped.
#[derive(Debug)]
pub struct Lanes(Vec<Lane>);

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A connection's place on a lane, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// Starts `count` lanes.
    ///
    /// # Errors
    /// If the system gives no threads or descriptors for them.
    pub fn start(count: usize) -> io::Result<Lanes> {
        let lanes = (0..count).map(|index| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (stop, stopped) = oneshot::channel::<()>();
            let run = move || {
                HERE.set(Some(index));
                // Ends by the word or by the end of whoever could say it.
                let _ = runtime.block_on(stopped);
            };
            let thread = std::thread::Builder::new().name("http".to_owned()).spawn(run)?;
            Ok(Lane { runtime: handle, connections: Arc::default(), stop: Some(stop), thread: Some(thread) })
        });
        lanes.collect::<io::Result<_>>().map(Lanes)
    }

    /// Returns where each lane runs tasks, by index.
    #[must_use]
    pub fn runtimes(&self) -> Vec<Handle> {
        self.0.iter().map(|lane| lane.runtime.clone()).collect()
    }

    /// Takes a seat on the lane with the fewest connections; `None` if there are no lanes.
    pub(crate) fn seat(&self) -> Option<(&Handle, Seat)> {
        let lane = self.0.iter().min_by_key(|lane| lane.connections.load(Ordering::Relaxed))?;
        lane.connections.fetch_add(1, Ordering::Relaxed);
        Some((&lane.runtime, Seat(Arc::clone(&lane.connections))))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // All are told before the first is waited for.
        self.0.iter_mut().for_each(|lane| drop(lane.stop.take()));
        for thread in self.0.iter_mut().filter_map(|lane| lane.thread.take()) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_spread_and_leave_their_places() {
        let lanes = Lanes::start(2).unwrap();
        let on = || {
            let (runtime, seat) = lanes.seat().unwrap();
            let (told, here) = std::sync::mpsc::channel();
            runtime.spawn(async move { told.send(super::here()).unwrap() });
            (here.recv().unwrap().unwrap(), seat)
        };
        let (first, seat) = on();
        let (second, _kept) = on();
        assert_ne!(first, second);
        drop(seat);
        assert_eq!(on().0, first, "the place that was left");
        assert_eq!(super::here(), None, "a test's thread is no lane");
        assert!(Lanes::start(0).unwrap().seat().is_none());
    }
}
