//! Redis with WATCH, MULTI and EXEC: optimistic like Tribunal, one thread, every write synced to the append-only file
//! before it is acknowledged.
//!
//! A transaction watches and reads its rows in one round trip, then queues its writes and executes them in a second
//! one. A read-only transaction is one MGET, which is atomic by itself; a counter is one INCR.
//!
//! Redis does not order its keys. For scans, there are additional sorted sets, as in YCSB's own Redis client, but of
//! 100 loaded rows each instead of one set, so that WATCH does not watch all inserts. A script reads sets and rows.

use std::path::Path;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::error::BenchError;
use tribunal_bench::key::Row;
use tribunal_bench::options::{Shape, Workload};
use tribunal_bench::plan::{Change, Plan};

use crate::key;
use crate::process::{Place, Process, command};
use crate::resp::{array, bulk, bulks, command_of, reply_end, value};
use crate::session::{Client, Outcome, Session};
use crate::talk::Talk;

/// Starts a server that syncs every write.
///
/// # Errors
/// If `redis-server` is missing or does not start.
pub fn start(parent: &Path) -> Result<Process, BenchError> {
    let place = Place::find("redis", parent)?;
    let mut server = command(Path::new("redis-server"), None);
    server.args(["--bind", "127.0.0.1", "--port", &place.addr.port().to_string(), "--dir"]).arg(place.folder.path());
    server.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    // Prevent rewrites of the append-only file during a turn.
    server.args(["--auto-aof-rewrite-percentage", "0"]);
    Process::start("redis", server, Signal::TERM, place)
}

/// Writes every row.
///
/// # Errors
/// If the server does not accept them.
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

