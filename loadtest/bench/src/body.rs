//! Writes commit bodies as the API wants them, straight into the request's buffer. No I/O.

use std::io::Write as _;

use rand::Rng;

use crate::model::{Row, Versions};
use crate::options::{Level, Shape, Workload};
use crate::wire::write_decimal;
use crate::workload::{Change, Plan};

/// Characters of random values: 64 of them, so that six random bits give one.
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
    /// Makes a writer for these flags.
    #[must_use]
    pub fn new(shape: &Shape, store: &str) -> BodyWriter {
        let prefix = match shape.workload {
            Workload::Point | Workload::YcsbA | Workload::YcsbB => "row/",
            Workload::Bank => "acct/",
            Workload::Hot => "hot/",
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
        // A snapshot may be left out only where nothing is read at snapshot level.
        if self.isolation == Level::Snapshot {
            out.extend_from_slice(b",\"snapshots\":{\"");
            out.extend_from_slice(self.store.as_bytes());
            out.extend_from_slice(b"\":\"");
            write_decimal(out, known.last_epoch());
            out.extend_from_slice(b"\"}");
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
        out.extend_from_slice(b"],\"writes\":[");
        for (i, (row, change)) in plan.writes.iter().enumerate() {
            self.write(out, i, *row, *change, rng);
        }
        out.extend_from_slice(b"]}");
    }

    /// Appends a body that puts `rows` blindly, as the preload does: at the weakest level, without reads.
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
    pub fn row_of(&self, key: &[u8]) -> Option<usize> {
        usize::try_from(crate::wire::decimal(key.strip_prefix(self.prefix.as_bytes())?)?).ok()
    }

    /// Says whether the workload's rows are counters, whose versions nobody reads.
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
            Change::AddOne => "{\"op\":\"add\",\"store\":\"",
        };
        self.operation(out, index, op, row);
        out.extend_from_slice(b",\"value\":");
        match change {
            Change::Text => text(out, self.value_bytes, rng),
            Change::Balance(balance) => write!(out, "{balance}").expect("a Vec takes every byte"),
            Change::AddOne => out.push(b'1'),
        }
        out.push(b'}');
    }

    /// Appends `opening`, the store and the key; the object stays open.
    fn operation(&self, out: &mut Vec<u8>, index: usize, opening: &str, row: Row) {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(opening.as_bytes());
        out.extend_from_slice(self.store.as_bytes());
        out.extend_from_slice(b"\",\"key\":\"");
        out.extend_from_slice(self.prefix.as_bytes());
        let mut digits = *b"0000000";
        let mut rest = row;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits);
        out.push(b'"');
    }
}

/// Appends a JSON string of `bytes` bytes, quotes included.
fn text(out: &mut Vec<u8>, bytes: usize, rng: &mut impl Rng) {
    out.push(b'"');
    write_text(out, bytes - 2, rng);
    out.push(b'"');
}

/// Appends `bytes` random letters, digits, `-` and `_`. Random, so that no compression flatters a log.
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

/// Mints a UUIDv7, which the API wants as transaction id, into `text`.
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
        let plan = Plan { reads: vec![1, 2], writes: vec![(3, Change::Text), (4, Change::Balance(-5))] };
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
        let plan = Plan { reads: Vec::new(), writes: vec![(0, Change::AddOne)] };
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
