//! etcd through its JSON gateway, durable: a service that decides transactions posted as JSON, like Tribunal.
//!
//! A transaction reads its rows in one request and, if none of their revisions has changed, writes in a second one.
//! Reads of one request are atomic, so a read-only transaction ends with them. A counter is read and written. For a
//! scan, no row of the range that was read may have a newer revision than the scan.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::error::BenchError;
use tribunal_bench::key::Row;
use tribunal_bench::options::Shape;
use tribunal_bench::plan::{Change, Plan, Scan};
use tribunal_bench::reply::number;
use tribunal_bench::wire::{write_decimal, write_post};

use crate::etcd_replies::{KEY, answers, checked, counter, last_key, whole};
use crate::key::{self, Key};
use crate::process::{Place, Process, command, free_addr};
use crate::session::{Client, Outcome, Session};
use crate::talk::Talk;

const PATH: &str = "/v3/kv/txn";
const REVISION: &[u8] = b"\"mod_revision\":\"";
/// Rows per request while loading.
const LOAD_ROWS: u32 = 500;

/// Starts a cluster of one node.
///
/// # Errors
/// If the binary is missing or does not start.
pub fn start(binary: &Path, parent: &Path) -> Result<Process, BenchError> {
    let place = Place::find("etcd", parent)?;
    let (clients, peers) = (format!("http://{}", place.addr), format!("http://{}", free_addr()?));
    let mut server = command(binary, None);
    server.args(["--name", "one", "--log-level", "error", "--data-dir"]).arg(place.path("data"));
    server.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    server.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    server.args(["--initial-cluster", &format!("one={peers}")]);
    server.args(limits());
    Process::start("etcd", server, Signal::TERM, place)
}

/// Returns the flags that the number of rows requires.
#[must_use]
pub fn limits() -> [String; 4] {
    ["--max-txn-ops", &LOAD_ROWS.to_string(), "--quota-backend-bytes", "8589934592"].map(str::to_owned)
}

/// Writes every row, and one counter for each hot row.
///
/// # Errors
/// If the server does not accept them.
pub fn load(addr: SocketAddr, shape: &Shape) -> Result<(), BenchError> {
    let mut talk = Talk::connect(addr)?;
    let mut rng = SmallRng::seed_from_u64(shape.seed ^ 1);
    let host = addr.to_string();
    let rows = u32::try_from(shape.rows).expect("rows were checked");
    let hot = u32::try_from(shape.hot_rows).expect("rows were checked");
    let mut value = Vec::new();
    let mut puts: Vec<(Vec<u8>, Vec<u8>)> = (0..hot).map(|row| (key::hot(row).to_vec(), b"0".to_vec())).collect();
    for row in 0..rows {
        value.clear();
        key::text(&mut value, shape.value_bytes, &mut rng);
        puts.push((key::row(row).to_vec(), value.clone()));
        if puts.len() >= LOAD_ROWS as usize || row + 1 == rows {
            let mut body = b"{\"success\":[".to_vec();
            for (index, (key, value)) in puts.drain(..).enumerate() {
                put(&mut body, index, &key, &value);
            }
            body.extend_from_slice(b"]}");
            let mut out = Vec::new();
            write_post(&mut out, &host, &[PATH], &body);
            let reply = talk.exchange(&out, |bytes| Ok(whole(bytes)?.map(|(_, end)| end)))?;
            checked(&reply)?;
        }
    }
    Ok(())
}

/// Connects one client.
///
/// # Errors
/// If the address does not listen.
pub fn client(addr: SocketAddr, shape: &Shape, seed: u64) -> Result<Client, BenchError> {
    let stream = TcpStream::connect(addr).map_err(BenchError::io("connect to etcd"))?;
    let session = EtcdSession {
        host: addr.to_string(),
        value_bytes: shape.value_bytes,
        rng: SmallRng::seed_from_u64(seed),
        plan: Plan::default(),
        read: Vec::new(),
        rows: Row::try_from(shape.rows).expect("rows were checked"),
        step: Step::Idle,
        body: Vec::new(),
    };
    Ok(Client { stream, session: Box::new(session), slots: 1 })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Reading,
    Deciding,
}

struct EtcdSession {
    host: String,
    value_bytes: usize,
    rng: SmallRng,
    plan: Plan,
    /// Keys that are read and later compared.
    read: Vec<Key>,
    /// Loaded rows.
    rows: Row,
    step: Step,
    body: Vec<u8>,
}

