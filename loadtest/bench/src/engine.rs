//! Drives many connections from one thread: one epoll, one buffer per connection, no task switches.
//!
//! One thread, because a second one would take the server's core. Level-triggered, so that a short read needs no second
//! one to detect that nothing is left: two system calls per request, and one `epoll_wait` for all ready connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};

use crate::error::BenchError;
use crate::wire::{ReplyHead, read_head};

/// How long unanswered requests may delay the end of a run.
const DRAIN: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 16 * 1024;

/// Connections made without a pause: the usual backlog of a listener while its process is busy. Further ones would be
/// dropped, and the kernel would retry after a second.
const CONNECT_AT_ONCE: usize = 64;
const CONNECT_PAUSE: Duration = Duration::from_millis(2);

/// The requests to send, and the processing of the replies.
pub trait Traffic {
    /// State to keep until the reply.
    type InFlight;

    /// Appends one complete request; `None` if there is nothing more to send.
    fn request(&mut self, out: &mut Vec<u8>) -> Option<Self::InFlight>;

    /// Returns how long to hold back the latest request: an engine may take its time between reading and committing.
    fn hold(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Processes a reply.
    fn reply(&mut self, request: Self::InFlight, status: u16, body: &[u8]);
}

/// Returns an empty histogram of latencies from one microsecond to ten minutes, three digits.
///
/// # Panics
/// Never: the bounds are valid.
#[must_use]
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds are valid")
}

/// Start times of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Each connection sends as soon as its reply has arrived.
    Closed,
    /// This many requests per second are due, regardless of the replies. A request that finds no free connection waits,
    /// and its latency counts from when it was due: a slow client cannot hide a slow server.
    Open {
        /// Requests per second.
        per_second: f64,
    },
}

/// Results of a run.
#[derive(Debug)]
pub struct Ran {
    /// Time from the first request to the last reply.
    pub elapsed: Duration,
    /// Latency of each request, microseconds.
    pub latency_us: Histogram<u64>,
    /// Requests that were due but found no connection before the end; their wait is in `latency_us`.
    pub unsent: u64,
}

struct Connection<F> {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    inbox: Vec<u8>,
    filled: usize,
    head: Option<ReplyHead>,
    in_flight: Option<(F, Instant)>,
    waits_to_write: bool,
}

struct Engine<'t, T: Traffic> {
    epoll: OwnedFd,
    connections: Vec<Connection<T::InFlight>>,
    idle: VecDeque<usize>,
    held: BinaryHeap<Reverse<(Instant, usize)>>,
    traffic: &'t mut T,
    exhausted: bool,
    latency_us: Histogram<u64>,
}

/// Sends `traffic` for `duration`, or until it is exhausted, then waits for the replies in flight.
///
/// # Errors
/// If a connection breaks, or replies are missing long after the end.
pub fn run<T: Traffic>(
    traffic: &mut T,
    addr: SocketAddr,
    connections: usize,
    pacing: Pacing,
    duration: Duration,
) -> Result<Ran, BenchError> {
    let mut engine = Engine::connect(traffic, addr, connections)?;
    let start = Instant::now();
    let end = start + duration;
    let mut due = Due::new(pacing, start);
    let mut events = Vec::with_capacity(connections);
    loop {
        let mut now = Instant::now();
        engine.release(now)?;
        while let Some(at) = due.peek(now)
            && at < end
            && !engine.exhausted
        {
            let Some(connection) = engine.idle.pop_front() else { break };
            engine.issue(connection, at)?;
            due.advance();
            now = Instant::now();
        }
        let busy = engine.connections.len() - engine.idle.len();
        if busy == 0 && (now >= end || engine.exhausted) {
            break;
        }
        if now > end + DRAIN {
            return Err(BenchError::TooLate(format!(
                "{busy} requests without an answer {} s after the end",
                DRAIN.as_secs()
            )));
        }
        let mut wait = due.wait(now, end, !engine.idle.is_empty());
        if let Some(Reverse((at, _))) = engine.held.peek() {
            wait = wait.min(at.saturating_duration_since(now));
        }
        epoll_wait(&engine.epoll, &mut events, wait)?;
        for event in events.drain(..) {
            let connection = usize::try_from(event.data.u64()).expect("an index of ours");
            engine.ready(connection)?;
        }
    }
    let unsent = if engine.exhausted { 0 } else { due.settle(end, &mut engine.latency_us) };
    Ok(Ran { elapsed: start.elapsed(), latency_us: engine.latency_us, unsent })
}

