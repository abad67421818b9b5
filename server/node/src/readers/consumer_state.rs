//! Durable state of a single node's log readers: offsets of consumers and registered webhooks.
//!
//! One small file beside the log, replaced as a whole: written to a temporary file, synced, renamed, its directory
//! synced. It contains secrets, so only its owner may read it. A change that a request waits for is written
//! immediately, together with all changes that arrived meanwhile; watermarks of webhooks follow within a second, since
//! a receiver may get records again. Never on the commit path, and at most fifty times a second.
//!
//! Invariant: every position that is shown, or permits truncation of the log, is durable. A failed write reverts every
//! change that was not durable before it, and each of these is refused; the next change is written normally.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tribunal_codec::{Readers as Remembered, decode_readers, encode_readers};
use tribunal_disk::replace;
use tribunal_types::limits::{OFFSETS_MAX, OFFSETS_PER_TENANT_MAX};
use tribunal_types::{ConsumerOffset, LogId, Lsn, NamespaceId, StoreId, Webhook};

/// Name of the state file.
pub const FILE: &str = "readers";
/// Minimum time between two writes.
const PACE: Duration = Duration::from_millis(20);
/// How long a watermark may wait for its write, and a failed write for its retry.
const WATERMARK_WAIT: Duration = Duration::from_secs(1);

/// The state. Cheap to share by `Arc`.
pub struct ConsumerState {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Includes changes that are not durable yet.
    remembered: Remembered,
    /// The content of the file.
    durable: Remembered,
    /// Requests waiting for a write, each with the number of its change.
    waiting: Vec<(u64, oneshot::Sender<Result<(), String>>)>,
    /// Number of the last change.
    change: u64,
    /// When the next write is due.
    due: Option<Instant>,
    stop: bool,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// The number of consumers has reached this limit.
    TooMany(usize),
    /// The change was reverted.
    NotDurable(String),
    /// The change may or may not be durable.
    Unknown(String),
}

/// Handle of the thread that writes the file.
pub struct Saver {
    readers: Arc<ConsumerState>,
    thread: Option<JoinHandle<()>>,
}

