//! One ordered key space within a database.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::VALUE_BYTES_MAX;
use crate::disk::Inner;
use crate::error::DiskError;
use crate::guard::guarded;

/// A key space: keys in bytewise order. Clones share it.
#[derive(Clone)]
pub struct Tree {
    tree: sled::Tree,
    disk: Arc<Inner>,
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Changes that become visible, and after a [`crate::Disk::sync`] durable, together or not at all.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    batch: sled::Batch,
}

impl WriteBatch {
    /// Adds "set `key` to `value`". The last change of a key counts.
    ///
    /// # Errors
    /// [`DiskError::ValueTooLarge`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), DiskError> {
        check_value(value)?;
        self.batch.insert(key, value);
        Ok(())
    }

    /// Adds "remove `key`".
    pub fn delete(&mut self, key: &[u8]) {
        self.batch.remove(key);
    }
}

fn check_value(value: &[u8]) -> Result<(), DiskError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(DiskError::ValueTooLarge { bytes: value.len() });
    }
    Ok(())
}

impl Tree {
    pub(crate) fn new(tree: sled::Tree, disk: Arc<Inner>) -> Self {
        Self { tree, disk }
    }

    /// Sets `key` to `value`; durable after the next [`crate::Disk::sync`].
    ///
    /// # Errors
    /// [`DiskError::ValueTooLarge`], or [`DiskError::DurabilityInDoubt`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), DiskError> {
        check_value(value)?;
        self.write("write", || self.tree.insert(key, value))
    }

    /// Removes `key`; durable after the next [`crate::Disk::sync`].
    ///
    /// # Errors
    /// [`DiskError::DurabilityInDoubt`].
    pub fn delete(&self, key: &[u8]) -> Result<(), DiskError> {
        self.write("delete", || self.tree.remove(key))
    }

    /// Applies a batch; durable after the next [`crate::Disk::sync`].
    ///
    /// # Errors
    /// [`DiskError::DurabilityInDoubt`].
    pub fn apply(&self, batch: WriteBatch) -> Result<(), DiskError> {
        self.write("write of a batch", || self.tree.apply_batch(batch.batch))
    }

    fn write<T>(&self, what: &str, job: impl FnOnce() -> sled::Result<T>) -> Result<(), DiskError> {
        self.disk.check()?;
        guarded(job).map(drop).map_err(|reason| self.disk.fail(format!("{what}: {reason}")))
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`DiskError::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        let found = guarded(|| self.tree.get(key)).map_err(|reason| self.disk.damaged(reason))?;
        Ok(found.map(|value| value.to_vec()))
    }

    /// Returns the pair with the smallest key.
    ///
    /// # Errors
    /// [`DiskError::Damaged`].
    pub fn first(&self) -> Result<Option<Pair>, DiskError> {
        self.scan(..).next().transpose()
    }

    /// Returns the pair with the largest key.
    ///
    /// # Errors
    /// [`DiskError::Damaged`].
    pub fn last(&self) -> Result<Option<Pair>, DiskError> {
        self.scan(..).next_back().transpose()
    }

    /// Returns the pairs in `range`, ascending. What is written meanwhile may or may not be seen.
    pub fn scan<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Scan {
        let own = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        let pairs = self.tree.range((own(range.start_bound()), own(range.end_bound())));
        Scan { pairs: Some(pairs), disk: Arc::clone(&self.disk) }
    }
}

/// Pairs of a [`Tree::scan`]. Ends behind the first error.
pub struct Scan {
    pairs: Option<sled::Iter>,
    disk: Arc<Inner>,
}

impl Iterator for Scan {
    type Item = Result<Pair, DiskError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(|pairs| pairs.next())
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(|pairs| pairs.next_back())
    }
}

impl Scan {
    fn step(
        &mut self,
        step: impl FnOnce(&mut sled::Iter) -> Option<sled::Result<(sled::IVec, sled::IVec)>>,
    ) -> Option<<Self as Iterator>::Item> {
        let pairs = self.pairs.as_mut()?;
        match guarded(|| step(pairs).transpose()) {
            Ok(pair) => pair.map(|(key, value)| Ok((key.to_vec(), value.to_vec()))),
            Err(reason) => {
                self.pairs = None;
                Some(Err(self.disk.damaged(reason)))
            }
        }
    }
}
