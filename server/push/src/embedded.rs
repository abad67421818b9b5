//! The embedded key-value store: committed rows behind a journal, checkpointed into sled.
//!
//! A push is folded to each row's last state, appended to the journal, synced once, then made visible in memory, all
//! of it at once: readers see whole transactions, durable ones only. A checkpoint writes the rows to sled in key order
//! and moves sled's watermark behind them, while pushes go on. Writing each push to sled itself took three to five
//! times as long (see `benches/embedded.rs`), and would have let the store fall behind its log. A replayed push
//! changes nothing, since it must start exactly at the watermark.
//!
//! # Raw format
//! What the `kv` adaptor emits, as [`Command::Raw`]; all integers little-endian:
//!
//! ```text
//! from u64, to u64, rows u32, then per row: kind u8, version u64, key_len u32, key, value_len u32, value
//! ```
//!
//! `from` is the LSN that the store must have applied, i.e. the first record's minus one; `to` is the last record's.
//! The whole command takes effect or nothing of it. `kind` is [`WriteKind`](tribunal_types::WriteKind)'s number; a
//! delete has an empty value, an add has the decimal delta. `from = to = 0` without rows only reads the watermark.
//!
//! The answer, as [`StorageReply::Raw`]:
//!
//! ```text
//! status u8 (0 ok, 1 moved, 2 fatal), watermark u64 afterwards, then a text in UTF-8 unless ok
//! ```

mod base;
mod fold;
mod image;
mod journal;
mod raw;
mod recent;
mod scan;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, RwLock};
use tribunal_types::{Command, Lsn, StorageReply, Version};

use crate::{Pending, StorageDurability, Transport, TransportError};
use base::Base;
use fold::fold;
pub use image::EmbeddedImage;
use image::Images;
use journal::Journal;
use raw::{RawCommand, RawReply};
use recent::{Recent, Stored};
use scan::Merged;

/// Bytes of keys and values after which a scan stops early.
pub const SCAN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Smallest part of the memory that holds rows on their way to sled, bytes.
const RECENT_BYTES_MIN: usize = 8 * 1024 * 1024;
/// Bytes of journal after which a checkpoint is due, whatever memory it takes: they are read at the next start.
const JOURNAL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Rows of one store, in a directory of its own. Cheap to share by `Arc`; every method may block on the disk.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    /// Serialises pushes, so that reads of old values and the push made from them fit together.
    journal: Mutex<Journal>,
    checkpoints: Option<JoinHandle<()>>,
}

struct Shared {
    base: Base,
    recent: RwLock<Recent>,
    /// Rows set aside above this size, bytes; as many again may be on their way to sled.
    recent_bytes_max: usize,
    /// Images that are being read.
    images: Images,
    /// Why nothing is acknowledged any more. A failed sync is never tried again.
    broken: Mutex<Option<String>>,
    work: Mutex<Work>,
    work_changed: Condvar,
    stop: AtomicBool,
}

/// Hands checkpoints to their thread.
#[derive(Default)]
struct Work {
    /// Journal files to remove behind the checkpoint that is due.
    due: Option<Vec<PathBuf>>,
    /// From the moment a checkpoint is due until it is done.
    busy: bool,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key.
    pub key: Vec<u8>,
    /// JSON value.
    pub value: Vec<u8>,
    /// Version of the transaction that wrote it.
    pub version: Version,
}

