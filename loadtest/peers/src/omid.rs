//! Omid's transaction status oracle, in memory: it is not durable, and only detects write-write conflicts. Everything
//! that it omits in comparison with Tribunal is in its favour.
//!
//! Its protocol is protobuf, with a four-byte length before each message; a client requests a timestamp, then the
//! commit of the cells that it writes. Many clients share a connection, as the threads of a process share Omid's own
//! client.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::path::Path;

use rustix::process::Signal;
use tribunal_bench::error::BenchError;
use tribunal_bench::plan::Plan;

use crate::process::{Place, Process, command};
use crate::session::{Client, Outcome, Session};
use crate::talk::Talk;

/// The modules without HBase and ZooKeeper. Allocating Omid's default conflict map of a hundred million cells takes
/// longer than a turn; sixteen million are sixteen per row.
const CONFIG: &str = "\
networkIfaceName: lo
conflictMapSize: 16000000
commitTableStoreModule: !!org.apache.omid.tso.InMemoryCommitTableStorageModule [ ]
timestampStoreModule: !!org.apache.omid.tso.InMemoryTimestampStorageModule [ ]
leaseModule: !!org.apache.omid.tso.VoidLeaseManagementModule [ ]
";

/// Starts the oracle with the jars in `lib`.
///
/// # Errors
/// If Java or a jar is missing, or the oracle does not start.
pub fn start(lib: &Path, parent: &Path) -> Result<Process, BenchError> {
    let place = Place::find("omid", parent)?;
    let config = format!("{CONFIG}port: {}\n", place.addr.port());
    std::fs::write(place.path("omid-server-configuration.yml"), config).map_err(BenchError::io("configure omid"))?;
    let mut server = command(Path::new("java"), None);
    let class_path = format!("{}:{}/*", place.folder.path().display(), lib.display());
    server.args(["-Xmx3g", "-cp", &class_path, "org.apache.omid.tso.TSOServer"]).current_dir(place.folder.path());
    Process::start("omid", server, Signal::TERM, place)
}

/// Connects `slots` clients that share a connection.
///
/// # Errors
/// If the address does not listen or the oracle rejects this client.
pub fn client(process: &Process, slots: usize) -> Result<Client, BenchError> {
    let mut talk = Talk::connect(process.addr())?;
    let mut hello = Vec::new();
    // A handshake without capabilities.
    frame(&mut hello, &[0x1a, 2, 0x0a, 0]);
    let reply = talk.exchange(&hello, |bytes| Ok(body(bytes).map(|body| 4 + body.len())))?;
    let greeting = Response::read(&reply[4..])?;
    if greeting != Response::Greeting(true) {
        return Err(BenchError::Reply("omid does not take this client"));
    }
    let session =
        OmidSession { plans: vec![Plan::default(); slots], starting: VecDeque::new(), deciding: BTreeMap::new() };
    Ok(Client { stream: talk.into_stream(), session: Box::new(session), slots })
}

struct OmidSession {
    plans: Vec<Plan>,
    /// Slots that have requested a timestamp. Timestamps arrive in order.
    starting: VecDeque<usize>,
    /// Slots that have requested a commit, by timestamp.
    deciding: BTreeMap<u64, usize>,
}

impl OmidSession {
    fn commit(&mut self, slot: usize, timestamp: u64, out: &mut Vec<u8>) {
        let mut request = vec![0x08];
        varint(&mut request, timestamp);
        for (row, _) in &self.plans[slot].writes {
            request.push(0x18);
            varint(&mut request, cell(*row));
        }
        // One table.
        request.extend_from_slice(&[0x20, 1]);
        let mut message = vec![0x12];
        varint(&mut message, request.len() as u64);
        message.extend_from_slice(&request);
        frame(out, &message);
        self.deciding.insert(timestamp, slot);
    }
}

