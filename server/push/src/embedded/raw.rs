//! The raw format's bytes: commands parsed without trust, answers encoded. Shapes are described in `embedded`.

use tribunal_types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use tribunal_types::{Digest, LogId, Lsn, Version, Watermark, WriteKind};

/// Status of an answer: the same command works later.
pub(super) const BUSY: u8 = 3;

/// One row of a command.
pub(super) struct RawRow<'a> {
    pub kind: WriteKind,
    pub version: Version,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// A well-formed command.
pub(super) struct RawCommand<'a> {
    /// What must have been applied.
    pub from: Lsn,
    /// What is applied afterwards.
    pub to: Lsn,
    pub rows: Vec<RawRow<'a>>,
}

impl<'a> RawCommand<'a> {
    pub(super) fn parse(mut bytes: &'a [u8]) -> Result<Self, String> {
        let from = Lsn(u64::from_le_bytes(take_array(&mut bytes)?));
        let to = Lsn(u64::from_le_bytes(take_array(&mut bytes)?));
        let count = u32::from_le_bytes(take_array(&mut bytes)?);
        if to < from || (to == from && count != 0) || (to == from && to != Lsn(0)) {
            return Err(format!("malformed command: {count} rows for records {from} to {to}"));
        }
        // A row takes at least 17 bytes, so a false count cannot reserve more memory than the command has.
        let mut rows = Vec::with_capacity((count as usize).min(bytes.len() / 17));
        for _ in 0..count {
            rows.push(take_row(&mut bytes)?);
        }
        if !bytes.is_empty() {
            return Err(format!("malformed command: {} bytes too many", bytes.len()));
        }
        Ok(RawCommand { from, to, rows })
    }

    /// Tells whether the command only asks for the watermark.
    pub(super) fn is_query(&self) -> bool {
        self.to == Lsn(0)
    }
}

/// Reads a watermark: `lsn u64, log 16 bytes, digest u64`.
pub(super) fn take_watermark(bytes: &mut &[u8]) -> Result<Watermark, String> {
    let lsn = Lsn(u64::from_le_bytes(take_array(bytes)?));
    let log = LogId(take_array(bytes)?);
    Ok(Watermark { lsn, log, digest: Digest(u64::from_le_bytes(take_array(bytes)?)) })
}

/// Writes what [`take_watermark`] reads.
pub(super) fn encode_watermark(watermark: &Watermark, into: &mut Vec<u8>) {
    into.extend_from_slice(&watermark.lsn.0.to_le_bytes());
    into.extend_from_slice(&watermark.log.0);
    into.extend_from_slice(&watermark.digest.0.to_le_bytes());
}

fn take_row<'a>(bytes: &mut &'a [u8]) -> Result<RawRow<'a>, String> {
    let [kind] = take_array::<1>(bytes)?;
    let kind = WriteKind::from_u8(kind).ok_or_else(|| format!("malformed command: write kind {kind}"))?;
    let version = u64::from_le_bytes(take_array(bytes)?);
    let version = Version::from_bits(version).ok_or_else(|| format!("malformed command: version {version}"))?;
    let key = take_piece(bytes, KEY_BYTES_MAX)?;
    let value = take_piece(bytes, VALUE_BYTES_MAX)?;
    Ok(RawRow { kind, version, key, value })
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let (array, rest) = bytes.split_first_chunk::<N>().ok_or("malformed command: it ends too early")?;
    *bytes = rest;
    Ok(*array)
}

fn take_piece<'a>(bytes: &mut &'a [u8], bytes_max: usize) -> Result<&'a [u8], String> {
    let len = u32::from_le_bytes(take_array(bytes)?) as usize;
    if len > bytes_max {
        return Err(format!("malformed command: a key or value of {len} bytes, at most {bytes_max} are allowed"));
    }
    let (piece, rest) = bytes.split_at_checked(len).ok_or("malformed command: it ends too early")?;
    *bytes = rest;
    Ok(piece)
}

/// What to answer.
pub(super) enum RawReply {
    Ok,
    Moved(String),
    Fatal(String),
    /// Nothing is wrong with the command; the same works later.
    Busy(String),
}

impl RawReply {
    pub(super) fn encode(self, watermark: Lsn) -> Vec<u8> {
        let (status, text) = match self {
            RawReply::Ok => (0, String::new()),
            RawReply::Moved(text) => (1, text),
            RawReply::Fatal(text) => (2, text),
            RawReply::Busy(text) => (BUSY, text),
        };
        let mut bytes = vec![status];
        bytes.extend_from_slice(&watermark.0.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }
}