/// Rows in key order, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// Rows.
    pub rows: Vec<Row>,
    /// Where to go on, if rows are left in the range.
    pub next: Option<Vec<u8>>,
    /// Last record that the rows reflect.
    pub applied: Lsn,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The database refused.
    #[error(transparent)]
    Disk(#[from] tribunal_disk::DiskError),
    /// The journal refused.
    #[error("the embedded store's journal in {}: {error}", .dir.display())]
    Journal {
        /// Its directory.
        dir: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Bytes on disk are not what this program wrote.
    #[error("the embedded store is damaged ({0}); remove its directory, and it is rebuilt from the log")]
    Damaged(String),
    /// More rows were overwritten while an image was read than are kept for it.
    #[error("rows changed faster than the image was read; start again and read faster, or when less is written")]
    ImageOverrun,
}

impl EmbeddedStore {
    /// Opens the store in `dir`, creating it on first use. Takes about `memory_bytes`: a quarter for sled's pages,
    /// the rest for rows that are newer than the last checkpoint. If all rows that are written often fit there,
    /// pushes cost no more than the journal.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn open(dir: &Path, memory_bytes: u64) -> Result<Arc<Self>, EmbeddedError> {
        let (base, applied) = Base::open(&dir.join("rows"), memory_bytes / 4)?;
        let mut recent = Recent::new(applied);
        let journal_dir = dir.join("journal");
        let journal = Journal::open(&journal_dir, |command| replay(&mut recent, command))
            .map_err(|error| EmbeddedError::Journal { dir: journal_dir, error })?;
        tribunal_disk::sync_directory(dir)?;
        let recent_bytes_max = usize::try_from(memory_bytes / 8 * 3).unwrap_or(usize::MAX).max(RECENT_BYTES_MIN);
        let shared = Arc::new(Shared {
            base,
            recent: RwLock::new(recent),
            recent_bytes_max,
            images: Images::default(),
            broken: Mutex::new(None),
            work: Mutex::new(Work::default()),
            work_changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let worker = Arc::clone(&shared);
        let checkpoints = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || worker.checkpoints())
            .map_err(|error| EmbeddedError::Journal { dir: dir.to_owned(), error })?;
        Ok(Arc::new(EmbeddedStore { shared, journal: Mutex::new(journal), checkpoints: Some(checkpoints) }))
    }

    /// Returns the last record that is applied and synced.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.shared.recent.read().applied
    }

    /// Returns a row, and the last record that the answer reflects.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn get(&self, key: &[u8]) -> Result<(Option<Row>, Lsn), EmbeddedError> {
        let recent = self.shared.recent.read();
        let stored = self.shared.stored(&recent, key)?;
        Ok((stored.map(|stored| row(key, stored)), recent.applied))
    }

    /// Returns at most `limit` rows of `start..end` in key order; an empty `end` means to the last row. Stops early
    /// at [`SCAN_BYTES_MAX`].
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<ScanPage, EmbeddedError> {
        let recent = self.shared.recent.read();
        let mut page = ScanPage { rows: Vec::new(), next: None, applied: recent.applied };
        if !end.is_empty() && start >= end {
            return Ok(page);
        }
        let mut bytes = 0;
        for pair in Merged::new(&recent, &self.shared.base, start, end) {
            let (key, stored) = pair?;
            if page.rows.len() >= limit || bytes > SCAN_BYTES_MAX {
                page.next = Some(key);
                break;
            }
            bytes += key.len() + stored.value.len();
            page.rows.push(Row { key, value: stored.value.into_vec(), version: stored.version });
        }
        Ok(page)
    }

    /// Executes a command in the raw format and returns the raw answer. Malformed bytes are answered `fatal`.
    pub fn execute(&self, command: &[u8]) -> Vec<u8> {
        let reply = match RawCommand::parse(command) {
            Err(text) => RawReply::Fatal(text),
            Ok(command) if command.is_query() => self.shared.usable().map_or_else(RawReply::Fatal, |()| RawReply::Ok),
            Ok(command) => self.apply(&command),
        };
        reply.encode(self.applied())
    }

    fn apply(&self, command: &RawCommand<'_>) -> RawReply {
        let mut journal = self.journal.lock();
        if let Err(text) = self.shared.usable().and_then(|()| self.make_room(&mut journal)) {
            return RawReply::Fatal(text);
        }
        let at = self.applied();
        if command.from != at {
            return RawReply::Moved(format!("watermark is {at}, the push starts behind {}", command.from));
        }
        let stored = |key: &[u8]| self.shared.stored(&self.shared.recent.read(), key).map_err(|e| e.to_string());
        let folded = match fold(command, stored) {
            Ok(folded) => folded,
            Err(text) => return RawReply::Fatal(format!("LSN {}..={}: {text}", command.from.next(), command.to)),
        };
        let old = |key: &[u8]| self.shared.stored(&self.shared.recent.read(), key);
        if let Err(error) = self.shared.images.keep(folded.rows.keys().copied(), old) {
            return RawReply::Fatal(error.to_string());
        }
        if let Err(error) = journal.append(&folded, command.from, command.to) {
            return RawReply::Fatal(self.shared.break_down(format!("the journal cannot be written: {error}")));
        }
        self.shared.recent.write().apply(&folded, command.to);
        RawReply::Ok
    }

    /// Starts a checkpoint when one is due. Waits for the one before if memory is full.
    fn make_room(&self, journal: &mut Journal) -> Result<(), String> {
        let full = self.shared.recent.read().active_bytes > self.shared.recent_bytes_max;
        if !full && journal.bytes() < JOURNAL_BYTES_MAX {
            return Ok(());
        }
        if !full && self.shared.work.lock().busy {
            return Ok(());
        }
        self.begin_checkpoint(journal)
    }

    fn begin_checkpoint(&self, journal: &mut Journal) -> Result<(), String> {
        let mut work = self.shared.work.lock();
        while work.busy {
            self.shared.work_changed.wait(&mut work);
        }
        self.shared.usable()?;
        let files = journal
            .turn()
            .map_err(|error| self.shared.break_down(format!("the journal cannot be continued: {error}")))?;
        self.shared.recent.write().freeze();
        *work = Work { due: Some(files), busy: true };
        self.shared.work_changed.notify_all();
        Ok(())
    }
}

