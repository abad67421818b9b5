//! Writes commit bodies in the API's form, directly into the request's buffer. No I/O.

use std::io::Write as _;

use rand::Rng;

use crate::key;
use crate::key::Row;
use crate::model::Versions;
use crate::options::{Level, Shape, Workload};
use crate::plan::{Change, Plan, Scan};
use crate::wire::write_decimal;

/// Characters of random values: 64 of them, so that six random bits select one.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes the bodies of one measurement.
#[derive(Debug)]
pub struct BodyWriter {
    isolation: Level,
    store: String,
    prefix: &'static str,
    value_bytes: usize,
}

impl BodyWriter {
    /// Creates a writer for these flags.
    #[must_use]
    pub fn new(shape: &Shape, store: &str) -> BodyWriter {
        let prefix = match shape.workload {
            Workload::Bank => "acct/",
            Workload::Hot => "hot/",
            _ => "row/",
        };
        BodyWriter { isolation: shape.isolation, store: store.to_owned(), prefix, value_bytes: shape.value_bytes }
    }

    /// Appends the commit body of `plan`, with its id inside if it is an item of a batch.
    pub fn commit(
        &self,
        out: &mut Vec<u8>,
        txn_id: Option<&str>,
        plan: &Plan,
        known: &impl Versions,
        rng: &mut impl Rng,
    ) {
        self.open(out, txn_id, self.isolation);
        // A snapshot may be omitted only if no range is read and the level is not snapshot.
        if !plan.scans.is_empty() {
            self.snapshot(out, known.scanned_at());
        } else if self.isolation == Level::Snapshot {
            self.snapshot(out, known.last_epoch());
        }
        out.extend_from_slice(b",\"reads\":[");
        for (i, row) in plan.reads.iter().enumerate() {
            self.operation(out, i, "{\"store\":\"", *row);
            if let Some(version) = known.version(*row) {
                out.extend_from_slice(b",\"version\":\"");
                write_decimal(out, version);
                out.push(b'"');
            }
            out.push(b'}');
        }
        if !plan.scans.is_empty() {
            out.extend_from_slice(b"],\"ranges\":[");
            for (i, scan) in plan.scans.iter().enumerate() {
                self.range(out, i, *scan, known.last_of(*scan));
            }
        }
        out.extend_from_slice(b"],\"writes\":[");
        for (i, (row, change)) in plan.writes.iter().enumerate() {
            self.write(out, i, *row, *change, rng);
        }
        out.extend_from_slice(b"]}");
    }

    /// Appends a body that puts `rows` blindly, for the preload: at the weakest level, without reads.
    pub fn preload(
        &self,
        out: &mut Vec<u8>,
        txn_id: &str,
        rows: std::ops::Range<Row>,
        change: Change,
        rng: &mut impl Rng,
    ) {
        self.open(out, Some(txn_id), Level::ReadCommitted);
        out.extend_from_slice(b",\"writes\":[");
        for (i, row) in rows.enumerate() {
            self.write(out, i, row, change, rng);
        }
        out.extend_from_slice(b"]}");
    }

    /// Returns the number of the row with this key, if it is one of this workload's.
    #[must_use]
    pub fn row_of(&self, key: &[u8]) -> Option<Row> {
        key::number(key.strip_prefix(self.prefix.as_bytes())?)
    }

    /// Returns whether the workload's rows are counters, whose versions are never read.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.prefix == "hot/"
    }

    fn open(&self, out: &mut Vec<u8>, txn_id: Option<&str>, isolation: Level) {
        out.push(b'{');
        if let Some(id) = txn_id {
            out.extend_from_slice(b"\"txn_id\":\"");
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(b"\"isolation\":\"");
        out.extend_from_slice(isolation.name().as_bytes());
        out.push(b'"');
    }

    fn write(&self, out: &mut Vec<u8>, index: usize, row: Row, change: Change, rng: &mut impl Rng) {
        let op = match change {
            Change::Text | Change::Balance(_) => "{\"op\":\"put\",\"store\":\"",
            Change::Insert => "{\"op\":\"insert\",\"store\":\"",
            Change::AddOne => "{\"op\":\"add\",\"store\":\"",
        };
        self.operation(out, index, op, row);
        out.extend_from_slice(b",\"value\":");
        match change {
            Change::Text | Change::Insert => text(out, self.value_bytes, rng),
            Change::Balance(balance) => write!(out, "{balance}").expect("a Vec takes every byte"),
            Change::AddOne => out.push(b'1'),
        }
        out.push(b'}');
    }

    /// Appends the snapshot of the store.
    fn snapshot(&self, out: &mut Vec<u8>, epoch: u64) {
        out.extend_from_slice(b",\"snapshots\":{\"");
        out.extend_from_slice(self.store.as_bytes());
        out.extend_from_slice(b"\":\"");
        write_decimal(out, epoch);
        out.extend_from_slice(b"\"}");
    }

    /// Appends the range that a scan has read: up to the last row that it found, inclusive, or to the end of the store.
    fn range(&self, out: &mut Vec<u8>, index: usize, scan: Scan, last: Option<Row>) {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"store\":\"");
        out.extend_from_slice(self.store.as_bytes());
        out.extend_from_slice(b"\",\"start\":\"");
        self.key(out, scan.start);
        if let Some(last) = last {
            out.extend_from_slice(b"\",\"end\":\"");
            self.key(out, last);
            out.extend_from_slice(b"\\u0000");
        }
        out.extend_from_slice(b"\"}");
    }

    /// Appends `opening`, the store and the key; the object remains open.
    fn operation(&self, out: &mut Vec<u8>, index: usize, opening: &str, row: Row) {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(opening.as_bytes());
        out.extend_from_slice(self.store.as_bytes());
        out.extend_from_slice(b"\",\"key\":\"");
        self.key(out, row);
        out.push(b'"');
    }

    fn key(&self, out: &mut Vec<u8>, row: Row) {
        out.extend_from_slice(self.prefix.as_bytes());
        key::write_number(out, row);
    }
}

