//! Redis with WATCH, MULTI and EXEC: optimistic as Tribunal is, one thread, every write synced to the append-only file
//! before it is acknowledged.
//!
//! A transaction watches and reads its rows in one round trip, then queues its writes and executes them in a second
//! one. A transaction that only reads is one MGET, which is atomic by itself; a counter is one INCR.

use std::net::TcpStream;
use std::path::Path;

use memchr::memchr;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::error::BenchError;
use tribunal_bench::options::Shape;
use tribunal_bench::wire::write_decimal;
use tribunal_bench::workload::{Change, Plan};

use crate::key;
use crate::process::{Place, Process, command};
use crate::session::{Client, Outcome, Session};
use crate::talk::Talk;

/// Starts a server that syncs every write.
///
/// # Errors
/// If `redis-server` is not there or does not start.
pub fn start(parent: &Path) -> Result<Process, BenchError> {
    let place = Place::find("redis", parent)?;
    let mut server = command(Path::new("redis-server"), None);
    server.args(["--bind", "127.0.0.1", "--port", &place.addr.port().to_string(), "--dir"]).arg(place.folder.path());
    server.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    // No rewrite of the append-only file in the middle of a turn.
    server.args(["--auto-aof-rewrite-percentage", "0"]);
    Process::start("redis", server, Signal::TERM, place)
}

/// Writes every row.
///
/// # Errors
/// If the server does not take them.
pub fn load(process: &Process, shape: &Shape) -> Result<(), BenchError> {
    let mut talk = Talk::connect(process.addr())?;
    let mut rng = SmallRng::seed_from_u64(shape.seed ^ 1);
    let rows = u32::try_from(shape.rows).expect("rows were checked");
    let mut next = 0;
    while next < rows {
        let end = rows.min(next + 1000);
        let mut out = Vec::new();
        array(&mut out, 1 + 2 * (end - next) as usize);
        bulk(&mut out, b"MSET");
        for row in next..end {
            bulk(&mut out, &key::row(row));
            value(&mut out, shape.value_bytes, &mut rng);
        }
        next = end;
        talk.exchange(&out, |bytes| reply_end(bytes, 0))?;
    }
    Ok(())
}

/// Connects one client.
///
/// # Errors
/// If nobody listens.
pub fn client(process: &Process, shape: &Shape, seed: u64) -> Result<Client, BenchError> {
    let stream = TcpStream::connect(process.addr()).map_err(BenchError::io("connect to redis"))?;
    let session = RedisSession {
        value_bytes: shape.value_bytes,
        rng: SmallRng::seed_from_u64(seed),
        plan: Plan::default(),
        step: Step::Idle,
    };
    Ok(Client { stream, session: Box::new(session), slots: 1 })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// WATCH and MGET are under way.
    Reading,
    /// So many replies come before the one that decides.
    Deciding(usize),
}

struct RedisSession {
    value_bytes: usize,
    rng: SmallRng,
    plan: Plan,
    step: Step,
}

