//! Batches. A batch has a head that recovery reads without unpacking the rest, then transaction headers and operations
//! in columns (so that lz4 finds repetition), then the arenas of keys and values.
//!
//! Nothing is stored that can be computed: a row's hash follows from namespace, store and key, a span's start from the
//! previous span, a stamp from the previous stamp. Columns that no transaction uses are omitted, and consecutive writes
//! that differ only in their keys and values form one run. A transaction of ten writes takes 30 to 50 bytes besides its
//! keys and values; 24 of these are its id and the hash of its body.
//!
//! Layout: kind, version, bit set of columns, last epoch, [distance to the first epoch], twice the control index and
//! whether the group closes, clock, distance from the clock to the last stamp, section of columns, section of keys,
//! last section: values.

use std::sync::Arc;

use tribunal_types::limits::{BATCH_BYTES_MAX, TXNS_PER_BATCH_MAX};
use tribunal_types::{
    Batch, BodyHash, ControlIndex, Csn, EarlyAbort, Epoch, FenceItem, GroupId, ImportedVersion, Isolation, NamespaceId,
    NodeId, Range, Read, RowKey, Span, StoreId, StoreSnapshot, Txn, TxnId, Version, Write, WriteKind,
};

use crate::conflict::{
    CONFLICT_BYTES_MIN, put_conflict, put_reason, put_version, take_conflict, take_reason, take_version,
};
use crate::reader::{Malformed, Reader};
use crate::section::{put_last_section, put_section, take_last_section, take_section};
use crate::varint::{put_delta, put_varint};
use crate::{Kind, put_head, take_head};

/// The default priority, which is not stored.
const PRIORITY_DEFAULT: u8 = 100;
/// Minimum size of a transaction's header: flags, id, hash, stamp.
const TXN_BYTES_MIN: usize = 1 + 11 + 8 + 1;
/// Maximum number of writes in a batch. Cannot be derived from the encoded size: in a run, a write may take no byte.
const WRITES_MAX: u32 = (BATCH_BYTES_MAX / size_of::<Write>()) as u32;
/// The store that the first distance is relative to: a node's first store.
const STORE_DEFAULT: u32 = 1;
/// Bits of the set of columns.
const HAS_SNAPSHOTS: u8 = 1;
const HAS_READS: u8 = 1 << 1;
const HAS_RANGES: u8 = 1 << 2;
const HAS_EARLY_ABORTS: u8 = 1 << 3;
const HAS_FENCES: u8 = 1 << 4;
const HAS_IMPORTS: u8 = 1 << 5;
const HAS_TXNS: u8 = 1 << 6;
const SEALS_SEVERAL: u8 = 1 << 7;
/// Bits of a transaction's flags above its level.
const HAS_START: u8 = 1 << 2;
const SAME_NAMESPACE: u8 = 1 << 3;
const SAME_ORIGIN: u8 = 1 << 4;
const DEFAULT_PRIORITY: u8 = 1 << 5;
const HAS_EXTRAS: u8 = 1 << 6;
const OTHER_NODE: u8 = 1 << 7;
/// Bits of a write's flags above its kind.
const INTEGER: u8 = 1 << 3;
const SAME_STORE: u8 = 1 << 4;
const KEY_FOLLOWS: u8 = 1 << 5;
const VALUE_FOLLOWS: u8 = 1 << 6;
/// The first of two or more consecutive writes that differ only in their keys and values.
const RUN: u8 = 1 << 7;
/// In place of a kind: an add that creates its row if it is missing.
const ADD_OR_CREATE: u8 = 5;
const _: () = assert!(WriteKind::ALL.len() == ADD_OR_CREATE as usize);

/// The part of a batch that can be read without unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// First epoch sealed by the batch.
    pub first: Epoch,
    /// Last epoch sealed by the batch.
    pub last: Epoch,
    /// Index of the last control entry that the proposer knew to be durable.
    pub control: ControlIndex,
    /// Whether the group ends with the batch.
    pub closes: bool,
    /// The proposer's clock, in Unix milliseconds.
    pub clock_ms: u64,
    /// Microseconds of the last transaction's stamp, or of the batch's own if there are no transactions.
    pub last_micros: u64,
    /// Whether the batch is more than a seal of empty epochs.
    pub has_items: bool,
}

