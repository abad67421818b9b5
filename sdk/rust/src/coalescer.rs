//! Limits the number of requests in flight; items that exceed the limit are queued and sent as one batch. Does not
//! interpret items, and never retries one.
//!
//! While nothing is in flight, an item is sent immediately and alone. A second request follows only if the first one
//! exceeds its head start: one batch of all queued items costs less than two. Callers await their own replies, so the
//! requests of one session stay in order. Requests are sent from separate tasks, which no caller can cancel.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Head start of every request: a response on loopback or within a datacenter returns earlier.
pub(crate) const HEAD_START: Duration = Duration::from_millis(5);

/// Maximum time that callers get to queue their next items before a batch is sent. They need microseconds, unless other
/// tasks keep the runtime busy.
const QUEUEING_MAX: Duration = Duration::from_millis(5);

/// Limits on the requests of one group in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests in flight at the same time.
    pub in_flight_max: usize,
    /// How long a request is in flight before another one may follow: the longest wait of an item because of a slow
    /// response.
    pub head_start: Duration,
    /// Items in one request.
    pub items_max: usize,
    /// Bytes in one request.
    pub bytes_max: usize,
}

/// An item that can share a request with other items.
pub(crate) trait Batchable: Send + 'static {
    /// Returns the item's group. Only items of the same group share a request. Each group has its own queue and limits.
    fn group(&self) -> &str {
        ""
    }
    /// Returns the item's id. Two items with the same id are never put into the same batch.
    fn id(&self) -> Option<&str> {
        None
    }
    /// Returns the bytes that the item takes up in a request.
    fn bytes(&self) -> usize;
}

/// Queues items while requests are in flight.
pub(crate) struct Coalescer<Item, Reply> {
    bounds: Bounds,
    groups: Mutex<Groups<Item, Reply>>,
    /// Notified when a request has returned and its callers have queued their next items.
    returned: Notify,
}

/// Groups with a worker.
type Groups<Item, Reply> = HashMap<String, Group<Item, Reply>>;

struct Group<Item, Reply> {
    workers: usize,
    /// Workers whose request is in flight.
    in_flight: usize,
    /// Requests that have returned.
    returned: u64,
    /// When a request was last sent or answered.
    active_at: Instant,
    queue: VecDeque<Entry<Item, Reply>>,
}

struct Entry<Item, Reply> {
    item: Item,
    reply: oneshot::Sender<Reply>,
}

impl<Item: Batchable, Reply: Send + 'static> Coalescer<Item, Reply> {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Coalescer { bounds, groups: Mutex::default(), returned: Notify::new() })
    }

    /// Sends an item, by itself or in a batch, and returns its reply; `None` if the runtime shut down first. `send`
    /// returns one reply per item, in order.
    pub(crate) async fn submit<Sent>(
        self: &Arc<Self>,
        item: Item,
        send: impl Fn(Vec<Item>) -> Sent + Send + 'static,
    ) -> Option<Reply>
    where
        Sent: Future<Output = Vec<Reply>> + Send + 'static,
    {
        let (reply, receiver) = oneshot::channel();
        if let Some(group) = self.enqueue(item, reply) {
            let worker = Worker { coalescer: Arc::clone(self), group, sends: false, is_over: false };
            tokio::spawn(worker.run(send));
        }
        receiver.await.ok()
    }

    /// If a request of a group is in flight, waits until one returns, at most for its head start.
    pub(crate) async fn until_returned(&self, group: &str) {
        let in_flight = |group: &Group<Item, Reply>| (group.in_flight > 0).then_some((group.returned, group.active_at));
        let Some((before, sent)) = self.groups().get(group).and_then(in_flight) else { return };
        loop {
            let returned = self.returned.notified();
            // The following request may already be in flight; waiting for it as well might never end.
            if self.groups().get(group).is_none_or(|group| group.in_flight == 0 || group.returned != before) {
                return;
            }
            if tokio::time::timeout_at(sent + self.bounds.head_start, returned).await.is_err() {
                return;
            }
        }
    }

    /// Queues an item. Returns its group if a worker has to be started for it.
    fn enqueue(&self, item: Item, reply: oneshot::Sender<Reply>) -> Option<String> {
        let mut groups = self.groups();
        if !groups.contains_key(item.group()) {
            let group =
                Group { workers: 0, in_flight: 0, returned: 0, active_at: Instant::now(), queue: VecDeque::new() };
            groups.insert(item.group().to_owned(), group);
        }
        let group = groups.get_mut(item.group())?;
        let starts = group.workers < self.bounds.in_flight_max;
        group.workers += usize::from(starts);
        let name = starts.then(|| item.group().to_owned());
        group.queue.push_back(Entry { item, reply });
        name
    }

    fn groups(&self) -> MutexGuard<'_, Groups<Item, Reply>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the requests of a group, one after another, until its queue is empty.
