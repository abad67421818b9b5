//! An engine's side of a connection to Tribunal: it reads, unless it stores the rows, then posts its commits, and
//! learns from the verdicts.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use memchr::memmem;
use rand::rngs::SmallRng;
use tribunal_bench::body::{BodyWriter, mint_id};
use tribunal_bench::error::BenchError;
use tribunal_bench::key::Row;
use tribunal_bench::model::{RowModel, Versions};
use tribunal_bench::plan::{Plan, Scan};
use tribunal_bench::reply::{Decision, conflicts, decision, ended_before, items, number, range_end};
use tribunal_bench::wire::{read_head, write_decimal, write_post};

use crate::key;
use crate::session::{Outcome, Session, reason_of};
use crate::tribunal_stores::PUSHED;

/// The posting and learning common to every kind.
pub struct Post {
    host: String,
    bodies: BodyWriter,
    rows: Rc<RefCell<RowModel>>,
    rng: SmallRng,
    body: Vec<u8>,
}

impl Post {
    /// Creates the poster to `host`, with the knowledge of rows in `rows`.
    #[must_use]
    pub fn new(host: String, bodies: BodyWriter, rows: Rc<RefCell<RowModel>>, rng: SmallRng) -> Post {
        Post { host, bodies, rows, rng, body: Vec::new() }
    }

    fn commit(&mut self, plan: &Plan, seen: &impl Versions, out: &mut Vec<u8>) {
        self.body.clear();
        self.bodies.commit(&mut self.body, None, plan, seen, &mut self.rng);
        let mut text = [0; 36];
        let id = mint_id(unix_ms(), &mut self.rng, &mut text);
        write_post(out, &self.host, &["/v1/txns/", id, "/commit"], &self.body);
    }

    fn learn(&mut self, plan: &Plan, decided: Decision<'_>) -> Result<Outcome, BenchError> {
        match decided {
            Decision::Committed { version, epoch } => {
                let written: Vec<(Row, i64)> = plan.writes.iter().map(|(row, _)| (*row, 0)).collect();
                let mut rows = self.rows.borrow_mut();
                if !self.bodies.counts() {
                    rows.committed(epoch.unwrap_or(0), version.unwrap_or(0), &written);
                }
                Ok(Outcome::Committed)
            }
            Decision::Aborted { reason, object } => {
                let mut rows = self.rows.borrow_mut();
                rows.reached(ended_before(object));
                for (key, version) in conflicts(object) {
                    if let Some(row) = self.bodies.row_of(key) {
                        rows.conflicting(row, version);
                    }
                }
                Ok(Outcome::Aborted(reason_of(reason)))
            }
            Decision::Problem { code } => {
                Err(BenchError::Refused { what: "a transaction".to_owned(), answer: code.to_owned() })
            }
        }
    }
}

