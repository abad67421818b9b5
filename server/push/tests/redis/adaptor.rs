//! A small native LogAdaptor for Redis: a single Lua call atomically applies a batch and moves the watermark.

use tribunal_push::{Adaptor, AdaptorFault};
use tribunal_types::{Ack, Command, Lsn, PushRequest, RecordBatch, RespPipeline, RespValue, StorageReply};

const APPLY: &str = r"
if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return redis.error_reply('MOVED watermark') end
for i = 3, #ARGV, 4 do
  local kind, version, key, value = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if kind == '3' then
    redis.call('DEL', key)
  else
    if kind == '4' then
      local old = redis.call('GET', key)
      value = string.format('%d', tonumber(string.match(old, ' (.*)')) + tonumber(value))
    end
    redis.call('SET', key, version .. ' ' .. value)
  end
end
redis.call('SET', KEYS[1], ARGV[2])
return 'OK'";

/// Records that write this key are rejected.
pub const POISON: &str = "poison";

pub struct LuaAdaptor;

pub fn command(parts: &[&[u8]]) -> Command {
    let mut pipeline = RespPipeline::default();
    for part in parts {
        pipeline.args.extend_from_slice(part);
        pipeline.arg_ends.push(pipeline.args.len() as u32);
    }
    pipeline.command_ends.push(parts.len() as u32);
    Command::Resp(pipeline)
}

impl Adaptor for LuaAdaptor {
    fn watermark(&self) -> Result<PushRequest, AdaptorFault> {
        let command = command(&[b"GET", b"watermark"]);
        Ok(PushRequest { first: Lsn(0), last: Lsn(0), idempotency_key: String::new(), command })
    }

    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault> {
        match reply {
            StorageReply::Resp(values) => match values.as_slice() {
                [RespValue::Nil] => Ok(Lsn(0)),
                [RespValue::Text(text)] => String::from_utf8_lossy(text)
                    .parse()
                    .map(Lsn)
                    .map_err(|_| AdaptorFault::new("the watermark is not a number")),
                other => Err(AdaptorFault::new(format!("no watermark: {other:?}"))),
            },
            other => Err(AdaptorFault::new(format!("no RESP: {other:?}"))),
        }
    }

    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault> {
        let (first, last) = records.bounds().ok_or_else(|| AdaptorFault::new("no records"))?;
        let mut parts: Vec<Vec<u8>> = vec![b"EVAL".to_vec(), APPLY.into(), b"1".to_vec(), b"watermark".to_vec()];
        parts.push((first.0 - 1).to_string().into_bytes());
        parts.push(last.to_string().into_bytes());
        for (index, head) in records.records.iter().enumerate() {
            for write in &records.writes[records.writes_of(index)] {
                let key = write.key.of(&records.bytes);
                if key == POISON.as_bytes() {
                    return Err(AdaptorFault::new("cannot be expressed"));
                }
                parts.push((write.kind as u8).to_string().into_bytes());
                parts.push(head.version.to_string().into_bytes());
                parts.push(key.to_vec());
                parts.push(write.value.of(&records.bytes).to_vec());
            }
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        Ok(vec![PushRequest { first, last, idempotency_key: format!("{first}-{last}"), command: command(&parts) }])
    }

    fn classify(&self, reply: &StorageReply) -> Ack {
        let StorageReply::Resp(values) = reply else { return Ack::Fatal("no RESP".to_owned()) };
        match values.as_slice() {
            [RespValue::Text(text)] if text == b"OK" => Ack::Ok,
            [RespValue::Error(text)] if text.starts_with("MOVED") => Ack::Moved(text.clone()),
            [RespValue::Error(text)] if text.starts_with("LOADING") => Ack::Retry(text.clone()),
            other => Ack::Fatal(format!("{other:?}")),
        }
    }
}
