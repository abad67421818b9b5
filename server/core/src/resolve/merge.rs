//! Merge: ranks the contended transactions and walks them in (rank, CSN) order, building the epoch's serial order. No
//! transaction loses to a loser: only committed transactions block others.
//!
//! # Why the order is serial
//! Transactions at repeatable read and serializable are *ordered*. They rely on the rows they read, the existence of
//! rows, the values they add to, and at serializable also on ranges. Let `S` be the state before the epoch, which every
//! transaction read. An ordered transaction *must precede* every transaction that changes something it relies on. Claim,
//! preserved by every step: whenever one committed transaction must precede another one, it does. So when they are executed
//! one by one from `S`, every ordered transaction finds, just before its turn, everything it relies on as it was in `S`:
//! whatever changes it comes later.
//! * *T joins the back.* T has no `RAW`, so no committed transaction changes anything T relies on: T need not precede
//!   any of them.
//! * *T joins the front.* T has no `WAR`, so it changes nothing an ordered transaction relies on: T need not follow any of
//!   them.
//! * *T is inserted* (from generation 3 on; before, it aborts). It has both, and is placed after the last one that it must
//!   follow. Those that it must precede and that are not after that place yet move there, after T, and so do those that must
//!   follow these and are not after it yet. All of them keep their order among themselves, and are placed before the first
//!   one that must follow T or any of them and stays. What must precede a moved one is before the place, or moves with it in
//!   the same order. If one of those that T must follow had to move, there would be a cycle, and T aborts
//!   ([`SerialOrder::insert`]).
//! * *T is not ordered.* It joins the back, and need not precede any other one. T itself is promised no place in a serial
//!   order, only its snapshot, and that no other transaction of the epoch overwrites its writes: `WW` with *any*
//!   committed transaction aborts it, and an ordered transaction that later writes one of its rows is aborted.
//! * *Writes meet.* Only ordered transactions share a written row (apart from adds, which commute), and the order
//!   decides the final value: versions rise along it, so map, log and storage agree on the last writer. A transaction
//!   that relies on the overwritten value has a `RAW` or `WAR` with the writer, and is covered above.
//! * *Adds.* An add relies on the value in `S` not being replaced before its turn, so all adds of a row precede any
//!   write that replaces it, and each adds to the value in `S` plus other adds. Headroom is counted separately for
//!   additions and subtractions, so it does not depend on their order.
//! * *The uncontended* share no row or range with a writer of the epoch, or write rows that no other transaction
//!   touches: they fit anywhere, so all of them share one position in the middle.
//!
//! Since the last turn ends in the state that apply stores, the epoch is equivalent to its order.

use alloc::format;
use alloc::vec::Vec;

use tribunal_types::{Batch, Generation, OpKind, PolicyFallback, Reason, Stage, TxnIx, Witness};

use crate::planted::{Bug, planted};
use crate::policy::{ConflictRule, Policies, PolicyFault, Ranks, TxnColumns};
use crate::resolve::access_class::{self, held};
use crate::resolve::contention::{Holders, Part};
use crate::resolve::epoch_rows::NONE;
use crate::resolve::precedence::Conflicts;
use crate::resolve::scratch::ShardScratch;
use crate::resolve::serial_order::SerialOrder;
use crate::resolve::shard::{Shard, ShardState};
use crate::resolve::txns::{EpochView, is_ordered, tells_sums_last};
use crate::resolve::validate::locate;
use crate::state::sums::{Headroom, integer_of};

/// Result of the walk.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// The contended transactions before the uncontended ones in the serial order, the last one first.
    pub(crate) front: Vec<u32>,
    /// Those after them, in serial order.
    pub(crate) back: Vec<u32>,
    order: SerialOrder,
    pub(crate) losers: Vec<Loser>,
    /// Whether a transaction is contended, by transaction.
    pub(crate) contended: Vec<bool>,
    /// The contended transactions, in walk order.
    ranked: Vec<Ranked>,
    columns: TxnColumns,
}

