//! `tribunal plugin test --storage`: checks that a LogAdaptor's requests, sent twice, late or from the middle, have no
//! unintended effect. Runs on a real storage, because the result depends on the storage's own transactions.

use std::path::Path;

use tribunal_push::{EgressPolicy, RespOptions, RespTransport, Transport};
use tribunal_types::{
    Ack, Csn, Epoch, Lsn, PushRequest, RecordBatch, RecordHead, RecordWrite, Span, StoreId, TxnId, Version, WriteKind,
};
use tribunal_wasm::{Module, WasmAdaptor, World};

use crate::plugins::engine::engine;

/// Number of records that the test writes.
const RECORDS: u64 = 8;

/// A test bench for one adaptor on one storage.
struct Bench {
    adaptor: WasmAdaptor,
    transport: RespTransport,
    runtime: tokio::runtime::Runtime,
}

/// Writes records through the adaptor in `file` to the Redis at `endpoint`; returns the verified properties.
///
/// # Errors
/// If the storage cannot be used, or a property does not hold.
pub fn try_on(file: &Path, config: &str, endpoint: &str) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let module = Module::load(engine()?, World::LogAdaptor, &bytes, config).map_err(|error| error.to_string())?;
    let bench = Bench {
        adaptor: WasmAdaptor::new(module, "kit").map_err(|error| error.to_string())?,
        transport: RespTransport::new(RespOptions::new(endpoint, EgressPolicy::loopback())),
        runtime: tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?,
    };
    bench.runtime.block_on(bench.transport.connect()).map_err(|error| format!("{endpoint}: {error}"))?;
    bench.replay()
}

impl Bench {
    fn replay(&self) -> Result<Vec<String>, String> {
        let mut seen = Vec::new();
        let start = self.watermark()?;
        if start != Lsn(0) {
            return Err(format!(
                "the storage has applied LSN {start}: it is that of a store, or of an earlier test. The test writes records of its own and \
                 moves the watermark, so a store would lack its next {RECORDS} records: use a storage with nothing in it"
            ));
        }
        let head = Lsn(start.0 + RECORDS);
        let first = self.encode(start.next(), Lsn(start.0 + 4))?;
        let rest = self.encode(Lsn(start.0 + 5), head)?;
        self.expect(&rest, false, "records ahead of the watermark")?;
        self.expect_watermark(start, "records ahead of the watermark")?;
        seen.push("records ahead of the watermark are not applied".to_owned());
        self.expect(&first, true, "the next records")?;
        self.expect_watermark(Lsn(start.0 + 4), "the next records")?;
        seen.push("the next records are applied and move the watermark".to_owned());
        for _ in 0..2 {
            self.expect(&first, false, "a replay")?;
            self.expect_watermark(Lsn(start.0 + 4), "a replay")?;
        }
        seen.push("a replay is answered as moved and moves nothing".to_owned());
        let overlap = self.encode(Lsn(start.0 + 3), head)?;
        self.expect(&overlap, false, "records that overlap")?;
        self.expect_watermark(Lsn(start.0 + 4), "records that overlap")?;
        seen.push("records that overlap are not applied".to_owned());
        self.expect(&rest, true, "the rest")?;
        self.expect_watermark(head, "the rest")?;
        seen.push("the rest is applied from the watermark on".to_owned());
        Ok(seen)
    }

    fn watermark(&self) -> Result<Lsn, String> {
        let ask = self.adaptor.watermark().map_err(|fault| fault.text)?;
        let reply = self.runtime.block_on(self.transport.send(ask.command)).map_err(|error| error.to_string())?;
        self.adaptor.read_watermark(&reply).map_err(|fault| fault.text)
    }

    fn expect_watermark(&self, expected: Lsn, what: &str) -> Result<(), String> {
        match self.watermark()? {
            found if found == expected => Ok(()),
            found => Err(format!("{what}: the watermark is {found}, not {expected}")),
        }
    }

    fn encode(&self, first: Lsn, last: Lsn) -> Result<Vec<PushRequest>, String> {
        self.adaptor.encode(&records(first, last)).map_err(|fault| fault.text)
    }

    /// Sends the requests; the first one must be applied, or be answered as moved.
    fn expect(&self, requests: &[PushRequest], applied: bool, what: &str) -> Result<(), String> {
        for request in requests {
            let command = request.command.clone();
            let reply = self.runtime.block_on(self.transport.send(command)).map_err(|error| error.to_string())?;
            match self.adaptor.classify(&reply) {
                Ack::Ok if applied => {}
                Ack::Moved(_) if !applied => return Ok(()),
                other => return Err(format!("{what}: the adaptor says {other:?} of {reply:?}")),
            }
        }
        Ok(())
    }
}

/// Creates records with an object, an overwrite of it and a delete, in turn.
fn records(first: Lsn, last: Lsn) -> RecordBatch {
    let mut batch = RecordBatch { store: StoreId(1), ..RecordBatch::default() };
    for lsn in first.0..=last.0 {
        let (kind, value) = match lsn % 3 {
            0 => (WriteKind::Delete, String::new()),
            _ => (WriteKind::Put, format!("{{\"n\":{lsn},\"text\":\"row {lsn}\"}}")),
        };
        let key = Span::push(&mut batch.bytes, format!("kit/{}", lsn % 4).as_bytes());
        let value = Span::push(&mut batch.bytes, value.as_bytes());
        batch.writes.push(RecordWrite { kind, key, value });
        let Some(version) = Version::new(Epoch(lsn), 1) else { break };
        batch.records.push(RecordHead {
            lsn: Lsn(lsn),
            epoch: Epoch(lsn),
            csn: Csn(lsn),
            version,
            txn_id: TxnId([7; 16]),
            writes_end: batch.writes.len() as u32,
            traceparent: Span::default(),
        });
    }
    batch
}
