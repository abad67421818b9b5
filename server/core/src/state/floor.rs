//! The floor: the oldest snapshot whose history is still retained. It rises with `epoch_time`, or earlier when the history
//! above it exceeds its bound; both are replicated values, so every replica has the same floor.

use alloc::collections::VecDeque;

use tribunal_types::Epoch;

/// An epoch above the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochMark {
    pub(crate) epoch: Epoch,
    pub(crate) time_ms: u64,
    /// Bytes of its history.
    pub(crate) bytes: u64,
}

/// Epochs above the floor, and the bytes of their history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    at: Epoch,
    epochs: VecDeque<EpochMark>,
    bytes: u64,
}

impl Floor {
    pub(crate) fn at(&self) -> Epoch {
        self.at
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn note(&mut self, mark: EpochMark) {
        self.bytes = self.bytes.saturating_add(mark.bytes);
        self.epochs.push_back(mark);
    }

    /// Raises the floor to the newest epoch that is old enough, and further while the rest is too large.
    pub(crate) fn rise(&mut self, now_ms: u64, age_ms: u64, bytes_max: u64) -> Epoch {
        while let Some(mark) = self.epochs.front()
            && (mark.time_ms.saturating_add(age_ms) <= now_ms || self.bytes > bytes_max)
        {
            self.pop();
        }
        self.at
    }

    /// Raises the floor to the one in a record.
    pub(crate) fn rise_to(&mut self, floor: Epoch) {
        while self.epochs.front().is_some_and(|mark| mark.epoch <= floor) {
            self.pop();
        }
        self.at = self.at.max(floor);
    }

    fn pop(&mut self) {
        if let Some(mark) = self.epochs.pop_front() {
            self.bytes = self.bytes.saturating_sub(mark.bytes);
            self.at = mark.epoch;
        }
    }

    pub(crate) fn marks(&self) -> impl Iterator<Item = &EpochMark> {
        self.epochs.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor_of(marks: &[(u64, u64, u64)]) -> Floor {
        let mut floor = Floor::default();
        for &(epoch, time_ms, bytes) in marks {
            floor.note(EpochMark { epoch: Epoch(epoch), time_ms, bytes });
        }
        floor
    }

    #[test]
    fn the_floor_rises_with_time() {
        let mut floor = floor_of(&[(1, 100, 5), (2, 200, 5), (7, 300, 5)]);
        assert_eq!(floor.rise(250, 60, 100), Epoch(1));
        assert_eq!(floor.rise(260, 60, 100), Epoch(2));
        assert_eq!(floor.bytes(), 5);
    }

    #[test]
    fn the_floor_rises_when_history_is_too_large() {
        let mut floor = floor_of(&[(1, 100, 50), (2, 200, 50), (7, 300, 5)]);
        assert_eq!(floor.rise(300, 1000, 60), Epoch(1));
        assert_eq!(floor.rise(300, 1000, 4), Epoch(7));
        assert_eq!(floor.bytes(), 0);
    }
}