/// A transaction that the walk aborted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loser {
    pub(crate) txn: u32,
    pub(crate) reason: Reason,
    pub(crate) witnesses: [Option<Witness>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ranked {
    rank: (u64, u64),
    csn: u64,
    /// Distinct per transaction: the fields below never decide the order.
    txn: u32,
    ordered: bool,
}

impl Merged {
    pub(crate) fn contended_count(&self) -> usize {
        self.ranked.len()
    }

    /// Ranks and walks the contended transactions of all shards' votes.
    pub(crate) fn run(
        &mut self,
        shards: &mut [Shard],
        view: EpochView<'_>,
        policies: &Policies<'_>,
        fallbacks: &mut Vec<PolicyFallback>,
    ) {
        self.front.clear();
        self.back.clear();
        self.order.reset(view.txns.txns);
        self.losers.clear();
        self.find_contended(shards, view.txns.txns);
        self.rank(view, policies, fallbacks);
        for at in 0..self.ranked.len() {
            let Ranked { txn, ordered, .. } = self.ranked[at];
            self.place(shards, view, txn, ordered);
        }
        self.order.finish(&mut self.front, &mut self.back);
    }

    fn find_contended(&mut self, shards: &[Shard], txns: usize) {
        self.contended.clear();
        self.contended.resize(txns, false);
        for shard in shards {
            let mut start = 0;
            for (contended, &end) in self.contended.iter_mut().zip(&shard.scratch.part_ends) {
                *contended |= end > start;
                start = end;
            }
            shard.scratch.ranges.mark_contended(&mut self.contended);
        }
    }

    fn rank(&mut self, view: EpochView<'_>, policies: &Policies<'_>, fallbacks: &mut Vec<PolicyFallback>) {
        let Merged { contended, ranked, columns, .. } = self;
        fill_columns(columns, ranked, contended, view);
        if ranked.is_empty() {
            return;
        }
        let ranks = asked(policies.rule, columns).unwrap_or_else(|fault| {
            fallbacks.push(PolicyFallback { level: None, fault: fault.0 });
            asked(&policies.rule_fallback, columns).expect("a native rule answers for every transaction")
        });
        for (i, one) in ranked.iter_mut().enumerate() {
            one.rank = (ranks.hi[i], ranks.lo[i]);
        }
        if planted(Bug::NonTotalRank) {
            ranked.sort_by_key(|one| one.rank.0);
        } else {
            ranked.sort_unstable();
        }
    }

    /// Places one transaction in the order, or adds it to the losers.
    fn place(&mut self, shards: &mut [Shard], view: EpochView<'_>, t: u32, ordered: bool) {
        let clash = shards.iter().fold(Clash::default(), |clash, shard| clash.or(Clash::of(&shard.scratch, t)));
        let position = if !ordered {
            if clash.write_write {
                self.losers.push(beaten_writer(shards, t, held::WRITTEN));
                return;
            }
            Position::Back
        } else if clash.write_write_unordered {
            self.losers.push(beaten_writer(shards, t, held::WRITTEN_UNORDERED));
            return;
        } else if !clash.read_after_write {
            Position::Back
        } else if !clash.write_after_read {
            Position::Front
        } else if view.generation >= Generation::THIRD {
            Position::Between
        } else {
            self.losers.push(misplaced(shards, view, t));
            return;
        };
        if shards.iter().any(|shard| shard.scratch.adds)
            && let Some(loser) = overflowing(shards, view, t)
        {
            let is_stale = ordered && clash.read_after_write && tells_sums_last(view);
            self.losers.push(if is_stale { outdated(shards, view, t, loser) } else { loser });
            return;
        }
        match position {
            Position::Back => self.order.push_back(t),
            Position::Front => self.order.push_front(t),
            Position::Between => {
                if self.order.insert(t, &Conflicts { shards, view }).is_none() {
                    self.losers.push(misplaced(shards, view, t));
                    return;
                }
            }
        }
        for shard in shards {
            commit(&mut shard.scratch, t, ordered);
            if shard.scratch.adds {
                take_headroom(shard, view, t);
            }
        }
    }
}

/// Where a transaction joins the serial order.
#[derive(Clone, Copy, Debug)]
enum Position {
    Front,
    Between,
    Back,
}

fn fill_columns(columns: &mut TxnColumns, ranked: &mut Vec<Ranked>, contended: &[bool], view: EpochView<'_>) {
    ranked.clear();
    let TxnColumns { csn, epoch, start, origin, priority, reads, writes, first_attempt } = columns;
    *epoch = view.input.epoch.0;
    [&mut *csn, start, origin, first_attempt].into_iter().for_each(Vec::clear);
    [&mut *reads, writes].into_iter().for_each(Vec::clear);
    priority.clear();
    for (batch, base) in view.input.batches.iter().zip(&view.txns.bases) {
        let first = ranked.len();
        for (t, txn) in (base.txn..).zip(&batch.txns) {
            if contended[t] {
                let ordered = is_ordered(txn.isolation);
                ranked.push(Ranked { rank: (0, 0), csn: txn.csn.0, txn: t as u32, ordered });
            }
        }
        let added = || ranked[first..].iter().map(|one| one.txn as usize - base.txn);
        let headers = || added().map(|i| &batch.txns[i]);
        csn.extend(headers().map(|txn| txn.csn.0));
        start.extend(headers().map(|txn| txn.start.unwrap_or(view.input.epoch).0));
        origin.extend(headers().map(|txn| txn.origin));
        priority.extend(headers().map(|txn| txn.priority));
        first_attempt.extend(headers().map(|txn| txn.first_attempt_ms));
        reads.extend(added().map(|i| (batch.reads_of(i).len() + batch.ranges_of(i).len()) as u32));
        writes.extend(added().map(|i| batch.writes_of(i).len() as u32));
    }
}

/// Calls a rule, and checks the shape of its answer.
fn asked(rule: &dyn ConflictRule, columns: &TxnColumns) -> Result<Ranks, PolicyFault> {
    let ranks = rule.rank(columns)?;
    let txns = columns.csn.len();
    if ranks.hi.len() == txns && ranks.lo.len() == txns {
        return Ok(ranks);
    }
    let (hi, lo) = (ranks.hi.len(), ranks.lo.len());
    Err(PolicyFault(format!("{txns} transactions, but {hi} high and {lo} low halves of ranks")))
}

/// Conflicts of a transaction with the transactions committed so far.
#[derive(Clone, Copy, Debug, Default)]
struct Clash {
    write_write: bool,
    /// With an unordered transaction.
    write_write_unordered: bool,
    read_after_write: bool,
    write_after_read: bool,
}

impl Clash {
    #[inline]
    fn of(scratch: &ShardScratch, t: u32) -> Clash {
        let (mut ww, mut raw, mut war) = (0, 0, 0);
        for part in scratch.parts_of(t) {
            let held = scratch.held[part.row as usize];
            ww |= held & access_class::write_write(part.class);
            raw |= held & access_class::read_after_write(part.class);
            war |= held & access_class::write_after_read(part.class);
        }
        let ranges = (!scratch.ranges.is_empty()).then_some(&scratch.ranges);
        Clash {
            write_write: ww != 0,
            write_write_unordered: ww & held::WRITTEN_UNORDERED != 0,
            read_after_write: raw != 0 || ranges.is_some_and(|r| r.read_after_write(t).is_some()),
            write_after_read: war != 0 || ranges.is_some_and(|r| r.write_after_read(t).is_some()),
        }
    }

    #[inline]
    fn or(self, other: Clash) -> Clash {
        Clash {
            write_write: self.write_write | other.write_write,
            write_write_unordered: self.write_write_unordered | other.write_write_unordered,
            read_after_write: self.read_after_write | other.read_after_write,
            write_after_read: self.write_after_read | other.write_after_read,
        }
    }
}

/// Sets the `held` bits of a committed transaction. Branchless, because branches would mispredict.
fn commit(scratch: &mut ShardScratch, t: u32, ordered: bool) {
    let start = if t == 0 { 0 } else { scratch.part_ends[t as usize - 1] };
    for part in &scratch.parts[start as usize..scratch.part_ends[t as usize] as usize] {
        let holds = access_class::holds(part.class, ordered);
        scratch.held[part.row as usize] |= holds;
        scratch.winners.add(part.row, t, holds);
        let by = &mut scratch.holders[part.row as usize];
        let now = |mask: u16, before: u32| if holds & mask != 0 { t } else { before };
        *by = Holders {
            writer: now(held::WRITE_UNORDERED | held::WRITE_ORDERED, by.writer),
            adder: now(held::ADD_UNORDERED | held::ADD_ORDERED, by.adder),
            changer: now(held::EXISTENCE_CHANGED | held::BASE_CHANGED, by.changer),
            reader: now(held::VALUE_READ | held::EXISTENCE_READ | held::BASE_READ | held::ABSENCE_READ, by.reader),
        };
    }
    scratch.ranges.commit(t);
}

/// Returns the headroom that an add leaves its row; `None` if the sum could leave 64 bits.
fn headroom_after(
    state: &ShardState,
    headrooms: &[Option<Headroom>],
    part: &Part,
    (batch, txn): (&Batch, usize),
) -> Option<Headroom> {
    let write = &batch.writes[batch.writes_of(txn)][(part.op - Part::WRITES_FROM) as usize];
    let headroom = match headrooms[part.row as usize] {
        Some(left) if !planted(Bug::AddsOverflowTogether) => left,
        _ => state.sums.of(write.row).headroom(),
    };
    headroom.after(integer_of(write.value.of(&batch.values))?)
}

fn is_add(part: &Part) -> bool {
    part.class & access_class::class::ADD != 0
}

/// Finds an add that together with the winners' adds could leave 64 bits.
fn overflowing(shards: &[Shard], view: EpochView<'_>, t: u32) -> Option<Loser> {
    if planted(Bug::AddsNeverOverflow) {
        return None;
    }
    let at = locate(view, t as usize);
    let first_of = |Shard { state, scratch, .. }: &Shard| {
        let own = if scratch.adds { scratch.parts_of(t) } else { &[] };
        let mut adds = own.iter().filter(|part| is_add(part));
        let part = adds.find(|part| headroom_after(state, &scratch.headrooms, part, at).is_none())?;
        Some((part.op - Part::WRITES_FROM, scratch.holders[part.row as usize].adder))
    };
    let (index, adder) = shards.iter().filter_map(first_of).min()?;
    let winner = (adder != NONE).then_some(TxnIx(adder));
    let witness = Witness { op: OpKind::Write, index, current: None, winner, stage: Stage::Merge };
    Some(Loser { txn: t, reason: Reason::AddOverflow, witnesses: [Some(witness), None] })
}

/// Records the headroom that the transaction's adds leave their rows.
fn take_headroom(shard: &mut Shard, view: EpochView<'_>, t: u32) {
    let at = locate(view, t as usize);
    let Shard { state, scratch, .. } = shard;
    let start = if t == 0 { 0 } else { scratch.part_ends[t as usize - 1] };
    let ShardScratch { parts, part_ends, headrooms, .. } = scratch;
    for part in parts[start as usize..part_ends[t as usize] as usize].iter().filter(|part| is_add(part)) {
        headrooms[part.row as usize] = headroom_after(state, headrooms, part, at);
    }
}

/// An operation blocked by a winner: the operation, the key written into a range, and the winner. Ordered by operation;
/// for one range hit in several shards, the smallest key is first.
type Blocked<'a> = ((OpKind, u32), &'a [u8], u32);