/// Appends the encoded batch, without its group.
pub fn encode_batch(batch: &Batch, out: &mut Vec<u8>) {
    put_head(Kind::Batch, out);
    let has = columns_of(batch);
    put_frame(batch, has, out);
    let mut columns = Vec::with_capacity(64 + 32 * batch.txns.len() + 4 * (batch.reads.len() + batch.writes.len()));
    if has & HAS_TXNS != 0 {
        put_txns(batch, has, &mut columns);
        put_operations(batch, &mut columns);
    }
    put_items(batch, has, &mut columns);
    put_section(&columns, out);
    put_section(&batch.keys, out);
    put_last_section(&batch.values, out);
}

/// Reads the head of a batch without unpacking the rest.
///
/// # Errors
/// If the bytes are not a batch.
pub fn batch_head(bytes: &[u8]) -> Result<BatchHead, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Batch, &mut reader)?;
    take_frame(&mut reader).map(|(_, head)| head)
}

/// Decodes a batch of `group`. Row keys are recomputed with `keyer`.
///
/// # Errors
/// If the bytes are not a batch.
pub fn decode_batch(
    bytes: &[u8],
    group: GroupId,
    keyer: &dyn Fn(NamespaceId, StoreId, &[u8]) -> RowKey,
) -> Result<Batch, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Batch, &mut reader)?;
    let (has, head) = take_frame(&mut reader)?;
    let columns = take_section(&mut reader, "columns")?;
    let keys = take_section(&mut reader, "keys")?.into_owned();
    let values = take_last_section(&mut reader, "values")?.into_owned();

    let mut reader = Reader::new(&columns);
    let BatchHead { first, last, control, closes, clock_ms, last_micros, .. } = head;
    let stamp_us = if has & HAS_TXNS == 0 { last_micros } else { 0 };
    let keys = Arc::new(keys);
    let mut batch = Batch { group, first, last, control, closes, clock_ms, stamp_us, keys, values, ..Batch::default() };
    if has & HAS_TXNS != 0 {
        take_txns(&mut reader, has, last_micros, &mut batch)?;
        take_operations(&mut reader, &mut batch, keyer)?;
    }
    take_items(&mut reader, has, &mut batch)?;
    reader.finish("end of columns")?;
    Ok(batch)
}

fn columns_of(batch: &Batch) -> u8 {
    let all = [
        (HAS_SNAPSHOTS, !batch.snapshots.is_empty()),
        (HAS_READS, !batch.reads.is_empty()),
        (HAS_RANGES, !batch.ranges.is_empty()),
        (HAS_EARLY_ABORTS, !batch.early_aborts.is_empty()),
        (HAS_FENCES, !batch.fences.is_empty()),
        (HAS_IMPORTS, !batch.imports.is_empty()),
        (HAS_TXNS, !batch.txns.is_empty()),
        (SEALS_SEVERAL, batch.first != batch.last),
    ];
    all.iter().filter(|(_, there)| *there).fold(0, |has, (bit, _)| has | bit)
}

fn put_frame(batch: &Batch, has: u8, out: &mut Vec<u8>) {
    out.push(has);
    put_varint(batch.last.0, out);
    if has & SEALS_SEVERAL != 0 {
        put_delta(batch.first.0, batch.last.0, out);
    }
    put_varint(batch.control.0 << 1 | u64::from(batch.closes), out);
    put_varint(batch.clock_ms, out);
    put_delta(batch.clock_ms.wrapping_mul(1000), batch.proposal().micros(), out);
}

