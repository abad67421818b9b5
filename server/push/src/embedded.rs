//! The embedded key-value store: committed rows in sled, with the watermark moved in the same atomic batch.
//!
//! Readers see whole transactions only, never half a push. An acknowledgement means that the rows are synced. A
//! replayed push changes nothing, since it must start exactly at the watermark.
//!
//! # Raw format
//! What the `kv` adaptor emits, as [`Command::Raw`]; all integers little-endian:
//!
//! ```text
//! from u64, to u64, rows u32, then per row: kind u8, version u64, key_len u32, key, value_len u32, value
//! ```
//!
//! `from` is the LSN that the store must have applied, i.e. the first record's minus one; `to` is the last record's.
//! The whole command takes effect or nothing of it. `kind` is [`WriteKind`]'s number; a delete has an empty value, an
//! add has the decimal delta. `from = to = 0` without rows only reads the watermark.
//!
//! The answer, as [`StorageReply::Raw`]:
//!
//! ```text
//! status u8 (0 ok, 1 moved, 2 fatal), watermark u64 afterwards, then a text in UTF-8 unless ok
//! ```
//!
//! # Rows on disk
//! One tree. Key `01 ++ key` holds `version u64 BE ++ JSON`. A value above [`VALUE_INLINE_MAX`] is cut into chunks,
//! since sled moves large pages into files that it never syncs: its row holds `version | 1 << 63`, then the number of
//! chunks as u32 BE, and chunk *i* lies under `02 ++ key length u16 BE ++ key ++ i u32 BE`. Key `00` holds the
//! watermark as u64 BE.

mod fold;
mod raw;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::synced::Disk;
use parking_lot::{Mutex, RwLock};
use sled::IVec;
use tribunal_types::limits::CHUNK_BYTES_MAX;
use tribunal_types::{Command, Lsn, StorageReply, Version};

use crate::{Pending, StorageDurability, Transport, TransportError};
use fold::{Folded, fold};
use raw::{RawCommand, RawReply};

/// Longest value kept within its row, bytes.
pub const VALUE_INLINE_MAX: usize = CHUNK_BYTES_MAX - 1024;
/// Bytes of keys and values after which a scan stops early.
pub const SCAN_BYTES_MAX: usize = 8 * 1024 * 1024;

const WATERMARK: &[u8] = &[0];
const ROW: u8 = 1;
const CHUNK: u8 = 2;
const CHUNKED: u64 = 1 << 63;

/// Rows of one store, in a directory of its own. Cheap to share by `Arc`; every method may block on the disk.
pub struct EmbeddedStore {
    disk: Disk,
    /// Serialises pushes, so that reads of old values and the batch made from them fit together.
    writer: Mutex<()>,
    /// What readers see; held for writing while a batch is applied, so that nobody sees half of it.
    visible: RwLock<Lsn>,
    /// What is synced.
    durable: Mutex<Lsn>,
    /// Whether a chunked value may exist, so that overwrites must look for one.
    chunked: AtomicBool,
    /// Why nothing is acknowledged any more. A failed sync is never tried again.
    broken: Mutex<Option<String>>,
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
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] crate::synced::DiskError),
    /// sled refused a read.
    #[error("the embedded store cannot be read: {0}")]
    Read(#[from] sled::Error),
    /// Bytes on disk are not what this program wrote.
    #[error("the embedded store is damaged: {0}; remove its directory, it is rebuilt from the log if that is whole")]
    Damaged(String),
}

