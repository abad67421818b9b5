//! The state that a node stores for readers of its logs: offsets of consumers, and webhooks with their watermarks.
//!
//! Layout after the head: number of offsets, then namespace, store, log, LSN, time and name of each; number of webhooks,
//! then store, records_max, bytes_max, timeout_ms, log, watermark, URL and secret of each.

use tribunal_types::{LogId, Lsn, NamespaceId, StoreId};

use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

/// A consumer's position in one store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerOffset {
    /// Namespace of the consumer.
    pub namespace: NamespaceId,
    /// Name of the consumer.
    pub name: String,
    /// The store.
    pub store: StoreId,
    /// The log that `lsn` belongs to.
    pub log: LogId,
    /// Last record that the consumer has processed.
    pub lsn: Lsn,
    /// When the offset was set, Unix milliseconds of the node's clock. Informational.
    pub at_ms: u64,
}

/// A registered receiver of one store's log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Webhook {
    /// The store.
    pub store: StoreId,
    /// URL that records are posted to.
    pub url: String,
    /// Key that signs the bodies.
    pub secret: String,
    /// Maximum number of records in one request.
    pub records_max: u32,
    /// Maximum size of keys and values in one request.
    pub bytes_max: u32,
    /// Timeout of one request.
    pub timeout_ms: u32,
    /// The log that `watermark` belongs to.
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

/// The state of all readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// Offsets of consumers.
    pub offsets: Vec<ConsumerOffset>,
    /// Registered webhooks.
    pub webhooks: Vec<Webhook>,
}

/// Encodes the state of all readers.
#[must_use]
pub fn encode_readers(readers: &Readers) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * (1 + readers.offsets.len() + 2 * readers.webhooks.len()));
    put_head(Kind::Readers, &mut out);
    put_varint(readers.offsets.len() as u64, &mut out);
    for offset in &readers.offsets {
        put_varint(u64::from(offset.namespace.0), &mut out);
        put_varint(u64::from(offset.store.0), &mut out);
        out.extend_from_slice(&offset.log.0);
        put_varint(offset.lsn.0, &mut out);
        put_varint(offset.at_ms, &mut out);
        put_bytes(offset.name.as_bytes(), &mut out);
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

/// Decodes the state of all readers.
///
/// # Errors
/// If the bytes are not such a record.
pub fn decode_readers(bytes: &[u8]) -> Result<Readers, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Readers, &mut reader)?;
    let count = reader.count(21, "offsets")?;
    let mut readers = Readers::default();
    for _ in 0..count {
        readers.offsets.push(ConsumerOffset {
            namespace: NamespaceId(reader.number("namespace")?),
            store: StoreId(reader.number("store")?),
            log: LogId(reader.array("log of an offset")?),
            lsn: Lsn(reader.varint("offset")?),
            at_ms: reader.varint("time of an offset")?,
            name: reader.text("name of a consumer")?,
        });
    }
    let count = reader.count(23, "webhooks")?;
    for _ in 0..count {
        readers.webhooks.push(Webhook {
            store: StoreId(reader.number("store")?),
            records_max: reader.number("records of a request")?,
            bytes_max: reader.number("bytes of a request")?,
            timeout_ms: reader.number("timeout of a request")?,
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
        let offset = |name: &str, lsn| ConsumerOffset {
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
        Readers { offsets: vec![offset("a", 0), offset("b", u64::MAX)], webhooks: vec![webhook] }
    }

    #[test]
    fn readers_survive_a_round_trip_and_truncated_bytes_are_rejected() {
        for readers in [sample(), Readers::default()] {
            let bytes = encode_readers(&readers);
            assert_eq!(decode_readers(&bytes), Ok(readers));
            for cut in 0..bytes.len() {
                assert!(decode_readers(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    /// The file was written by version 2 of the format. Later releases must read it.
    #[test]
    fn version_2_stays_readable() {
        let bytes = include_bytes!("../tests/readers-v2.bin");
        assert_eq!(decode_readers(bytes), Ok(sample()));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert!(!format!("{:?}", sample()).contains("0123456789abcdef"));
    }
}