/// Returns the first blocked operation of all shards, so that the result does not depend on how rows are distributed.
fn first_blocked<'a>(
    shards: &[Shard],
    t: u32,
    blocker: impl Fn(u16, &Holders, u8) -> Option<u32>,
    range: impl Fn(&crate::resolve::range_votes::RangeVotes) -> Option<Blocked<'a>>,
) -> Option<Witness> {
    // Parts ascend by operation, so the first of each shard is enough.
    let of_rows = shards.iter().filter_map(|shard| {
        shard.scratch.parts_of(t).iter().find_map(|part| {
            let (held, by) = (shard.scratch.held[part.row as usize], &shard.scratch.holders[part.row as usize]);
            let winner = blocker(held, by, part.class)?;
            let op = match part.op.checked_sub(Part::WRITES_FROM) {
                Some(write) => (OpKind::Write, write),
                None => (OpKind::Read, part.op),
            };
            Some((op, &[][..], winner))
        })
    });
    let of_ranges = shards.iter().filter(|s| !s.scratch.ranges.is_empty()).filter_map(|s| range(&s.scratch.ranges));
    let ((op, index), _, winner) = of_rows.chain(of_ranges).min()?;
    let winner = (winner != NONE).then_some(TxnIx(winner));
    Some(Witness { op, index, current: None, winner, stage: Stage::Merge })
}

