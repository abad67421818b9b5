//! A LogAdaptor in Wasm, in terms of the plain types of `tribunal_types::adaptor`. The binary implements the push's
//! adaptor trait with it.

use std::fmt;
use std::sync::Arc;

use tribunal_types::limits::OPS_PER_TXN_MAX;
use tribunal_types::{
    Ack, Command, Csn, HttpCall, Lsn, PushRequest, RecordBatch, RecordId, RespPipeline, RespValue, SqlStatement,
    StorageReply, TxnId, WriteKind, WriteKinds,
};

use crate::abi;
use crate::call::{Call, printable};
use crate::export::{AskWatermark, Begin, Classify, Encode, Export, LastRecord, ReadWatermark, Takes};
use crate::fault::{Fault, FaultKind};
use crate::instance_cache::InstanceCache;
use crate::limits::AdaptorLoad;
use crate::module::{LoadError, Module, returned};
use crate::shown_reply::shown;
use crate::world::{RECORD_IDS, TRACES};

/// Maximum number of commands in one request to a RESP storage: ten times the rows of the largest transaction.
const RESP_COMMANDS_MAX: usize = 10 * OPS_PER_TXN_MAX;
/// Maximum total number of arguments of these commands; Redis accepts no more in one command.
const RESP_ARGUMENTS_MAX: usize = 1024 * 1024;

/// A LogAdaptor of one store.
#[derive(Clone)]
pub struct WasmAdaptor {
    module: Module,
    store: String,
    takes: WriteKinds,
    exports: Exports,
    /// Holds the instance between batches; `None` if every batch gets a fresh instance.
    cache: Option<Arc<InstanceCache>>,
}

#[derive(Clone)]
struct Exports {
    watermark: Export<AskWatermark>,
    read_watermark: Export<ReadWatermark>,
    encode: Export<Encode>,
    classify: Export<Classify>,
    /// Present if the adaptor's storage may keep the record that it has applied last.
    last_record: Option<Export<LastRecord>>,
    /// Present if the adaptor receives trace contexts.
    begin: Option<Export<Begin>>,
}

impl WasmAdaptor {
    /// Creates an adaptor for the store of this name from a module that was loaded for the world `log-adaptor`.
    ///
    /// # Errors
    /// If the module lacks a function.
    pub fn new(module: Module, store: &str) -> Result<Self, LoadError> {
        let exports = Exports {
            watermark: module.function()?,
            read_watermark: module.function()?,
            encode: module.function()?,
            classify: module.function()?,
            last_record: module.optional_function(RECORD_IDS)?,
            begin: module.optional_function(TRACES)?,
        };
        let takes = takes_of(&module)?;
        Ok(WasmAdaptor { module, store: store.to_owned(), takes, exports, cache: None })
    }