struct Worker<Item: Batchable, Reply: Send + 'static> {
    coalescer: Arc<Coalescer<Item, Reply>>,
    group: String,
    /// Whether its request is in flight.
    sends: bool,
    is_over: bool,
}

impl<Item: Batchable, Reply: Send + 'static> Worker<Item, Reply> {
    async fn run<Sent>(mut self, send: impl Fn(Vec<Item>) -> Sent)
    where
        Sent: Future<Output = Vec<Reply>>,
    {
        loop {
            while let Some(due) = self.not_before() {
                tokio::time::sleep_until(due).await;
            }
            let Some((items, callers)) = self.next_batch() else { return };
            for (caller, reply) in callers.into_iter().zip(send(items).await) {
                // The caller may no longer be waiting.
                let _ = caller.send(reply);
            }
            self.answered();
            self.let_callers_queue().await;
            self.returned();
        }
    }

    /// Returns the earliest time for the next request; `None` if it may be sent now.
    fn not_before(&self) -> Option<Instant> {
        let groups = self.coalescer.groups();
        let group = groups.get(&self.group)?;
        let due = group.active_at + self.coalescer.bounds.head_start;
        let must_wait = group.in_flight > 0 && !group.queue.is_empty() && Instant::now() < due;
        must_wait.then_some(due)
    }

    /// Renews the head start after a response; otherwise, after a slow response, the other worker would send the first
    /// caller's next item alone.
    fn answered(&self) {
        if let Some(group) = self.coalescer.groups().get_mut(&self.group) {
            group.active_at = Instant::now();
        }
    }

    /// Lets callers that just got their replies queue their next items: yields until the queue no longer grows, or a
    /// batch is full.
    async fn let_callers_queue(&self) {
        let (mut queued, mut unchanged, until) = (0, 0, Instant::now() + QUEUEING_MAX);
        while unchanged < 2 && queued < self.coalescer.bounds.items_max && Instant::now() < until {
            tokio::task::yield_now().await;
            let now = self.coalescer.groups().get(&self.group).map_or(0, |group| group.queue.len());
            unchanged = if now > queued { 0 } else { unchanged + 1 };
            queued = now;
        }
    }

    fn returned(&mut self) {
        self.sends = false;
        if let Some(group) = self.coalescer.groups().get_mut(&self.group) {
            group.in_flight -= 1;
            group.returned += 1;
        }
        self.coalescer.returned.notify_waiters();
    }

    /// Takes the next batch off the queue: the oldest items, within the bounds, each id once. Ends the worker if the
    /// queue is empty.
    fn next_batch(&mut self) -> Option<(Vec<Item>, Vec<oneshot::Sender<Reply>>)> {
        let coalescer = Arc::clone(&self.coalescer);
        let bounds = coalescer.bounds;
        let mut groups = coalescer.groups();
        let group = groups.get_mut(&self.group)?;
        group.queue.retain(|entry| !entry.reply.is_closed());
        let mut ids = HashSet::new();
        let (mut batch, mut rest, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        while let Some(entry) = group.queue.pop_front() {
            let more = entry.item.bytes();
            if batch.len() == bounds.items_max || !batch.is_empty() && bytes + more > bounds.bytes_max {
                group.queue.push_front(entry);
                break;
            }
            if entry.item.id().is_none_or(|id| ids.insert(id.to_owned())) {
                bytes += more;
                batch.push((entry.item, entry.reply));
            } else {
                rest.push_back(entry);
            }
        }
        rest.append(&mut group.queue);
        group.queue = rest;
        if batch.is_empty() {
            // Under the same lock: the next item must see that this worker has ended.
            self.end(&mut groups);
            return None;
        }
        group.in_flight += 1;
        self.sends = true;
        group.active_at = Instant::now();
        Some(batch.into_iter().unzip())
    }

    fn end(&mut self, groups: &mut Groups<Item, Reply>) {
        self.is_over = true;
        let Some(group) = groups.get_mut(&self.group) else { return };
        group.workers -= 1;
        group.in_flight -= usize::from(std::mem::take(&mut self.sends));
        if group.workers == 0 {
            groups.remove(&self.group);
        }
    }
}

