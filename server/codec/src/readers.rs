//! What a node remembers of those who read its logs: checkpoints of consumers, and webhooks with their watermarks.
//!
//! Layout after the head: checkpoints as count, then namespace, store, log, LSN, time and name each; webhooks as count,
//! then store, records, bytes and milliseconds of their batching, log, watermark, URL and secret each.

use tribunal_types::{LogId, Lsn, NamespaceId, StoreId};

use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

/// How far a consumer is in one store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Tenant.
    pub namespace: NamespaceId,
    /// The consumer's name.
    pub name: String,
    /// The store.
    pub store: StoreId,
    /// The log that `lsn` is a position of.
    pub log: LogId,
    /// Last record that it is done with.
    pub lsn: Lsn,
    /// When it said so, milliseconds since 1970 by the node's clock; nothing is decided by it.
    pub at_ms: u64,
}

/// A registered receiver of one store's log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Webhook {
    /// The store.
    pub store: StoreId,
    /// Where to post.
    pub url: String,
    /// What bodies are signed with.
    pub secret: String,
    /// Most records of one request.
    pub records_max: u32,
    /// Most bytes of keys and values of one request.
    pub bytes_max: u32,
    /// How long one request may take.
    pub timeout_ms: u32,
    /// The log that `watermark` is a position of.
    pub log: LogId,
    /// Last record that the receiver has acknowledged.
    pub watermark: Lsn,
}

impl std::fmt::Debug for Webhook {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("store", &self.store)
            .field("url", &self.url)
            .field("watermark", &self.watermark)
            .finish_non_exhaustive()
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// Checkpoints.
    pub checkpoints: Vec<Checkpoint>,
    /// Webhooks.
    pub webhooks: Vec<Webhook>,
}

/// Encodes what is remembered.
#[must_use]
pub fn encode_readers(readers: &Readers) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * (1 + readers.checkpoints.len() + 2 * readers.webhooks.len()));
    put_head(Kind::Readers, &mut out);
    put_varint(readers.checkpoints.len() as u64, &mut out);
    for checkpoint in &readers.checkpoints {
        put_varint(u64::from(checkpoint.namespace.0), &mut out);
        put_varint(u64::from(checkpoint.store.0), &mut out);
        out.extend_from_slice(&checkpoint.log.0);
        put_varint(checkpoint.lsn.0, &mut out);
        put_varint(checkpoint.at_ms, &mut out);
        put_bytes(checkpoint.name.as_bytes(), &mut out);
    }
    put_varint(readers.webhooks.len() as u64, &mut out);
    for webhook in &readers.webhooks {
        put_varint(u64::from(webhook.store.0), &mut out);
        put_varint(u64::from(webhook.records_max), &mut out);
        put_varint(u64::from(webhook.bytes_max), &mut out);
        put_varint(u64::from(webhook.timeout_ms), &mut out);
        out.extend_from_slice(&webhook.log.0);
        put_varint(webhook.watermark.0, &mut out);
        put_bytes(webhook.url.as_bytes(), &mut out);
        put_bytes(webhook.secret.as_bytes(), &mut out);
    }
    out
}

/// Decodes what is remembered.
///
/// # Errors
/// If the bytes are not that.
pub fn decode_readers(bytes: &[u8]) -> Result<Readers, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Readers, &mut reader)?;
    let count = reader.count(21, "checkpoints")?;
    let mut readers = Readers::default();
    for _ in 0..count {
        readers.checkpoints.push(Checkpoint {
            namespace: NamespaceId(reader.number("namespace")?),
            store: StoreId(reader.number("store")?),
            log: LogId(reader.array("log of a checkpoint")?),
            lsn: Lsn(reader.varint("checkpoint")?),
            at_ms: reader.varint("time of a checkpoint")?,
            name: reader.text("name of a consumer")?,
        });
    }
    let count = reader.count(23, "webhooks")?;
    for _ in 0..count {
        readers.webhooks.push(Webhook {
            store: StoreId(reader.number("store")?),
            records_max: reader.number("records of a request")?,
            bytes_max: reader.number("bytes of a request")?,
            timeout_ms: reader.number("time-out of a request")?,
            log: LogId(reader.array("log of a watermark")?),
            watermark: Lsn(reader.varint("watermark")?),
            url: reader.text("url")?,
            secret: reader.text("secret")?,
        });
    }
    reader.finish("end of readers")?;
    Ok(readers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Readers {
        let checkpoint = |name: &str, lsn| Checkpoint {
            namespace: NamespaceId(3),
            name: name.into(),
            store: StoreId(u32::MAX),
            log: LogId([9; 16]),
            lsn: Lsn(lsn),
            at_ms: 1_700_000_000_000,
        };
        let webhook = Webhook {
            store: StoreId(1),
            url: "https://receiver.example/hook".into(),
            secret: "0123456789abcdef".into(),
            records_max: 500,
            bytes_max: 1 << 20,
            timeout_ms: 10_000,
            log: LogId([9; 16]),
            watermark: Lsn(7),
        };
        Readers { checkpoints: vec![checkpoint("a", 0), checkpoint("b", u64::MAX)], webhooks: vec![webhook] }
    }

    #[test]
    fn what_is_remembered_comes_back_whole_or_not_at_all() {
        for readers in [sample(), Readers::default()] {
            let bytes = encode_readers(&readers);
            assert_eq!(decode_readers(&bytes), Ok(readers));
            for cut in 0..bytes.len() {
                assert!(decode_readers(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    /// Written by this version: later ones must read it.
    #[test]
    fn the_second_version_stays_readable() {
        let bytes = include_bytes!("../tests/readers-v2.bin");
        assert_eq!(decode_readers(bytes), Ok(sample()));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert!(!format!("{:?}", sample()).contains("0123456789abcdef"));
    }
}
