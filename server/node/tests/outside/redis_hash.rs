//! Rows as Redis hashes: each row is an object, each of its fields a field of the hash, plus the row's version, and the
//! trace that wrote it, if any. One script writes the hashes and moves the watermark. Rows that are not objects are
//! refused.

use serde::Deserialize;
use tribunal_plugin_sdk::adaptor::{Ack, Command, Kinds, LogBatch, Reply, Request, RespPipeline, RespValue, Row, kind};
use tribunal_plugin_sdk::traces::Traces;
use tribunal_plugin_sdk::{Adaptor, Fault, Plugin, config};

/// KEYS: the watermark, then a key per row. ARGV: the watermark before and after, then per row the number of its fields
/// and each field's name and value; a row without fields is deleted.
const APPLY: &str = r"
local at = redis.call('GET', KEYS[1]) or '0'
if at ~= ARGV[1] then return redis.error_reply('MOVED ' .. at) end
local next = 3
for i = 2, #KEYS do
  redis.call('DEL', KEYS[i])
  local fields = tonumber(ARGV[next])
  next = next + 1
  for _ = 1, fields do
    redis.call('HSET', KEYS[i], ARGV[next], ARGV[next + 1])
    next = next + 2
  end
end
redis.call('SET', KEYS[1], ARGV[2])
return redis.status_reply('OK')";

/// The adaptor.
#[derive(Debug, Deserialize)]
pub struct RedisHash {
    /// Prefix of every row's key. Each store must specify one.
    prefix: String,
}

impl Plugin for RedisHash {
    const NAME: &'static str = "redis-hash";
    const ABOUT: &'static str = "Writes rows to Redis as hashes.";

    fn init(text: &str) -> Result<Self, Fault> {
        config::parse(text)
    }
}

fn command(arguments: &[Vec<u8>]) -> Command {
    let mut pipeline = RespPipeline { args: Vec::new(), arg_ends: Vec::new(), command_ends: Vec::new() };
    for argument in arguments {
        pipeline.args.extend_from_slice(argument);
        pipeline.arg_ends.push(pipeline.args.len() as u32);
    }
    pipeline.command_ends.push(arguments.len() as u32);
    Command::Resp(pipeline)
}

/// Returns the number of fields, then names and values.
fn fields(row: Row<'_>, trace: Option<&str>) -> Result<Vec<Vec<u8>>, Fault> {
    let shown = String::from_utf8_lossy(row.key);
    match row.kind {
        kind::DELETE => return Ok(vec![b"0".to_vec()]),
        kind::INSERT | kind::UPDATE | kind::PUT => {}
        _ => return Err(format!("row {shown}: a hash takes no `add`")),
    }
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(row.value).map_err(|_| format!("row {shown}: a hash needs an object"))?;
    let own = 1 + usize::from(trace.is_some());
    let mut words = vec![(object.len() + own).to_string().into_bytes()];
    words.extend([b"_version".to_vec(), row.version.to_string().into_bytes()]);
    if let Some(trace) = trace {
        words.extend([b"_traceparent".to_vec(), trace.as_bytes().to_vec()]);
    }
    for (name, value) in object {
        words.push(name.into_bytes());
        words.push(match value {
            serde_json::Value::String(text) => text.into_bytes(),
            other => other.to_string().into_bytes(),
        });
    }
    Ok(words)
}

impl RedisHash {
    fn watermark_key(&self) -> Vec<u8> {
        format!("#watermark:{}", self.prefix).into_bytes()
    }

    fn request(
        &self,
        batch: &LogBatch,
        traces: &Traces,
        records: core::ops::Range<usize>,
    ) -> Result<Request, Fault> {
        let (first, last) = (batch.lsn[records.start], batch.lsn[records.end - 1]);
        let mut keys = vec![self.watermark_key()];
        let mut values = vec![(first - 1).to_string().into_bytes(), last.to_string().into_bytes()];
        for record in records {
            for row in batch.rows_of(record).map(|row| batch.row(record, row)) {
                keys.push([self.prefix.as_bytes(), row.key].concat());
                values.extend(fields(row, traces.of(record))?);
            }
        }
        let mut call = vec![b"EVAL".to_vec(), APPLY.as_bytes().to_vec(), keys.len().to_string().into_bytes()];
        call.append(&mut keys);
        call.append(&mut values);
        let idempotency_key = format!("{}:{first}-{last}", batch.store);
        Ok(Request { first, last, idempotency_key, command: command(&call) })
    }
}

impl Adaptor for RedisHash {
    fn takes(&self) -> Kinds {
        Kinds::all().difference(Kinds::ADD)
    }

    fn watermark(&self) -> Result<Request, Fault> {
        let command = command(&[b"GET".to_vec(), self.watermark_key()]);
        Ok(Request { first: 0, last: 0, idempotency_key: "watermark".into(), command })
    }

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
        self.encode_traced(batch, Traces::default())
    }

    fn encode_traced(&self, batch: LogBatch, traces: Traces) -> Result<Vec<Request>, Fault> {
        let groups = batch.groups(64 * 1024, |row| row.key.len() + row.value.len() + 64);
        groups.into_iter().map(|records| self.request(&batch, &traces, records)).collect()
    }

    fn classify(&self, reply: Reply) -> Ack {
        let Reply::Resp(values) = reply else { return Ack::Fatal("not a reply of Redis".into()) };
        match values.first() {
            Some(RespValue::Text(text)) if text == b"OK" => Ack::Ok,
            Some(RespValue::Error(error)) if error.starts_with("MOVED ") => Ack::Moved(error.clone()),
            Some(RespValue::Error(error)) if error.starts_with("LOADING") => Ack::Retry(error.clone()),
            other => Ack::Fatal(format!("{other:?}")),
        }
    }
}

tribunal_plugin_sdk::export_adaptor!(RedisHash, with traces);
