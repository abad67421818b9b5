//! What an epoch decided. Small beside its inputs: a committed transaction takes two to four bytes before lz4.

use std::collections::BTreeMap;

use tribunal_types::{
    Cen, Decision, Digest, EpochOutcome, FenceResult, Isolation, Lsn, PolicyFallback, StoreId, StoreLsn, TxnIx,
    VerdictAt, Version, Witness,
};

use crate::conflict::{op_kind, put_reason, put_version, stage, take_reason, take_version};
use crate::reader::{Malformed, Reader};
use crate::section::{put_section, take_section};
use crate::varint::{put_bytes, put_delta, put_varint};
use crate::{Kind, put_head, take_head};

const COMMITTED: u8 = 0;
const ABORTED: u8 = 1;
const REPLAYED: u8 = 2;
const BODY_MISMATCH: u8 = 3;
const EXPIRED: u8 = 4;
/// Committed with a version that is not of the outcome's own epoch.
const COMMITTED_ELSEWHERE: u8 = 5;

/// Appends the encoded outcome.
pub fn encode_outcome(outcome: &EpochOutcome, out: &mut Vec<u8>) {
    put_head(Kind::Outcome, out);
    let mut columns = Vec::with_capacity(64 + 12 * outcome.decisions.len());
    put_varint(outcome.cen.0, &mut columns);
    put_varint(outcome.epoch_time_ms, &mut columns);
    put_delta(outcome.floor.0, outcome.cen.0, &mut columns);
    put_varint(outcome.imported, &mut columns);
    columns.extend_from_slice(&outcome.digest.0.to_le_bytes());
    put_decisions(outcome, &mut columns);
    put_order(outcome, &mut columns);
    put_answers(outcome, &mut columns);
    put_section(&columns, out);
}

/// Decodes an outcome.
///
/// # Errors
/// If the bytes are not one.
pub fn decode_outcome(bytes: &[u8]) -> Result<EpochOutcome, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Outcome, &mut reader)?;
    let columns = take_section(&mut reader, "columns")?;
    reader.finish("end of outcome")?;
    let mut reader = Reader::new(&columns);
    let cen = Cen(reader.varint("epoch")?);
    let mut outcome = EpochOutcome {
        cen,
        epoch_time_ms: reader.varint("epoch time")?,
        floor: Cen(cen.0.wrapping_sub(reader.signed("floor")? as u64)),
        imported: reader.varint("imported")?,
        digest: Digest(reader.u64_le("digest")?),
        ..EpochOutcome::default()
    };
    take_decisions(&mut reader, &mut outcome)?;
    take_order(&mut reader, &mut outcome)?;
    take_answers(&mut reader, &mut outcome)?;
    reader.finish("end of columns")?;
    Ok(outcome)
}

fn put_decisions(outcome: &EpochOutcome, out: &mut Vec<u8>) {
    put_varint(outcome.decisions.len() as u64, out);
    for decision in &outcome.decisions {
        out.push(match decision {
            Decision::Committed { version } if version.cen() == outcome.cen => COMMITTED,
            Decision::Committed { .. } => COMMITTED_ELSEWHERE,
            Decision::Aborted { .. } => ABORTED,
            Decision::Replayed { .. } => REPLAYED,
            Decision::BodyMismatch => BODY_MISMATCH,
            Decision::Expired => EXPIRED,
        });
    }
    let mut position = 0;
    let mut witness = 0;
    for decision in &outcome.decisions {
        match *decision {
            Decision::Committed { version } if version.cen() == outcome.cen => {
                put_delta(position, u64::from(version.position()), out);
                position = u64::from(version.position());
            }
            Decision::Committed { version } => put_varint(version.bits(), out),
            Decision::Aborted { reason, first, count } => {
                put_reason(reason, out);
                put_delta(witness, u64::from(first), out);
                put_varint(u64::from(count), out);
                witness = u64::from(first) + u64::from(count);
            }
            Decision::Replayed { original } => put_verdict_at(original, outcome.cen, out),
            Decision::BodyMismatch | Decision::Expired => {}
        }
    }
    put_varint(outcome.witnesses.len() as u64, out);
    for witness in &outcome.witnesses {
        out.push(witness.op as u8 | (witness.stage as u8) << 2);
        put_varint(u64::from(witness.index), out);
        put_version(witness.current, outcome.cen, out);
        put_varint(witness.winner.map_or(0, |ix| u64::from(ix.0) + 1), out);
    }
}