impl<Item: Batchable, Reply: Send + 'static> Drop for Worker<Item, Reply> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The runtime is shutting down and has dropped the task. Without a worker, the queued items would never be
        // sent, so they are dropped with the group, and their callers get no reply instead of waiting.
        let coalescer = Arc::clone(&self.coalescer);
        self.end(&mut coalescer.groups());
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    const FOREVER: Duration = Duration::from_secs(3600);

    struct Number(u32);

    impl Batchable for Number {
        fn bytes(&self) -> usize {
            1
        }
    }

    /// A request that waits for its response.
    type Held = (Vec<u32>, oneshot::Sender<()>);

    /// A coalescer of numbers, and its requests.
    struct Service {
        coalescer: Arc<Coalescer<Number, u32>>,
        arrives: mpsc::UnboundedSender<Held>,
        arrived: mpsc::UnboundedReceiver<Held>,
    }

    impl Service {
        fn new(head_start: Duration) -> Service {
            let (arrives, arrived) = mpsc::unbounded_channel();
            let bounds = Bounds { in_flight_max: 2, head_start, items_max: 8, bytes_max: 8 };
            Service { coalescer: Coalescer::new(bounds), arrives, arrived }
        }

        /// Submits a number `times` times, each after the response to the previous one.
        fn submit(&self, number: u32, times: u32) {
            let (coalescer, arrives) = (Arc::clone(&self.coalescer), self.arrives.clone());
            tokio::spawn(async move {
                for _ in 0..times {
                    let arrives = arrives.clone();
                    let send = move |items: Vec<Number>| {
                        let (answer, answered) = oneshot::channel();
                        let numbers: Vec<u32> = items.iter().map(|Number(number)| *number).collect();
                        arrives.send((numbers.clone(), answer)).expect("the test runs");
                        async move {
                            answered.await.expect("the test answers");
                            numbers
                        }
                    };
                    assert_eq!(coalescer.submit(Number(number), send).await, Some(number));
                }
            });
        }

        async fn request(&mut self) -> Held {
            let arrived = timeout(Duration::from_secs(30), self.arrived.recv());
            arrived.await.expect("a request").expect("the service runs")
        }
    }

    #[tokio::test]
    async fn callers_that_were_answered_are_in_the_next_batch() {
        let mut service = Service::new(FOREVER);
        service.submit(0, 3);
        let (first, answer) = service.request().await;
        assert_eq!(first, [0], "an idle client sends at once");
        (1..4).for_each(|number| service.submit(number, 2));
        tokio::task::yield_now().await;
        answer.send(()).expect("it waits");
        for _ in 0..2 {
            let (mut batch, answer) = service.request().await;
            batch.sort_unstable();
            assert_eq!(batch, [0, 1, 2, 3]);
            answer.send(()).expect("it waits");
        }
    }

    #[tokio::test]
    async fn a_request_in_flight_is_waited_for_until_its_callers_have_queued() {
        let mut service = Service::new(FOREVER);
        let coalescer = Arc::clone(&service.coalescer);
        coalescer.until_returned("").await;
        service.submit(0, 1);
        let (_, answer) = service.request().await;
        let waits = tokio::spawn(async move { coalescer.until_returned("").await });
        service.submit(1, 1);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished(), "the request is in flight");
        answer.send(()).expect("it waits");
        timeout(Duration::from_secs(30), waits).await.expect("it has returned").expect("no panic");
    }

    #[tokio::test]
    async fn a_slow_request_is_waited_for_no_longer_than_its_head_start() {
        let head_start = Duration::from_secs(1);
        let mut service = Service::new(head_start);
        let begun = Instant::now();
        service.submit(0, 1);
        let (_, _held) = service.request().await;
        service.coalescer.until_returned("").await;
        assert!(begun.elapsed() >= head_start, "it waited for {:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn callers_of_a_slow_response_are_in_one_batch() {
        let head_start = Duration::from_secs(1);
        let mut service = Service::new(head_start);
        service.submit(0, 1);
        let (_, first) = service.request().await;
        (1..5).for_each(|number| service.submit(number, 2));
        let (batch, slow) = service.request().await;
        assert_eq!(batch, [1, 2, 3, 4]);
        first.send(()).expect("it waits");
        tokio::time::sleep(2 * head_start).await;
        slow.send(()).expect("it waits");
        let (mut batch, answer) = service.request().await;
        batch.sort_unstable();
        assert_eq!(batch, [1, 2, 3, 4]);
        answer.send(()).expect("it waits");
    }

    #[tokio::test]
    async fn a_second_request_follows_only_a_slow_one() {
        let head_start = Duration::from_secs(1);
        let mut service = Service::new(head_start);
        let begun = Instant::now();
        service.submit(0, 1);
        let (_, first) = service.request().await;
        service.submit(1, 1);
        service.submit(2, 1);
        let (second, _held) = service.request().await;
        assert!(begun.elapsed() >= head_start, "it followed after {:?}", begun.elapsed());
        assert_eq!(second, [1, 2]);
        service.submit(3, 1);
        tokio::task::yield_now().await;
        assert!(service.arrived.try_recv().is_err(), "two are in flight");
        first.send(()).expect("it waits");
        assert_eq!(service.request().await.0, [3]);
    }
}
