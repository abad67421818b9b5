//! Caches recently decoded epochs, so that an epoch read page by page is decoded only once.

use std::collections::VecDeque;
use std::sync::Arc;

use tribunal_types::{Epoch, EpochInput, EpochOutcome};

/// A bounded cache; the epoch decoded first is evicted first.
#[derive(Debug)]
pub(crate) struct Recent {
    epochs: VecDeque<(Arc<(EpochInput, EpochOutcome)>, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl Recent {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { epochs: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(crate) fn get(&self, epoch: Epoch) -> Option<Arc<(EpochInput, EpochOutcome)>> {
        self.epochs.iter().rev().find(|(kept, _)| kept.0.epoch == epoch).map(|(kept, _)| Arc::clone(kept))
    }

    /// Adds an epoch; the newest one is kept, however large.
    pub(crate) fn put(&mut self, epoch: Arc<(EpochInput, EpochOutcome)>) {
        let (input, outcome) = &*epoch;
        let bytes = input.batches.iter().map(|batch| batch.memory_bytes()).sum::<usize>() + outcome.memory_bytes();
        self.epochs.push_back((epoch, bytes));
        self.bytes += bytes;
        while self.bytes > self.bytes_max && self.epochs.len() > 1 {
            let gone = self.epochs.pop_front().map_or(0, |(_, bytes)| bytes);
            self.bytes -= gone;
        }
    }
}