impl EtcdSession {
    fn post(&mut self, out: &mut Vec<u8>) {
        write_post(out, &self.host, &[PATH], &self.body);
    }

    /// Returns an end of the range in which a scan finds its rows: the service counts all rows before it.
    fn bound(&self, scan: Scan) -> Vec<u8> {
        let end = scan.start + scan.count;
        if end < self.rows { key::row(end).to_vec() } else { b"row0".to_vec() }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        self.body.clear();
        self.body.extend_from_slice(b"{\"success\":[");
        for key in &self.read {
            self.body.extend_from_slice(b"{\"requestRange\":{\"key\":\"");
            encode(&mut self.body, key);
            self.body.extend_from_slice(b"\"}},");
        }
        for scan in &self.plan.scans {
            let bound = self.bound(*scan);
            self.body.extend_from_slice(b"{\"requestRange\":{\"key\":\"");
            encode(&mut self.body, &key::row(scan.start));
            self.body.extend_from_slice(b"\",\"rangeEnd\":\"");
            encode(&mut self.body, &bound);
            self.body.extend_from_slice(b"\",\"limit\":");
            write_decimal(&mut self.body, u64::from(scan.count));
            self.body.extend_from_slice(b"}},");
        }
        self.body.pop();
        self.body.extend_from_slice(b"]}");
        self.step = if self.plan.writes.is_empty() { Step::Deciding } else { Step::Reading };
        self.post(out);
    }

    /// Writes the conditions: revisions of rows, no newer ones in ranges, and no rows at the places of inserts.
    fn compare(&mut self, seen: &[u8]) -> Result<(), BenchError> {
        let mut found = answers(seen);
        let without = || BenchError::Reply("fewer answers of etcd than questions");
        for key in &self.read {
            let revision = number(found.next().ok_or_else(without)?, REVISION).unwrap_or(0);
            comparison(&mut self.body, "MOD\",\"result\":\"EQUAL", key, "modRevision", revision);
            self.body.extend_from_slice(b"},");
        }
        for scan in &self.plan.scans {
            let rows = found.next().ok_or_else(without)?;
            let whole = memmem::find_iter(rows, KEY).count() == scan.count as usize;
            let end = match last_key(rows) {
                Some(last) if whole => key::after(&last),
                _ => self.bound(*scan),
            };
            let revision = number(seen, b"\"revision\":\"").ok_or_else(without)?;
            comparison(&mut self.body, "MOD\",\"result\":\"LESS", &key::row(scan.start), "modRevision", revision + 1);
            self.body.extend_from_slice(b",\"rangeEnd\":\"");
            encode(&mut self.body, &end);
            self.body.extend_from_slice(b"\"},");
        }
        for row in self.plan.inserts() {
            comparison(&mut self.body, "VERSION\",\"result\":\"EQUAL", &key::row(row), "version", 0);
            self.body.extend_from_slice(b"},");
        }
        if self.body.ends_with(b",") {
            self.body.pop();
        }
        Ok(())
    }

    fn write(&mut self, seen: &[u8], out: &mut Vec<u8>) -> Result<(), BenchError> {
        self.body.clear();
        self.body.extend_from_slice(b"{\"compare\":[");
        self.compare(seen)?;
        self.body.extend_from_slice(b"],\"success\":[");
        let mut value = Vec::with_capacity(self.value_bytes);
        for (index, (row, change)) in self.plan.writes.iter().enumerate() {
            value.clear();
            if *change == Change::AddOne {
                let counted = counter(seen).ok_or(BenchError::Reply("a counter of etcd that is no number"))?;
                write_decimal(&mut value, counted + 1);
                put(&mut self.body, index, &key::hot(*row), &value);
            } else {
                key::text(&mut value, self.value_bytes, &mut self.rng);
                put(&mut self.body, index, &key::row(*row), &value);
            }
        }
        self.body.extend_from_slice(b"]}");
        self.step = Step::Deciding;
        self.post(out);
        Ok(())
    }
}