impl ConsumerState {
    /// Reads the state in `dir` and starts the thread that writes it.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn open(dir: &Path) -> Result<(Arc<ConsumerState>, Saver), String> {
        let path = dir.join(FILE);
        let remembered = load(&path)?;
        let readers = Arc::new(ConsumerState {
            state: Mutex::new(State {
                durable: remembered.clone(),
                remembered,
                waiting: Vec::new(),
                change: 0,
                due: None,
                stop: false,
            }),
            changed: Condvar::new(),
        });
        let writer = Arc::clone(&readers);
        let thread = std::thread::Builder::new()
            .name("readers".into())
            .spawn(move || writer.write_changes(&path))
            .map_err(|error| format!("cannot start the readers thread: {error}"))?;
        Ok((Arc::clone(&readers), Saver { readers, thread: Some(thread) }))
    }

    /// Makes a change that is written within `wait`.
    fn change<T>(&self, wait: Duration, make: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut state = self.state.lock();
        self.change_in(&mut state, wait, make)
    }

    fn change_in<T>(&self, state: &mut State, wait: Duration, make: impl FnOnce(&mut Remembered) -> T) -> T {
        let made = make(&mut state.remembered);
        state.change += 1;
        let due = Instant::now() + wait;
        state.due = Some(state.due.map_or(due, |known| known.min(due)));
        self.changed.notify_one();
        made
    }

    /// Makes a change and waits until it is durable, or refused.
    async fn change_durably<T>(&self, make: impl FnOnce(&mut Remembered) -> T) -> Result<T, Unsaved> {
        let (reply, written) = oneshot::channel();
        let made = {
            let mut state = self.state.lock();
            let made = self.change_in(&mut state, Duration::ZERO, make);
            let change = state.change;
            // Once the last write is in progress, no further write follows.
            if state.stop {
                drop(reply);
            } else {
                state.waiting.push((change, reply));
            }
            made
        };
        match written.await {
            Ok(Ok(())) => Ok(made),
            Ok(Err(reason)) => Err(Unsaved::NotDurable(reason)),
            // The last write may have included the change all the same.
            Err(_) => Err(Unsaved::Unknown("the node is stopping".into())),
        }
    }

    /// Sets a consumer's offset.
    ///
    /// # Errors
    /// See [`Unsaved`].
    pub async fn set(&self, offset: ConsumerOffset) -> Result<(), Unsaved> {
        let full = self.change_durably(|remembered| {
            let namespace = offset.namespace;
            let full = full(&remembered.offsets, namespace);
            let known = remembered.offsets.iter_mut().find(|known| {
                (known.namespace, known.store) == (offset.namespace, offset.store) && known.name == offset.name
            });
            match known {
                Some(known) => *known = offset,
                None if full.is_some() => return full,
                None => remembered.offsets.push(offset),
            }
            None
        });
        match full.await? {
            None => Ok(()),
            Some(max) => Err(Unsaved::TooMany(max)),
        }
    }

    /// Removes a consumer, or its offset in one store; returns whether there was one.
    ///
    /// # Errors
    /// [`Unsaved::NotDurable`], [`Unsaved::Unknown`].
    pub async fn forget(&self, namespace: NamespaceId, name: &str, store: Option<StoreId>) -> Result<bool, Unsaved> {
        let found = self.change_durably(|remembered| {
            let before = remembered.offsets.len();
            remembered.offsets.retain(|known| {
                known.namespace != namespace || known.name != name || store.is_some_and(|store| known.store != store)
            });
            remembered.offsets.len() < before
        });
        found.await
    }

    /// Returns the offsets of all consumers, by namespace and name.
    pub fn offsets(&self) -> Vec<ConsumerOffset> {
        let mut offsets = self.state.lock().durable.offsets.clone();
        offsets.sort_by(|a, b| (a.namespace, &a.name, a.store).cmp(&(b.namespace, &b.name, b.store)));
        offsets
    }

    /// Registers a webhook, or changes the one of its store.
    ///
    /// # Errors
    /// [`Unsaved::NotDurable`], [`Unsaved::Unknown`].
    pub async fn register(&self, webhook: Webhook) -> Result<(), Unsaved> {
        let registered = self.change_durably(|remembered| {
            remembered.webhooks.retain(|known| known.store != webhook.store);
            remembered.webhooks.push(webhook);
        });
        registered.await
    }

    /// Removes a store's webhook; returns whether there was one.
    ///
    /// # Errors
    /// [`Unsaved::NotDurable`], [`Unsaved::Unknown`].
    pub async fn unregister(&self, store: StoreId) -> Result<bool, Unsaved> {
        let found = self.change_durably(|remembered| {
            let before = remembered.webhooks.len();
            remembered.webhooks.retain(|known| known.store != store);
            remembered.webhooks.len() < before
        });
        found.await
    }

    /// Returns the registered webhooks.
    pub fn webhooks(&self) -> Vec<Webhook> {
        self.state.lock().durable.webhooks.clone()
    }

    /// Returns a store's webhook.
    pub fn webhook(&self, store: StoreId) -> Option<Webhook> {
        let state = self.state.lock();
        let mut found = state.durable.webhooks.iter().find(|known| known.store == store).cloned()?;
        // The watermark moves with every acknowledgement, and back with a reset receiver; the file follows.
        let moved = state.remembered.webhooks.iter().find(|known| known.store == store);
        found.watermark = moved.map_or(found.watermark, |moved| moved.watermark);
        Some(found)
    }

    /// Moves a webhook's watermark. It becomes durable soon.
    pub fn acknowledged(&self, store: StoreId, lsn: Lsn) {
        // A receiver ahead of the log is detectable only while it is ahead.
        let wait = if lsn == Webhook::AHEAD { Duration::ZERO } else { WATERMARK_WAIT };
        self.change(wait, |remembered| {
            if let Some(known) = remembered.webhooks.iter_mut().find(|known| known.store == store) {
                known.watermark = lsn;
            }
        });
    }

    /// Returns the lowest position in `log` of the readers of every store that has one.
    pub fn slowest(&self, log: LogId) -> Vec<(StoreId, Lsn)> {
        let state = self.state.lock();
        let (offsets, webhooks) = (state.durable.offsets.iter(), state.durable.webhooks.iter());
        let offsets = offsets.filter(|known| known.log == log).map(|known| (known.store, known.lsn));
        let webhooks = webhooks.filter(|known| known.log == log).map(|known| (known.store, known.watermark));
        let mut all: Vec<_> = offsets.chain(webhooks).collect();
        all.sort_unstable();
        all.dedup_by_key(|(store, _)| *store);
        all
    }

    fn write_changes(&self, path: &Path) {
        loop {
            let (written, change) = {
                let mut state = self.state.lock();
                loop {
                    match state.due {
                        Some(due) if state.stop || due <= Instant::now() => break,
                        Some(due) => drop(self.changed.wait_until(&mut state, due)),
                        None if state.stop => return,
                        None => self.changed.wait(&mut state),
                    }
                }
                state.due = None;
                (state.remembered.clone(), state.change)
            };
            match replace(path, &with_checksum(&encode_readers(&written))) {
                Ok(()) => {
                    let mut state = self.state.lock();
                    state.durable = written;
                    state.answer(change, &Ok(()));
                }
                Err(error) => {
                    let reason = format!("{} cannot be written: {error}", path.display());
                    tracing::error!(reason, "offsets of consumers are not durable");
                    let mut state = self.state.lock();
                    state.take_back();
                    // Changes made during the write are reverted with it.
                    let last = state.change;
                    state.answer(last, &Err(reason));
                }
            }
            std::thread::sleep(PACE);
        }
    }
}

