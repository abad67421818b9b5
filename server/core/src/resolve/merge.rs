//! Merge: ranks the contended, and walks them in the order (rank, CSN) building the epoch's serial order as a
//! double-ended queue. Nobody loses to a loser: only the committed stand in anybody's way.
//!
//! # Why the queue is a serial order
//! Write `S` for the state before the epoch, which is what every transaction read, and let the queue be
//! `q1 .. qn`. Claim, kept by every step: executing the queue one by one from `S`, every *serializable* transaction
//! reads just before its turn what it read in `S`.
//! * *T joins the back.* The others' turns are as before. T has no `RAW`, so nothing that it reads (value, range,
//!   existence, kind) is written or changed by any of the queue: just before its turn it still reads `S`.
//! * *T joins the front.* T reads `S` itself. Any other serializable one sees `S` with T's writes below it; T has no
//!   `WAR`, so nothing that a serializable one reads is among them.
//! * *T is below serializable.* It joins the back and the first half of the first case applies to the others; T itself
//!   is promised no place in a serial order, only its snapshot, and that no other transaction of the epoch overwrote
//!   what it writes: `WW` with *any* committed one aborts it, and later a serializable one that writes a row of it.
//! * *Writes meet.* Only serializable ones share a written row (adds apart, which commute), and the queue decides the
//!   final value: versions rise along it, so map, log and storage agree on the last writer. One that relies on the
//!   overwritten value has a `RAW` or `WAR` with the writer, and is covered above.
//! * *The uncontended* share no row or range with a writer of the epoch, or write what nobody else touches: they fit
//!   anywhere, so all of them stand in the middle, in one position.
//!
//! And since the last turn ends in the state that apply stores, the epoch is equivalent to its queue.

use alloc::format;
use alloc::vec::Vec;

use tribunal_types::{OpKind, PolicyFallback, Reason, Stage, TxnIx, Witness};

use crate::planted::{Bug, planted};
use crate::policy::{ConflictRule, Policies, PolicyFault, Ranks, TxnColumns};
use crate::resolve::access_class::{self, held};
use crate::resolve::contention::{Holders, Part};
use crate::resolve::epoch_rows::NONE;
use crate::resolve::scratch::ShardScratch;
use crate::resolve::shard::Shard;
use crate::resolve::txns::{EpochView, is_serializable};
use crate::resolve::validate::locate;

/// What the walk decides.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// In the order in which they joined the front: the last is the first of the epoch.
    pub(crate) front: Vec<u32>,
    /// In serial order.
    pub(crate) back: Vec<u32>,
    pub(crate) losers: Vec<Loser>,
    /// By transaction: it is contended.
    pub(crate) contended: Vec<bool>,
    /// The contended, in the order of the walk.
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
    /// Transactions differ in it: what follows orders nothing.
    txn: u32,
    serializable: bool,
}

impl Merged {
    pub(crate) fn contended_count(&self) -> usize {
        self.ranked.len()
    }