fn take_frame(reader: &mut Reader<'_>) -> Result<(u8, BatchHead), Malformed> {
    let has = reader.u8("columns of batch")?;
    let last = reader.varint("last epoch")?;
    let first = if has & SEALS_SEVERAL == 0 { last } else { last.wrapping_sub(reader.signed("first epoch")? as u64) };
    if first > last || last > Epoch::MAX.0 {
        return Err(reader.malformed("epoch range"));
    }
    let control = reader.varint("control index")?;
    let (control, closes) = (ControlIndex(control >> 1), control & 1 == 1);
    let clock_ms = reader.varint("clock")?;
    let last_micros = reader.delta(clock_ms.wrapping_mul(1000), "last stamp")?;
    if last_micros >> (u64::BITS - Csn::NODE_BITS) != 0 {
        return Err(reader.malformed("last stamp"));
    }
    let has_items = has & !SEALS_SEVERAL != 0;
    Ok((has, BatchHead { first: Epoch(first), last: Epoch(last), control, closes, clock_ms, last_micros, has_items }))
}

/// Appends an id, with its milliseconds as the distance from the clock: one or two bytes instead of six.
fn put_id(id: TxnId, clock_ms: u64, out: &mut Vec<u8>) {
    put_delta(clock_ms, id.unix_ms(), out);
    out.extend_from_slice(&id.0[6..]);
}