fn epoll_wait(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, wait: Duration) -> Result<(), BenchError> {
    let timeout = Timespec::try_from(wait).expect("seconds fit");
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(BenchError::io("wait for replies")(errno.into())),
    }
}

/// Determines the next due request.
struct Due {
    interval: Option<Duration>,
    start: Instant,
    issued: u64,
}

impl Due {
    fn new(pacing: Pacing, start: Instant) -> Due {
        let interval = match pacing {
            Pacing::Closed => None,
            Pacing::Open { per_second } => Some(Duration::from_secs_f64(1.0 / per_second)),
        };
        Due { interval, start, issued: 0 }
    }

    fn next(&self, interval: Duration) -> Instant {
        // Not a sum of intervals, whose rounding errors would accumulate.
        self.start + Duration::from_nanos((interval.as_nanos() as f64 * self.issued as f64) as u64)
    }

    fn peek(&self, now: Instant) -> Option<Instant> {
        match self.interval {
            None => Some(now),
            Some(interval) => Some(self.next(interval)).filter(|due| *due <= now),
        }
    }

    fn advance(&mut self) {
        self.issued += 1;
    }

    fn wait(&self, now: Instant, end: Instant, has_idle: bool) -> Duration {
        let until_end = end.saturating_duration_since(now).max(Duration::from_millis(100)).min(Duration::from_secs(1));
        match self.interval {
            Some(interval) if has_idle => self.next(interval).saturating_duration_since(now).min(until_end),
            _ => until_end,
        }
    }