/// Appends a JSON string of `bytes` bytes, including quotes.
fn text(out: &mut Vec<u8>, bytes: usize, rng: &mut impl Rng) {
    out.push(b'"');
    write_text(out, bytes - 2, rng);
    out.push(b'"');
}

/// Appends `bytes` random letters, digits, `-` and `_`. Random, so that compression does not flatter a log.
pub fn write_text(out: &mut Vec<u8>, bytes: usize, rng: &mut impl Rng) {
    let mut left = bytes;
    while left > 0 {
        let mut bits = rng.next_u64();
        for _ in 0..left.min(10) {
            out.push(ALPHABET[(bits & 63) as usize]);
            bits >>= 6;
        }
        left -= left.min(10);
    }
}

/// Generates a UUIDv7, the API's form of a transaction id, in `text`.
pub fn mint_id<'t>(unix_ms: u64, rng: &mut impl Rng, text: &'t mut [u8; 36]) -> &'t str {
    let mut random = [0_u8; 10];
    rng.fill_bytes(&mut random);
    let id = uuid::Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid();
    id.hyphenated().encode_lower(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::model::RowModel;
    use crate::options::{Cli, Command};

    fn writer(flags: &[&str]) -> BodyWriter {
        let args = ["tribunal-bench", "commit"].iter().chain(flags);
        let Command::Commit(common) = Cli::parse_from(args).command else { panic!("commit was asked for") };
        BodyWriter::new(&common.shape, &common.store)
    }

    #[test]
    fn a_body_is_json_of_the_api() {
        let mut model = RowModel::new(10, 0);
        model.committed(3, 77, &[(1, 0)]);
        let writes = vec![(3, Change::Text), (4, Change::Balance(-5))];
        let plan = Plan { reads: vec![1, 2], writes, ..Plan::default() };
        let mut out = Vec::new();
        let rng = &mut SmallRng::seed_from_u64(1);
        writer(&["--isolation", "snapshot"]).commit(&mut out, Some("id"), &plan, &model, rng);
        let body: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(body["txn_id"], "id");
        assert_eq!(body["isolation"], "snapshot");
        assert_eq!(body["snapshots"]["kv"], "3");
        assert_eq!(body["reads"][0], serde_json::json!({"store": "kv", "key": "row/0000001", "version": "77"}));
        assert_eq!(body["reads"][1], serde_json::json!({"store": "kv", "key": "row/0000002"}));
        assert_eq!(body["writes"][0]["value"].as_str().unwrap().len(), 98);
        assert_eq!(body["writes"][1]["value"], -5);
    }

    #[test]
    fn an_add_carries_its_delta() {
        let mut out = Vec::new();
        let plan = Plan { writes: vec![(0, Change::AddOne)], ..Plan::default() };
        let rng = &mut SmallRng::seed_from_u64(1);
        writer(&["--workload", "hot"]).commit(&mut out, None, &plan, &RowModel::new(1, 0), rng);
        let body: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            body["writes"][0],
            serde_json::json!({"op": "add", "store": "kv", "key": "hot/0000000", "value": 1})
        );
        assert!(body.get("snapshots").is_none());
    }

    #[test]
    fn a_scan_is_a_range_up_to_its_last_row_at_a_snapshot() {
        let mut model = RowModel::new(10, 0);
        model.reached(5);
        let new = key::inserted(3, 1);
        let scans = vec![Scan { start: 1, count: 3 }, Scan { start: 8, count: 3 }];
        let plan = Plan { scans, writes: vec![(new, Change::Insert)], ..Plan::default() };
        let mut out = Vec::new();
        writer(&[]).commit(&mut out, None, &plan, &model, &mut SmallRng::seed_from_u64(1));
        let body: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(body["snapshots"]["kv"], "5");
        let ranges = serde_json::json!([
            {"store": "kv", "start": "row/0000001", "end": "row/0000003\u{0}"},
            {"store": "kv", "start": "row/0000008"},
        ]);
        assert_eq!(body["ranges"], ranges);
        assert_eq!(
            (&body["writes"][0]["op"], &body["writes"][0]["key"]),
            (&"insert".into(), &"row/0000003+001".into())
        );
    }

    #[test]
    fn keys_lead_back_to_rows() {
        let writer = writer(&[]);
        assert_eq!(writer.row_of(b"row/0000042"), Some(42));
        assert_eq!(writer.row_of(b"acct/0000042"), None);
        assert_eq!(writer.row_of(b"row/x"), None);
    }

    #[test]
    fn ids_are_uuid_v7_of_their_time() {
        let mut text = [0; 36];
        let id = mint_id(1_700_000_000_123, &mut SmallRng::seed_from_u64(1), &mut text);
        let parsed = uuid::Uuid::parse_str(id).unwrap();
        assert_eq!(parsed.get_version_num(), 7);
        assert_eq!(parsed.get_timestamp().unwrap().to_unix().0, 1_700_000_000);
    }
}
