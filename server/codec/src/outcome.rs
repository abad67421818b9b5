//! Outcomes of epochs. Small compared with their inputs: a committed transaction takes one to four bytes before lz4.
//!
//! Layout: kind, version, last section: bit set of defaults and columns, epoch time, floor, [imported], digest, then
//! decisions, order, log positions and results, as far as they differ from the defaults.

use std::collections::BTreeMap;

use tribunal_types::{
    CreatedRow, Decision, Digest, Epoch, EpochOutcome, FenceResult, Isolation, Lsn, PolicyFallback, StoreId, StoreLsn,
    TxnIx, VerdictAt, Version, Witness,
};

use crate::conflict::{op_kind, put_reason, put_version, stage, take_reason, take_version};
use crate::reader::{Malformed, Reader};
use crate::section::{put_last_section, take_last_section};
use crate::varint::{put_bytes, put_delta, put_varint};
use crate::{Kind, put_head, take_head};

/// All transactions committed, with versions of this epoch.
const ALL_COMMITTED: u8 = 1;
/// The order contains all transactions as they arrived.
const IN_ARRIVAL_ORDER: u8 = 1 << 1;
/// Each transaction of the order has one log position; all are in the same store and consecutive.
const ONE_STORE: u8 = 1 << 2;
const HAS_WITNESSES: u8 = 1 << 3;
const HAS_IMPORTED: u8 = 1 << 4;
const HAS_EARLY_ABORTS: u8 = 1 << 5;
const HAS_FENCES: u8 = 1 << 6;
/// Plugins failed, or adds created rows.
const HAS_RARITIES: u8 = 1 << 7;

const COMMITTED: u8 = 0;
const ABORTED: u8 = 1;
const REPLAYED: u8 = 2;
const BODY_MISMATCH: u8 = 3;
const EXPIRED: u8 = 4;
/// Committed with a version of another epoch.
const COMMITTED_ELSEWHERE: u8 = 5;

/// Appends the encoded outcome, without its epoch.
pub fn encode_outcome(outcome: &EpochOutcome, out: &mut Vec<u8>) {
    put_head(Kind::Outcome, out);
    let mut columns = Vec::with_capacity(64 + 12 * outcome.decisions.len());
    let has = columns_of(outcome);
    columns.push(has);
    put_varint(outcome.epoch_time_ms, &mut columns);
    put_delta(outcome.floor.0, outcome.epoch.0, &mut columns);
    if has & HAS_IMPORTED != 0 {
        put_varint(outcome.imported.len() as u64, &mut columns);
        outcome.imported.iter().for_each(|&rows| put_varint(rows, &mut columns));
    }
    columns.extend_from_slice(&outcome.digest.0.to_le_bytes());
    put_decisions(outcome, has, &mut columns);
    put_order(outcome, has, &mut columns);
    put_results(outcome, has, &mut columns);
    put_last_section(&columns, out);
}

/// Decodes the outcome of epoch `epoch`.
///
/// # Errors
/// If the bytes are not an outcome.
pub fn decode_outcome(bytes: &[u8], epoch: Epoch) -> Result<EpochOutcome, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Outcome, &mut reader)?;
    let columns = take_last_section(&mut reader, "columns")?;
    let mut reader = Reader::new(&columns);
    let has = reader.u8("columns of outcome")?;
    let mut outcome = EpochOutcome {
        epoch,
        epoch_time_ms: reader.varint("epoch time")?,
        floor: Epoch(epoch.0.wrapping_sub(reader.signed("floor")? as u64)),
        imported: if has & HAS_IMPORTED == 0 { Vec::new() } else { take_imported(&mut reader)? },
        digest: Digest(reader.u64_le("digest")?),
        ..EpochOutcome::default()
    };
    take_decisions(&mut reader, has, &mut outcome)?;
    take_order(&mut reader, has, &mut outcome)?;
    take_results(&mut reader, has, &mut outcome)?;
    reader.finish("end of columns")?;
    Ok(outcome)
}

fn take_imported(reader: &mut Reader<'_>) -> Result<Vec<u64>, Malformed> {
    let batches = reader.count(1, "imported")?;
    if batches == 0 {
        return Err(reader.malformed("imported"));
    }
    (0..batches).map(|_| reader.varint("imported")).collect()
}

fn columns_of(outcome: &EpochOutcome) -> u8 {
    let committed = |d: &Decision| matches!(d, Decision::Committed { version } if version.epoch() == outcome.epoch);
    let all = [
        (ALL_COMMITTED, outcome.decisions.iter().all(committed)),
        (
            IN_ARRIVAL_ORDER,
            outcome.order.len() == outcome.decisions.len() && (0..).zip(&outcome.order).all(|(n, ix)| ix.0 == n),
        ),
        (ONE_STORE, in_one_store(outcome)),
        (HAS_WITNESSES, !outcome.witnesses.is_empty()),
        (HAS_IMPORTED, !outcome.imported.is_empty()),
        (HAS_EARLY_ABORTS, !outcome.early_aborts.is_empty()),
        (HAS_FENCES, !outcome.fences.is_empty()),
        (HAS_RARITIES, !outcome.fallbacks.is_empty() || !outcome.created.is_empty()),
    ];
    all.iter().filter(|(_, there)| *there).fold(0, |has, (bit, _)| has | bit)
}