    /// Ranks and walks the contended of all shards' votes.
    pub(crate) fn run(
        &mut self,
        shards: &mut [Shard],
        view: EpochView<'_>,
        policies: &Policies<'_>,
        fallbacks: &mut Vec<PolicyFallback>,
    ) {
        self.front.clear();
        self.back.clear();
        self.losers.clear();
        self.find_contended(shards, view.txns.txns);
        self.rank(view, policies, fallbacks);
        for at in 0..self.ranked.len() {
            let Ranked { txn, serializable, .. } = self.ranked[at];
            self.place(shards, view, txn, serializable);
        }
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

    /// Finds a place in the queue for one transaction, or none.
    fn place(&mut self, shards: &mut [Shard], view: EpochView<'_>, t: u32, serializable: bool) {
        let clash = shards.iter().fold(Clash::default(), |clash, shard| clash.or(Clash::of(&shard.scratch, t)));
        if !serializable {
            if clash.write_write {
                self.losers.push(beaten_writer(shards, t, held::WRITTEN));
                return;
            }
            self.back.push(t);
        } else if clash.write_write_low {
            self.losers.push(beaten_writer(shards, t, held::WRITTEN_LOW));
            return;
        } else if !clash.read_after_write {
            self.back.push(t);
        } else if !clash.write_after_read {
            self.front.push(t);
        } else {
            self.losers.push(misplaced(shards, view, t));
            return;
        }
        for shard in shards {
            commit(&mut shard.scratch, t, serializable);
        }
    }
}

fn fill_columns(columns: &mut TxnColumns, ranked: &mut Vec<Ranked>, contended: &[bool], view: EpochView<'_>) {
    ranked.clear();
    let TxnColumns { csn, epoch, start, origin, priority, reads, writes } = columns;
    *epoch = view.input.epoch.0;
    [&mut *csn, start, origin].into_iter().for_each(Vec::clear);
    [&mut *reads, writes].into_iter().for_each(Vec::clear);
    priority.clear();
    for (batch, base) in view.input.batches.iter().zip(&view.txns.bases) {
        let first = ranked.len();
        for (t, txn) in (base.txn..).zip(&batch.txns) {
            if contended[t] {
                let serializable = is_serializable(txn.isolation);
                ranked.push(Ranked { rank: (0, 0), csn: txn.csn.0, txn: t as u32, serializable });
            }
        }
        let added = || ranked[first..].iter().map(|one| one.txn as usize - base.txn);
        let headers = || added().map(|i| &batch.txns[i]);
        csn.extend(headers().map(|txn| txn.csn.0));
        start.extend(headers().map(|txn| txn.start.unwrap_or(view.input.epoch).0));
        origin.extend(headers().map(|txn| txn.origin));
        priority.extend(headers().map(|txn| txn.priority));
        reads.extend(added().map(|i| (batch.reads_of(i).len() + batch.ranges_of(i).len()) as u32));
        writes.extend(added().map(|i| batch.writes_of(i).len() as u32));
    }
}

/// Asks a rule, and checks the shape of its answer.
fn asked(rule: &dyn ConflictRule, columns: &TxnColumns) -> Result<Ranks, PolicyFault> {
    let ranks = rule.rank(columns)?;
    let txns = columns.csn.len();
    if ranks.hi.len() == txns && ranks.lo.len() == txns {
        return Ok(ranks);
    }
    let (hi, lo) = (ranks.hi.len(), ranks.lo.len());
    Err(PolicyFault(format!("{txns} transactions, but {hi} high and {lo} low halves of ranks")))
}

/// A transaction against the committed so far.
#[derive(Clone, Copy, Debug, Default)]
struct Clash {
    write_write: bool,
    /// With one below serializable.
    write_write_low: bool,
    read_after_write: bool,
    write_after_read: bool,
}

impl Clash {
    #[inline]
    fn of(scratch: &ShardScratch, t: u32) -> Clash {
        let (mut ww, mut raw, mut war) = (0, 0, 0);
        for part in parts_of(scratch, t) {
            let held = scratch.held[part.row as usize];
            ww |= held & access_class::write_write(part.class);
            raw |= held & access_class::read_after_write(part.class);
            war |= held & access_class::write_after_read(part.class);
        }
        let ranges = (!scratch.ranges.is_empty()).then_some(&scratch.ranges);
        Clash {
            write_write: ww != 0,
            write_write_low: ww & held::WRITTEN_LOW != 0,
            read_after_write: raw != 0 || ranges.is_some_and(|r| r.read_after_write(t).is_some()),
            write_after_read: war != 0 || ranges.is_some_and(|r| r.write_after_read(t).is_some()),
        }
    }

