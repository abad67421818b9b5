//! Threads that each drive their own connections, with an event queue and a run queue that no other thread touches.
//!
//! A commit waits twice, for its body and for its verdict, and otherwise costs a few microseconds. On work-sharing
//! threads, each of these waits ends on any idle thread: queues are locked, another thread is woken to steal half of
//! the tasks, and memory moves between caches. On a lane, one thread reads, parses and answers a connection. The price:
//! a lane gets no help. So long work must not run here; [`FastPath`](crate::listener::fast_path::FastPath) sends it to
//! the work-sharing threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tribunal_service::Lane;

/// All lanes of a server. They end when this is dropped.
#[derive(Debug)]
pub struct Lanes(Vec<LaneThread>);

#[derive(Debug)]
struct LaneThread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A connection's seat on a lane, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The lane.
    pub lane: Lane,
    connections: Arc<AtomicUsize>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// Starts `count` lanes.
    ///
    /// # Errors
    /// If the system provides no threads or descriptors for them.
    pub fn start(count: usize) -> io::Result<Lanes> {
        let lanes = (0..count).map(|_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (stop, stopped) = oneshot::channel::<()>();
            let run = move || {
                // Ends when signalled, or when every sender is dropped.
                let _ = runtime.block_on(stopped);
            };
            let thread = std::thread::Builder::new().name("http".to_owned()).spawn(run)?;
            Ok(LaneThread { runtime: handle, connections: Arc::default(), stop: Some(stop), thread: Some(thread) })
        });
        lanes.collect::<io::Result<_>>().map(Lanes)
    }

    /// Returns the runtime of each lane, by index.
    #[must_use]
    pub fn runtimes(&self) -> Vec<Handle> {
        self.0.iter().map(|lane| lane.runtime.clone()).collect()
    }

    /// Takes a seat on the lane with the fewest connections; `None` if there are no lanes.
    pub(crate) fn seat(&self) -> Option<(&Handle, Seat)> {
        let load = |(_, lane): &(usize, &LaneThread)| lane.connections.load(Ordering::Relaxed);
        let (index, lane) = self.0.iter().enumerate().min_by_key(load)?;
        lane.connections.fetch_add(1, Ordering::Relaxed);
        Some((&lane.runtime, Seat { lane: Lane(index), connections: Arc::clone(&lane.connections) }))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // Signal all lanes before joining the first.
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
    fn connections_spread_over_lanes_and_free_their_seats() {
        let lanes = Lanes::start(2).unwrap();
        let thread_of = |runtime: &Handle| {
            let (told, here) = std::sync::mpsc::channel();
            runtime.spawn(async move { told.send(std::thread::current().id()).unwrap() });
            here.recv().unwrap()
        };
        let (runtime, first) = lanes.seat().unwrap();
        let thread = thread_of(runtime);
        let (runtime, second) = lanes.seat().unwrap();
        assert_ne!((first.lane, thread), (second.lane, thread_of(runtime)));
        let left = first.lane;
        drop(first);
        let (runtime, third) = lanes.seat().unwrap();
        assert_eq!((third.lane, thread_of(runtime)), (left, thread), "the place that was left");
        assert!(Lanes::start(0).unwrap().seat().is_none());
    }
}