impl State {
    /// Reverts changes that are not durable, except webhook watermarks, which no request waits for: they are written
    /// later.
    fn take_back(&mut self) {
        let refused = std::mem::replace(&mut self.remembered, self.durable.clone());
        for known in &mut self.remembered.webhooks {
            let moved = refused.webhooks.iter().find(|moved| (moved.store, &moved.url) == (known.store, &known.url));
            let watermark = moved.map_or(known.watermark, |moved| moved.watermark.max(known.watermark));
            if watermark > known.watermark && !self.stop {
                self.due = Some(Instant::now() + WATERMARK_WAIT);
            }
            known.watermark = watermark;
        }
    }

    /// Answers the requests whose changes are `upto` or below.
    fn answer(&mut self, upto: u64, result: &Result<(), String>) {
        for (_, reply) in self.waiting.extract_if(.., |(change, _)| *change <= upto) {
            // The client may have disconnected.
            let _ = reply.send(result.clone());
        }
    }
}

impl Drop for Saver {
    /// Writes pending changes.
    fn drop(&mut self) {
        self.readers.state.lock().stop = true;
        self.readers.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads the file; returns empty state if there is none.
///
/// # Errors
/// If it cannot be read.
pub fn load(path: &Path) -> Result<Remembered, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Remembered::default()),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    let checked =
        bytes.split_first_chunk::<4>().filter(|(crc, rest)| crc32c::crc32c(rest) == u32::from_le_bytes(**crc));
    checked.and_then(|(_, rest)| decode_readers(rest).ok()).ok_or_else(|| {
        format!(
            "{} is damaged; it holds the offsets of consumers and the registered webhooks. Remove it and they \
             start over: consumers set theirs again, webhooks must be registered again",
            path.display()
        )
    })
}

/// Returns the content of the file.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    [&crc32c::crc32c(bytes).to_le_bytes(), bytes].concat()
}