    /// Reuses one instance from batch to batch, which is much cheaper than a fresh one for each batch of a busy store.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.cache = Some(Arc::default());
        self
    }

    /// Runs `job` with `fuel`.
    fn run<T>(&self, fuel: u64, job: impl Fn(&mut Call) -> Result<T, Fault>) -> Result<T, Fault> {
        match &self.cache {
            Some(cache) => cache.run(&self.module, fuel, job),
            None => job(&mut self.module.start(fuel)?),
        }
    }

    /// Returns the module.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns the kinds of writes that the adaptor declares to accept.
    #[must_use]
    pub fn takes(&self) -> WriteKinds {
        self.takes
    }

    /// Returns whether the adaptor receives the `traceparent`s of records.
    #[must_use]
    pub fn takes_traces(&self) -> bool {
        self.exports.begin.is_some()
    }

    /// Builds the request that reads the storage's watermark.
    ///
    /// # Errors
    /// If the adaptor fails.
    pub fn watermark(&self) -> Result<PushRequest, Fault> {
        self.run(self.fuel_for(AdaptorLoad::default()), |call| {
            let (answer,) = call.call(&self.exports.watermark, ())?;
            request_of(answer.map_err(|text| returned(text, &self.module.engine))?)
        })
    }

    /// Extracts the watermark from the storage's reply.
    ///
    /// # Errors
    /// If the adaptor fails, or the reply contains no watermark.
    pub fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, Fault> {
        let read = self.run(self.fuel_for(load_of(reply)), |call| {
            let (answer,) = call.call(&self.exports.read_watermark, (reply_of(reply),))?;
            Ok(Lsn(answer.map_err(|text| returned(text, &self.module.engine))?))
        });
        read.map_err(|fault| with_reply(fault, reply))
    }

    /// Returns whether the adaptor's storage may keep the record that it has applied last.
    #[must_use]
    pub fn has_record_ids(&self) -> bool {
        self.exports.last_record.is_some()
    }

    /// Extracts the record that the storage has applied last from its reply to [`WasmAdaptor::watermark`]; `None` if it does
    /// not keep it.
    ///
    /// # Errors
    /// If the adaptor fails, or the reply contains no watermark.
    pub fn last_record(&self, reply: &StorageReply) -> Result<Option<RecordId>, Fault> {
        let Some(last_record) = &self.exports.last_record else { return Ok(None) };
        self.run(self.fuel_for(load_of(reply)), |call| {
            let (answer,) = call.call(&self.exports.read_watermark, (reply_of(reply),))?;
            answer.map_err(|text| returned(text, &self.module.engine))?;
            let (last,) = call.call(last_record, ())?;
            last.map(record_id_of).transpose()
        })
    }

    /// Returns the record that a fresh instance names without having got a reply.
    ///
    /// # Errors
    /// If the adaptor fails.
    pub(crate) fn record_without_reply(&self) -> Result<Option<RecordId>, Fault> {
        let Some(last_record) = &self.exports.last_record else { return Ok(None) };
        let (last,) = self.module.start(self.fuel_for(AdaptorLoad::default()))?.call(last_record, ())?;
        last.map(record_id_of).transpose()
    }

    /// Builds the requests for consecutive records. They cover all records without a gap.
    ///
    /// # Errors
    /// If the adaptor fails or rejects a record, or its requests do not cover the records.
    pub fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, Fault> {
        self.encode_metered(records).map(|(requests, _)| requests)
    }

    /// Builds the requests, and returns the fuel used.
    ///
    /// # Errors
    /// See [`WasmAdaptor::encode`].
    pub fn encode_metered(&self, records: &RecordBatch) -> Result<(Vec<PushRequest>, u64), Fault> {
        if records.records.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let columns = Columns::of(records);
        let traces = self.exports.begin.as_ref().map(|begin| (begin, TraceColumns::of(records)));
        let trace_bytes = traces.as_ref().map_or(0, |(_, traces)| traces.bytes.len());
        let (rows, bytes) = (records.writes.len(), records.bytes.len() + trace_bytes);
        let fuel = self.fuel_for(AdaptorLoad { records: records.records.len(), rows, bytes });
        self.run(fuel, |call| {
            if let Some((begin, traces)) = &traces {
                call.call(begin, (traces.batch(),))?;
            }
            let (answer,) = call.call(&self.exports.encode, (columns.batch(&self.store, records),))?;
            let requests = answer.map_err(|text| returned(text, &self.module.engine))?;
            let requests = requests.into_iter().map(request_of).collect::<Result<Vec<_>, _>>()?;
            check_cover(&requests, records)?;
            Ok((requests, call.fuel_used()))
        })
    }

    /// Classifies the storage's reply to a request. A fault of the adaptor stops the store's push.
    #[must_use]
    pub fn classify(&self, reply: &StorageReply) -> Ack {
        let ack = self.run(self.fuel_for(load_of(reply)), |call| call.call(&self.exports.classify, (reply_of(reply),)));
        let cut = |text: String| printable(&text, self.module.engine.limits.fault_bytes_max);
        match ack {
            Ok((abi::Ack::Ok,)) => Ack::Ok,
            Ok((abi::Ack::Retry(text),)) => Ack::Retry(cut(text)),
            Ok((abi::Ack::Moved(text),)) => Ack::Moved(cut(text)),
            Ok((abi::Ack::Fatal(text),)) => Ack::Fatal(cut(text)),
            Err(fault) => Ack::Fatal(format!("the adaptor failed: {}", with_reply(fault, reply))),
        }
    }

    fn fuel_for(&self, load: AdaptorLoad) -> u64 {
        self.module.engine.limits.adaptor_fuel.of(load)
    }
}

/// Returns the kinds of writes that a configured adaptor declares to accept.
///
/// # Errors
/// If the module lacks the function, or it fails.
fn takes_of(module: &Module) -> Result<WriteKinds, LoadError> {
    let takes = module.function::<Takes>()?;
    let declared =
        module.start(module.engine.limits.fuel_of_start(module.world())).and_then(|mut call| call.call(&takes, ()));
    let (declared,) = declared.map_err(|fault| LoadError::Start(fault.text))?;
    let kinds = [
        (abi::Kinds::INSERT, WriteKind::Insert),
        (abi::Kinds::UPDATE, WriteKind::Update),
        (abi::Kinds::PUT, WriteKind::Put),
        (abi::Kinds::DELETE, WriteKind::Delete),
        (abi::Kinds::ADD, WriteKind::Add),
    ];
    Ok(kinds.into_iter().filter(|(flag, _)| declared & *flag == *flag).map(|(_, kind)| kind).collect())
}

impl fmt::Debug for WasmAdaptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmAdaptor").field("module", &self.module).field("store", &self.store).finish_non_exhaustive()
    }
}