fn in_one_store(outcome: &EpochOutcome) -> bool {
    let Some(first) = outcome.lsns.first() else { return false };
    let next = |n: u64, at: &StoreLsn| at.store == first.store && at.lsn.0 == first.lsn.0.wrapping_add(n);
    outcome.lsns.len() == outcome.order.len()
        && (0..).zip(&outcome.lsns).zip(&outcome.order).all(|((n, at), ix)| at.txn == *ix && next(n, at))
}

fn put_decisions(outcome: &EpochOutcome, has: u8, out: &mut Vec<u8>) {
    put_varint(outcome.decisions.len() as u64, out);
    for decision in outcome.decisions.iter().filter(|_| has & ALL_COMMITTED == 0) {
        out.push(match decision {
            Decision::Committed { version } if version.epoch() == outcome.epoch => COMMITTED,
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
            Decision::Committed { version } if version.epoch() == outcome.epoch => {
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
            Decision::Replayed { original } => put_verdict_at(original, outcome.epoch, out),
            Decision::BodyMismatch | Decision::Expired => {}
        }
    }
    if has & HAS_WITNESSES != 0 {
        put_varint(outcome.witnesses.len() as u64, out);
    }
    for witness in &outcome.witnesses {
        out.push(witness.op as u8 | (witness.stage as u8) << 2);
        put_varint(u64::from(witness.index), out);
        put_version(witness.current, outcome.epoch, out);
        put_varint(witness.winner.map_or(0, |ix| u64::from(ix.0) + 1), out);
    }
}

fn take_decisions(reader: &mut Reader<'_>, has: u8, outcome: &mut EpochOutcome) -> Result<(), Malformed> {
    let count = reader.count(1, "decisions")?;
    let kinds = if has & ALL_COMMITTED == 0 { Some(reader.take(count, "decisions")?) } else { None };
    outcome.decisions.reserve_exact(count);
    let (mut position, mut witness) = (0, 0);
    for number in 0..count {
        outcome.decisions.push(match kinds.map_or(COMMITTED, |kinds| kinds[number]) {
            COMMITTED => {
                position = reader.delta(position, "position")?;
                let version = u32::try_from(position).ok().and_then(|p| Version::new(outcome.epoch, p));
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
            REPLAYED => Decision::Replayed { original: take_verdict_at(reader, outcome.epoch)? },
            BODY_MISMATCH => Decision::BodyMismatch,
            EXPIRED => Decision::Expired,
            _ => return Err(reader.malformed("decision")),
        });
    }
    let count = if has & HAS_WITNESSES == 0 { 0 } else { reader.count(4, "witnesses")? };
    outcome.witnesses.reserve_exact(count);
    for _ in 0..count {
        let flags = reader.u8("witness")?;
        let op = op_kind(flags & 3).ok_or_else(|| reader.malformed("operation"))?;
        let stage = stage(flags >> 2).ok_or_else(|| reader.malformed("stage"))?;
        let index = reader.number("operation")?;
        let current = take_version(reader, outcome.epoch)?;
        let winner = reader.varint("winner")?;
        let winner = match winner.checked_sub(1) {
            None => None,
            Some(ix) => Some(TxnIx(u32::try_from(ix).map_err(|_| reader.malformed("winner"))?)),
        };
        outcome.witnesses.push(Witness { op, index, current, winner, stage });
    }
    check_witness_spans(reader, outcome)
}

/// Checks that decisions only refer to existing witnesses: users of an outcome index `witnesses` without a bounds
/// check.
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

fn put_order(outcome: &EpochOutcome, has: u8, out: &mut Vec<u8>) {
    if has & IN_ARRIVAL_ORDER == 0 {
        put_varint(outcome.order.len() as u64, out);
        let mut expected = 0;
        for ix in &outcome.order {
            put_delta(expected, u64::from(ix.0), out);
            expected = u64::from(ix.0) + 1;
        }
    }
    if has & ONE_STORE != 0
        && let Some(first) = outcome.lsns.first()
    {
        put_varint(u64::from(first.store.0), out);
        put_varint(first.lsn.0, out);
        return;
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

fn take_order(reader: &mut Reader<'_>, has: u8, outcome: &mut EpochOutcome) -> Result<(), Malformed> {
    if has & IN_ARRIVAL_ORDER == 0 {
        let count = reader.count(1, "order")?;
        outcome.order.reserve_exact(count);
        let mut expected = 0;
        for _ in 0..count {
            let ix = u32::try_from(reader.delta(expected, "order")?).map_err(|_| reader.malformed("order"))?;
            outcome.order.push(TxnIx(ix));
            expected = u64::from(ix) + 1;
        }
    } else {
        outcome.order.extend((0..).map(TxnIx).take(outcome.decisions.len()));
    }
    if has & ONE_STORE != 0 {
        let store = StoreId(reader.number("store")?);
        let first = reader.varint("log position")?;
        let at = |(n, txn): (u64, &TxnIx)| StoreLsn { txn: *txn, store, lsn: Lsn(first.wrapping_add(n)) };
        outcome.lsns.extend((0..).zip(&outcome.order).map(at));
        return Ok(());
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

fn put_verdict_at(at: VerdictAt, near: Epoch, out: &mut Vec<u8>) {
    put_delta(at.epoch.0, near.0, out);
    put_varint(u64::from(at.item), out);
}

fn take_verdict_at(reader: &mut Reader<'_>, near: Epoch) -> Result<VerdictAt, Malformed> {
    let epoch = Epoch(near.0.wrapping_sub(reader.signed("epoch of verdict")? as u64));
    Ok(VerdictAt { epoch, item: reader.number("item of verdict")? })
}

/// Appends the results of early aborts and fences, and the rarities: failures of plugins, rows created by adds.
fn put_results(outcome: &EpochOutcome, has: u8, out: &mut Vec<u8>) {
    let count = |bit: u8, len: usize, out: &mut Vec<u8>| {
        if has & bit != 0 {
            put_varint(len as u64, out);
        }
    };
    count(HAS_EARLY_ABORTS, outcome.early_aborts.len(), out);
    for at in &outcome.early_aborts {
        put_verdict_at(*at, outcome.epoch, out);
    }
    count(HAS_FENCES, outcome.fences.len(), out);
    for fence in &outcome.fences {
        match fence {
            FenceResult::Fenced => out.push(0),
            FenceResult::Known(at) => {
                out.push(1);
                put_verdict_at(*at, outcome.epoch, out);
            }
            FenceResult::Expired => out.push(2),
        }
    }
    count(HAS_RARITIES, outcome.fallbacks.len(), out);
    for fallback in &outcome.fallbacks {
        out.push(fallback.level.map_or(0, |level| level as u8 + 1));
        put_bytes(fallback.fault.as_bytes(), out);
    }
    count(HAS_RARITIES, outcome.created.len(), out);
    let mut near = 0;
    for row in &outcome.created {
        put_delta(near, u64::from(row.txn.0), out);
        put_varint(u64::from(row.write), out);
        near = u64::from(row.txn.0);
    }
}

fn take_results(reader: &mut Reader<'_>, has: u8, outcome: &mut EpochOutcome) -> Result<(), Malformed> {
    let counted = |reader: &mut Reader<'_>, bit: u8, bytes_min: usize, what| {
        if has & bit == 0 { Ok(0) } else { reader.count(bytes_min, what) }
    };
    let count = counted(reader, HAS_EARLY_ABORTS, 2, "early aborts")?;
    outcome.early_aborts.reserve_exact(count);
    for _ in 0..count {
        outcome.early_aborts.push(take_verdict_at(reader, outcome.epoch)?);
    }
    let count = counted(reader, HAS_FENCES, 1, "fences")?;
    outcome.fences.reserve_exact(count);
    for _ in 0..count {
        outcome.fences.push(match reader.u8("fence")? {
            0 => FenceResult::Fenced,
            1 => FenceResult::Known(take_verdict_at(reader, outcome.epoch)?),
            2 => FenceResult::Expired,
            _ => return Err(reader.malformed("fence")),
        });
    }
    let count = counted(reader, HAS_RARITIES, 2, "fallbacks")?;
    outcome.fallbacks.reserve_exact(count);
    for _ in 0..count {
        let level = match reader.u8("level")?.checked_sub(1) {
            None => None,
            Some(level) => Some(Isolation::from_u8(level).ok_or_else(|| reader.malformed("level"))?),
        };
        outcome.fallbacks.push(PolicyFallback { level, fault: reader.text("fault")? });
    }
    let count = counted(reader, HAS_RARITIES, 2, "created rows")?;
    outcome.created.reserve_exact(count);
    let mut near = 0;
    for _ in 0..count {
        near = reader.delta(near, "created row")?;
        let txn = TxnIx(u32::try_from(near).map_err(|_| reader.malformed("created row"))?);
        let row = CreatedRow { txn, write: reader.number("created row")? };
        // Readers of the log binary-search it.
        if outcome.created.last().is_some_and(|last| *last >= row) {
            return Err(reader.malformed("created row"));
        }
        outcome.created.push(row);
    }
    Ok(())
}