/// Appends a named list, unless it is empty.
fn list<T>(out: &mut Vec<u8>, opening: &str, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    for (index, item) in items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { opening.as_bytes() } else { b"," });
        write(out, item);
    }
    if !items.is_empty() {
        out.push(b']');
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Results of one transaction's reads over HTTP.
#[derive(Default)]
struct Seen {
    /// Versions of rows.
    rows: Vec<(Row, Option<u64>)>,
    /// Last rows of scans.
    scans: Vec<(Scan, Option<Row>)>,
    /// The epoch that all of them reflect.
    applied: u64,
}

impl Seen {
    fn clear(&mut self) {
        self.rows.clear();
        self.scans.clear();
    }
}

impl Versions for Seen {
    fn version(&self, row: Row) -> Option<u64> {
        self.rows.iter().find(|seen| seen.0 == row)?.1
    }

    fn last_epoch(&self) -> u64 {
        self.applied
    }

    fn last_of(&self, scan: Scan) -> Option<Row> {
        self.scans.iter().find(|seen| seen.0 == scan)?.1
    }

    fn scanned_at(&self) -> u64 {
        self.applied
    }
}

/// Posts one transaction at a time.
pub struct Single {
    post: Post,
    reads_over_http: bool,
    plan: Plan,
    seen: Seen,
    /// Whether the reply to the read is pending.
    reading: bool,
    /// The result of [`RowModel::posted`] for the commit.
    posted: u64,
}

impl Single {
    /// Creates a session that reads its rows over HTTP, or knows them.
    #[must_use]
    pub fn new(post: Post, reads_over_http: bool) -> Single {
        Single { post, reads_over_http, plan: Plan::default(), seen: Seen::default(), reading: false, posted: 0 }
    }

    fn commit(&mut self, out: &mut Vec<u8>) {
        let rows = Rc::clone(&self.post.rows);
        if self.reads_over_http {
            self.post.commit(&self.plan, &self.seen, out);
        } else {
            self.post.commit(&self.plan, &*rows.borrow(), out);
        }
        self.posted = rows.borrow_mut().posted();
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        self.reading = true;
        let body = &mut self.post.body;
        body.clear();
        body.push(b'{');
        list(body, "\"read\":[", &self.plan.reads, |body, row| {
            body.extend_from_slice(b"{\"key\":\"");
            body.extend_from_slice(&key::row(*row));
            body.extend_from_slice(b"\"}");
        });
        if !self.plan.reads.is_empty() && !self.plan.scans.is_empty() {
            body.push(b',');
        }
        list(body, "\"ranges\":[", &self.plan.scans, |body, scan| {
            body.extend_from_slice(b"{\"start\":\"");
            body.extend_from_slice(&key::row(scan.start));
            body.extend_from_slice(b"\",\"limit\":");
            write_decimal(body, u64::from(scan.count));
            body.push(b'}');
        });
        body.push(b'}');
        write_post(out, &self.post.host, &["/v1/stores/", PUSHED, "/rows/read"], &self.post.body);
    }

    fn read(&mut self, status: u16, body: &[u8]) -> Result<(), BenchError> {
        if status != 200 {
            let answer = format!("{status} {}", String::from_utf8_lossy(body));
            return Err(BenchError::Refused { what: "the rows".to_owned(), answer });
        }
        let ranges = memmem::find(body, b"\"ranges\":[").unwrap_or(body.len());
        let (rows, ranges) = body.split_at(ranges);
        let versions = items(rows).map(|row| number(row, b"\"version\":\""));
        self.seen.rows.extend(self.plan.reads.iter().copied().zip(versions));
        let last = items(ranges).map(|range| match range_end(range) {
            (Some(key), true) => key::number(key),
            _ => None,
        });
        self.seen.scans.extend(self.plan.scans.iter().copied().zip(last));
        self.seen.applied = number(body, b"\"applied\":\"").ok_or(BenchError::Reply("rows of no epoch"))?;
        if self.seen.rows.len() < self.plan.reads.len() || self.seen.scans.len() < self.plan.scans.len() {
            return Err(BenchError::Reply("fewer rows or ranges than were asked for"));
        }
        self.reading = false;
        Ok(())
    }
}

impl Session for Single {
    fn begin(&mut self, _slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plan = plan;
        self.seen.clear();
        if self.reads_over_http && (!self.plan.reads.is_empty() || !self.plan.scans.is_empty()) {
            self.ask(out);
        } else {
            self.commit(out);
        }
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let mut used = 0;
        while let Some(head) = read_head(&bytes[used..])?
            && bytes.len() >= used + head.head_len + head.body_len
        {
            let body = &bytes[used + head.head_len..][..head.body_len];
            used += head.head_len + head.body_len;
            if !self.reading {
                done.push((0, self.post.learn(&self.plan, decision(body))?));
                self.post.rows.borrow_mut().answered(self.posted);
                break;
            }
            self.read(head.status, body)?;
            if self.plan.writes.is_empty() {
                // The rows are of one epoch: nothing is left to decide.
                done.push((0, Outcome::Committed));
                break;
            }
            self.commit(out);
        }
        Ok(used)
    }
}

/// Posts the ready transactions of all slots, and waits for the reply.
pub struct Batches {
    post: Post,
    slots: usize,
    gathering: Vec<(usize, Plan)>,
    under_way: Vec<(usize, Plan)>,
    /// The result of [`RowModel::posted`] for these.
    posted: u64,
}

impl Batches {
    /// Creates a session with `slots` slots.
    #[must_use]
    pub fn new(post: Post, slots: usize) -> Batches {
        Batches { post, slots, gathering: Vec::new(), under_way: Vec::new(), posted: 0 }
    }
}

impl Session for Batches {
    fn begin(&mut self, slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.gathering.push((slot, plan));
        if self.gathering.len() < self.slots {
            return;
        }
        let (shared, now) = (Rc::clone(&self.post.rows), unix_ms());
        let (rows, post) = (shared.borrow(), &mut self.post);
        post.body.clear();
        post.body.extend_from_slice(b"{\"txns\":[");
        for (index, (_, plan)) in self.gathering.iter().enumerate() {
            if index > 0 {
                post.body.push(b',');
            }
            let mut text = [0; 36];
            let id = mint_id(now, &mut post.rng, &mut text);
            post.bodies.commit(&mut post.body, Some(id), plan, &*rows, &mut post.rng);
        }
        post.body.extend_from_slice(b"]}");
        write_post(out, &post.host, &["/v1/txns/batch-commit"], &post.body);
        drop(rows);
        self.posted = shared.borrow_mut().posted();
        std::mem::swap(&mut self.gathering, &mut self.under_way);
        self.gathering.clear();
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        _out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let Some(head) = read_head(bytes)? else { return Ok(0) };
        let used = head.head_len + head.body_len;
        if bytes.len() < used {
            return Ok(0);
        }
        let mut answers = items(&bytes[head.head_len..used]);
        for (slot, plan) in std::mem::take(&mut self.under_way) {
            let answer = answers.next().ok_or(BenchError::Reply("a batch short of answers"))?;
            done.push((slot, self.post.learn(&plan, decision(answer))?));
        }
        self.post.rows.borrow_mut().answered(self.posted);
        Ok(used)
    }
}
