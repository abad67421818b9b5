//! {{name}}: a LogAdaptor. It translates records of the log into requests, which the host sends to the storage. This one
//! writes to Redis: each row becomes the string `<prefix><key>` with the row's JSON. A single script writes the rows and
//! moves the watermark, so that a replay changes nothing.
//!
//! For a storage that can store the trace of a record (in a header of a request, or a field of an event), implement
//! `fn encode_traced(&self, batch: LogBatch, traces: Traces)` instead of `encode`, and export the adaptor with
//! `export_adaptor!({{Name}}, with traces)`: `traces.of(record)` is the record's `traceparent`.
//!
//! For a storage that can keep more than a number as its watermark, write `batch.id_of(record)` of each request's last record
//! in the same transaction, and implement `last_record` to read it back. Then a storage that does not fit a log restored from
//! a backup is noticed.

use serde::Deserialize;
use serde::de::IgnoredAny;
use tribunal_plugin_sdk::adaptor::{Ack, Command, Kinds, LogBatch, Reply, Request, RespPipeline, RespValue, kind};
use tribunal_plugin_sdk::{Adaptor, Fault, Plugin, config};

/// Maximum size of the rows in one request, unless a single record is larger.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// KEYS: the watermark, then a key per row. ARGV: the watermark before and after, then `p` or `d` and a value per row.
const APPLY: &str = r"
local at = redis.call('GET', KEYS[1]) or '0'
if at ~= ARGV[1] then return redis.error_reply('MOVED ' .. at) end
for i = 2, #KEYS do
  if ARGV[2 * i - 1] == 'd' then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], ARGV[2 * i]) end
end
redis.call('SET', KEYS[1], ARGV[2])
return redis.status_reply('OK')";

/// Errors of Redis that pass without an operator: the host sends the request again.
const PASSING: [&str; 9] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"];

/// The adaptor, with the store's configuration. A setting that is not listed here is refused: it would have no effect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct {{Name}} {
    /// Prefix of the keys of all rows.
    #[serde(default)]
    prefix: String,
    /// The host reads this one and the next.
    #[serde(default, rename = "endpoint")]
    _endpoint: IgnoredAny,
    #[serde(default, rename = "user")]
    _user: IgnoredAny,
}

impl Plugin for {{Name}} {
    const NAME: &'static str = "{{name}}";
    const ABOUT: &'static str = "Writes rows to Redis as strings, with their watermark in one script.";

    fn init(text: &str) -> Result<Self, Fault> {
        config::parse(text)
    }
}

/// One command.
fn command(arguments: &[Vec<u8>]) -> Command {
    let mut pipeline = RespPipeline { args: Vec::new(), arg_ends: Vec::new(), command_ends: Vec::new() };
    for argument in arguments {
        pipeline.args.extend_from_slice(argument);
        pipeline.arg_ends.push(pipeline.args.len() as u32);
    }
    pipeline.command_ends.push(arguments.len() as u32);
    Command::Resp(pipeline)
}

impl {{Name}} {
    fn watermark_key(&self) -> Vec<u8> {
        format!("#watermark:{}", self.prefix).into_bytes()
    }

    fn request(&self, batch: &LogBatch, records: core::ops::Range<usize>) -> Result<Request, Fault> {
        let (first, last) = (batch.lsn[records.start], batch.lsn[records.end - 1]);
        let mut keys = vec![self.watermark_key()];
        let mut values = vec![(first - 1).to_string().into_bytes(), last.to_string().into_bytes()];
        for record in records {
            for row in batch.rows_of(record).map(|row| batch.row(record, row)) {
                keys.push([self.prefix.as_bytes(), row.key].concat());
                values.push(match row.kind {
                    kind::DELETE => b"d".to_vec(),
                    kind::INSERT | kind::UPDATE | kind::PUT => b"p".to_vec(),
                    other => return Err(format!("writes of kind {other} are not supported")),
                });
                values.push(row.value.to_vec());
            }
        }
        let mut call = vec![b"EVAL".to_vec(), APPLY.as_bytes().to_vec(), keys.len().to_string().into_bytes()];
        call.append(&mut keys);
        call.append(&mut values);
        let idempotency_key = format!("{}:{first}-{last}", batch.store);
        Ok(Request { first, last, idempotency_key, command: command(&call) })
    }
}