fn take_id(reader: &mut Reader<'_>, clock_ms: u64) -> Result<TxnId, Malformed> {
    let unix_ms = reader.delta(clock_ms, "id")?;
    if unix_ms >> 48 != 0 {
        return Err(reader.malformed("id"));
    }
    let mut id = [0; 16];
    id[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
    id[6..].copy_from_slice(reader.take(10, "id")?);
    Ok(TxnId(id))
}

fn put_txns(batch: &Batch, has: u8, out: &mut Vec<u8>) {
    put_varint(batch.txns.len() as u64, out);
    let (mut namespace, mut origin) = (0, 0);
    for txn in &batch.txns {
        let mut flags = txn.isolation as u8;
        let mut set = |bit: u8, on: bool| flags |= if on { bit } else { 0 };
        set(HAS_START, txn.start.is_some());
        set(SAME_NAMESPACE, txn.namespace.0 == namespace);
        set(SAME_ORIGIN, txn.origin == origin);
        set(DEFAULT_PRIORITY, txn.priority == PRIORITY_DEFAULT);
        set(HAS_EXTRAS, extras_of(txn) != 0);
        set(OTHER_NODE, node_of(txn.csn) != batch.group.node);
        out.push(flags);
        (namespace, origin) = (txn.namespace.0, txn.origin);
    }
    let mut micros = batch.txns.last().map_or(0, |txn| txn.csn.micros());
    for txn in &batch.txns {
        put_delta(micros, txn.csn.micros(), out);
        micros = txn.csn.micros();
    }
    put_counts(batch, has, out);
    (namespace, origin) = (0, 0);
    for txn in &batch.txns {
        put_id(txn.id, batch.clock_ms, out);
        out.extend_from_slice(&txn.body_hash.0.to_le_bytes());
        if let Some(start) = txn.start {
            put_delta(start.0, batch.last.0, out);
        }
        if txn.namespace.0 != namespace {
            put_varint(u64::from(txn.namespace.0), out);
        }
        if txn.origin != origin {
            out.extend_from_slice(&txn.origin.to_le_bytes());
        }
        if txn.priority != PRIORITY_DEFAULT {
            out.push(txn.priority);
        }
        put_extras(txn, out);
        if node_of(txn.csn) != batch.group.node {
            put_varint(u64::from(node_of(txn.csn).0), out);
        }
        (namespace, origin) = (txn.namespace.0, txn.origin);
    }
}

/// Fields that few transactions have.
struct Extras {
    traceparent: Span,
    first_attempt_ms: u64,
}

impl Extras {
    const TRACEPARENT: u8 = 1;
    const FIRST_ATTEMPT: u8 = 2;

    fn none(id: TxnId) -> Extras {
        Extras { traceparent: Span::default(), first_attempt_ms: id.unix_ms() }
    }
}

fn extras_of(txn: &Txn) -> u8 {
    let traceparent = if txn.traceparent.len > 0 { Extras::TRACEPARENT } else { 0 };
    let first_attempt = if txn.first_attempt_ms == txn.id.unix_ms() { 0 } else { Extras::FIRST_ATTEMPT };
    traceparent | first_attempt
}

fn put_extras(txn: &Txn, out: &mut Vec<u8>) {
    let extras = extras_of(txn);
    if extras == 0 {
        return;
    }
    out.push(extras);
    if extras & Extras::TRACEPARENT != 0 {
        put_varint(u64::from(txn.traceparent.at), out);
        put_varint(u64::from(txn.traceparent.len), out);
    }
    if extras & Extras::FIRST_ATTEMPT != 0 {
        put_delta(txn.id.unix_ms(), txn.first_attempt_ms, out);
    }
}

fn take_extras(reader: &mut Reader<'_>, id: TxnId, values: usize) -> Result<Extras, Malformed> {
    let mut extras = Extras::none(id);
    let has = reader.u8("extras")?;
    if has == 0 || has & !(Extras::TRACEPARENT | Extras::FIRST_ATTEMPT) != 0 {
        return Err(reader.malformed("extras"));
    }
    if has & Extras::TRACEPARENT != 0 {
        let span = Span { at: reader.number("traceparent")?, len: reader.number("traceparent")? };
        extras.traceparent = check_span(reader, span, values)?;
    }
    if has & Extras::FIRST_ATTEMPT != 0 {
        extras.first_attempt_ms = reader.delta(id.unix_ms(), "first attempt")?;
    }
    Ok(extras)
}

/// Returns the node that issued a stamp.
fn node_of(csn: Csn) -> NodeId {
    NodeId((csn.0 & ((1 << Csn::NODE_BITS) - 1)) as u16)
}

fn put_counts(batch: &Batch, has: u8, out: &mut Vec<u8>) {
    let mut column = |bit: u8, end: fn(&Txn) -> u32| {
        let mut before = 0;
        for txn in batch.txns.iter().filter(|_| has & bit != 0) {
            put_varint(u64::from(end(txn) - before), out);
            before = end(txn);
        }
    };
    column(HAS_SNAPSHOTS, |t| t.snapshots_end);
    column(HAS_READS, |t| t.reads_end);
    column(HAS_RANGES, |t| t.ranges_end);
    column(HAS_TXNS, |t| t.writes_end);
}

fn take_txns(reader: &mut Reader<'_>, has: u8, last_micros: u64, batch: &mut Batch) -> Result<(), Malformed> {
    let count = reader.count(TXN_BYTES_MIN, "transactions")?;
    if count == 0 || count > TXNS_PER_BATCH_MAX {
        return Err(reader.malformed("transactions"));
    }
    let flags = reader.take(count, "flags of transactions")?;
    let mut csns = Vec::with_capacity(count);
    let mut micros = last_micros;
    for _ in 0..count {
        micros = reader.delta(micros, "stamp")?;
        if micros >> (u64::BITS - Csn::NODE_BITS) != 0 {
            return Err(reader.malformed("stamp"));
        }
        csns.push(Csn::new(micros, batch.group.node));
    }
    if micros != last_micros {
        return Err(reader.malformed("last stamp"));
    }
    let mut ends = |bit: u8, what| {
        if has & bit == 0 { Ok(vec![0; count]) } else { take_ends(reader, count, what) }
    };
    let snapshots = ends(HAS_SNAPSHOTS, "snapshots")?;
    let reads = ends(HAS_READS, "reads")?;
    let ranges = ends(HAS_RANGES, "ranges")?;
    let writes = ends(HAS_TXNS, "writes")?;
    batch.txns.reserve_exact(count);
    let (mut namespace, mut origin) = (0, 0);
    for ix in 0..count {
        let flags = flags[ix];
        let is = |bit: u8| flags & bit != 0;
        let id = take_id(reader, batch.clock_ms)?;
        let body_hash = BodyHash(reader.u64_le("body hash")?);
        let start =
            if is(HAS_START) { Some(Epoch(batch.last.0.wrapping_sub(reader.signed("start")? as u64))) } else { None };
        if !is(SAME_NAMESPACE) {
            namespace = reader.number("namespace")?;
        }
        if !is(SAME_ORIGIN) {
            origin = reader.u64_le("origin")?;
        }
        let priority = if is(DEFAULT_PRIORITY) { PRIORITY_DEFAULT } else { reader.u8("priority")? };
        let Extras { traceparent, first_attempt_ms } =
            if is(HAS_EXTRAS) { take_extras(reader, id, batch.values.len())? } else { Extras::none(id) };
        let csn = if is(OTHER_NODE) {
            let node: u16 = reader.number("node of stamp")?;
            if node >> Csn::NODE_BITS != 0 {
                return Err(reader.malformed("node of stamp"));
            }
            Csn::new(csns[ix].micros(), NodeId(node))
        } else {
            csns[ix]
        };
        batch.txns.push(Txn {
            id,
            body_hash,
            csn,
            start,
            first_attempt_ms,
            origin,
            namespace: NamespaceId(namespace),
            isolation: Isolation::from_u8(flags & 3).ok_or_else(|| reader.malformed("level"))?,
            priority,
            snapshots_end: snapshots[ix],
            reads_end: reads[ix],
            ranges_end: ranges[ix],
            writes_end: writes[ix],
            traceparent,
        });
    }
    Ok(())
}

fn take_ends(reader: &mut Reader<'_>, count: usize, what: &'static str) -> Result<Vec<u32>, Malformed> {
    let mut ends = Vec::with_capacity(count);
    let mut end = 0_u32;
    for _ in 0..count {
        end = end.checked_add(reader.number(what)?).ok_or_else(|| reader.malformed(what))?;
        ends.push(end);
    }
    Ok(ends)
}

/// Start of the next span of an arena, if spans are adjacent.
struct Spans {
    next: u32,
}

impl Spans {
    fn follows(&self, span: Span) -> bool {
        span.at == self.next
    }

    /// Appends the length of a span, and its start unless it follows the previous span.
    fn put(&mut self, span: Span, out: &mut Vec<u8>) {
        put_varint(u64::from(span.len), out);
        if !self.follows(span) {
            put_delta(u64::from(self.next), u64::from(span.at), out);
        }
        self.next = span.at + span.len;
    }

    /// Returns the span of length `len` that follows the previous one.
    fn take_following(&mut self, reader: &Reader<'_>, len: u32, arena: usize) -> Result<Span, Malformed> {
        let span = check_span(reader, Span { at: self.next, len }, arena)?;
        self.next += len;
        Ok(span)
    }

    fn take(&mut self, reader: &mut Reader<'_>, follows: bool, arena: usize) -> Result<Span, Malformed> {
        let len = reader.number("length")?;
        let at = if follows {
            self.next
        } else {
            let at = reader.delta(u64::from(self.next), "start")?;
            u32::try_from(at).map_err(|_| reader.malformed("start"))?
        };
        let span = check_span(reader, Span { at, len }, arena)?;
        self.next = at + len;
        Ok(span)
    }
}

fn check_span(reader: &Reader<'_>, span: Span, arena: usize) -> Result<Span, Malformed> {
    match span.at.checked_add(span.len) {
        Some(end) if end as usize <= arena => Ok(span),
        _ => Err(reader.malformed("span outside its arena")),
    }
}

/// Returns the length of the run that the first write starts; at least one.
fn run_of(writes: &[Write], keys: &Spans, values: &Spans) -> usize {
    let first = &writes[0];
    if !keys.follows(first.key) || !values.follows(first.value) || first.start_len > 0 {
        return 1;
    }
    let follows = |(before, next): &(&Write, &Write)| {
        (next.store, next.kind, next.integer, next.key.len) == (first.store, first.kind, first.integer, first.key.len)
            && next.start_len == 0
            && next.key.at == before.key.at + before.key.len
            && next.value.at == before.value.at + before.value.len
    };
    1 + writes.iter().zip(&writes[1..]).take_while(follows).count()
}

fn put_writes(mut writes: &[Write], store: &mut u64, keys: &mut Spans, values: &mut Spans, out: &mut Vec<u8>) {
    while let Some(first) = writes.first() {
        let (run, rest) = writes.split_at(run_of(writes, keys, values));
        writes = rest;
        let same = u64::from(first.store.0) == *store;
        let mut flags = if first.start_len > 0 { ADD_OR_CREATE } else { first.kind as u8 };
        let mut set = |bit: u8, on: bool| flags |= if on { bit } else { 0 };
        set(INTEGER, first.integer);
        set(SAME_STORE, same);
        set(KEY_FOLLOWS, keys.follows(first.key));
        set(VALUE_FOLLOWS, values.follows(first.value));
        set(RUN, run.len() > 1);
        out.push(flags);
        if !same {
            put_varint(u64::from(first.store.0), out);
        }
        *store = u64::from(first.store.0);
        keys.put(first.key, out);
        if run.len() == 1 {
            values.put(first.value, out);
            if first.start_len > 0 {
                out.push(first.start_len);
                values.next += u32::from(first.start_len);
            }
            continue;
        }
        // The number of writes after the second, and whether all values have the same length.
        let equal = run.iter().all(|write| write.value.len == first.value.len);
        put_varint((run.len() as u64 - 2) << 1 | u64::from(equal), out);
        for write in &run[..if equal { 1 } else { run.len() }] {
            put_varint(u64::from(write.value.len), out);
        }
        let last = &run[run.len() - 1];
        keys.next = last.key.at + last.key.len;
        values.next = last.value.at + last.value.len;
    }
}

fn put_operations(batch: &Batch, out: &mut Vec<u8>) {
    let mut store = u64::from(STORE_DEFAULT);
    for snapshot in &batch.snapshots {
        put_delta(store, u64::from(snapshot.store.0), out);
        put_delta(snapshot.at.0, batch.last.0, out);
        store = u64::from(snapshot.store.0);
    }
    let (mut keys, mut values) = (Spans { next: 0 }, Spans { next: 0 });
    for txn in 0..batch.txns.len() {
        for read in &batch.reads[batch.reads_of(txn)] {
            // Low bit: whether the key follows the previous span. The rest: the store's distance, zigzagged.
            let distance = u64::from(read.store.0).wrapping_sub(store) as i64;
            let zigzag = ((distance << 1) ^ (distance >> 63)) as u64;
            put_varint(zigzag << 1 | u64::from(keys.follows(read.key)), out);
            keys.put(read.key, out);
            put_version(read.seen, batch.last, out);
            store = u64::from(read.store.0);
        }
        for range in &batch.ranges[batch.ranges_of(txn)] {
            put_delta(store, u64::from(range.store.0), out);
            for span in [range.start, range.end] {
                out.push(u8::from(keys.follows(span)));
                keys.put(span, out);
            }
            store = u64::from(range.store.0);
        }
        put_writes(&batch.writes[batch.writes_of(txn)], &mut store, &mut keys, &mut values, out);
        // A traceparent is stored after the values of its transaction.
        let traceparent = batch.txns[txn].traceparent;
        if traceparent.len > 0 && values.follows(traceparent) {
            values.next += traceparent.len;
        }
    }
}

fn take_operations(
    reader: &mut Reader<'_>,
    batch: &mut Batch,
    keyer: &dyn Fn(NamespaceId, StoreId, &[u8]) -> RowKey,
) -> Result<(), Malformed> {
    let ends = batch.txns.last().map_or((0, 0, 0, 0), |t| (t.snapshots_end, t.reads_end, t.ranges_end, t.writes_end));
    let bytes_min = u64::from(ends.0) * 2 + u64::from(ends.1) * 3 + u64::from(ends.2) * 5;
    if bytes_min > reader.remaining() as u64 || ends.3 > WRITES_MAX {
        return Err(reader.malformed("operations"));
    }
    let mut store = STORE_DEFAULT;
    batch.snapshots.reserve_exact(ends.0 as usize);
    for _ in 0..ends.0 {
        store = take_store(reader, store)?;
        let at = Epoch(batch.last.0.wrapping_sub(reader.signed("snapshot")? as u64));
        batch.snapshots.push(StoreSnapshot { store: StoreId(store), at });
    }
    batch.reads.reserve_exact(ends.1 as usize);
    batch.ranges.reserve_exact(ends.2 as usize);
    batch.writes.reserve_exact((ends.3 as usize).min(reader.remaining()));
    let arena = Arc::clone(&batch.keys);
    let (mut keys, mut values) = (Spans { next: 0 }, Spans { next: 0 });
    for txn in 0..batch.txns.len() {
        let namespace = batch.txns[txn].namespace;
        for _ in batch.reads_of(txn) {
            let head = reader.varint("read")?;
            store = store_near(reader, store, crate::varint::unzigzag(head >> 1))?;
            let key = keys.take(reader, head & 1 == 1, arena.len())?;
            let seen = take_version(reader, batch.last)?;
            let store = StoreId(store);
            batch.reads.push(Read { row: keyer(namespace, store, key.of(&arena)), seen, store, key });
        }
        for _ in batch.ranges_of(txn) {
            store = take_store(reader, store)?;
            let start_follows = take_bool(reader, "start of range")?;
            let start = keys.take(reader, start_follows, arena.len())?;
            let end_follows = take_bool(reader, "end of range")?;
            let end = keys.take(reader, end_follows, arena.len())?;
            batch.ranges.push(Range { store: StoreId(store), start, end });
        }
        let wanted = batch.writes_of(txn).len();
        take_writes(reader, wanted, &mut store, (&mut keys, &mut values), batch, namespace, keyer)?;
        let traceparent = batch.txns[txn].traceparent;
        if traceparent.len > 0 && values.follows(traceparent) {
            values.next += traceparent.len;
        }
    }
    Ok(())
}

fn take_writes(
    reader: &mut Reader<'_>,
    mut wanted: usize,
    store: &mut u32,
    (keys, values): (&mut Spans, &mut Spans),
    batch: &mut Batch,
    namespace: NamespaceId,
    keyer: &dyn Fn(NamespaceId, StoreId, &[u8]) -> RowKey,
) -> Result<(), Malformed> {
    let arena = Arc::clone(&batch.keys);
    while wanted > 0 {
        let flags = reader.u8("write")?;
        let creates = flags & 7 == ADD_OR_CREATE;
        let kind = if creates { Some(WriteKind::Add) } else { WriteKind::from_u8(flags & 7) };
        let kind = kind.ok_or_else(|| reader.malformed("kind of write"))?;
        if flags & SAME_STORE == 0 {
            *store = reader.number("store")?;
        }
        let (store, integer) = (StoreId(*store), flags & INTEGER != 0);
        let mut push = |key: Span, value: Span, start_len: u8| {
            let row = keyer(namespace, store, key.of(&arena));
            batch.writes.push(Write { row, store, key, value, kind, integer, start_len });
        };
        let key = keys.take(reader, flags & KEY_FOLLOWS != 0, arena.len())?;
        if flags & RUN == 0 {
            let value = values.take(reader, flags & VALUE_FOLLOWS != 0, batch.values.len())?;
            let start_len = if creates { reader.u8("start of an add")? } else { 0 };
            if creates && values.take_following(reader, u32::from(start_len), batch.values.len())?.len == 0 {
                return Err(reader.malformed("start of an add"));
            }
            push(key, value, start_len);
            wanted -= 1;
            continue;
        }
        let head = reader.varint("run of writes")?;
        let count = (head >> 1).checked_add(2).filter(|count| *count <= wanted as u64);
        let count = count.ok_or_else(|| reader.malformed("run of writes"))? as usize;
        let follow = KEY_FOLLOWS | VALUE_FOLLOWS;
        if creates || flags & follow != follow {
            return Err(reader.malformed("run of writes"));
        }
        let mut len: u32 = reader.number("length")?;
        for number in 0..count {
            let key = if number == 0 { key } else { keys.take_following(reader, key.len, arena.len())? };
            if number > 0 && head & 1 == 0 {
                len = reader.number("length")?;
            }
            push(key, values.take_following(reader, len, batch.values.len())?, 0);
        }
        wanted -= count;
    }
    Ok(())
}

fn take_bool(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, Malformed> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.malformed(what)),
    }
}

