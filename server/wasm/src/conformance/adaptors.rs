//! Checks of LogAdaptors that need no storage: the same records give the same requests, and an error is not classified
//! as success. A test with a real storage (`tribunal plugin test --storage`) checks that replaying records changes
//! nothing in it.

use tribunal_types::{
    Ack, Command, Csn, Epoch, Lsn, PushRequest, RecordBatch, RecordHead, RecordWrite, RespValue, Span, StorageReply,
    StoreId, TxnId, Version, WriteKind,
};

use super::vector::Vector;
use super::{Cost, Failure, Findings, Kit, broken, failed};
use crate::adaptor::WasmAdaptor;
use crate::fault::{Fault, FaultKind};
use crate::limits::AdaptorLoad;
use crate::module::Module;

const GOLDEN: &str = "golden vectors";
const REPLAY: &str = "the same records again";
const TRACES: &str = "traces of records";
const RECORD_IDS: &str = "the last record";
const ERRORS: &str = "errors of the storage";
const FUEL: &str = "fuel";
const SIZES: [u64; 3] = [1, 100, 1000];
/// Number of comparisons of a used instance with fresh ones.
const USES: u32 = 3;

/// Name of the store in all records of the kit.
const STORE: &str = "kit";

/// A row of a sample.
type Row = (WriteKind, &'static [u8], &'static [u8]);