/// Returns the loser that writes a row already written by one of `against`.
fn beaten_writer(shards: &[Shard], t: u32, against: u16) -> Loser {
    let blocker = |held: u16, by: &Holders, class: u8| {
        let met = held & access_class::write_write(class) & against;
        if met & (held::WRITE_UNORDERED | held::WRITE_ORDERED) != 0 {
            return Some(by.writer);
        }
        (met != 0).then_some(by.adder)
    };
    let witness = first_blocked(shards, t, blocker, |_| None);
    Loser { txn: t, reason: Reason::WriteConflict, witnesses: [witness, None] }
}

/// Returns the loser that is ordered, read a row that a committed transaction changes, and cannot precede that
/// transaction because its sums could leave 64 bits together with the winners' sums. On fresh reads it may add
/// something else.
fn outdated(shards: &[Shard], view: EpochView<'_>, t: u32, sums: Loser) -> Loser {
    Loser { reason: Reason::OrderConflict, witnesses: [blocked_read(shards, view, t), sums.witnesses[0]], ..sums }
}

/// Returns the ordered loser that must follow some committed transactions and precede others, and has no place for that. The
/// witnesses are its first conflicts of both kinds: in a longer cycle, possibly with transactions that are not part of it.
fn misplaced(shards: &[Shard], view: EpochView<'_>, t: u32) -> Loser {
    let reader =
        |held: u16, by: &Holders, class: u8| (held & access_class::write_after_read(class) != 0).then_some(by.reader);
    let write = first_blocked(shards, t, reader, |ranges| {
        let (op, by) = ranges.write_after_read(t)?;
        Some(((OpKind::Write, op), &[][..], by))
    });
    Loser { txn: t, reason: Reason::OrderConflict, witnesses: [blocked_read(shards, view, t), write] }
}

/// Returns the first operation that relies on something a committed transaction changes.
fn blocked_read(shards: &[Shard], view: EpochView<'_>, t: u32) -> Option<Witness> {
    let writer = |held: u16, by: &Holders, class: u8| {
        let met = held & access_class::read_after_write(class);
        match met {
            0 => None,
            _ if met & (held::EXISTENCE_CHANGED | held::BASE_CHANGED) != 0 => Some(by.changer),
            _ if by.writer != NONE => Some(by.writer),
            _ => Some(by.adder),
        }
    };
    first_blocked(shards, t, writer, |ranges| {
        let hit = ranges.read_after_write(t)?;
        let (batch, txn) = locate(view, hit.writer as usize);
        let write = &batch.writes[batch.writes_of(txn)][hit.write as usize];
        Some(((OpKind::Range, hit.range), write.key.of(&batch.keys), hit.writer))
    })
}
