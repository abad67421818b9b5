//! Superseded states of rows above the floor, which the snapshot level needs to place a read in time.
//!
//! One run per epoch contains, for every row that the epoch overwrote, its previous state; the state before that is in
//! the run of the previous state's epoch, and so on: a row's past is a chain through the runs, and writing costs one
//! append. A run is indexed only when it is searched. A row that is not in the run of its version's epoch was absent
//! before. Runs at or below the floor are dropped; rows that they mark as expiring (tombstones, rows of declared
//! stores) are then removed from the version map.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::{Epoch, RowKey, Version};

/// A row's state at the end of some epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowState {
    /// Version of the write that produced it.
    pub(crate) version: Version,
    /// Whether that write was a deletion.
    pub(crate) tombstone: bool,
}

impl RowState {
    const TOMBSTONE: u64 = 1 << 63;

    pub(crate) fn to_bits(self) -> u64 {
        self.version.bits() | if self.tombstone { Self::TOMBSTONE } else { 0 }
    }

    pub(crate) fn from_bits(bits: u64) -> Option<RowState> {
        let version = Version::from_bits(bits & !Self::TOMBSTONE)?;
        Some(RowState { version, tombstone: bits & Self::TOMBSTONE != 0 })
    }
}

/// Clears the last 8 bits of a key, which do not identify the row, see `map`.
#[inline(always)]
fn named(key: RowKey) -> RowKey {
    RowKey { hi: key.hi, lo: key.lo & !0xff }
}

/// The state preceding a given state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Another state.
    State(RowState),
    /// The row was absent, with no deletion above the floor.
    Absent,
    /// The floor has passed it.
    Forgotten,
}

/// Bytes charged for one superseded state.
pub(crate) const SUPERSEDED_BYTES: u64 = size_of::<Superseded>() as u64;
/// Bytes charged for one expiring row.
pub(crate) const EXPIRING_BYTES: u64 = size_of::<RowKey>() as u64;

#[derive(Clone, Copy, Debug)]
struct Superseded {
    key: RowKey,
    state: u64,
}

/// The remembered data of one epoch.
#[derive(Clone, Debug, Default)]
struct Remains {
    superseded: Vec<Superseded>,
    /// Rows to forget when the floor reaches the epoch, unless written again; the last bit: even if not deleted.
    expiring: Vec<RowKey>,
}

#[derive(Clone, Debug, Default)]
struct Run {
    epoch: u64,
    /// Shared with images in progress once the run is closed.
    remains: Arc<Remains>,
    /// Heads of chains through `next`, by the key's bits; built on demand. Positions count from 1.
    heads: Vec<u32>,
    next: Vec<u32>,
}

impl Run {
    fn build_index(&mut self) {
        if !self.heads.is_empty() {
            return;
        }
        let superseded = &self.remains.superseded;
        self.heads = alloc::vec![0; superseded.len().next_power_of_two()];
        self.next = Vec::with_capacity(superseded.len());
        let mask = self.heads.len() - 1;
        for (i, s) in superseded.iter().enumerate() {
            let head = &mut self.heads[s.key.hi as usize & mask];
            self.next.push(*head);
            *head = i as u32 + 1;
        }
    }

    fn find(&self, key: RowKey) -> Option<RowState> {
        let superseded = &self.remains.superseded;
        let found = if self.heads.is_empty() {
            superseded.iter().find(|s| s.key == key)
        } else {
            let mut at = self.heads[key.hi as usize & (self.heads.len() - 1)];
            loop {
                if at == 0 {
                    return None;
                }
                let s = &superseded[at as usize - 1];
                if s.key == key {
                    break Some(s);
                }
                at = self.next[at as usize - 1];
            }
        };
        found.and_then(|s| RowState::from_bits(s.state))
    }
}

/// The run of the epoch being applied.
pub(crate) struct OpenRun<'a>(&'a mut Remains);

impl OpenRun<'_> {
    /// Notes a state that the open epoch overwrites. Once per row and epoch.
    #[inline(always)]
    pub(crate) fn supersede(&mut self, key: RowKey, state: RowState) {
        self.0.superseded.push(Superseded { key: named(key), state: state.to_bits() });
    }

    /// Notes a row to forget when the floor reaches the open epoch: if it is a tombstone then, or in any case
    /// (`declared`).
    pub(crate) fn expire(&mut self, key: RowKey, declared: bool) {
        self.0.expiring.push(RowKey { lo: named(key).lo | u64::from(declared), ..key });
    }
}

/// Returns the contents of an open run for writing.
fn owned(remains: &mut Arc<Remains>) -> &mut Remains {
    Arc::get_mut(remains).expect("only closed runs are shared")
}

/// Superseded states of one shard's rows.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// In ascending order of epoch; only epochs that superseded a state.
    runs: VecDeque<Run>,
    /// Emptied runs, whose buffers are reused.
    spare: Vec<Run>,
}

const SPARE_RUNS_MAX: usize = 64;

impl History {
    /// Opens the run of epoch `epoch`, the newest, with room for `rows` rows.
    pub(crate) fn open(&mut self, epoch: Epoch, rows: usize) {
        let mut run = self.spare.pop().unwrap_or_default();
        run.epoch = epoch.0;
        owned(&mut run.remains).superseded.reserve(rows);
        self.runs.push_back(run);
    }