fn load_of(reply: &StorageReply) -> AdaptorLoad {
    let (records, bytes) = match reply {
        StorageReply::Resp(values) => (values.len(), values.iter().map(bytes_of).sum()),
        StorageReply::Sql { cell, error, .. } => {
            let error = error.as_ref().map_or(0, |(state, message)| state.len() + message.len());
            (1, cell.as_ref().map_or(0, String::len) + error)
        }
        StorageReply::Http { body, .. } | StorageReply::Raw(body) => (1, body.len()),
    };
    AdaptorLoad { records, rows: 0, bytes }
}

fn bytes_of(value: &RespValue) -> usize {
    match value {
        RespValue::Nil | RespValue::Int(_) => 0,
        RespValue::Text(text) => text.len(),
        RespValue::Error(text) => text.len(),
    }
}

/// Adds the reply that an adaptor trapped on to the fault: a panic's own message is lost with the instance. A returned fault
/// contains what its author wants to tell.
fn with_reply(fault: Fault, reply: &StorageReply) -> Fault {
    if fault.kind == FaultKind::Returned {
        return fault;
    }
    Fault { text: format!("{}; the storage's reply was: {}", fault.text, shown(reply)), ..fault }
}

/// The columns of a record batch, whose heads and rows are structures.
struct Columns {
    lsn: Vec<u64>,
    epoch: Vec<u64>,
    csn: Vec<u64>,
    version: Vec<u64>,
    txn_ids: Vec<u8>,
    row_ends: Vec<u32>,
    kind: Vec<u8>,
    key_at: Vec<u32>,
    key_len: Vec<u32>,
    value_at: Vec<u32>,
    value_len: Vec<u32>,
}

impl Columns {
    fn of(records: &RecordBatch) -> Columns {
        let (heads, rows) = (&records.records, &records.writes);
        Columns {
            lsn: heads.iter().map(|head| head.lsn.0).collect(),
            epoch: heads.iter().map(|head| head.epoch.0).collect(),
            csn: heads.iter().map(|head| head.csn.0).collect(),
            version: heads.iter().map(|head| head.version.bits()).collect(),
            txn_ids: heads.iter().flat_map(|head| head.txn_id.0).collect(),
            row_ends: heads.iter().map(|head| head.writes_end).collect(),
            kind: rows.iter().map(|row| row.kind as u8).collect(),
            key_at: rows.iter().map(|row| row.key.at).collect(),
            key_len: rows.iter().map(|row| row.key.len).collect(),
            value_at: rows.iter().map(|row| row.value.at).collect(),
            value_len: rows.iter().map(|row| row.value.len).collect(),
        }
    }

    fn batch<'a>(&'a self, store: &'a str, records: &'a RecordBatch) -> abi::LogBatch<'a> {
        abi::LogBatch {
            store,
            lsn: &self.lsn,
            epoch: &self.epoch,
            csn: &self.csn,
            version: &self.version,
            txn_ids: &self.txn_ids,
            row_ends: &self.row_ends,
            kind: &self.kind,
            key_at: &self.key_at,
            key_len: &self.key_len,
            value_at: &self.value_at,
            value_len: &self.value_len,
            bytes: &records.bytes,
        }
    }
}

/// The traces of a record batch as columns.
struct TraceColumns {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl TraceColumns {
    fn of(records: &RecordBatch) -> TraceColumns {
        let mut columns = TraceColumns { ends: Vec::with_capacity(records.records.len()), bytes: Vec::new() };
        for head in &records.records {
            columns.bytes.extend_from_slice(head.traceparent.of(&records.bytes));
            // Cannot truncate: traceparents are slices of the batch's bytes, whose offsets have 32 bits.
            columns.ends.push(columns.bytes.len() as u32);
        }
        columns
    }

    fn batch(&self) -> abi::Traceparents<'_> {
        abi::Traceparents { ends: &self.ends, bytes: &self.bytes }
    }
}

/// Checks that the requests cover the records exactly and in order; otherwise records would be lost or sent twice.
fn check_cover(requests: &[PushRequest], records: &RecordBatch) -> Result<(), Fault> {
    let Some((first, last)) = records.bounds() else { return Ok(()) };
    let mut next = first;
    for request in requests {
        if request.first != next || request.last < request.first || request.last > last {
            let (from, to) = (request.first, request.last);
            return Err(Fault::wrong(format!(
                "it encoded records {from}..={to} where {next} was next, of records up to {last}"
            )));
        }
        next = request.last.next();
    }
    if next == last.next() { Ok(()) } else { Err(Fault::wrong(format!("it left out the records from {next}"))) }
}

fn record_id_of(record: abi::RecordId) -> Result<RecordId, Fault> {
    let abi::RecordId { lsn, csn, txn_id } = record;
    let bytes = txn_id.len();
    let txn_id =
        txn_id.try_into().map_err(|_| Fault::wrong(format!("it named a transaction id of {bytes} bytes, not 16")))?;
    Ok(RecordId { lsn: Lsn(lsn), csn: Csn(csn), txn_id: TxnId(txn_id) })
}