impl RedisSession {
    fn keys(&self, out: &mut Vec<u8>, name: &[u8]) {
        array(out, 1 + self.plan.reads.len());
        bulk(out, name);
        for row in &self.plan.reads {
            bulk(out, &key::row(*row));
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        let writes = std::mem::take(&mut self.plan.writes);
        if let [(row, Change::AddOne)] = writes[..] {
            array(out, 2);
            bulk(out, b"INCR");
            bulk(out, &key::hot(row));
            self.step = Step::Deciding(0);
            return;
        }
        array(out, 1);
        bulk(out, b"MULTI");
        for (row, _) in &writes {
            array(out, 3);
            bulk(out, b"SET");
            bulk(out, &key::row(*row));
            value(out, self.value_bytes, &mut self.rng);
        }
        array(out, 1);
        bulk(out, b"EXEC");
        self.step = Step::Deciding(1 + writes.len());
    }
}

impl Session for RedisSession {
    fn begin(&mut self, _slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plan = plan;
        if self.plan.reads.is_empty() {
            self.write(out);
        } else if self.plan.writes.is_empty() {
            self.keys(out, b"MGET");
            self.step = Step::Deciding(0);
        } else {
            self.keys(out, b"WATCH");
            self.keys(out, b"MGET");
            self.step = Step::Reading;
        }
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let before = match self.step {
            Step::Idle => return Err(BenchError::Reply("Redis speaks unasked")),
            Step::Reading => 1,
            Step::Deciding(before) => before,
        };
        let mut at = 0;
        for _ in 0..before {
            let Some(end) = reply_end(bytes, at)? else { return Ok(0) };
            at = end;
        }
        let Some(end) = reply_end(bytes, at)? else { return Ok(0) };
        if self.step == Step::Reading {
            self.write(out);
        } else {
            self.step = Step::Idle;
            let lost = bytes[at..].starts_with(b"*-1");
            done.push((0, if lost { Outcome::Aborted("watched_row_changed") } else { Outcome::Committed }));
        }
        Ok(end)
    }
}

fn array(out: &mut Vec<u8>, items: usize) {
    out.push(b'*');
    write_decimal(out, items as u64);
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    write_decimal(out, bytes.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn value(out: &mut Vec<u8>, bytes: usize, rng: &mut SmallRng) {
    out.push(b'$');
    write_decimal(out, bytes as u64);
    out.extend_from_slice(b"\r\n");
    key::text(out, bytes, rng);
    out.extend_from_slice(b"\r\n");
}

/// Returns where the reply that begins at `at` ends; `None` if it has not arrived whole.
///
/// # Errors
/// If it is an error, or no reply.
fn reply_end(bytes: &[u8], at: usize) -> Result<Option<usize>, BenchError> {
    let Some(line) = memchr(b'\n', &bytes[at..]) else { return Ok(None) };
    let (line, mut end) = (&bytes[at..at + line], at + line + 1);
    let no_reply = BenchError::Reply("no reply of Redis");
    let number = || std::str::from_utf8(line.get(1..)?).ok()?.trim_end().parse::<i64>().ok();
    match line.first() {
        Some(b'+' | b':') => Ok(Some(end)),
        Some(b'-') => Err(BenchError::Refused {
            what: "a command".to_owned(),
            answer: String::from_utf8_lossy(line).trim_end().to_owned(),
        }),
        Some(b'$') => {
            let length = number().ok_or(no_reply)?;
            let whole = end + usize::try_from(length + 2).unwrap_or(0);
            let whole = if length < 0 { end } else { whole };
            Ok(Some(whole).filter(|whole| *whole <= bytes.len()))
        }
        Some(b'*') => {
            for _ in 0..number().ok_or(no_reply)?.max(0) {
                match reply_end(bytes, end)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => Err(no_reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &str, expected: Option<usize>) {
        assert_eq!(reply_end(bytes.as_bytes(), 0).unwrap(), expected, "{bytes:?}");
    }

    #[test]
    fn the_end_of_a_reply_is_found() {
        check("+OK\r\n+OK\r\n", Some(5));
        check("+OK\r", None);
        check("$3\r\nabc\r\n", Some(9));
        check("$3\r\nab", None);
        check("$-1\r\n", Some(5));
        check("*2\r\n$1\r\na\r\n:7\r\n", Some(15));
        check("*2\r\n$1\r\na\r\n", None);
        check("*-1\r\n", Some(5));
        assert!(reply_end(b"-ERR no\r\n", 0).is_err());
    }

    #[test]
    fn a_lost_watch_is_an_abort_and_the_next_transaction_starts_over() {
        let mut session =
            RedisSession { value_bytes: 3, rng: SmallRng::seed_from_u64(1), plan: Plan::default(), step: Step::Idle };
        let plan = Plan { reads: vec![7], writes: vec![(8, Change::Text)] };
        let (mut out, mut done) = (Vec::new(), Vec::new());
        session.begin(0, plan, &mut out);
        assert!(out.starts_with(b"*2\r\n$5\r\nWATCH\r\n$11\r\nrow/0000007\r\n*2\r\n$4\r\nMGET\r\n"));
        out.clear();
        let read = b"+OK\r\n*1\r\n$1\r\nx\r\n";
        assert_eq!(session.receive(&read[..9], &mut out, &mut done).unwrap(), 0);
        assert_eq!(session.receive(read, &mut out, &mut done).unwrap(), read.len());
        assert!(out.starts_with(b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$11\r\nrow/0000008\r\n$3\r\n"));
        session.receive(b"+OK\r\n+QUEUED\r\n*-1\r\n", &mut out, &mut done).unwrap();
        assert_eq!(done, [(0, Outcome::Aborted("watched_row_changed"))]);
        assert!(session.receive(b"+OK\r\n", &mut out, &mut done).is_err());
    }
}
