//! Drives all clients of one turn from one thread with one epoll, in the same way for every peer: closed loop, one
//! transaction per client, and a new one as soon as the last one has ended, committed or not. All available replies are
//! processed before the next transactions begin, so that these use the replies' information.
//!
//! Latency is measured from a transaction's begin to its verdict, including reads, because the peers read through the
//! server.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};
use tribunal_bench::engine::latencies;
use tribunal_bench::error::BenchError;
use tribunal_bench::key::Row;
use tribunal_bench::machine::own_cpu;
use tribunal_bench::model::RowModel;
use tribunal_bench::workload::Planner;

use crate::session::{Client, Outcome};

/// How long unanswered transactions may delay the end of a turn.
const DRAIN: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;

/// Duration of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Initial unmeasured time.
    pub warmup: Duration,
    /// Subsequent measured time.
    pub measured: Duration,
}

/// Results of the measured time.
#[derive(Debug)]
pub struct Ran {
    /// Measured time.
    pub elapsed: Duration,
    /// Latency of each transaction, microseconds.
    pub latency_us: Histogram<u64>,
    /// Committed transactions.
    pub committed: u64,
    /// Aborted transactions by reason.
    pub aborted: BTreeMap<&'static str, u64>,
    /// CPU time of this process.
    pub client_cpu: Duration,
    /// CPU time of the peer.
    pub server_cpu: Duration,
}

impl Ran {
    /// Returns the figures at the start.
    #[must_use]
    pub fn nothing() -> Ran {
        Ran {
            elapsed: Duration::ZERO,
            latency_us: latencies(),
            committed: 0,
            aborted: BTreeMap::new(),
            client_cpu: Duration::ZERO,
            server_cpu: Duration::ZERO,
        }
    }

    /// Counts a transaction that has ended after `us` microseconds.
    pub fn count(&mut self, us: u64, outcome: Outcome) {
        self.latency_us.saturating_record(us);
        match outcome {
            Outcome::Committed => self.committed += 1,
            Outcome::Aborted(reason) => *self.aborted.entry(reason).or_default() += 1,
        }
    }
}

struct Connection {
    client: Client,
    out: Vec<u8>,
    sent: usize,
    inbox: Vec<u8>,
    filled: usize,
    began: Vec<Option<Instant>>,
    /// Rows that the transaction of each slot inserts.
    inserts: Vec<Vec<Row>>,
    waits_to_write: bool,
}

struct Engine<'p> {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    planner: &'p mut Planner,
    // Only the bank workload's plans use known rows, and no peer runs it.
    nothing_known: RowModel,
    under_way: usize,
    done: Vec<(usize, Outcome)>,
    /// Connections and slots whose transaction has ended.
    free: Vec<(usize, usize)>,
    ran: Ran,
}

/// Runs one turn; `server_cpu` returns the peer's CPU time so far.
///
/// # Errors
/// If a connection breaks, the peer violates its protocol, or transactions do not end.
pub fn run(
    clients: Vec<Client>,
    planner: &mut Planner,
    window: Window,
    server_cpu: &dyn Fn() -> Duration,
) -> Result<Ran, BenchError> {
    let mut engine = Engine::new(clients, planner)?;
    let begin = Instant::now();
    for index in 0..engine.connections.len() {
        for slot in 0..engine.connections[index].client.slots {
            engine.begin(index, slot);
        }
        engine.send(index)?;
    }
    engine.until(begin + window.warmup, true)?;
    engine.ran = Ran::nothing();
    let (start, client, server) = (Instant::now(), own_cpu(), server_cpu());
    engine.until(start + window.measured, true)?;
    let (elapsed, client, server) = (start.elapsed(), own_cpu() - client, server_cpu().saturating_sub(server));
    let mut measured = std::mem::replace(&mut engine.ran, Ran::nothing());
    (measured.elapsed, measured.client_cpu, measured.server_cpu) = (elapsed, client, server);
    engine.until(Instant::now() + DRAIN, false)?;
    if engine.under_way > 0 {
        return Err(BenchError::TooLate(format!(
            "{} transactions have not ended {} s after the turn",
            engine.under_way,
            DRAIN.as_secs()
        )));
    }
    Ok(measured)
}