fn take_decisions(reader: &mut Reader<'_>, outcome: &mut EpochOutcome) -> Result<(), Malformed> {
    let count = reader.count(1, "decisions")?;
    let kinds = reader.take(count, "decisions")?;
    outcome.decisions.reserve_exact(count);
    let (mut position, mut witness) = (0, 0);
    for kind in kinds {
        outcome.decisions.push(match *kind {
            COMMITTED => {
                position = reader.delta(position, "position")?;
                let version = u32::try_from(position).ok().and_then(|p| Version::new(outcome.cen, p));
                Decision::Committed { version: version.ok_or_else(|| reader.malformed("position"))? }
            }
            COMMITTED_ELSEWHERE => {
                let version = Version::from_bits(reader.varint("version")?);
                Decision::Committed { version: version.ok_or_else(|| reader.malformed("version"))? }
            }
            ABORTED => {
                let reason = take_reason(reader)?;
                let first = reader.delta(witness, "witness")?;
                let first = u32::try_from(first).map_err(|_| reader.malformed("witness"))?;
                let count: u32 = reader.number("witnesses")?;
                witness = u64::from(first) + u64::from(count);
                Decision::Aborted { reason, first, count }
            }
            REPLAYED => Decision::Replayed { original: take_verdict_at(reader, outcome.cen)? },
            BODY_MISMATCH => Decision::BodyMismatch,
            EXPIRED => Decision::Expired,
            _ => return Err(reader.malformed("decision")),
        });
    }
    let count = reader.count(4, "witnesses")?;
    outcome.witnesses.reserve_exact(count);
    for _ in 0..count {
        let flags = reader.u8("witness")?;
        let op = op_kind(flags & 3).ok_or_else(|| reader.malformed("operation"))?;
        let stage = stage(flags >> 2).ok_or_else(|| reader.malformed("stage"))?;
        let index = reader.number("operation")?;
        let current = take_version(reader, outcome.cen)?;
        let winner = reader.varint("winner")?;
        let winner = match winner.checked_sub(1) {
            None => None,
            Some(ix) => Some(TxnIx(u32::try_from(ix).map_err(|_| reader.malformed("winner"))?)),
        };
        outcome.witnesses.push(Witness { op, index, current, winner, stage });
    }
    check_witness_spans(reader, outcome)
}

/// A reader of outcomes indexes `witnesses` without looking twice.
fn check_witness_spans(reader: &Reader<'_>, outcome: &EpochOutcome) -> Result<(), Malformed> {
    for decision in &outcome.decisions {
        if let Decision::Aborted { first, count, .. } = *decision
            && first as usize + count as usize > outcome.witnesses.len()
        {
            return Err(reader.malformed("witness of a decision"));
        }
    }
    Ok(())
}

fn put_order(outcome: &EpochOutcome, out: &mut Vec<u8>) {
    put_varint(outcome.order.len() as u64, out);
    let mut expected = 0;
    for ix in &outcome.order {
        put_delta(expected, u64::from(ix.0), out);
        expected = u64::from(ix.0) + 1;
    }
    put_varint(outcome.lsns.len() as u64, out);
    let (mut txn, mut store) = (0, 0);
    for entry in &outcome.lsns {
        put_delta(txn, u64::from(entry.txn.0), out);
        (txn, _) = (u64::from(entry.txn.0), store);
        put_delta(store, u64::from(entry.store.0), out);
        store = u64::from(entry.store.0);
    }
    let mut next = BTreeMap::new();
    for entry in &outcome.lsns {
        let expected = next.entry(entry.store).or_insert(0_u64);
        put_delta(*expected, entry.lsn.0, out);
        *expected = entry.lsn.0.wrapping_add(1);
    }
}