impl EmbeddedStore {
    /// Opens the store in `dir`, creating it on first use, with about `cache_bytes` of page cache.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn open(dir: &Path, cache_bytes: u64) -> Result<Arc<Self>, EmbeddedError> {
        let disk = Disk::open(dir, cache_bytes)?;
        let applied = match disk.db().get(WATERMARK)? {
            None => Lsn(0),
            Some(bytes) => Lsn(u64::from_be_bytes(
                bytes.as_ref().try_into().map_err(|_| EmbeddedError::Damaged("watermark".to_owned()))?,
            )),
        };
        let chunked = disk.db().scan_prefix([CHUNK]).next().transpose()?.is_some();
        Ok(Arc::new(EmbeddedStore {
            disk,
            writer: Mutex::new(()),
            visible: RwLock::new(applied),
            durable: Mutex::new(applied),
            chunked: AtomicBool::new(chunked),
            broken: Mutex::new(None),
        }))
    }

    /// Returns the last record that is applied and synced.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        *self.durable.lock()
    }

    /// Returns a row, and the last record that the answer reflects.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn get(&self, key: &[u8]) -> Result<(Option<Row>, Lsn), EmbeddedError> {
        let visible = self.visible.read();
        let row = match self.disk.db().get(row_key(key))? {
            None => None,
            Some(bytes) => Some(self.row(key, &bytes)?),
        };
        Ok((row, *visible))
    }

    /// Returns at most `limit` rows of `start..end` in key order; an empty `end` means to the last row. Stops early
    /// at [`SCAN_BYTES_MAX`].
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<ScanPage, EmbeddedError> {
        let visible = self.visible.read();
        let mut page = ScanPage { rows: Vec::new(), next: None, applied: *visible };
        let first = row_key(start);
        let last = if end.is_empty() { vec![ROW + 1] } else { row_key(end) };
        if first >= last {
            return Ok(page);
        }
        let mut bytes = 0;
        for entry in self.disk.db().range(first..last) {
            let (key, value) = entry?;
            let key = &key[1..];
            if page.rows.len() >= limit || (bytes > SCAN_BYTES_MAX && !page.rows.is_empty()) {
                page.next = Some(key.to_vec());
                break;
            }
            let row = self.row(key, &value)?;
            bytes += row.key.len() + row.value.len();
            page.rows.push(row);
        }
        Ok(page)
    }

    /// Executes a command in the raw format and returns the raw answer. Malformed bytes are answered `fatal`.
    pub fn execute(&self, command: &[u8]) -> Vec<u8> {
        let reply = match RawCommand::parse(command) {
            Err(text) => RawReply::Fatal(text),
            Ok(command) if command.is_query() => self.usable().map_or_else(RawReply::Fatal, |()| RawReply::Ok),
            Ok(command) => self.apply(&command),
        };
        reply.encode(self.applied())
    }

    fn usable(&self) -> Result<(), String> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    fn apply(&self, command: &RawCommand<'_>) -> RawReply {
        let _writer = self.writer.lock();
        if let Err(text) = self.usable() {
            return RawReply::Fatal(text);
        }
        let at = self.applied();
        if command.from != at {
            return RawReply::Moved(format!("watermark is {at}, the push starts behind {}", command.from));
        }
        let batch = match fold(command, |key| self.integer_at(key)).and_then(|folded| self.batch(&folded, command.to)) {
            Ok(batch) => batch,
            Err(text) => return RawReply::Fatal(format!("LSN {}..={}: {text}", command.from.next(), command.to)),
        };
        match self.write(batch, command.to) {
            Ok(()) => RawReply::Ok,
            Err(text) => {
                tracing::error!(reason = %text, "embedded store stopped");
                *self.broken.lock() = Some(text.clone());
                RawReply::Fatal(text)
            }
        }
    }

    fn write(&self, batch: sled::Batch, to: Lsn) -> Result<(), String> {
        {
            let mut visible = self.visible.write();
            self.disk.db().apply_batch(batch).map_err(|e| format!("the embedded store cannot be written: {e}"))?;
            *visible = to;
        }
        self.disk.sync().map_err(|e| e.to_string())?;
        *self.durable.lock() = to;
        Ok(())
    }

    fn batch(&self, folded: &Folded<'_>, to: Lsn) -> Result<sled::Batch, String> {
        let mut batch = sled::Batch::default();
        let chunked = self.chunked.load(Ordering::Relaxed);
        for (key, value) in folded.rows() {
            if chunked {
                self.remove_chunks(key, &mut batch)?;
            }
            let Some((version, value)) = value else {
                batch.remove(row_key(key));
                continue;
            };
            if value.len() <= VALUE_INLINE_MAX {
                batch.insert(row_key(key), [&version.bits().to_be_bytes()[..], value].concat());
                continue;
            }
            self.chunked.store(true, Ordering::Relaxed);
            let mut count = 0u32;
            for chunk in value.chunks(VALUE_INLINE_MAX) {
                batch.insert(chunk_key(key, count), chunk);
                count += 1;
            }
            let head = (version.bits() | CHUNKED).to_be_bytes();
            batch.insert(row_key(key), [&head[..], &count.to_be_bytes()].concat());
        }
        batch.insert(WATERMARK, &to.0.to_be_bytes());
        Ok(batch)
    }

    /// Removes the chunks of the row's present value. New chunks are inserted behind, so equal names are kept.
    fn remove_chunks(&self, key: &[u8], batch: &mut sled::Batch) -> Result<(), String> {
        let Some(bytes) = self.disk.db().get(row_key(key)).map_err(|e| e.to_string())? else { return Ok(()) };
        if let Some(count) = chunks_of(&bytes).map_err(|e| e.to_string())? {
            for i in 0..count {
                batch.remove(chunk_key(key, i));
            }
        }
        Ok(())
    }

    fn integer_at(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let bytes = self.disk.db().get(row_key(key)).map_err(|e| e.to_string())?;
        bytes.map(|bytes| self.row(key, &bytes).map(|row| row.value).map_err(|e| e.to_string())).transpose()
    }

    fn row(&self, key: &[u8], bytes: &IVec) -> Result<Row, EmbeddedError> {
        let damaged = || EmbeddedError::Damaged(format!("row {}", key.escape_ascii()));
        let head = bytes.first_chunk::<8>().map(|head| u64::from_be_bytes(*head)).ok_or_else(damaged)?;
        let version = Version::from_bits(head & !CHUNKED).ok_or_else(damaged)?;
        let value = match chunks_of(bytes)? {
            None => bytes[8..].to_vec(),
            Some(count) => {
                let mut value = Vec::new();
                for i in 0..count {
                    value.extend_from_slice(&self.disk.db().get(chunk_key(key, i))?.ok_or_else(damaged)?);
                }
                value
            }
        };
        Ok(Row { key: key.to_vec(), value, version })
    }
}

