//! etcd through its JSON gateway, durable: a service that decides transactions posted as JSON, like Tribunal.
//!
//! A transaction reads its rows in one request and, if none of their revisions has changed, writes in a second one.
//! Reads of one request are atomic, so a transaction that only reads ends with them. A counter is read and written.

use std::net::TcpStream;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::error::BenchError;
use tribunal_bench::options::Shape;
use tribunal_bench::reply::number;
use tribunal_bench::wire::{read_head, write_decimal, write_post};
use tribunal_bench::workload::{Change, Plan};

use crate::key;
use crate::process::{Place, Process, command, free_addr};
use crate::session::{Client, Outcome, Session};
use crate::talk::Talk;

const PATH: &str = "/v3/kv/txn";
const REVISION: &[u8] = b"\"mod_revision\":\"";
/// Rows of one request while loading.
const LOAD_ROWS: u32 = 500;

/// Starts a cluster of one.
///
/// # Errors
/// If the binary is not there or does not start.
pub fn start(binary: &Path, parent: &Path) -> Result<Process, BenchError> {
    let place = Place::find("etcd", parent)?;
    let (clients, peers) = (format!("http://{}", place.addr), format!("http://{}", free_addr()?));
    let mut server = command(binary, None);
    server.args(["--name", "one", "--log-level", "error", "--data-dir"]).arg(place.path("data"));
    server.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    server.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    server.args(["--initial-cluster", &format!("one={peers}")]);
    server.args(["--max-txn-ops", &LOAD_ROWS.to_string(), "--quota-backend-bytes", "8589934592"]);
    Process::start("etcd", server, Signal::TERM, place)
}

/// Writes every row and one counter for each hot row.
///
/// # Errors
/// If the server does not take them.
pub fn load(process: &Process, shape: &Shape) -> Result<(), BenchError> {
    let mut talk = Talk::connect(process.addr())?;
    let mut rng = SmallRng::seed_from_u64(shape.seed ^ 1);
    let host = process.addr().to_string();
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
/// If nobody listens.
pub fn client(process: &Process, shape: &Shape, seed: u64) -> Result<Client, BenchError> {
    let stream = TcpStream::connect(process.addr()).map_err(BenchError::io("connect to etcd"))?;
    let session = EtcdSession {
        host: process.addr().to_string(),
        value_bytes: shape.value_bytes,
        rng: SmallRng::seed_from_u64(seed),
        plan: Plan::default(),
        read: Vec::new(),
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
    /// Keys that are read, then compared.
    read: Vec<[u8; key::KEY_BYTES]>,
    step: Step,
    body: Vec<u8>,
}

impl EtcdSession {
    fn post(&mut self, out: &mut Vec<u8>) {
        write_post(out, &self.host, &[PATH], &self.body);
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        self.body.clear();
        self.body.extend_from_slice(b"{\"success\":[");
        for (index, key) in self.read.iter().enumerate() {
            if index > 0 {
                self.body.push(b',');
            }
            self.body.extend_from_slice(b"{\"requestRange\":{\"key\":\"");
            encode(&mut self.body, key);
            self.body.extend_from_slice(b"\"}}");
        }
        self.body.extend_from_slice(b"]}");
        self.step = if self.plan.writes.is_empty() { Step::Deciding } else { Step::Reading };
        self.post(out);
    }

    fn write(&mut self, seen: &[u8], out: &mut Vec<u8>) -> Result<(), BenchError> {
        self.body.clear();
        self.body.extend_from_slice(b"{\"compare\":[");
        let mut revisions = memmem::find_iter(seen, REVISION).map(|at| number(&seen[at..], REVISION));
        for (index, key) in self.read.iter().enumerate() {
            let revision = revisions.next().flatten().ok_or(BenchError::Reply("a row of etcd without a revision"))?;
            if index > 0 {
                self.body.push(b',');
            }
            self.body.extend_from_slice(b"{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":\"");
            encode(&mut self.body, key);
            self.body.extend_from_slice(b"\",\"modRevision\":\"");
            write_decimal(&mut self.body, revision);
            self.body.extend_from_slice(b"\"}");
        }
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
        if self.read.is_empty() {
            // Nothing is compared, so nothing has to be read.
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
            Step::Reading => self.write(body, out)?,
            Step::Deciding => {
                // proto3: a false field is left out.
                let held = memmem::find(body, b"\"succeeded\":true").is_some();
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

fn counter(seen: &[u8]) -> Option<u64> {
    const VALUE: &[u8] = b"\"value\":\"";
    let value = &seen[memmem::find(seen, VALUE)? + VALUE.len()..];
    let value = STANDARD.decode(&value[..memchr::memchr(b'"', value)?]).ok()?;
    std::str::from_utf8(&value).ok()?.parse().ok()
}

/// Returns body and end of a reply; `None` if it has not arrived whole. Large ones come in chunks, which are
/// left as they are: what is looked for does not cross them, as etcd writes a reply in one piece.
fn whole(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, BenchError> {
    if let Some(head_len) = memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
        && memmem::find(&bytes[..head_len], b"Transfer-Encoding: chunked").is_some()
    {
        let end = memmem::find(&bytes[head_len..], b"\r\n0\r\n\r\n").map(|at| head_len + at + 7);
        return Ok(end.map(|end| (&bytes[head_len..end], end)));
    }
    let Some(head) = read_head(bytes)? else { return Ok(None) };
    let end = head.head_len + head.body_len;
    Ok((bytes.len() >= end).then(|| (&bytes[head.head_len..end], end)))
}

fn checked(reply: &[u8]) -> Result<(), BenchError> {
    if reply.starts_with(b"HTTP/1.1 200") {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&reply[..reply.len().min(600)]).into_owned();
    Err(BenchError::Refused { what: "a transaction".to_owned(), answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_come_with_a_length_or_in_chunks() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcX";
        assert_eq!(whole(plain).unwrap(), Some((&b"abc"[..], plain.len() - 1)));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(whole(chunked).unwrap().map(|found| found.1), Some(chunked.len()));
        assert_eq!(whole(&chunked[..chunked.len() - 1]).unwrap(), None);
    }

    #[test]
    fn a_counter_is_read_from_base64() {
        assert_eq!(counter(br#"{"kvs":[{"key":"aA==","value":"NDE="}]}"#), Some(41));
        assert_eq!(counter(b"{}"), None);
    }
}
