//! The state that a single node stores for readers of its logs: offsets of consumers, and webhooks with their
//! watermarks. In a cluster these are entries of the control log, with the same encoding of each.
//!
//! Layout after the head: number of offsets, then namespace, store, log, LSN, time and name of each; number of
//! webhooks, then store, records_max, bytes_max, timeout_ms, log, watermark, URL and secret of each.

use tribunal_types::{ConsumerOffset, ControlIndex, LogId, Lsn, NamespaceId, ReaderMove, StoreId, Webhook};

use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

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
    readers.offsets.iter().for_each(|offset| put_offset(offset, &mut out));
    put_varint(readers.webhooks.len() as u64, &mut out);
    readers.webhooks.iter().for_each(|webhook| put_webhook(webhook, &mut out));
    out
}

pub(crate) fn put_offset(offset: &ConsumerOffset, out: &mut Vec<u8>) {
    put_varint(u64::from(offset.namespace.0), out);
    put_varint(u64::from(offset.store.0), out);
    out.extend_from_slice(&offset.log.0);
    put_varint(offset.lsn.0, out);
    put_varint(offset.at_ms, out);
    put_bytes(offset.name.as_bytes(), out);
}

pub(crate) fn put_webhook(webhook: &Webhook, out: &mut Vec<u8>) {
    put_varint(u64::from(webhook.store.0), out);
    put_varint(u64::from(webhook.records_max), out);
    put_varint(u64::from(webhook.bytes_max), out);
    put_varint(u64::from(webhook.timeout_ms), out);
    out.extend_from_slice(&webhook.log.0);
    put_varint(webhook.watermark.0, out);
    put_bytes(webhook.url.as_bytes(), out);
    put_bytes(webhook.secret.as_bytes(), out);
}

pub(crate) fn put_reader_move(change: &ReaderMove, out: &mut Vec<u8>) {
    match change {
        ReaderMove::Offset(offset) => {
            out.push(0);
            put_offset(offset, out);
        }
        ReaderMove::Forget { namespace, name, store } => {
            out.push(1);
            put_varint(u64::from(namespace.0), out);
            put_bytes(name.as_bytes(), out);
            // A store may have any number, so the number plus one is stored.
            put_varint(store.map_or(0, |store| u64::from(store.0) + 1), out);
        }
        ReaderMove::Delivered { store, delivery, lsn } => {
            out.push(2);
            put_varint(u64::from(store.0), out);
            put_varint(delivery.0, out);
            put_varint(lsn.0, out);
        }
    }
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
        readers.offsets.push(take_offset(&mut reader)?);
    }
    let count = reader.count(23, "webhooks")?;
    for _ in 0..count {
        readers.webhooks.push(take_webhook(&mut reader)?);
    }
    reader.finish("end of readers")?;
    Ok(readers)
}

pub(crate) fn take_offset(reader: &mut Reader<'_>) -> Result<ConsumerOffset, Malformed> {
    Ok(ConsumerOffset {
        namespace: NamespaceId(reader.number("namespace")?),
        store: StoreId(reader.number("store")?),
        log: LogId(reader.array("log of an offset")?),
        lsn: Lsn(reader.varint("offset")?),
        at_ms: reader.varint("time of an offset")?,
        name: reader.text("name of a consumer")?,
    })
}

pub(crate) fn take_webhook(reader: &mut Reader<'_>) -> Result<Webhook, Malformed> {
    Ok(Webhook {
        store: StoreId(reader.number("store")?),
        records_max: reader.number("records of a request")?,
        bytes_max: reader.number("bytes of a request")?,
        timeout_ms: reader.number("timeout of a request")?,
        log: LogId(reader.array("log of a watermark")?),
        watermark: Lsn(reader.varint("watermark")?),
        url: reader.text("url")?,
        secret: reader.text("secret")?,
    })
}

pub(crate) fn take_reader_move(reader: &mut Reader<'_>) -> Result<ReaderMove, Malformed> {
    Ok(match reader.u8("change of a reader")? {
        0 => ReaderMove::Offset(take_offset(reader)?),
        1 => {
            let namespace = NamespaceId(reader.number("namespace")?);
            let (name, store) = (reader.text("name of a consumer")?, reader.varint("store")?);
            let store = store.checked_sub(1).map(u32::try_from).transpose();
            let store = store.map_err(|_| reader.malformed("store"))?.map(StoreId);
            ReaderMove::Forget { namespace, name, store }
        }
        2 => ReaderMove::Delivered {
            store: StoreId(reader.number("store")?),
            delivery: ControlIndex(reader.varint("delivery")?),
            lsn: Lsn(reader.varint("watermark")?),
        },
        _ => return Err(reader.malformed("change of a reader")),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an offset of a consumer, with a value in each field.
    pub(crate) fn offset(name: &str, store: u32, lsn: u64) -> ConsumerOffset {
        ConsumerOffset {
            namespace: NamespaceId(3),
            name: name.into(),
            store: StoreId(store),
            log: LogId([9; 16]),
            lsn: Lsn(lsn),
            at_ms: 1_700_000_000_000,
        }
    }

    /// Returns a webhook, with a value in each field.
    pub(crate) fn webhook(store: u32, watermark: u64) -> Webhook {
        Webhook {
            store: StoreId(store),
            url: "https://receiver.example/hook".into(),
            secret: "0123456789abcdef".into(),
            records_max: 500,
            bytes_max: 1 << 20,
            timeout_ms: 10_000,
            log: LogId([9; 16]),
            watermark: Lsn(watermark),
        }
    }

    fn sample() -> Readers {
        let offsets = vec![offset("a", u32::MAX, 0), offset("b", u32::MAX, u64::MAX)];
        Readers { offsets, webhooks: vec![webhook(1, 7)] }
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
