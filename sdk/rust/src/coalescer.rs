//! Gathers requests that wait for a free flight, and sends them together. Knows nothing of what they ask for, and never
//! repeats one.
//!
//! A request that finds a free flight leaves at once and alone: there is no timer. Each caller awaits its own reply, so
//! the requests of one session keep their order. A flight is a task of its own: no caller can cancel it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Bounds of what is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests in flight at a time.
    pub flights_max: usize,
    /// Items of one request.
    pub items_max: usize,
    /// Bytes of one request.
    pub bytes_max: usize,
}

/// What can be sent together.
pub(crate) trait Gathers: Send + 'static {
    /// Two items with one id never leave together.
    fn id(&self) -> &str;
    /// Bytes that it needs in a request.
    fn bytes(&self) -> usize;
}

/// Gathers items while all flights are taken.
pub(crate) struct Coalescer<Item, Reply> {
    bounds: Bounds,
    state: Mutex<State<Item, Reply>>,
}

struct State<Item, Reply> {
    flights: usize,
    queue: VecDeque<Waiting<Item, Reply>>,
}

struct Waiting<Item, Reply> {
    item: Item,
    reply: oneshot::Sender<Reply>,
}

impl<Item: Gathers, Reply: Send + 'static> Coalescer<Item, Reply> {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Coalescer { bounds, state: Mutex::new(State { flights: 0, queue: VecDeque::new() }) })
    }

    /// Sends an item, alone or with others, and returns its reply; `None` if the runtime ended before it came. `send`
    /// returns one reply per item, in order.
    pub(crate) async fn ask<Sent>(
        self: &Arc<Self>,
        item: Item,
        send: impl Fn(Vec<Item>) -> Sent + Send + 'static,
    ) -> Option<Reply>
    where
        Sent: Future<Output = Vec<Reply>> + Send + 'static,
    {
        let (reply, comes) = oneshot::channel();
        let leaves = {
            let mut state = self.state();
            state.queue.push_back(Waiting { item, reply });
            let leaves = state.flights < self.bounds.flights_max;
            state.flights += usize::from(leaves);
            leaves
        };
        if leaves {
            let flight = Flight { coalescer: Arc::clone(self), is_over: false };
            tokio::spawn(flight.fly(send));
        }
        comes.await.ok()
    }

    fn state(&self) -> MutexGuard<'_, State<Item, Reply>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the requests in flight, until nothing waits.
struct Flight<Item: Gathers, Reply: Send + 'static> {
    coalescer: Arc<Coalescer<Item, Reply>>,
    is_over: bool,
}

impl<Item: Gathers, Reply: Send + 'static> Flight<Item, Reply> {
    async fn fly<Sent>(mut self, send: impl Fn(Vec<Item>) -> Sent)
    where
        Sent: Future<Output = Vec<Reply>>,
    {
        while let Some((items, callers)) = self.next() {
            for (caller, reply) in callers.into_iter().zip(send(items).await) {
                // The caller may have gone.
                let _ = caller.send(reply);
            }
            // Those that have their replies may have something to send next.
            tokio::task::yield_now().await;
        }
    }

    /// Takes what leaves next: the oldest, within the bounds, each id once. Ends the flight if there is nothing.
    fn next(&mut self) -> Option<(Vec<Item>, Vec<oneshot::Sender<Reply>>)> {
        let bounds = self.coalescer.bounds;
        let mut state = self.coalescer.state();
        state.queue.retain(|waiting| !waiting.reply.is_closed());
        let mut ids = HashSet::new();
        let (mut crew, mut rest, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        while let Some(waiting) = state.queue.pop_front() {
            let more = waiting.item.bytes();
            if crew.len() == bounds.items_max || !crew.is_empty() && bytes + more > bounds.bytes_max {
                state.queue.push_front(waiting);
                break;
            }
            if ids.insert(waiting.item.id().to_owned()) {
                bytes += more;
                crew.push((waiting.item, waiting.reply));
            } else {
                rest.push_back(waiting);
            }
        }
        rest.append(&mut state.queue);
        state.queue = rest;
        if crew.is_empty() {
            state.flights -= 1;
            drop(state);
            self.is_over = true;
            return None;
        }
        Some(crew.into_iter().unzip())
    }
}

impl<Item: Gathers, Reply: Send + 'static> Drop for Flight<Item, Reply> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The task was cancelled, with its runtime. Without a flight nobody would send what waits.
        let mut state = self.coalescer.state();
        state.flights -= 1;
        if state.flights == 0 {
            state.queue.clear();
        }
    }
}