fn request_of(request: abi::Request) -> Result<PushRequest, Fault> {
    let command = match request.command {
        abi::Command::Resp(pipeline) => Command::Resp(pipeline_of(pipeline)?),
        abi::Command::Sql(statements) => {
            Command::Sql(statements.into_iter().map(|s| SqlStatement { text: s.text, params: s.params }).collect())
        }
        abi::Command::Http(call) => {
            Command::Http(HttpCall { method: call.method, path: call.path, headers: call.headers, body: call.body })
        }
        abi::Command::Raw(bytes) => Command::Raw(bytes),
    };
    let (first, last) = (Lsn(request.first), Lsn(request.last));
    Ok(PushRequest { first, last, idempotency_key: request.idempotency_key, command })
}

/// Checks that every end is within its column, that ends never decrease, and that there are not too many commands and
/// arguments: their columns may alias the same memory of the instance, and the storage's client allocates an object for
/// each.
fn pipeline_of(pipeline: abi::RespPipeline) -> Result<RespPipeline, Fault> {
    let abi::RespPipeline { args, arg_ends, command_ends } = pipeline;
    let (commands, arguments) = (command_ends.len(), arg_ends.len());
    if commands > RESP_COMMANDS_MAX || arguments > RESP_ARGUMENTS_MAX {
        return Err(Fault::wrong(format!(
            "it encoded a request of {commands} commands with {arguments} arguments; at most {RESP_COMMANDS_MAX} and \
             {RESP_ARGUMENTS_MAX} are allowed: split the records into more requests"
        )));
    }
    let ends_fit =
        |ends: &[u32], len: usize| ends.is_sorted() && ends.last().map_or(len == 0, |&last| last as usize == len);
    if ends_fit(&arg_ends, args.len()) && ends_fit(&command_ends, arg_ends.len()) {
        Ok(RespPipeline { args, arg_ends, command_ends })
    } else {
        Err(Fault::wrong("its RESP columns do not fit together"))
    }
}

fn reply_of(reply: &StorageReply) -> abi::Reply<'_> {
    match reply {
        StorageReply::Resp(values) => abi::Reply::Resp(
            values
                .iter()
                .map(|value| match value {
                    RespValue::Nil => abi::RespValue::Nil,
                    RespValue::Int(number) => abi::RespValue::Int(*number),
                    RespValue::Text(text) => abi::RespValue::Text(text),
                    RespValue::Error(text) => abi::RespValue::Error(text),
                })
                .collect(),
        ),
        StorageReply::Sql { affected, cell, error } => abi::Reply::Sql(abi::SqlReply {
            affected: *affected,
            cell: cell.as_deref(),
            error: error.as_ref().map(|(state, message)| abi::SqlError { state, message }),
        }),
        StorageReply::Http { status, body } => abi::Reply::Http(abi::HttpReply { status: *status, body }),
        StorageReply::Raw(bytes) => abi::Reply::Raw(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_on_a_reply_shows_the_reply() {
        let reply = StorageReply::Resp(vec![RespValue::Error("ERR odd".into())]);
        let trap = with_reply(Fault::new(FaultKind::Trap, "it trapped"), &reply);
        assert_eq!(
            (trap.kind, trap.text.as_str()),
            (FaultKind::Trap, "it trapped; the storage's reply was: error ERR odd")
        );
        let returned = Fault::new(FaultKind::Returned, "it returned a fault: odd");
        assert_eq!(with_reply(returned.clone(), &reply), returned, "its author decides what it tells");
    }

    #[test]
    fn a_pipeline_of_too_many_commands_or_arguments_is_rejected() {
        let pipeline = |commands: usize, arguments: usize| {
            let ends = |count: usize, to: usize| (1..=count).map(|n| n.min(to) as u32).collect::<Vec<_>>();
            let (arg_ends, mut command_ends) = (ends(arguments, arguments), ends(commands, arguments));
            *command_ends.last_mut().expect("a command") = arguments as u32;
            pipeline_of(abi::RespPipeline { args: vec![b'x'; arguments], arg_ends, command_ends }).map(drop)
        };
        assert_eq!(pipeline(RESP_COMMANDS_MAX, RESP_COMMANDS_MAX), Ok(()));
        assert_eq!(pipeline(1, RESP_ARGUMENTS_MAX), Ok(()));
        for (commands, arguments) in [(RESP_COMMANDS_MAX + 1, RESP_COMMANDS_MAX + 1), (1, RESP_ARGUMENTS_MAX + 1)] {
            let said = pipeline(commands, arguments).expect_err("too many").text;
            assert!(said.contains("split the records"), "{said}");
        }
    }
}