/// Kinds of records that a storage may or may not accept. Objects come first because most data models support them.
const SAMPLES: [(&str, &[Row]); 5] = [
    (
        "objects",
        &[
            (WriteKind::Insert, b"a", br#"{"n":1,"text":"one"}"#),
            (WriteKind::Put, b"b/2", br#"{"n":2,"text":"two"}"#),
            (WriteKind::Update, b"a", br#"{"n":3,"text":"three"}"#),
        ],
    ),
    ("deletes", &[(WriteKind::Delete, b"a", b""), (WriteKind::Delete, b"never-there", b"")]),
    ("integers", &[(WriteKind::Put, b"n", b"41"), (WriteKind::Add, b"n", b"1"), (WriteKind::Add, b"n", b"-9")]),
    ("texts and nulls", &[(WriteKind::Put, "ä ö".as_bytes(), r#""ü""#.as_bytes()), (WriteKind::Put, b"z", b"null")]),
    ("binary keys", &[(WriteKind::Put, b"\x00\xff\r\n", b"{}")]),
];

pub(super) fn check(module: Module, kit: &mut Kit) -> Result<Findings, Failure> {
    let limits = module.engine.limits;
    let adaptor = WasmAdaptor::new(module, STORE)?;
    let ask = adaptor.watermark().map_err(failed(GOLDEN))?;
    let taken = golden(&adaptor, kit)?;
    replay(&adaptor, kit, taken)?;
    if adaptor.takes_traces() {
        traces(&adaptor, kit, taken)?;
    }
    if adaptor.has_record_ids() {
        record_ids(&adaptor, kit, &ask)?;
    }
    errors(&adaptor, kit, &ask, taken)?;
    let mut fuel = Vec::new();
    for size in SIZES {
        fuel.push(adaptor.encode_metered(&batch(1, size, &taken[..1])).map_err(failed(FUEL))?.1);
    }
    kit.passed(FUEL, SIZES.len() as u32);
    let row = taken[0];
    let load = AdaptorLoad { records: 1, rows: 1, bytes: row.1.len() + row.2.len() };
    let budget = limits.adaptor_fuel.of(load) - limits.adaptor_fuel.per_call;
    let per_item = fuel[2].saturating_sub(fuel[0]) / (SIZES[2] - SIZES[0]);
    Ok(Findings {
        cost: Cost { fuel_per_call: fuel[0], fuel_per_item: per_item, budget_per_item: budget },
        ..Findings::default()
    })
}

/// Returns `count` records from LSN `first` on, each with all of `rows`.
fn batch(first: u64, count: u64, rows: &[Row]) -> RecordBatch {
    let mut batch = RecordBatch { store: StoreId(1), ..RecordBatch::default() };
    for lsn in first..first + count {
        for &(kind, key, value) in rows {
            let key = Span::push(&mut batch.bytes, key);
            let value = Span::push(&mut batch.bytes, value);
            batch.writes.push(RecordWrite { kind, key, value });
        }
        let Some(version) = Version::new(Epoch(lsn), 1) else { break };
        batch.records.push(RecordHead {
            lsn: Lsn(lsn),
            epoch: Epoch(lsn),
            csn: Csn(lsn),
            version,
            txn_id: TxnId([7; 16]),
            // Cannot truncate: batches of the kit are small.
            writes_end: batch.writes.len() as u32,
            traceparent: Span::default(),
        });
    }
    batch
}

/// Gives every second record a trace context.
fn traced(mut batch: RecordBatch) -> RecordBatch {
    let (heads, bytes) = (&mut batch.records, &mut batch.bytes);
    for head in heads.iter_mut().step_by(2) {
        let text = format!("00-{:032x}-{:016x}-01", head.lsn.0 + 1, head.lsn.0 + 1);
        head.traceparent = Span::push(bytes, text.as_bytes());
    }
    batch
}

/// Encodes records of every sample whose kinds of writes the adaptor declares. Returns the first sample that it accepts. An
/// adaptor need not accept all samples, but it must reject a record by returning an error, not by trapping.
fn golden(adaptor: &WasmAdaptor, kit: &mut Kit) -> Result<&'static [Row], Failure> {
    let mut taken = None;
    let mut last = None;
    for (name, rows) in SAMPLES {
        if !rows.iter().all(|(kind, ..)| adaptor.takes().contains(*kind)) {
            continue;
        }
        let records = batch(1, 3, rows);
        match adaptor.encode(&records) {
            Ok(requests) => {
                taken = taken.or(Some(rows));
                kit.note(format!("{requests:?}").as_bytes());
            }
            Err(Fault { kind: FaultKind::Returned, text }) => {
                kit.note(text.as_bytes());
                last = Some(format!("{name}: {text}"));
            }
            Err(fault) => return Err(failed(GOLDEN)(fault).on(Vector::of_records(STORE, &records))),
        }
    }
    kit.passed(GOLDEN, SAMPLES.len() as u32);
    taken.ok_or_else(|| {
        broken(GOLDEN, format!("it accepts no record of any kind; the last error was: {}", last.unwrap_or_default()))
    })
}

/// Encodes records that the adaptor must accept.
fn encode(adaptor: &WasmAdaptor, records: &RecordBatch, check: &'static str) -> Result<Vec<PushRequest>, Failure> {
    adaptor.encode(records).map_err(|fault| failed(check)(fault).on(Vector::of_records(STORE, records)))
}

fn replay(adaptor: &WasmAdaptor, kit: &mut Kit, rows: &[Row]) -> Result<(), Failure> {
    let mut cases = 0;
    for (first, count) in [(1, 1), (1, 50), (u64::MAX >> 22, 7)] {
        let records = batch(first, count, rows);
        let on = |fault| failed(REPLAY)(fault).on(Vector::of_records(STORE, &records));
        let once = adaptor.encode_metered(&records).map_err(on)?;
        let again = adaptor.encode_metered(&records).map_err(on)?;
        if once != again {
            let why = "encoding the same records twice gives different requests, or uses different amounts of fuel";
            return Err(broken(REPLAY, why).on(Vector::of_records(STORE, &records)));
        }
        let kept = adaptor.clone().kept();
        for n in 0..USES {
            // Process other records and a reply in between, so that leftover state would show.
            encode(&kept, &batch(first, 3 + u64::from(n), &rows[..1]), REPLAY)?;
            let _ = kept.classify(&StorageReply::Raw(vec![0; 9]));
            if kept.encode(&records).map_err(on)? != once.0 {
                let why = "a used instance encodes the same records differently than a fresh one";
                return Err(broken(REPLAY, why).on(Vector::of_records(STORE, &records)));
            }
        }
        let mut keys: Vec<_> = once.0.iter().map(|request| &request.idempotency_key).collect();
        if keys.iter().any(|key| key.is_empty()) {
            return Err(broken(REPLAY, "a request has no idempotency key").on(Vector::of_records(STORE, &records)));
        }
        keys.sort();
        keys.dedup();
        if keys.len() != once.0.len() {
            let why = "two requests of one batch share an idempotency key";
            return Err(broken(REPLAY, why).on(Vector::of_records(STORE, &records)));
        }
        cases += 1;
    }
    let key_of = |first| {
        let requests = encode(adaptor, &batch(first, 1, rows), REPLAY)?;
        Ok::<_, Failure>(requests.into_iter().next().map(|request| request.idempotency_key))
    };
    if key_of(1)? == key_of(2)? {
        let two = Vector::of_records(STORE, &batch(1, 2, rows));
        return Err(broken(REPLAY, "different records share an idempotency key").on(two));
    }
    kit.passed(REPLAY, cases + 1);
    Ok(())
}

/// Checks an adaptor that receives trace contexts: the same ones give the same requests, and do not outlast their batch.
fn traces(adaptor: &WasmAdaptor, kit: &mut Kit, rows: &[Row]) -> Result<(), Failure> {
    let encode = |adaptor: &WasmAdaptor, records: &RecordBatch| encode(adaptor, records, TRACES);
    let plain = batch(1, 20, rows);
    let records = traced(batch(1, 20, rows));
    let once = encode(adaptor, &records)?;
    kit.note(format!("{once:?}").as_bytes());
    if encode(adaptor, &records)? != once {
        let why = "encoding the same records with the same traces twice gives different requests";
        return Err(broken(TRACES, why).on(Vector::of_records(STORE, &records)));
    }
    let kept = adaptor.clone().kept();
    for (records, fresh) in [(&records, &once), (&plain, &encode(adaptor, &plain)?), (&records, &once)] {
        if encode(&kept, records)? != *fresh {
            let why = "a used instance mixes up the traces of two batches";
            return Err(broken(TRACES, why).on(Vector::of_records(STORE, records)));
        }
    }
    kit.passed(TRACES, 4);
    Ok(())
}

/// Checks an adaptor whose storage may keep the record that it has applied last: it makes none up. The service would stop the
/// push to a storage that names a record that its log does not have.
fn record_ids(adaptor: &WasmAdaptor, kit: &mut Kit, ask: &PushRequest) -> Result<(), Failure> {
    if let Some(record) = adaptor.record_without_reply().map_err(failed(RECORD_IDS))? {
        return Err(broken(RECORD_IDS, format!("it names {record:?} before it has got a reply")));
    }
    let used = adaptor.clone().kept();
    let mut cases = 1;
    for reply in empty_replies(&ask.command) {
        for adaptor in [adaptor, &used, &used] {
            cases += 1;
            // An adaptor may also refuse to read a watermark out of it.
            if let Ok(Some(record)) = adaptor.last_record(&reply) {
                return Err(broken(RECORD_IDS, format!("it reads the record {record:?} out of {reply:?}")));
            }
        }
    }
    kit.passed(RECORD_IDS, cases);
    Ok(())
}

/// Replies of a storage that contains nothing.
fn empty_replies(command: &Command) -> Vec<StorageReply> {
    match command {
        Command::Resp(pipeline) => [RespValue::Nil, RespValue::Text(Vec::new())]
            .map(|value| StorageReply::Resp(vec![value; pipeline.command_ends.len()]))
            .into(),
        Command::Sql(_) => vec![StorageReply::Sql { affected: 0, cell: None, error: None }],
        Command::Http(_) => [200, 404].map(|status| StorageReply::Http { status, body: Vec::new() }).into(),
        Command::Raw(_) => Vec::new(),
    }
}

fn errors(adaptor: &WasmAdaptor, kit: &mut Kit, ask: &PushRequest, rows: &[Row]) -> Result<(), Failure> {
    let requests = encode(adaptor, &batch(1, 1, rows), ERRORS)?;
    let mut cases = 0;
    for (request, is_ask) in [(Some(ask), true), (requests.first(), false)] {
        let Some(request) = request else { continue };
        for reply in refusals(&request.command) {
            cases += 1;
            if is_ask && let Ok(watermark) = adaptor.read_watermark(&reply) {
                return Err(broken(ERRORS, format!("it reads the watermark {watermark} out of {reply:?}")));
            }
            if !is_ask && adaptor.classify(&reply) == Ack::Ok {
                return Err(broken(ERRORS, format!("it classifies {reply:?} as success: records would be lost")));
            }
        }
    }
    kit.passed(ERRORS, cases);
    Ok(())
}

/// Replies of a storage that did not execute a request.
fn refusals(command: &Command) -> Vec<StorageReply> {
    match command {
        Command::Resp(pipeline) => {
            let answers = |text: &str| vec![RespValue::Error(text.to_owned()); pipeline.command_ends.len()];
            ["ERR unknown command", "OOM command not allowed when used memory > 'maxmemory'.", "READONLY replica"]
                .into_iter()
                .map(|text| StorageReply::Resp(answers(text)))
                .collect()
        }
        Command::Sql(_) => ["40001", "53100", "42P01"]
            .into_iter()
            .map(|state| StorageReply::Sql {
                affected: 0,
                cell: None,
                error: Some((state.to_owned(), "refused".to_owned())),
            })
            .collect(),
        Command::Http(_) => {
            [400, 429, 500, 503].into_iter().map(|status| StorageReply::Http { status, body: Vec::new() }).collect()
        }
        // The embedded store's format is private to it.
        Command::Raw(_) => Vec::new(),
    }
}