fn take_order(reader: &mut Reader<'_>, outcome: &mut EpochOutcome) -> Result<(), Malformed> {
    let count = reader.count(1, "order")?;
    outcome.order.reserve_exact(count);
    let mut expected = 0;
    for _ in 0..count {
        let ix = u32::try_from(reader.delta(expected, "order")?).map_err(|_| reader.malformed("order"))?;
        outcome.order.push(TxnIx(ix));
        expected = u64::from(ix) + 1;
    }
    let count = reader.count(3, "log positions")?;
    outcome.lsns.reserve_exact(count);
    let (mut txn, mut store) = (0, 0);
    for _ in 0..count {
        txn = reader.delta(txn, "transaction")?;
        store = reader.delta(store, "store")?;
        outcome.lsns.push(StoreLsn {
            txn: TxnIx(u32::try_from(txn).map_err(|_| reader.malformed("transaction"))?),
            store: StoreId(u32::try_from(store).map_err(|_| reader.malformed("store"))?),
            lsn: Lsn(0),
        });
    }
    let mut next = BTreeMap::new();
    for entry in &mut outcome.lsns {
        let expected = next.entry(entry.store).or_insert(0_u64);
        entry.lsn = Lsn(reader.delta(*expected, "log position")?);
        *expected = entry.lsn.0.wrapping_add(1);
    }
    Ok(())
}

fn put_verdict_at(at: VerdictAt, near: Cen, out: &mut Vec<u8>) {
    put_delta(at.cen.0, near.0, out);
    put_varint(u64::from(at.item), out);
}

fn take_verdict_at(reader: &mut Reader<'_>, near: Cen) -> Result<VerdictAt, Malformed> {
    let cen = Cen(near.0.wrapping_sub(reader.signed("epoch of verdict")? as u64));
    Ok(VerdictAt { cen, item: reader.number("item of verdict")? })
}

/// Appends the answers to given verdicts and fences, and the plugins that failed.
fn put_answers(outcome: &EpochOutcome, out: &mut Vec<u8>) {
    put_varint(outcome.given.len() as u64, out);
    for at in &outcome.given {
        put_verdict_at(*at, outcome.cen, out);
    }
    put_varint(outcome.fences.len() as u64, out);
    for fence in &outcome.fences {
        match fence {
            FenceResult::Fenced => out.push(0),
            FenceResult::Known(at) => {
                out.push(1);
                put_verdict_at(*at, outcome.cen, out);
            }
            FenceResult::Expired => out.push(2),
        }
    }
    put_varint(outcome.fallbacks.len() as u64, out);
    for fallback in &outcome.fallbacks {
        out.push(fallback.level.map_or(0, |level| level as u8 + 1));
        put_bytes(fallback.fault.as_bytes(), out);
    }
}

fn take_answers(reader: &mut Reader<'_>, outcome: &mut EpochOutcome) -> Result<(), Malformed> {
    let count = reader.count(2, "given verdicts")?;
    outcome.given.reserve_exact(count);
    for _ in 0..count {
        outcome.given.push(take_verdict_at(reader, outcome.cen)?);
    }
    let count = reader.count(1, "fences")?;
    outcome.fences.reserve_exact(count);
    for _ in 0..count {
        outcome.fences.push(match reader.u8("fence")? {
            0 => FenceResult::Fenced,
            1 => FenceResult::Known(take_verdict_at(reader, outcome.cen)?),
            2 => FenceResult::Expired,
            _ => return Err(reader.malformed("fence")),
        });
    }
    let count = reader.count(2, "fallbacks")?;
    outcome.fallbacks.reserve_exact(count);
    for _ in 0..count {
        let level = match reader.u8("level")?.checked_sub(1) {
            None => None,
            Some(level) => Some(Isolation::from_u8(level).ok_or_else(|| reader.malformed("level"))?),
        };
        outcome.fallbacks.push(PolicyFallback { level, fault: reader.text("fault")? });
    }
    Ok(())
}