fn chunks_of(bytes: &[u8]) -> Result<Option<u32>, EmbeddedError> {
    match bytes.first() {
        Some(first) if first & 0x80 == 0 => Ok(None),
        _ => match bytes.get(8..).map(<[u8; 4]>::try_from) {
            Some(Ok(count)) => Ok(Some(u32::from_be_bytes(count))),
            _ => Err(EmbeddedError::Damaged("head of a large row".to_owned())),
        },
    }
}

fn row_key(key: &[u8]) -> Vec<u8> {
    [&[ROW], key].concat()
}

fn chunk_key(key: &[u8], chunk: u32) -> Vec<u8> {
    // Keys are at most 10 KiB (checked when the command is parsed), so their length fits.
    let len = (key.len() as u16).to_be_bytes();
    [&[CHUNK], &len[..], key, &chunk.to_be_bytes()].concat()
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
    use std::sync::atomic::AtomicBool;

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

    #[test]
    fn large_values_are_chunked_replaced_and_removed_without_a_trace() {
        let dir = TempDir::new("embedded-large");
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
        let large = format!("\"{}\"", "x".repeat(1_000_000));
        let smaller = format!("\"{}\"", "y".repeat(VALUE_INLINE_MAX + 10));
        let mut lsn = 0;
        for round in [vec![(Put, "k", large.as_str()), (Put, "kk", "1")], vec![(Put, "k", smaller.as_str())]] {
            assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &round)).0, 0);
            lsn += 1;
            assert_eq!(value(&store, "k").as_deref(), Some(round[0].2));
        }
        assert_eq!(store.scan(b"k", b"", 10).expect("scans").rows.len(), 2);
        assert_eq!(store.disk.db().scan_prefix([CHUNK]).count(), 2);
        assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Delete, "k", "")])).0, 0);
        assert_eq!(store.disk.db().scan_prefix([CHUNK]).count(), 0);
        assert_eq!(value(&store, "kk").as_deref(), Some("1"));
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