    /// Returns the open run for writing.
    pub(crate) fn open_run(&mut self) -> OpenRun<'_> {
        let run = self.runs.back_mut().expect("a run is open while an epoch is applied");
        OpenRun(owned(&mut run.remains))
    }

    /// Closes the open run and returns the bytes charged for it.
    pub(crate) fn close(&mut self) -> u64 {
        let Some(run) = self.runs.back() else { return 0 };
        let Remains { superseded, expiring } = &*run.remains;
        let bytes = superseded.len() as u64 * SUPERSEDED_BYTES + expiring.len() as u64 * EXPIRING_BYTES;
        if bytes == 0 {
            self.spare.extend(self.runs.pop_back());
        }
        bytes
    }

    fn run_at(&self, epoch: u64) -> Option<usize> {
        let at = self.runs.partition_point(|run| run.epoch < epoch);
        (self.runs.get(at)?.epoch == epoch).then_some(at)
    }

    /// Builds the indexes needed to search a row's past, from the state written at `version` down to epoch `since`.
    pub(crate) fn prepare_chain(&mut self, key: RowKey, version: Version, since: u64) {
        let mut epoch = version.epoch().0;
        while epoch > since
            && let Some(at) = self.run_at(epoch)
        {
            self.runs[at].build_index();
            let Some(before) = self.runs[at].find(named(key)) else { return };
            epoch = before.version.epoch().0;
        }
    }

    /// Returns a row's state before the one written at `version`.
    pub(crate) fn before(&self, key: RowKey, version: Version, floor: Epoch) -> Before {
        let epoch = version.epoch();
        if epoch <= floor {
            return Before::Forgotten;
        }
        match self.run_at(epoch.0).and_then(|at| self.runs[at].find(named(key))) {
            Some(state) => Before::State(state),
            None => Before::Absent,
        }
    }

    /// Drops the runs at or below the floor and passes their expiring rows to `forget`.
    pub(crate) fn drop_below(&mut self, floor: Epoch, mut forget: impl FnMut(RowKey, bool)) {
        while let Some(run) = self.runs.front()
            && run.epoch <= floor.0
        {
            let mut run = self.runs.pop_front().expect("just seen");
            run.remains.expiring.iter().for_each(|&key| forget(key, key.lo & 1 != 0));
            if self.spare.len() < SPARE_RUNS_MAX
                && let Some(remains) = Arc::get_mut(&mut run.remains)
            {
                remains.superseded.clear();
                remains.expiring.clear();
                run.heads = Vec::new();
                run.next = Vec::new();
                self.spare.push(run);
            }
        }
    }

    /// Returns the same history, sharing its runs instead of copying them.
    pub(crate) fn shared(&self) -> History {
        let share = |run: &Run| Run { epoch: run.epoch, remains: Arc::clone(&run.remains), ..Run::default() };
        History { runs: self.runs.iter().map(share).collect(), spare: Vec::new() }
    }

    /// Returns the number of superseded states.
    pub(crate) fn superseded_len(&self) -> usize {
        self.runs.iter().map(|run| run.remains.superseded.len()).sum()
    }

    /// Returns the number of expiring rows.
    pub(crate) fn expiring_len(&self) -> usize {
        self.runs.iter().map(|run| run.remains.expiring.len()).sum()
    }

    /// Returns all superseded states as (epoch, row, [`RowState::to_bits`]), for images.
    pub(crate) fn superseded(&self) -> impl Iterator<Item = (u64, RowKey, u64)> {
        self.runs.iter().flat_map(|run| run.remains.superseded.iter().map(|s| (run.epoch, s.key, s.state)))
    }

    /// Returns all expiring rows as (epoch, row as noted), for images.
    pub(crate) fn expiring(&self) -> impl Iterator<Item = (u64, RowKey)> {
        self.runs.iter().flat_map(|run| run.remains.expiring.iter().map(|&key| (run.epoch, key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> RowKey {
        RowKey { hi: n, lo: n << 8 }
    }

    fn state(epoch: u64, tombstone: bool) -> RowState {
        RowState { version: Version::new(Epoch(epoch), 3).expect("fits"), tombstone }
    }

    #[test]
    fn a_rows_past_is_a_chain_through_the_epochs_that_wrote_it() {
        let mut history = History::default();
        history.open(Epoch(5), 2);
        history.open_run().supersede(key(1), state(2, false));
        history.open_run().supersede(key(2), state(2, false));
        history.close();
        history.open(Epoch(9), 1);
        history.open_run().supersede(key(1), state(5, true));
        assert_eq!(history.close(), SUPERSEDED_BYTES);
        history.prepare_chain(key(1), state(9, false).version, 4);
        let now = state(9, false);
        let Before::State(first) = history.before(key(1), now.version, Epoch(0)) else { panic!("known") };
        assert_eq!(first, state(5, true));
        assert_eq!(history.before(key(1), first.version, Epoch(0)), Before::State(state(2, false)));
        assert_eq!(history.before(key(1), state(2, false).version, Epoch(0)), Before::Absent);
        assert_eq!(history.before(key(1), state(2, false).version, Epoch(2)), Before::Forgotten);
    }

    #[test]
    fn the_floor_takes_runs_and_names_what_to_forget() {
        let mut history = History::default();
        history.open(Epoch(5), 2);
        history.open_run().expire(key(7), true);
        history.close();
        history.open(Epoch(6), 0);
        history.open_run().expire(key(8), false);
        history.close();
        let mut gone = Vec::new();
        history.drop_below(Epoch(5), |k, declared| gone.push((k.hi, declared)));
        assert_eq!(gone, [(7, true)]);
        assert_eq!(history.expiring().map(|(epoch, _)| epoch).collect::<Vec<_>>(), [6]);
    }
}
