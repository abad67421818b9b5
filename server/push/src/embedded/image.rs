//! Images: all rows at one position of the log, read one page at a time while epochs are applied.
//!
//! Before a row that an image has not reached yet is overwritten, its old state is retained (copy on write). The size
//! of retained rows is bounded: an image that is read more slowly than rows change ends with an error, and nothing
//! waits for its reader.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tribunal_types::Lsn;

use super::stored::Stored;
use super::{EmbeddedError, EmbeddedStore, Row, row};

/// Maximum size of the rows retained for one image.
const KEPT_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Estimated overhead of a retained row.
const ROW_OVERHEAD_BYTES: usize = 96;

/// The rows that were overwritten before an image reached them.
#[derive(Default)]
pub(super) struct Kept {
    /// First key that has not been read; `None` after the last one.
    next: Option<Vec<u8>>,
    /// Old states by key; `None` if the row did not exist.
    rows: BTreeMap<Box<[u8]>, Option<Stored>>,
    bytes: usize,
    overrun: bool,
}

/// A store's images being read.
#[derive(Default)]
pub(super) struct Images(Mutex<Vec<Weak<Mutex<Kept>>>>);

impl Images {
    fn add(&self) -> Arc<Mutex<Kept>> {
        let kept = Arc::new(Mutex::new(Kept { next: Some(Vec::new()), ..Kept::default() }));
        self.0.lock().push(Arc::downgrade(&kept));
        kept
    }

    /// Retains the old states, returned by `stored`, of rows that are about to be overwritten. Called with the applier
    /// locked, before readers can see the new states.
    pub(super) fn keep<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        stored: impl Fn(&[u8]) -> Result<Option<Stored>, EmbeddedError>,
    ) -> Result<(), EmbeddedError> {
        let mut images = self.0.lock();
        if images.is_empty() {
            return Ok(());
        }
        images.retain(|image| image.strong_count() > 0);
        for image in images.iter().filter_map(Weak::upgrade) {
            let mut kept = image.lock();
            for key in keys.clone() {
                let unread = kept.next.as_deref().is_some_and(|next| key >= next);
                if !unread || kept.overrun || kept.rows.contains_key(key) {
                    continue;
                }
                let old = stored(key)?;
                kept.bytes += ROW_OVERHEAD_BYTES + key.len() + old.as_ref().map_or(0, |old| old.value.len());
                kept.rows.insert(key.into(), old);
                if kept.bytes > KEPT_BYTES_MAX {
                    *kept = Kept { overrun: true, ..Kept::default() };
                }
            }
        }
        Ok(())
    }
}

/// The rows of a store at one position of its log. Dropping it releases the retained rows.
pub struct EmbeddedImage {
    store: Arc<EmbeddedStore>,
    kept: Arc<Mutex<Kept>>,
    lsn: Lsn,
}

impl EmbeddedStore {
    /// Begins an image of the current rows. Waits until the epoch being applied is complete.
    #[must_use]
    pub fn image(self: &Arc<Self>) -> EmbeddedImage {
        let _no_epoch = self.applier.lock();
        EmbeddedImage { store: Arc::clone(self), kept: self.shared.images.add(), lsn: self.applied() }
    }
}