    /// Counts the requests that were due before `end` and were never sent, and records how long they have waited.
    fn settle(&mut self, end: Instant, latency_us: &mut Histogram<u64>) -> u64 {
        let Some(interval) = self.interval else { return 0 };
        let mut unsent = 0;
        while self.next(interval) < end {
            latency_us.saturating_record(micros(self.next(interval).elapsed()));
            self.advance();
            unsent += 1;
        }
        unsent
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl<'t, T: Traffic> Engine<'t, T> {
    fn connect(traffic: &'t mut T, addr: SocketAddr, count: usize) -> Result<Engine<'t, T>, BenchError> {
        let failed = |errno: rustix::io::Errno| BenchError::io("set up epoll")(errno.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let mut connections = Vec::with_capacity(count);
        for index in 0..count {
            if index > 0 && index.is_multiple_of(CONNECT_AT_ONCE) {
                std::thread::sleep(CONNECT_PAUSE);
            }
            let stream = TcpStream::connect(addr).map_err(BenchError::io(format!("connect to {addr}")))?;
            let set_up = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
            set_up.map_err(BenchError::io("set up a connection"))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).map_err(failed)?;
            connections.push(Connection {
                stream,
                out: Vec::new(),
                sent: 0,
                inbox: vec![0; READ_BYTES],
                filled: 0,
                head: None,
                in_flight: None,
                waits_to_write: false,
            });
        }
        Ok(Engine {
            epoll,
            idle: (0..count).collect(),
            held: BinaryHeap::new(),
            connections,
            traffic,
            exhausted: false,
            latency_us: latencies(),
        })
    }

    fn issue(&mut self, index: usize, due: Instant) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        connection.out.clear();
        connection.sent = 0;
        let Some(request) = self.traffic.request(&mut connection.out) else {
            self.exhausted = true;
            self.idle.push_front(index);
            return Ok(());
        };
        let hold = self.traffic.hold();
        connection.in_flight = Some((request, due + hold));
        if hold.is_zero() {
            return self.send(index);
        }
        self.held.push(Reverse((due + hold, index)));
        Ok(())
    }

    /// Sends the requests whose hold time is over.
    fn release(&mut self, now: Instant) -> Result<(), BenchError> {
        while let Some(Reverse((at, index))) = self.held.peek().copied()
            && at <= now
        {
            self.held.pop();
            self.send(index)?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        while connection.sent < connection.out.len() {
            match connection.stream.write(&connection.out[connection.sent..]) {
                Ok(bytes) => connection.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::io("send a request")(error)),
            }
        }
        let waits = connection.sent < connection.out.len();
        if waits != connection.waits_to_write {
            connection.waits_to_write = waits;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, waits);
            epoll::modify(&self.epoll, &connection.stream, epoll::EventData::new_u64(index as u64), flags)
                .map_err(|errno| BenchError::io("watch a connection")(errno.into()))?;
        }
        Ok(())
    }

    fn ready(&mut self, index: usize) -> Result<(), BenchError> {
        if self.connections[index].waits_to_write {
            self.send(index)?;
        }
        let connection = &mut self.connections[index];
        match connection.stream.read(&mut connection.inbox[connection.filled..]) {
            Ok(0) => return Err(BenchError::Reply("the server closed a connection")),
            Ok(bytes) => connection.filled += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(error) => return Err(BenchError::io("read a reply")(error)),
        }
        if connection.head.is_none() {
            connection.head = read_head(&connection.inbox[..connection.filled])?;
        }
        let whole = connection.head.map(|head| head.head_len + head.body_len);
        if connection.filled == connection.inbox.len() && whole.is_none_or(|whole| whole > connection.filled) {
            let room = whole.unwrap_or(0).max(connection.inbox.len() * 2);
            connection.inbox.resize(room, 0);
        }
        match (connection.head, whole) {
            (Some(head), Some(whole)) if connection.filled >= whole => self.complete(index, head),
            _ => Ok(()),
        }
    }

    fn complete(&mut self, index: usize, head: ReplyHead) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        let (request, due) = connection.in_flight.take().ok_or(BenchError::Reply("a reply that nobody asked for"))?;
        self.latency_us.saturating_record(micros(due.elapsed()));
        let body = &connection.inbox[head.head_len..head.head_len + head.body_len];
        self.traffic.reply(request, head.status, body);
        connection.filled = 0;
        connection.head = None;
        self.idle.push_back(index);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    struct Numbered {
        left: u32,
        answered: Vec<(u32, u16, String)>,
    }

    impl Traffic for Numbered {
        type InFlight = u32;

        fn request(&mut self, out: &mut Vec<u8>) -> Option<u32> {
            self.left = self.left.checked_sub(1)?;
            // Larger than a socket's buffer, so that the writing side is tested, too.
            crate::wire::write_post(out, "h", &["/", &self.left.to_string()], &vec![b'x'; 3_000_000]);
            Some(self.left)
        }

        fn reply(&mut self, request: u32, status: u16, body: &[u8]) {
            self.answered.push((request, status, String::from_utf8(body.to_vec()).unwrap()));
        }
    }

    fn answer(stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let mut length = 0;
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let body = path.repeat(40_000);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            // Sent in pieces, so that the head is split.
            reader.get_mut().write_all(&head.as_bytes()[..10]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            reader.get_mut().write_all(&head.as_bytes()[10..]).unwrap();
            reader.get_mut().write_all(body.as_bytes()).unwrap();
        }
    }

    fn serve() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || answer(stream.unwrap()));
            }
        });
        addr
    }

    #[test]
    fn every_request_gets_its_own_reply() {
        for pacing in [Pacing::Closed, Pacing::Open { per_second: 500.0 }] {
            let mut traffic = Numbered { left: 12, answered: Vec::new() };
            let ran = run(&mut traffic, serve(), 3, pacing, Duration::from_secs(60)).unwrap();
            assert_eq!((ran.latency_us.len(), ran.unsent), (12, 0));
            let mut seen: Vec<_> = traffic.answered.iter().map(|(request, ..)| *request).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..12).collect::<Vec<_>>());
            for (request, status, body) in traffic.answered {
                assert_eq!((status, body), (200, format!("/{request}").repeat(40_000)));
            }
        }
    }

    #[test]
    fn unsent_requests_are_counted_with_their_wait() {
        let start = Instant::now();
        let end = start + Duration::from_millis(100);
        let mut due = Due::new(Pacing::Open { per_second: 1_000.0 }, start);
        for _ in 0..60 {
            due.advance();
        }
        let mut latency_us = latencies();
        assert_eq!(due.settle(end, &mut latency_us), 40);
        assert_eq!(latency_us.len(), 40);
        assert!(latency_us.max() < 600_000_000);
    }
}