impl<'p> Engine<'p> {
    fn new(clients: Vec<Client>, planner: &'p mut Planner) -> Result<Engine<'p>, BenchError> {
        let failed = |errno: rustix::io::Errno| BenchError::io("set up epoll")(errno.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let mut connections = Vec::with_capacity(clients.len());
        for (index, client) in clients.into_iter().enumerate() {
            let set_up = client.stream.set_nodelay(true).and_then(|()| client.stream.set_nonblocking(true));
            set_up.map_err(BenchError::io("set up a connection"))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &client.stream, data, epoll::EventFlags::IN).map_err(failed)?;
            connections.push(Connection {
                began: vec![None; client.slots],
                inserts: vec![Vec::new(); client.slots],
                client,
                out: Vec::new(),
                sent: 0,
                inbox: vec![0; READ_BYTES],
                filled: 0,
                waits_to_write: false,
            });
        }
        Ok(Engine {
            epoll,
            connections,
            planner,
            nothing_known: RowModel::new(0, 0),
            under_way: 0,
            done: Vec::new(),
            free: Vec::new(),
            ran: Ran::nothing(),
        })
    }

    /// Runs until `end`, or, if no new transactions are to begin, until none is in flight.
    fn until(&mut self, end: Instant, again: bool) -> Result<(), BenchError> {
        let mut events = Vec::with_capacity(self.connections.len());
        while self.under_way > 0 {
            let now = Instant::now();
            if now >= end {
                break;
            }
            let timeout = Timespec::try_from((end - now).min(Duration::from_millis(200))).expect("seconds fit");
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(BenchError::io("wait for replies")(errno.into())),
            }
            for event in events.drain(..) {
                let index = usize::try_from(event.data.u64()).expect("an index of ours");
                self.ready(index)?;
            }
            let mut free = std::mem::take(&mut self.free);
            for (index, slot) in free.drain(..).filter(|_| again) {
                self.begin(index, slot);
                self.send(index)?;
            }
            self.free = free;
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, slot: usize) {
        let plan = self.planner.next(&self.nothing_known);
        let connection = &mut self.connections[index];
        connection.began[slot] = Some(Instant::now());
        connection.inserts[slot] = plan.inserts().collect();
        connection.client.session.begin(slot, plan, &mut connection.out);
        self.under_way += 1;
    }

    fn ready(&mut self, index: usize) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        let (inbox, filled) = (&mut connection.inbox, connection.filled);
        match connection.client.stream.read(&mut inbox[filled..]) {
            Ok(0) => return Err(BenchError::Reply("the peer closed a connection")),
            Ok(bytes) => connection.filled += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return self.send(index);
            }
            Err(error) => return Err(BenchError::io("read a reply")(error)),
        }
        let bytes = &connection.inbox[..connection.filled];
        let used = connection.client.session.receive(bytes, &mut connection.out, &mut self.done)?;
        connection.inbox.copy_within(used..connection.filled, 0);
        connection.filled -= used;
        if connection.filled == connection.inbox.len() {
            let room = connection.inbox.len() * 2;
            connection.inbox.resize(room, 0);
        }
        let mut done = std::mem::take(&mut self.done);
        for (slot, outcome) in done.drain(..) {
            self.end(index, slot, outcome)?;
            self.free.push((index, slot));
        }
        self.done = done;
        self.send(index)
    }

    fn end(&mut self, index: usize, slot: usize, outcome: Outcome) -> Result<(), BenchError> {
        let began = self.connections[index].began.get_mut(slot).and_then(Option::take);
        let began = began.ok_or(BenchError::Reply("an end of a transaction that was not under way"))?;
        self.under_way -= 1;
        self.planner.end_inserts(self.connections[index].inserts[slot].drain(..));
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.ran.count(us, outcome);
        Ok(())
    }

    fn send(&mut self, index: usize) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        while connection.sent < connection.out.len() {
            match connection.client.stream.write(&connection.out[connection.sent..]) {
                Ok(bytes) => connection.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::io("send a request")(error)),
            }
        }
        let waits = connection.sent < connection.out.len();
        if !waits {
            connection.out.clear();
            connection.sent = 0;
        }
        if waits != connection.waits_to_write {
            connection.waits_to_write = waits;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, waits);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.client.stream, data, flags)
                .map_err(|errno| BenchError::io("watch a connection")(errno.into()))?;
        }
        Ok(())
    }
}