impl EmbeddedImage {
    /// Returns the last record that the rows of the image reflect.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns about `limit` further rows in key order; empty after the last one.
    ///
    /// # Errors
    /// [`EmbeddedError::ImageOverrun`] if more rows were overwritten than may be retained; see [`EmbeddedError`].
    pub fn page(&mut self, limit: usize) -> Result<Vec<Row>, EmbeddedError> {
        let mut kept = self.kept.lock();
        while !kept.overrun {
            let Some(start) = kept.next.take() else { return Ok(Vec::new()) };
            // No row can be retained while this is locked. An epoch retains rows before its writes become visible, so the
            // scan and the retained rows are consistent with each other.
            let page = self.store.scan(&start, b"", limit)?;
            let later = page.next.as_deref().map_or_else(BTreeMap::new, |end| kept.rows.split_off(end));
            let mut rows: BTreeMap<Vec<u8>, Row> = page.rows.into_iter().map(|row| (row.key.clone(), row)).collect();
            for (key, old) in std::mem::replace(&mut kept.rows, later) {
                kept.bytes -= ROW_OVERHEAD_BYTES + key.len() + old.as_ref().map_or(0, |old| old.value.len());
                match old {
                    Some(old) => drop(rows.insert(key.to_vec(), row(&key, old))),
                    None => drop(rows.remove(&key[..])),
                }
            }
            kept.next = page.next;
            if !rows.is_empty() {
                return Ok(rows.into_values().collect());
            }
        }
        Err(EmbeddedError::ImageOverrun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EpochSource;
    use crate::testing::{MemoryLog, STORE, TempDir};
    use tribunal_types::WriteKind::{self, Add, Delete, Put};

    fn open(dir: &TempDir, log: &Arc<MemoryLog>) -> Arc<EmbeddedStore> {
        let log = Arc::clone(log) as Arc<dyn EpochSource>;
        Arc::new(EmbeddedStore::open(dir.path(), 8 << 20, STORE, log).expect("opens"))
    }

    fn push(store: &EmbeddedStore, log: &MemoryLog, rows: &[(WriteKind, &str, &str)]) {
        log.commit(rows);
        store.catch_up().expect("applies");
    }

    fn all(image: &mut EmbeddedImage, limit: usize, mut between: impl FnMut(usize)) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for n in 0.. {
            let page = image.page(limit).expect("readable");
            if page.is_empty() {
                break;
            }
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("utf-8");
            found.extend(page.into_iter().map(|row| (text(row.key), text(row.value))));
            between(n);
        }
        found
    }

    #[test]
    fn an_image_is_consistent_whatever_is_committed_meanwhile() {
        let (dir, log) = (TempDir::new("embedded-image"), MemoryLog::new());
        let store = open(&dir, &log);
        let names: Vec<String> = (0..40).map(|i| format!("k{i:02}")).collect();
        let rows: Vec<_> = names.iter().map(|name| (Put, name.as_str(), "1")).collect();
        push(&store, &log, &rows);
        let expected: Vec<_> = names.iter().map(|name| (name.clone(), "1".to_owned())).collect();

        let mut image = store.image();
        assert_eq!(image.lsn(), Lsn(1));
        let mut at = 1;
        let found = all(&mut image, 7, |n| {
            // Change, delete, add to and create rows, both already read and unread ones.
            let last = format!("k{:02}", 39 - n);
            let here = format!("k{n:02}x");
            let sum = format!("k{:02}", 20 + n);
            push(
                &store,
                &log,
                &[(Put, "a", "9"), (Put, &here, "9"), (Add, &sum, "5"), (Put, "z", "9"), (Delete, &last, "")],
            );
            push(&store, &log, &[(Put, &last, "7"), (Delete, "z", ""), (Delete, "a", "")]);
            at += 2;
        });
        assert_eq!(found, expected);
        assert!(image.page(7).expect("readable").is_empty(), "a finished image stays at its end");
        assert_eq!(store.image().lsn(), Lsn(at));
    }

    #[test]
    fn an_image_omits_rows_that_did_not_exist() {
        let (dir, log) = (TempDir::new("embedded-image-empty"), MemoryLog::new());
        let store = open(&dir, &log);
        let mut image = store.image();
        for n in 0..20 {
            push(&store, &log, &[(Put, &format!("k{n}"), "1")]);
        }
        assert_eq!(all(&mut image, 3, |_| {}), []);
        assert_eq!(all(&mut store.image(), 3, |_| {}).len(), 20);
    }

    #[test]
    fn an_image_that_is_read_too_slowly_takes_bounded_memory_and_fails() {
        let (dir, log) = (TempDir::new("embedded-image-slow"), MemoryLog::new());
        let store = open(&dir, &log);
        let large = format!("\"{}\"", "x".repeat((1 << 20) - 2));
        for n in 0..140 {
            push(&store, &log, &[(Put, &format!("k{n:03}"), &large)]);
        }
        let mut image = store.image();
        let mut kept_max = 0;
        for n in 0..140 {
            push(&store, &log, &[(Put, &format!("k{n:03}"), "1")]);
            kept_max = kept_max.max(image.kept.lock().bytes);
        }
        assert!(kept_max <= KEPT_BYTES_MAX, "{kept_max}");
        assert!(matches!(image.page(10), Err(EmbeddedError::ImageOverrun)));
        drop(image);
        push(&store, &log, &[(Put, "k000", "2")]);
        assert!(store.shared.images.0.lock().is_empty(), "a dropped image retains nothing");
    }
}