impl Session for OmidSession {
    fn begin(&mut self, slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plans[slot] = plan;
        self.starting.push_back(slot);
        frame(out, &[0x0a, 0]);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let mut used = 0;
        while let Some(message) = body(&bytes[used..]) {
            used += 4 + message.len();
            match Response::read(message)? {
                Response::Timestamp(timestamp) => {
                    let slot =
                        self.starting.pop_front().ok_or(BenchError::Reply("a timestamp that nobody asked for"))?;
                    if self.plans[slot].writes.is_empty() {
                        // A transaction that only reads at its timestamp is decided once it has one.
                        done.push((slot, Outcome::Committed));
                    } else {
                        self.commit(slot, timestamp, out);
                    }
                }
                Response::Decision { timestamp, aborted } => {
                    let slot = self.deciding.remove(&timestamp);
                    let slot = slot.ok_or(BenchError::Reply("a decision that nobody asked for"))?;
                    done.push((slot, if aborted { Outcome::Aborted("write_conflict") } else { Outcome::Committed }));
                }
                Response::Greeting(_) => return Err(BenchError::Reply("omid greets twice")),
            }
        }
        Ok(used)
    }
}

/// Returns a cell's number, distributed as by a hash.
fn cell(row: u32) -> u64 {
    (u64::from(row) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1
}

fn frame(out: &mut Vec<u8>, message: &[u8]) {
    let length = u32::try_from(message.len()).expect("messages are short");
    out.write_all(&length.to_be_bytes()).and_then(|()| out.write_all(message)).expect("a Vec takes every byte");
}

/// Returns the first message's bytes; `None` if it has not arrived completely.
fn body(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    bytes.get(4..4 + length)
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[derive(Debug, PartialEq, Eq)]
enum Response {
    Timestamp(u64),
    Decision { timestamp: u64, aborted: bool },
    Greeting(bool),
}

impl Response {
    fn read(message: &[u8]) -> Result<Response, BenchError> {
        let broken = || BenchError::Reply("no response of omid");
        let (mut kind, mut inner) = (0, &[][..]);
        for (number, field) in fields(message) {
            if let Field::Bytes(bytes) = field {
                (kind, inner) = (number, bytes);
            }
        }
        let of = |wanted: u64| {
            fields(inner).find_map(|(number, field)| match field {
                Field::Number(value) if number == wanted => Some(value),
                _ => None,
            })
        };
        match kind {
            1 => Ok(Response::Timestamp(of(1).ok_or_else(broken)?)),
            2 => Ok(Response::Decision { timestamp: of(2).ok_or_else(broken)?, aborted: of(1).unwrap_or(0) != 0 }),
            3 => Ok(Response::Greeting(of(1).unwrap_or(0) != 0)),
            _ => Err(broken()),
        }
    }
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Yields number and content of each field, as far as they can be parsed.
fn fields(message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let tag = read_varint(message, &mut at)?;
        let value = read_varint(message, &mut at)?;
        match tag & 7 {
            0 => Some((tag >> 3, Field::Number(value))),
            2 => {
                let end = at.checked_add(usize::try_from(value).ok()?)?;
                let bytes = message.get(at..end)?;
                at = end;
                Some((tag >> 3, Field::Bytes(bytes)))
            }
            _ => None,
        }
    })
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tribunal_bench::plan::Change;

    use super::*;

    #[test]
    fn varints_survive_a_round_trip() {
        for number in [0, 1, 127, 128, 300, 1 << 35, u64::MAX] {
            let mut bytes = Vec::new();
            varint(&mut bytes, number);
            let mut at = 0;
            assert_eq!((read_varint(&bytes, &mut at), at), (Some(number), bytes.len()));
        }
    }

    #[test]
    fn timestamps_come_in_order_and_decisions_by_timestamp() {
        let mut session =
            OmidSession { plans: vec![Plan::default(); 2], starting: VecDeque::new(), deciding: BTreeMap::new() };
        let (mut out, mut done) = (Vec::new(), Vec::new());
        for slot in [1, 0] {
            session.begin(slot, Plan { writes: vec![(7, Change::Text)], ..Plan::default() }, &mut out);
        }
        let mut replies = Vec::new();
        frame(&mut replies, &[0x0a, 2, 0x08, 50]);
        frame(&mut replies, &[0x0a, 2, 0x08, 60]);
        frame(&mut replies, &[0x12, 4, 0x08, 1, 0x10, 60]);
        frame(&mut replies, &[0x12, 4, 0x10, 50, 0x18, 70]);
        let used = session.receive(&replies[..replies.len() - 1], &mut out, &mut done).unwrap();
        session.receive(&replies[used..], &mut out, &mut done).unwrap();
        assert_eq!(done, [(0, Outcome::Aborted("write_conflict")), (1, Outcome::Committed)]);
    }
}