impl Adaptor for {{Name}} {
    // An `add` cannot apply to a string, so it is missing: the service rejects commits with an `add` to this store.
    fn takes(&self) -> Kinds {
        Kinds::all().difference(Kinds::ADD)
    }

    fn watermark(&self) -> Result<Request, Fault> {
        let command = command(&[b"GET".to_vec(), self.watermark_key()]);
        Ok(Request { first: 0, last: 0, idempotency_key: "watermark".into(), command })
    }

    // If this fails, the host passes the same reply to `classify`, and asks again later if that returns `Ack::Retry`. After
    // anything else, the push stops with the error.
    fn read_watermark(&self, reply: Reply) -> Result<u64, Fault> {
        let Reply::Resp(values) = reply else { return Err("not a reply of Redis".into()) };
        match values.first() {
            Some(RespValue::Nil) => Ok(0),
            Some(RespValue::Text(text)) => {
                let number = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| "no watermark".into())
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn encode(&self, batch: LogBatch) -> Result<Vec<Request>, Fault> {
        let groups = batch.groups(REQUEST_BYTES_MAX, |row| row.key.len() + row.value.len() + 16);
        groups.into_iter().map(|records| self.request(&batch, records)).collect()
    }

    fn classify(&self, reply: Reply) -> Ack {
        let Reply::Resp(values) = reply else { return Ack::Fatal("not a reply of Redis".into()) };
        match values.first() {
            Some(RespValue::Text(text)) if text == b"OK" => Ack::Ok,
            // The script returns `MOVED` if the watermark is not where it was expected.
            Some(RespValue::Error(error)) if error.starts_with("MOVED ") => Ack::Moved(error.clone()),
            Some(RespValue::Error(error)) if PASSING.iter().any(|word| error.starts_with(word)) => {
                Ack::Retry(error.clone())
            }
            other => Ack::Fatal(format!("{other:?}")),
        }
    }
}

tribunal_plugin_sdk::export_adaptor!({{Name}});

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of two records with one row each.
    fn batch() -> LogBatch {
        LogBatch {
            store: "kv".into(),
            lsn: vec![1, 2],
            epoch: vec![5, 6],
            csn: vec![50, 60],
            version: vec![5 << 20, 6 << 20],
            txn_ids: vec![0; 32],
            row_ends: vec![1, 2],
            kind: vec![kind::PUT, kind::DELETE],
            key_at: vec![0, 2],
            key_len: vec![1, 1],
            value_at: vec![1, 3],
            value_len: vec![1, 0],
            bytes: b"a7b".to_vec(),
        }
    }

    #[test]
    fn rows_become_strings_and_the_watermark_follows() {
        let adaptor = {{Name}}::init(r#"{"prefix": "p:"}"#).unwrap();
        let [request] = &adaptor.encode(batch()).unwrap()[..] else { panic!("one request is enough") };
        assert_eq!((request.first, request.last, &*request.idempotency_key), (1, 2, "kv:1-2"));
        let Command::Resp(pipeline) = &request.command else { panic!("no command of Redis") };
        let ends = pipeline.arg_ends.iter().map(|&end| end as usize);
        let starts = std::iter::once(0).chain(ends.clone());
        let arguments: Vec<&str> = starts.zip(ends).map(|(a, b)| str::from_utf8(&pipeline.args[a..b]).unwrap()).collect();
        assert_eq!(arguments[2..], ["3", "#watermark:p:", "p:a", "p:b", "0", "2", "p", "7", "d", ""]);
    }

    #[test]
    fn answers_are_told_apart() {
        let adaptor = {{Name}}::init("{}").unwrap();
        let text = |word: &str| Reply::Resp(vec![RespValue::Text(word.into())]);
        let error = |word: &str| Reply::Resp(vec![RespValue::Error(word.into())]);
        assert_eq!(adaptor.read_watermark(Reply::Resp(vec![RespValue::Nil])).unwrap(), 0);
        assert_eq!(adaptor.read_watermark(text("17")).unwrap(), 17);
        assert!(matches!(adaptor.classify(text("OK")), Ack::Ok));
        assert!(matches!(adaptor.classify(error("MOVED 9")), Ack::Moved(_)));
        assert!(matches!(adaptor.classify(error("LOADING")), Ack::Retry(_)));
        assert!(matches!(adaptor.classify(error("WRONGTYPE")), Ack::Fatal(_)));
    }
}