impl Session for EtcdSession {
    fn begin(&mut self, _slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plan = plan;
        self.read = self.plan.reads.iter().map(|row| key::row(*row)).collect();
        let added = self.plan.writes.iter().filter(|(_, change)| *change == Change::AddOne);
        self.read.extend(added.map(|(row, _)| key::hot(*row)));
        if self.read.is_empty() && self.plan.scans.is_empty() {
            // Nothing is compared, so nothing needs to be read.
            self.write(b"", out).expect("only what was read can be missing");
        } else {
            self.ask(out);
        }
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let Some((body, end)) = whole(bytes)? else { return Ok(0) };
        checked(&bytes[..end])?;
        match self.step {
            Step::Idle => return Err(BenchError::Reply("etcd speaks unasked")),
            Step::Reading => self.write(&body, out)?,
            Step::Deciding => {
                // proto3 omits a false field.
                let held = memmem::find(&body, b"\"succeeded\":true").is_some();
                done.push((0, if held { Outcome::Committed } else { Outcome::Aborted("revision_changed") }));
                self.step = Step::Idle;
            }
        }
        Ok(end)
    }
}

fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
}

fn put(out: &mut Vec<u8>, index: usize, key: &[u8], value: &[u8]) {
    if index > 0 {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"requestPut\":{\"key\":\"");
    encode(out, key);
    out.extend_from_slice(b"\",\"value\":\"");
    encode(out, value);
    out.extend_from_slice(b"\"}}");
}

/// Appends a comparison, whose object remains open.
fn comparison(out: &mut Vec<u8>, target: &str, key: &[u8], name: &str, value: u64) {
    out.extend_from_slice(b"{\"target\":\"");
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b"\",\"key\":\"");
    encode(out, key);
    out.extend_from_slice(b"\",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    write_decimal(out, value);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_compared_before_anything_is_written() {
        let mut session = EtcdSession {
            host: "h".to_owned(),
            value_bytes: 3,
            rng: SmallRng::seed_from_u64(1),
            plan: Plan::default(),
            read: Vec::new(),
            rows: 100,
            step: Step::Idle,
            body: Vec::new(),
        };
        let new = tribunal_bench::key::inserted(8, 1);
        let scans = vec![Scan { start: 7, count: 2 }, Scan { start: 99, count: 2 }];
        let mut out = Vec::new();
        session.begin(0, Plan { reads: vec![3, 4], scans, writes: vec![(new, Change::Insert)] }, &mut out);
        let body = |session: &EtcdSession| serde_json::from_slice::<serde_json::Value>(&session.body).unwrap();
        let encoded = |key: &[u8]| STANDARD.encode(key);
        let range = &body(&session)["success"][2]["requestRange"];
        let expected =
            serde_json::json!({"key": encoded(b"row/0000007"), "rangeEnd": encoded(b"row/0000009"), "limit": 2});
        assert_eq!(range, &expected);

        let kv = |key: &[u8]| format!(r#"{{"key":"{}","mod_revision":"5","value":"eA=="}}"#, encoded(key));
        let answer = |kvs: &[String]| {
            format!(r#"{{"response_range":{{"header":{{"revision":"9"}},"kvs":[{}]}}}}"#, kvs.join(","))
        };
        let answers = [
            answer(&[kv(b"row/0000003")]),
            r#"{"response_range":{"header":{"revision":"9"}}}"#.to_owned(),
            answer(&[kv(b"row/0000007"), kv(b"row/0000008")]),
            answer(&[kv(b"row/0000099")]),
        ];
        let seen = format!(r#"{{"header":{{"revision":"9"}},"responses":[{}]}}"#, answers.join(","));
        session.write(seen.as_bytes(), &mut out).unwrap();
        let compared = &body(&session)["compare"];
        let of = |key: &[u8], target: &str, result: &str, name: &str, value: &str| serde_json::json!({"target": target, "result": result, "key": encoded(key), name: value});
        let mut expected = [
            of(b"row/0000003", "MOD", "EQUAL", "modRevision", "5"),
            of(b"row/0000004", "MOD", "EQUAL", "modRevision", "0"),
            of(b"row/0000007", "MOD", "LESS", "modRevision", "10"),
            of(b"row/0000099", "MOD", "LESS", "modRevision", "10"),
            of(b"row/0000008+001", "VERSION", "EQUAL", "version", "0"),
        ];
        expected[2]["rangeEnd"] = encoded(b"row/0000008\0").into();
        expected[3]["rangeEnd"] = encoded(b"row0").into();
        assert_eq!(compared, &serde_json::json!(expected));
    }
}