    #[inline]
    fn or(self, other: Clash) -> Clash {
        Clash {
            write_write: self.write_write | other.write_write,
            write_write_low: self.write_write_low | other.write_write_low,
            read_after_write: self.read_after_write | other.read_after_write,
            write_after_read: self.write_after_read | other.write_after_read,
        }
    }
}

#[inline]
fn parts_of(scratch: &ShardScratch, t: u32) -> &[Part] {
    let start = if t == 0 { 0 } else { scratch.part_ends[t as usize - 1] };
    &scratch.parts[start as usize..scratch.part_ends[t as usize] as usize]
}

/// Notes what a committed transaction holds. Without branches: which of its parts hold what cannot be foretold.
fn commit(scratch: &mut ShardScratch, t: u32, serializable: bool) {
    let start = if t == 0 { 0 } else { scratch.part_ends[t as usize - 1] };
    for part in &scratch.parts[start as usize..scratch.part_ends[t as usize] as usize] {
        let holds = access_class::holds(part.class, serializable);
        scratch.held[part.row as usize] |= holds;
        let by = &mut scratch.holders[part.row as usize];
        let now = |mask: u16, before: u32| if holds & mask != 0 { t } else { before };
        *by = Holders {
            writer: now(held::WRITE_LOW | held::WRITE_SER, by.writer),
            adder: now(held::ADD_LOW | held::ADD_SER, by.adder),
            changer: now(held::EXISTENCE_CHANGED | held::KIND_CHANGED, by.changer),
            reader: now(held::VALUE_READ | held::EXISTENCE_READ | held::KIND_READ, by.reader),
        };
    }
    scratch.ranges.commit(t);
}

/// An operation that somebody stands in the way of: operation, key written into a range, and winner. First by
/// operation; several shards may have something in one range, there the smallest key is first.
type Blocked<'a> = ((OpKind, u32), &'a [u8], u32);

/// Returns the first blocked operation of all shards, so that it does not depend on how rows are spread.
fn first_blocked<'a>(
    shards: &[Shard],
    t: u32,
    blocker: impl Fn(u16, &Holders, u8) -> Option<u32>,
    range: impl Fn(&crate::resolve::range_votes::RangeVotes) -> Option<Blocked<'a>>,
) -> Option<Witness> {
    // Parts ascend by operation, so a shard's first is enough.
    let of_rows = shards.iter().filter_map(|shard| {
        parts_of(&shard.scratch, t).iter().find_map(|part| {
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

/// A transaction that writes what one of `against` has written.
fn beaten_writer(shards: &[Shard], t: u32, against: u16) -> Loser {
    let blocker = |held: u16, by: &Holders, class: u8| {
        let met = held & access_class::write_write(class) & against;
        if met & (held::WRITE_LOW | held::WRITE_SER) != 0 {
            return Some(by.writer);
        }
        (met != 0).then_some(by.adder)
    };
    let witness = first_blocked(shards, t, blocker, |_| None);
    Loser { txn: t, reason: Reason::WriteConflict, witnesses: [witness, None] }
}

/// A serializable transaction that fits neither behind nor before the committed ones.
fn misplaced(shards: &[Shard], view: EpochView<'_>, t: u32) -> Loser {
    let writer = |held: u16, by: &Holders, class: u8| {
        let met = held & access_class::read_after_write(class);
        match met {
            0 => None,
            _ if met & (held::EXISTENCE_CHANGED | held::KIND_CHANGED) != 0 => Some(by.changer),
            _ if by.writer != NONE => Some(by.writer),
            _ => Some(by.adder),
        }
    };
    let reader =
        |held: u16, by: &Holders, class: u8| (held & access_class::write_after_read(class) != 0).then_some(by.reader);
    let read = first_blocked(shards, t, writer, |ranges| {
        let hit = ranges.read_after_write(t)?;
        let (batch, txn) = locate(view, hit.writer as usize);
        let write = &batch.writes[batch.writes_of(txn)][hit.write as usize];
        Some(((OpKind::Range, hit.range), write.key.of(&batch.keys), hit.writer))
    });
    let write = first_blocked(shards, t, reader, |ranges| {
        let (op, by) = ranges.write_after_read(t)?;
        Some(((OpKind::Write, op), &[][..], by))
    });
    Loser { txn: t, reason: Reason::OrderConflict, witnesses: [read, write] }
}