impl Drop for EmbeddedStore {
    /// Leaves an unfinished checkpoint: the journal is still there and is read at the next start.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Taken once, so that the thread is either before its look at `stop` or waiting.
        drop(self.shared.work.lock());
        self.shared.work_changed.notify_all();
        if let Some(thread) = self.checkpoints.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn usable(&self) -> Result<(), String> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    fn break_down(&self, text: String) -> String {
        tracing::error!(reason = %text, "embedded store stopped");
        self.broken.lock().get_or_insert(text).clone()
    }

    fn stored(&self, recent: &Recent, key: &[u8]) -> Result<Option<Stored>, EmbeddedError> {
        match recent.get(key) {
            Some(stored) => Ok(stored.cloned()),
            None => self.base.get(key),
        }
    }

    /// Runs checkpoints until the store is dropped or one fails.
    fn checkpoints(&self) {
        loop {
            let files = {
                let mut work = self.work.lock();
                loop {
                    if self.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match work.due.take() {
                        Some(files) => break files,
                        None => self.work_changed.wait(&mut work),
                    }
                }
            };
            let frozen = self.recent.read().frozen.clone();
            let done = match &frozen {
                Some(frozen) => self.base.checkpoint(&frozen.0, frozen.1, &self.stop),
                None => Ok(true),
            };
            match done {
                Ok(true) => {
                    self.recent.write().frozen = None;
                    for file in files {
                        // One that stays is older than the watermark, so the next start passes over it.
                        let _ = fs::remove_file(file);
                    }
                }
                Ok(false) => return,
                Err(error) => {
                    self.break_down(error.to_string());
                }
            }
            self.work.lock().busy = false;
            self.work_changed.notify_all();
        }
    }
}

fn replay(recent: &mut Recent, command: &RawCommand<'_>) -> bool {
    if command.to <= recent.applied {
        return true;
    }
    let folded = fold(command, |_| Err("a journal holds sums, no adds".to_owned()));
    match folded {
        Ok(folded) if command.from == recent.applied => {
            recent.apply(&folded, command.to);
            true
        }
        _ => false,
    }
}

fn row(key: &[u8], stored: Stored) -> Row {
    Row { key: key.to_vec(), value: stored.value.into_vec(), version: stored.version }
}

