//! Values used by several kinds of records: versions, reasons, conflicts.

use tribunal_types::{Conflict, Epoch, OpKind, Reason, Stage, StoreId, TxnId, Version};

use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_delta, put_varint};

/// Appends a version relative to epoch `near`. `None` takes one byte, a version of a recent epoch two to four.
pub(crate) fn put_version(version: Option<Version>, near: Epoch, out: &mut Vec<u8>) {
    match version {
        None => out.push(0),
        Some(version) => {
            // The low bit means "present". An epoch has 43 bits, so there is room for this bit and the sign.
            let distance = near.0.wrapping_sub(version.epoch().0) as i64;
            put_varint((((distance << 1) ^ (distance >> 63)) as u64) << 1 | 1, out);
            put_varint(u64::from(version.position()), out);
        }
    }
}

/// Reads a version relative to epoch `near`.
pub(crate) fn take_version(reader: &mut Reader<'_>, near: Epoch) -> Result<Option<Version>, Malformed> {
    let head = reader.varint("version")?;
    if head == 0 {
        return Ok(None);
    }
    if head & 1 == 0 {
        return Err(reader.malformed("version"));
    }
    let distance = crate::varint::unzigzag(head >> 1);
    let epoch = Epoch(near.0.wrapping_sub(distance as u64));
    let position = reader.number("position")?;
    Version::new(epoch, position).map(Some).ok_or_else(|| reader.malformed("version"))
}

/// Appends a reason. Plugin codes get an extra byte, because they may have any of its 256 values.
pub(crate) fn put_reason(reason: Reason, out: &mut Vec<u8>) {
    match reason {
        Reason::Plugin(code) => out.extend_from_slice(&[0, code]),
        named => out.push(named.code()),
    }
}

/// Reads a reason.
pub(crate) fn take_reason(reader: &mut Reader<'_>) -> Result<Reason, Malformed> {
    match reader.u8("reason")? {
        0 => Ok(Reason::Plugin(reader.u8("plugin's code")?)),
        code @ 1..=127 => Err(Malformed { what: "reason", at: usize::from(code) }),
        code => Reason::from_code(code).ok_or_else(|| reader.malformed("reason")),
    }
}

/// Returns the kind of operation with number `n`.
pub(crate) fn op_kind(n: u8) -> Option<OpKind> {
    [OpKind::Read, OpKind::Range, OpKind::Write].get(usize::from(n)).copied()
}

/// Returns the stage with number `n`.
pub(crate) fn stage(n: u8) -> Option<Stage> {
    Stage::ALL.get(usize::from(n)).copied()
}

/// Appends a conflict of an early abort, without `row` and `changed_in`: these belong to changes of ranges, which never
/// cause early aborts.
pub(crate) fn put_conflict(conflict: &Conflict, near: Epoch, out: &mut Vec<u8>) {
    out.push(
        conflict.op as u8
            | (conflict.stage as u8) << 2
            | u8::from(conflict.end.is_some()) << 5
            | u8::from(conflict.by_txn.is_some()) << 6,
    );
    put_delta(0, u64::from(conflict.store.0), out);
    put_bytes(&conflict.key, out);
    if let Some(end) = &conflict.end {
        put_bytes(end, out);
    }
    put_version(conflict.read_version, near, out);
    put_version(conflict.current_version, near, out);
    if let Some(by) = conflict.by_txn {
        out.extend_from_slice(&by.0);
    }
}

/// Minimum size of an encoded conflict.
pub(crate) const CONFLICT_BYTES_MIN: usize = 5;

/// Reads a conflict.
pub(crate) fn take_conflict(reader: &mut Reader<'_>, near: Epoch) -> Result<Conflict, Malformed> {
    let flags = reader.u8("conflict")?;
    let op = op_kind(flags & 3).ok_or_else(|| reader.malformed("operation"))?;
    let stage = stage(flags >> 2 & 7).ok_or_else(|| reader.malformed("stage"))?;
    if flags >> 7 != 0 {
        return Err(reader.malformed("conflict"));
    }
    let store = reader.delta(0, "store")?;
    Ok(Conflict {
        store: StoreId(u32::try_from(store).map_err(|_| reader.malformed("store"))?),
        key: reader.bytes("key")?.to_vec(),
        end: if flags >> 5 & 1 == 0 { None } else { Some(reader.bytes("end of range")?.to_vec()) },
        op,
        read_version: take_version(reader, near)?,
        row: None,
        current_version: take_version(reader, near)?,
        by_txn: if flags >> 6 & 1 == 0 { None } else { Some(TxnId(reader.array("winner")?)) },
        changed_in: None,
        stage,
    })
}