/// Loaded rows per sorted set.
const BUCKET_ROWS: Row = 100;
/// Reads, for each start and count of ARGV, up to `count` rows from the two sets of KEYS that can contain them.
const SCAN: &str = "local rows = {}
for i = 1, #ARGV, 2 do
  local count = tonumber(ARGV[i + 1])
  local keys = redis.call('ZRANGEBYLEX', KEYS[i], '[' .. ARGV[i], '+', 'LIMIT', 0, count)
  if #keys < count then
    local more = redis.call('ZRANGEBYLEX', KEYS[i + 1], '-', '+', 'LIMIT', 0, count - #keys)
    for _, key in ipairs(more) do keys[#keys + 1] = key end
  end
  rows[#rows + 1] = #keys == 0 and {} or redis.call('MGET', unpack(keys))
end
return rows";

/// Adds every existing row to the sorted sets.
///
/// # Errors
/// If the server does not return its keys, or does not accept the sets.
pub fn index(process: &Process) -> Result<(), BenchError> {
    let mut talk = Talk::connect(process.addr())?;
    let mut cursor = b"0".to_vec();
    loop {
        let mut out = Vec::new();
        command_of(&mut out, &[b"SCAN", &cursor, b"MATCH", b"row/*", b"COUNT", b"2000"]);
        let found = talk.exchange(&out, |bytes| reply_end(bytes, 0))?;
        let mut found = bulks(&found);
        cursor = found.next().ok_or(BenchError::Reply("a SCAN of Redis without a cursor"))?.to_vec();
        out.clear();
        let mut added = 0;
        for key in found {
            let row = key::number(key).ok_or(BenchError::Reply("a row of Redis with another key"))?;
            command_of(&mut out, &[b"ZADD", &bucket(row, 0), b"0", key]);
            added += 1;
        }
        let end = |bytes: &[u8]| (0..added).try_fold(Some(0), |at, _| at.map_or(Ok(None), |at| reply_end(bytes, at)));
        talk.exchange(&out, end)?;
        if cursor == b"0" {
            return Ok(());
        }
    }
}

/// Connects one client.
///
/// # Errors
/// If the address does not listen.
pub fn client(process: &Process, shape: &Shape, seed: u64) -> Result<Client, BenchError> {
    let mut talk = Talk::connect(process.addr())?;
    let mut scan = None;
    if shape.workload == Workload::YcsbE {
        let mut out = Vec::new();
        command_of(&mut out, &[b"SCRIPT", b"LOAD", SCAN.as_bytes()]);
        let loaded = talk.exchange(&out, |bytes| reply_end(bytes, 0))?;
        let name = bulks(&loaded).next().ok_or(BenchError::Reply("a script of Redis without a name"))?;
        scan = Some(name.to_vec());
    }
    let session = RedisSession {
        value_bytes: shape.value_bytes,
        rng: SmallRng::seed_from_u64(seed),
        plan: Plan::default(),
        step: Step::Idle,
        scan,
    };
    Ok(Client { stream: talk.into_stream(), session: Box::new(session), slots: 1 })
}

/// Returns the key of a row's sorted set, or of one of the following sets.
fn bucket(row: Row, after: Row) -> Vec<u8> {
    format!("rows/{:05}", tribunal_bench::key::order(row).0 / BUCKET_ROWS + after).into_bytes()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// The number of replies that precede the last one to WATCH and reads.
    Reading(usize),
    /// The number of replies that precede the deciding one.
    Deciding(usize),
}

struct RedisSession {
    value_bytes: usize,
    rng: SmallRng,
    plan: Plan,
    step: Step,
    /// The script's name; `None` if there are no scans, and so no sorted sets.
    scan: Option<Vec<u8>>,
}

impl RedisSession {
    /// Watches the rows to read, and reads them; without WATCH if a single command reads all of them.
    fn read(&mut self, out: &mut Vec<u8>) {
        let (rows, scans) = (!self.plan.reads.is_empty(), !self.plan.scans.is_empty());
        let buckets: Vec<_> = self.plan.scans.iter().flat_map(|s| [bucket(s.start, 0), bucket(s.start, 1)]).collect();
        let alone = self.plan.writes.is_empty() && rows != scans;
        if !alone {
            let keys: Vec<_> = self.plan.reads.iter().map(|row| key::row(*row)).collect();
            array(out, 1 + keys.len() + buckets.len());
            bulk(out, b"WATCH");
            keys.iter().for_each(|key| bulk(out, key));
            buckets.iter().for_each(|bucket| bulk(out, bucket));
        }
        if rows {
            self.keys(out, b"MGET");
        }
        if let (true, Some(script)) = (scans, &self.scan) {
            array(out, 3 + buckets.len() + 2 * self.plan.scans.len());
            bulk(out, b"EVALSHA");
            bulk(out, script);
            bulk(out, buckets.len().to_string().as_bytes());
            buckets.iter().for_each(|bucket| bulk(out, bucket));
            for scan in &self.plan.scans {
                bulk(out, &key::row(scan.start));
                bulk(out, scan.count.to_string().as_bytes());
            }
        }
        let reads = usize::from(rows) + usize::from(scans);
        self.step = if alone { Step::Deciding(0) } else { Step::Reading(reads) };
    }

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
        command_of(out, &[b"MULTI"]);
        let mut queued = writes.len();
        for (row, change) in &writes {
            array(out, 3);
            bulk(out, b"SET");
            bulk(out, &key::row(*row));
            value(out, self.value_bytes, &mut self.rng);
            if *change == Change::Insert && self.scan.is_some() {
                command_of(out, &[b"ZADD", &bucket(*row, 0), b"0", &key::row(*row)]);
                queued += 1;
            }
        }
        command_of(out, &[b"EXEC"]);
        self.step = Step::Deciding(1 + queued);
    }
}

impl Session for RedisSession {
    fn begin(&mut self, _slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plan = plan;
        if self.plan.reads.is_empty() && self.plan.scans.is_empty() {
            self.write(out);
        } else {
            self.read(out);
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
            Step::Reading(before) | Step::Deciding(before) => before,
        };
        let mut at = 0;
        for _ in 0..before {
            let Some(end) = reply_end(bytes, at)? else { return Ok(0) };
            at = end;
        }
        let Some(end) = reply_end(bytes, at)? else { return Ok(0) };
        if matches!(self.step, Step::Reading(_)) {
            self.write(out);
        } else {
            self.step = Step::Idle;
            let lost = bytes[at..].starts_with(b"*-1");
            done.push((0, if lost { Outcome::Aborted("watched_row_changed") } else { Outcome::Committed }));
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use tribunal_bench::plan::Scan;

    use super::*;

    #[test]
    fn a_lost_watch_is_an_abort_and_the_next_transaction_starts_over() {
        let mut session = session(None);
        let plan = Plan { reads: vec![7], writes: vec![(8, Change::Text)], ..Plan::default() };
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

    fn session(scan: Option<Vec<u8>>) -> RedisSession {
        let rng = SmallRng::seed_from_u64(1);
        RedisSession { value_bytes: 3, rng, plan: Plan::default(), step: Step::Idle, scan }
    }

    #[test]
    fn a_scan_watches_its_sets_only_if_something_is_written() {
        let mut session = session(Some(b"sha".to_vec()));
        let (mut out, mut done) = (Vec::new(), Vec::new());
        let scans = vec![Scan { start: 250, count: 60 }];
        let read = "*7\r\n$7\r\nEVALSHA\r\n$3\r\nsha\r\n$1\r\n2\r\n$10\r\nrows/00002\r\n$10\r\nrows/00003\r\n";
        let text = |out: &[u8]| String::from_utf8(out.to_vec()).unwrap();
        session.begin(0, Plan { scans: scans.clone(), ..Plan::default() }, &mut out);
        let arguments = "$11\r\nrow/0000250\r\n$2\r\n60\r\n";
        assert_eq!(text(&out), read.to_owned() + arguments);
        session.receive(b"*1\r\n*1\r\n$1\r\nx\r\n", &mut out, &mut done).unwrap();
        assert_eq!(std::mem::take(&mut done), [(0, Outcome::Committed)]);

        out.clear();
        let row = tribunal_bench::key::inserted(250, 3);
        session.begin(0, Plan { scans, writes: vec![(row, Change::Insert)], ..Plan::default() }, &mut out);
        assert!(text(&out).starts_with("*3\r\n$5\r\nWATCH\r\n$10\r\nrows/00002\r\n$10\r\nrows/00003\r\n*7\r\n"));
        out.clear();
        session.receive(b"+OK\r\n*1\r\n*1\r\n$1\r\nx\r\n", &mut out, &mut done).unwrap();
        assert!(text(&out).contains("ZADD\r\n$10\r\nrows/00002\r\n$1\r\n0\r\n$15\r\nrow/0000250+003\r\n"));
        session.receive(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n", &mut out, &mut done).unwrap();
        assert_eq!(done, [(0, Outcome::Committed)]);
    }
}