/// Carries raw commands to an [`EmbeddedStore`], on threads that may block.
#[derive(Clone)]
pub struct EmbeddedTransport {
    store: Arc<EmbeddedStore>,
}

impl EmbeddedTransport {
    /// Makes a transport to `store`.
    #[must_use]
    pub fn new(store: Arc<EmbeddedStore>) -> Self {
        EmbeddedTransport { store }
    }
}

impl Transport for EmbeddedTransport {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        Box::pin(async { Ok(StorageDurability::Always) })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let Command::Raw(bytes) = command else {
                return Err(TransportError::WrongCommand("the embedded store takes raw commands only"));
            };
            tokio::task::spawn_blocking(move || StorageReply::Raw(store.execute(&bytes)))
                .await
                .map_err(|e| TransportError::Broken(format!("the embedded store failed: {e}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{TempDir, raw_command};
    use tribunal_types::WriteKind::{Add, Delete, Insert, Put, Update};

    fn reply(store: &EmbeddedStore, command: &[u8]) -> (u8, u64, String) {
        let bytes = store.execute(command);
        let watermark = u64::from_le_bytes(bytes[1..9].try_into().expect("8 bytes"));
        (bytes[0], watermark, String::from_utf8(bytes[9..].to_vec()).expect("utf-8"))
    }

    fn value(store: &EmbeddedStore, key: &str) -> Option<String> {
        let (row, _) = store.get(key.as_bytes()).expect("readable");
        row.map(|row| String::from_utf8(row.value).expect("utf-8"))
    }

    #[test]
    fn applies_every_kind_and_survives_reopening() {
        let dir = TempDir::new("embedded-kinds");
        {
            let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens");
            assert_eq!(reply(&store, &raw_command(0, 0, &[])), (0, 0, String::new()));
            let rows = [(Insert, "a", "1"), (Put, "b", "{\"x\":1}"), (Insert, "c", "7")];
            assert_eq!(reply(&store, &raw_command(0, 2, &rows)).0, 0);
            let rows = [(Add, "a", "41"), (Delete, "b", ""), (Update, "c", "8"), (Add, "c", "-10"), (Add, "c", "1")];
            assert_eq!(reply(&store, &raw_command(2, 5, &rows)), (0, 5, String::new()));
        }
        let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens again");
        assert_eq!(store.applied(), Lsn(5));
        assert_eq!(value(&store, "a").as_deref(), Some("42"));
        assert_eq!(value(&store, "b"), None);
        assert_eq!(value(&store, "c").as_deref(), Some("-1"));
        let page = store.scan(b"", b"", 1).expect("scans");
        assert_eq!((page.rows.len(), page.next.as_deref(), page.applied), (1, Some(&b"c"[..]), Lsn(5)));
        assert_eq!(store.scan(b"b", b"c", 10).expect("scans").rows, []);
        assert_eq!(store.scan(b"c", b"a", 10).expect("an empty range scans").rows, []);
    }

    #[test]
    fn a_replay_moves_nothing() {
        let dir = TempDir::new("embedded-replay");
        let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens");
        let push = raw_command(0, 1, &[(Insert, "n", "1")]);
        assert_eq!(reply(&store, &push).0, 0);
        let add = raw_command(1, 2, &[(Add, "n", "1")]);
        assert_eq!(reply(&store, &add).0, 0);
        for replay in [&push, &add, &raw_command(3, 4, &[(Add, "n", "1")])] {
            let (status, watermark, text) = reply(&store, replay);
            assert_eq!((status, watermark), (1, 2), "{text}");
        }
        assert_eq!(value(&store, "n").as_deref(), Some("2"));
    }

    #[test]
    fn refuses_what_can_never_be_applied_and_changes_nothing() {
        let dir = TempDir::new("embedded-fatal");
        let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens");
        let rows = [(Insert, "n", "9223372036854775807"), (Insert, "s", "\"x\"")];
        assert_eq!(reply(&store, &raw_command(0, 1, &rows)).0, 0);
        for (rows, word) in [
            (vec![(Put, "z", "1"), (Add, "n", "1")], "overflows"),
            (vec![(Add, "s", "1")], "no 64-bit integer"),
            (vec![(Add, "n", "0.5")], "no 64-bit integer"),
            (vec![(Add, "gone", "1")], "missing row"),
            (vec![(Delete, "n", ""), (Add, "n", "1")], "missing row"),
        ] {
            let (status, watermark, text) = reply(&store, &raw_command(1, 2, &rows));
            assert_eq!((status, watermark), (2, 1), "{text}");
            assert!(text.contains(word) && text.contains("LSN 2..=2"), "{text}");
        }
        assert_eq!(value(&store, "z"), None);
        let good = raw_command(1, 2, &[(Put, "z", "1")]);
        for cut in 0..good.len() {
            assert_eq!(reply(&store, &good[..cut]).0, 2, "cut at {cut}");
        }
        assert_eq!(reply(&store, &[&good[..], b"x"].concat()).0, 2);
        let mut lying = good.clone();
        lying[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(reply(&store, &lying).0, 2);
        assert_eq!(reply(&store, &good), (0, 2, String::new()));
    }

    fn checkpoint(store: &EmbeddedStore) {
        store.begin_checkpoint(&mut store.journal.lock()).expect("the store is usable");
        let mut work = store.shared.work.lock();
        while work.busy {
            store.shared.work_changed.wait(&mut work);
        }
        store.shared.usable().expect("the checkpoint succeeded");
    }

    #[test]
    fn large_values_are_chunked_replaced_and_removed_without_a_trace() {
        let dir = TempDir::new("embedded-large");
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
        let large = format!("\"{}\"", "x".repeat(1_000_000));
        let smaller = format!("\"{}\"", "y".repeat(tribunal_disk::VALUE_BYTES_MAX + 10));
        let mut lsn = 0;
        for round in [vec![(Put, "k", large.as_str()), (Put, "kk", "1")], vec![(Put, "k", smaller.as_str())]] {
            assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &round)).0, 0);
            lsn += 1;
            checkpoint(&store);
            assert_eq!(value(&store, "k").as_deref(), Some(round[0].2));
        }
        assert_eq!(store.scan(b"k", b"", 10).expect("scans").rows.len(), 2);
        assert_eq!(store.shared.base.chunks(), 2);
        assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Delete, "k", "")])).0, 0);
        checkpoint(&store);
        assert_eq!(store.shared.base.chunks(), 0);
        assert_eq!(value(&store, "kk").as_deref(), Some("1"));
    }

    #[test]
    fn layers_agree_with_a_map_through_checkpoints_and_restarts() {
        let dir = TempDir::new("embedded-model");
        let mut store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
        let mut model = BTreeMap::new();
        let mut random = 7u64;
        for lsn in 0..400u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (key, number) = (format!("k{:02}", (random >> 33) % 40), (random >> 50).to_string());
            let (kind, text) = match ((random >> 20) % 4, model.get(&key)) {
                (0, Some(_)) => (Delete, ""),
                (1, Some(_)) => (Add, number.as_str()),
                _ => (Put, number.as_str()),
            };
            match kind {
                Delete => drop(model.remove(&key)),
                Add => *model.get_mut(&key).expect("looked at") += number.parse::<i64>().expect("a number"),
                _ => drop(model.insert(key.clone(), number.parse::<i64>().expect("a number"))),
            }
            assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(kind, &key, text)])), (0, lsn + 1, String::new()));
            match lsn % 23 {
                5 => checkpoint(&store),
                17 => {
                    drop(store);
                    store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
                    assert_eq!(store.applied(), Lsn(lsn + 1));
                }
                _ => {}
            }
            let page = store.scan(b"k1", b"k3", 100).expect("scans");
            let rows: Vec<_> = page.rows.iter().map(|row| (row.key.clone(), row.value.clone())).collect();
            let expected: Vec<_> = model
                .range("k1".to_owned().."k3".to_owned())
                .map(|(key, number)| (key.clone().into_bytes(), number.to_string().into_bytes()))
                .collect();
            assert_eq!(rows, expected, "after LSN {}", lsn + 1);
            assert_eq!(value(&store, &key), model.get(&key).map(i64::to_string));
        }
    }

    #[test]
    fn a_cut_or_flipped_journal_costs_its_tail_only() {
        for (name, damage) in [("cut", Damage::Cut), ("flip", Damage::Flip)] {
            let dir = TempDir::new(&format!("embedded-{name}"));
            {
                let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
                for lsn in 0..10 {
                    assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Put, "k", &lsn.to_string())])).0, 0);
                }
            }
            let file = dir.path().join("journal/journal-0");
            let mut bytes = fs::read(&file).expect("the journal is there");
            let middle = bytes.len() / 2;
            match damage {
                Damage::Cut => bytes.truncate(middle),
                Damage::Flip => bytes[middle] ^= 4,
            }
            fs::write(&file, bytes).expect("writes");
            let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
            let at = store.applied().0;
            assert!((1..10).contains(&at), "{name}: {at}");
            assert_eq!(value(&store, "k"), Some((at - 1).to_string()));
            assert_eq!(reply(&store, &raw_command(9, 10, &[(Put, "k", "9")])).0, 1, "moved");
            for lsn in at..10 {
                assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Put, "k", &lsn.to_string())])).0, 0);
            }
            drop(store);
            let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens behind the damage");
            assert_eq!((store.applied(), value(&store, "k").as_deref()), (Lsn(10), Some("9")));
        }
    }

    enum Damage {
        Cut,
        Flip,
    }

    #[test]
    fn what_follows_a_lost_tail_is_forgotten_and_what_is_pushed_again_lasts() {
        let dir = TempDir::new("embedded-gap");
        let push = |store: &EmbeddedStore, lsn: u64| {
            assert_eq!(reply(store, &raw_command(lsn, lsn + 1, &[(Put, "k", &lsn.to_string())])).0, 0);
        };
        let file = |number: u64| dir.path().join(format!("journal/journal-{number}"));
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
        (0..4).for_each(|lsn| push(&store, lsn));
        // A second file, while the rows of the first are still on their way to sled.
        drop(store.journal.lock().turn().expect("turns"));
        (4..8).for_each(|lsn| push(&store, lsn));
        drop(store);
        // The tail of the first file is damaged, the second is whole.
        let len = fs::metadata(file(0)).expect("is there").len();
        fs::OpenOptions::new().write(true).open(file(0)).and_then(|f| f.set_len(len - 3)).expect("cuts");
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens behind the cut");
        assert_eq!(store.applied(), Lsn(3));
        assert!(!file(1).exists(), "it does not follow");
        (3..9).for_each(|lsn| push(&store, lsn));
        drop(store);
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
        assert_eq!((store.applied(), value(&store, "k").as_deref()), (Lsn(9), Some("8")));
    }

    #[test]
    fn readers_never_see_half_a_push() {
        let dir = TempDir::new("embedded-whole");
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
        let names: Vec<String> = (0..50).map(|i| format!("k{i:02}")).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0u64;
                while !done.load(Ordering::Relaxed) || seen == 0 {
                    let page = store.scan(b"", b"", 100).expect("scans");
                    assert!(page.rows.windows(2).all(|w| w[0].value == w[1].value), "a torn push at {}", page.applied);
                    if page.applied > Lsn(0) {
                        assert_eq!(page.rows.len(), names.len());
                        assert_eq!(page.rows[0].value, page.applied.to_string().into_bytes());
                        seen += 1;
                    }
                }
            });
            for lsn in 1..=60u64 {
                let text = lsn.to_string();
                let rows: Vec<_> = names.iter().map(|name| (Put, name.as_str(), text.as_str())).collect();
                assert_eq!(reply(&store, &raw_command(lsn - 1, lsn, &rows)).0, 0);
            }
            done.store(true, Ordering::Relaxed);
            reader.join().expect("the reader saw whole pushes only");
        });
    }
}