/// Returns the limit on a tenant's or all offsets, if it is reached.
fn full(offsets: &[ConsumerOffset], namespace: NamespaceId) -> Option<usize> {
    let of_tenant = || offsets.iter().filter(|known| known.namespace == namespace).count();
    if namespace != NamespaceId(0) && of_tenant() >= OFFSETS_PER_TENANT_MAX {
        return Some(OFFSETS_PER_TENANT_MAX);
    }
    (offsets.len() >= OFFSETS_MAX).then_some(OFFSETS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn offset(name: &str, store: u32, lsn: u64) -> ConsumerOffset {
        ConsumerOffset { name: name.into(), store: StoreId(store), lsn: Lsn(lsn), ..ConsumerOffset::default() }
    }

    #[tokio::test]
    async fn durable_state_is_restored_and_only_readable_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (readers, saver) = ConsumerState::open(dir.path()).unwrap();
        readers.set(offset("a", 1, 5)).await.unwrap();
        readers.set(offset("a", 2, 7)).await.unwrap();
        readers.set(offset("b", 1, 3)).await.unwrap();
        readers.set(offset("a", 1, 6)).await.unwrap();
        let hook = Webhook { store: StoreId(1), secret: "s".into(), watermark: Lsn(9), ..Webhook::default() };
        readers.register(hook.clone()).await.unwrap();
        assert_eq!(readers.slowest(LogId::default()), [(StoreId(1), Lsn(3)), (StoreId(2), Lsn(7))]);
        assert_eq!(readers.slowest(LogId([1; 16])), [], "positions of another log retain nothing");
        readers.acknowledged(StoreId(1), Lsn(11));
        drop(saver);
        let mode = fs::metadata(dir.path().join("readers")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let (readers, _saver) = ConsumerState::open(dir.path()).unwrap();
        let all = [offset("a", 1, 6), offset("a", 2, 7), offset("b", 1, 3)];
        assert_eq!(readers.offsets(), all);
        assert_eq!(readers.webhook(StoreId(1)), Some(Webhook { watermark: Lsn(11), ..hook }));
        assert!(readers.forget(NamespaceId(0), "a", Some(StoreId(2))).await.unwrap());
        assert!(readers.forget(NamespaceId(0), "a", None).await.unwrap());
        assert!(!readers.forget(NamespaceId(1), "b", None).await.unwrap(), "of another tenant");
        assert!(readers.unregister(StoreId(1)).await.unwrap());
        assert!(!readers.unregister(StoreId(1)).await.unwrap());
        assert_eq!(readers.offsets(), [offset("b", 1, 3)]);
    }

    #[tokio::test]
    async fn a_failed_write_rejects_only_its_own_changes_and_exposes_none() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("data");
        fs::create_dir(&inner).unwrap();
        let (readers, _saver) = ConsumerState::open(&inner).unwrap();
        let hook = Webhook { store: StoreId(2), url: "https://a".into(), watermark: Lsn(3), ..Webhook::default() };
        readers.set(offset("a", 1, 1)).await.unwrap();
        readers.register(hook.clone()).await.unwrap();
        fs::rename(&inner, dir.path().join("away")).unwrap();
        for lsn in 2..5 {
            let refused = readers.set(offset("a", 1, lsn)).await;
            assert!(matches!(&refused, Err(Unsaved::NotDurable(text)) if text.contains("readers")), "{refused:?}");
            assert_eq!(readers.offsets(), [offset("a", 1, 1)], "what was refused is not shown");
        }
        assert!(readers.forget(NamespaceId(0), "a", None).await.is_err());
        assert_eq!(readers.slowest(LogId::default()), [(StoreId(1), Lsn(1)), (StoreId(2), Lsn(3))]);
        readers.acknowledged(StoreId(2), Lsn(7));
        fs::rename(dir.path().join("away"), &inner).unwrap();
        // The first change after the disk is repaired is accepted.
        readers.set(offset("a", 1, 5)).await.unwrap();
        assert_eq!(readers.offsets(), [offset("a", 1, 5)]);
        assert_eq!(readers.webhook(StoreId(2)), Some(Webhook { watermark: Lsn(7), ..hook }));
    }

    #[tokio::test]
    async fn of_a_change_during_the_last_write_nobody_can_tell_whether_it_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let (readers, saver) = ConsumerState::open(dir.path()).unwrap();
        drop(saver);
        let set = readers.set(offset("a", 1, 1)).await;
        assert!(matches!(&set, Err(Unsaved::Unknown(text)) if text.contains("stopping")), "{set:?}");
    }

    #[test]
    fn a_damaged_file_is_reported_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        for bytes in [&b""[..], b"abc", b"\0\0\0\0", b"12345678"] {
            fs::write(dir.path().join("readers"), bytes).unwrap();
            let refused = ConsumerState::open(dir.path()).err().unwrap();
            assert!(refused.contains("is damaged") && refused.contains("Remove it"), "{refused}");
        }
    }
}