fn store_near(reader: &Reader<'_>, store: u32, distance: i64) -> Result<u32, Malformed> {
    u32::try_from(u64::from(store).wrapping_add(distance as u64)).map_err(|_| reader.malformed("store"))
}

fn take_store(reader: &mut Reader<'_>, near: u32) -> Result<u32, Malformed> {
    let distance = reader.signed("store")?;
    store_near(reader, near, distance)
}

/// Appends the items that are not transactions: early aborts, fences, imported versions.
fn put_items(batch: &Batch, has: u8, out: &mut Vec<u8>) {
    let count = |bit: u8, len: usize, out: &mut Vec<u8>| {
        if has & bit != 0 {
            put_varint(len as u64, out);
        }
    };
    count(HAS_EARLY_ABORTS, batch.early_aborts.len(), out);
    for abort in &batch.early_aborts {
        put_id(abort.id, batch.clock_ms, out);
        put_varint(u64::from(abort.namespace.0), out);
        out.push(u8::from(abort.body_hash.is_some()));
        if let Some(hash) = abort.body_hash {
            out.extend_from_slice(&hash.0.to_le_bytes());
        }
        put_reason(abort.reason, out);
        put_varint(abort.conflicts.len() as u64, out);
        for conflict in &abort.conflicts {
            put_conflict(conflict, batch.last, out);
        }
    }
    count(HAS_FENCES, batch.fences.len(), out);
    for fence in &batch.fences {
        put_id(fence.id, batch.clock_ms, out);
        put_varint(u64::from(fence.namespace.0), out);
    }
    count(HAS_IMPORTS, batch.imports.len(), out);
    for import in &batch.imports {
        out.extend_from_slice(&import.row.hi.to_le_bytes());
        out.extend_from_slice(&import.row.lo.to_le_bytes());
        put_varint(u64::from(import.store.0) << 1 | u64::from(import.integer), out);
        put_varint(import.version.bits(), out);
    }
}

