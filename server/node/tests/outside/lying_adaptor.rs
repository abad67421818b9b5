//! A LogAdaptor with the right types that breaks a promise which types cannot express: its configuration names the
//! promise.

use core::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use tribunal_plugin_sdk::adaptor::{Ack, Command, Kinds, LogBatch, RecordId, Reply, Request, RespPipeline, RespValue};
use tribunal_plugin_sdk::{Adaptor, Fault, Plugin, config};

/// The number of `encode` calls of this instance.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// The adaptor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LyingAdaptor {
    /// The promise that it breaks; none if omitted.
    #[serde(default)]
    breaks: String,
}

impl Plugin for LyingAdaptor {
    const NAME: &'static str = "lying-adaptor";
    const ABOUT: &'static str = "Breaks the promise that its configuration names.";

    fn init(text: &str) -> Result<Self, Fault> {
        config::parse(text)
    }
}

fn command(word: &str) -> Command {
    let end = word.len() as u32;
    Command::Resp(RespPipeline { args: word.into(), arg_ends: vec![end], command_ends: vec![1] })
}

impl Adaptor for LyingAdaptor {
    fn takes(&self) -> Kinds {
        Kinds::all()
    }

    fn watermark(&self) -> Result<Request, Fault> {
        Ok(Request { first: 0, last: 0, idempotency_key: "watermark".into(), command: command("GET") })
    }

    fn read_watermark(&self, reply: Reply) -> Result<u64, Fault> {
        match reply {
            _ if self.breaks == "watermark" => Ok(0),
            Reply::Resp(values) if matches!(values[..], [RespValue::Nil]) => Ok(0),
            _ => Err("no watermark".into()),
        }
    }

    fn last_record(&self, _: &Reply) -> Option<RecordId> {
        (self.breaks == "record").then(|| RecordId { lsn: 0, csn: 1, txn_id: [7; 16].into() })
    }

    fn encode(&self, batch: LogBatch) -> Result<Vec<Request>, Fault> {
        let breaks = |what: &str| self.breaks == what;
        if breaks("trap") {
            return Ok(vec![Request { first: batch.lsn[batch.lsn.len()], ..self.watermark()? }]);
        }
        if breaks("everything") {
            return Err("it takes nothing".into());
        }
        let asked = ASKED.fetch_add(1, Ordering::Relaxed);
        let left = if breaks("gap") { batch.lsn.len() - 1 } else { batch.lsn.len() };
        let request = |&lsn: &u64| Request {
            first: lsn,
            last: if breaks("overlap") { lsn + 1 } else { lsn },
            idempotency_key: match self.breaks.as_str() {
                "no key" => String::new(),
                "used" => format!("{lsn}/{asked}"),
                "one key" => "the key".into(),
                "key of a batch" => format!("{}-{}", batch.lsn.len(), lsn - batch.lsn[0]),
                _ => lsn.to_string(),
            },
            command: if breaks("columns") {
                Command::Resp(RespPipeline { args: vec![], arg_ends: vec![9], command_ends: vec![1] })
            } else {
                command("SET")
            },
        };
        Ok(batch.lsn[..left].iter().map(request).collect())
    }

    fn classify(&self, reply: Reply) -> Ack {
        match reply {
            _ if self.breaks == "success" => Ack::Ok,
            Reply::Resp(values) if matches!(values[..], [RespValue::Text(_)]) => Ack::Ok,
            _ => Ack::Retry("not yet".into()),
        }
    }
}

tribunal_plugin_sdk::export_adaptor!(LyingAdaptor);