fn take_items(reader: &mut Reader<'_>, has: u8, batch: &mut Batch) -> Result<(), Malformed> {
    let counted = |reader: &mut Reader<'_>, bit: u8, bytes_min: usize, what| {
        if has & bit == 0 { Ok(0) } else { reader.count(bytes_min, what) }
    };
    let count = counted(reader, HAS_EARLY_ABORTS, 15, "early aborts")?;
    batch.early_aborts.reserve_exact(count);
    for _ in 0..count {
        let id = take_id(reader, batch.clock_ms)?;
        let namespace = NamespaceId(reader.number("namespace")?);
        let hashed = take_bool(reader, "body hash")?;
        let body_hash = if hashed { Some(BodyHash(reader.u64_le("body hash")?)) } else { None };
        let reason = take_reason(reader)?;
        let conflict_count = reader.count(CONFLICT_BYTES_MIN, "conflicts")?;
        let conflicts =
            (0..conflict_count).map(|_| take_conflict(reader, batch.last)).collect::<Result<Vec<_>, _>>()?;
        batch.early_aborts.push(EarlyAbort { id, body_hash, namespace, reason, conflicts });
    }
    let count = counted(reader, HAS_FENCES, 12, "fences")?;
    batch.fences.reserve_exact(count);
    for _ in 0..count {
        let id = take_id(reader, batch.clock_ms)?;
        batch.fences.push(FenceItem { id, namespace: NamespaceId(reader.number("namespace")?) });
    }
    let count = counted(reader, HAS_IMPORTS, 18, "imported versions")?;
    batch.imports.reserve_exact(count);
    for _ in 0..count {
        let row = RowKey { hi: reader.u64_le("row")?, lo: reader.u64_le("row")? };
        let head = reader.varint("store")?;
        let store = StoreId(u32::try_from(head >> 1).map_err(|_| reader.malformed("store"))?);
        let version = Version::from_bits(reader.varint("version")?).ok_or_else(|| reader.malformed("version"))?;
        batch.imports.push(ImportedVersion { row, store, version, integer: head & 1 == 1 });
    }
    Ok(())
}
