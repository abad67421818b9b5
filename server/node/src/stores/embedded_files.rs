//! Opens embedded stores: a store that differs from its log, or is damaged, is refilled from the log.
//!
//! A copied data directory, a salvaged log or a restored backup leaves a store beside a log that it did not follow: the
//! store has then applied records that the log does not have, or other ones in their place. The digest that the store
//! keeps beside its watermark reveals both, at every opening, before anything is pushed. If the log is no longer
//! complete, the store stays closed: nothing else has its rows. The former files are set aside, because the log may be
//! the one at fault.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tribunal_push::{EmbeddedError, EmbeddedStore, EpochSource};
use tribunal_types::{LogId, Lsn, StoreSpec, Watermark};

/// An open store.
pub struct Opened<'a> {
    /// The store.
    pub store: EmbeddedStore,
    /// While this is held, the log is not truncated. Held until the log waits for the store's flushes: reports of an
    /// earlier declaration, or of files that were set aside, may still permit a truncation.
    pub not_truncated: MutexGuard<'a, ()>,
}

/// Why a store is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOpen {
    /// A description of the problem and its remedy.
    pub reason: String,
    /// Whether another attempt may succeed without an operator: the disk failed, or the log cannot be read now.
    pub may_pass: bool,
}

impl From<String> for NotOpen {
    fn from(reason: String) -> NotOpen {
        NotOpen { reason, may_pass: false }
    }
}

impl From<EmbeddedError> for NotOpen {
    fn from(error: EmbeddedError) -> NotOpen {
        NotOpen { may_pass: error.may_pass(), reason: error.to_string() }
    }
}

/// Maximum time to wait until a store that was declared otherwise in the meantime is closed, and the interval of attempts.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
const CLOSED_POLL: Duration = Duration::from_millis(20);

/// Remedy for a store that cannot be refilled because its log does not begin with the first record.
const RESTORE: &str = "restore log and store from one backup; or move the store's directory away and attach the store at the end \
                       of its log (`tribunal store attach STORE --loaded-lsn LSN`): it continues from there, without its rows, \
                       which you then put again from elsewhere";
/// The same remedy on a member of a cluster.
const COPY: &str = "`tribunal store resume` at this node restarts it with a copy of another node's state";

/// Returns the remedy for a store that the log cannot fill.
#[must_use]
pub fn way_out(is_member: bool) -> &'static str {
    if is_member { COPY } else { RESTORE }
}

/// Describes damage in an open store whose log begins at `oldest`, with its remedy.
#[must_use]
pub fn damage_told(damage: &str, oldest: Lsn, is_member: bool) -> String {
    if oldest == Lsn(1) {
        let here = if is_member { " at this node" } else { "" };
        return format!(
            "the embedded store is damaged ({damage}). The log still has all of its records: `tribunal store resume`{here} \
             fills the store from it again, and so does a restart"
        );
    }
    format!(
        "the embedded store is damaged ({damage}). {}; its intact rows can be read",
        cannot_refill(oldest, is_member)
    )
}

/// Describes why the log cannot fill a store, and the remedy.
fn cannot_refill(oldest: Lsn, is_member: bool) -> String {
    format!("The log begins at LSN {oldest}, so the store cannot be filled from it again: {}", way_out(is_member))
}

/// Opens the store in `dir`, rebuilding it from `log` if necessary. `truncation` is held while the log is truncated.
///
/// # Errors
/// See [`NotOpen`].
pub fn open<'a>(
    dir: &Path,
    memory_bytes: u64,
    spec: &StoreSpec,
    log: &Arc<dyn EpochSource>,
    truncation: &'a Mutex<()>,
    is_member: bool,
) -> Result<Opened<'a>, NotOpen> {
    let open = || once_closed(|| EmbeddedStore::open(dir, memory_bytes, spec.id, Arc::clone(log)));
    let wrong = match open() {
        Ok(store) => match (difference(&store, spec, &**log)?, EmbeddedStore::damage_in(dir)) {
            (Some(difference), _) => difference,
            (None, Some(damage)) if log.oldest(spec.id) == Lsn(1) => damage,
            (None, damage) => {
                // Without a complete log, the rest of a damaged store is better than nothing.
                if let Some(damage) = damage {
                    let reason = damage_told(&damage, log.oldest(spec.id), is_member);
                    tracing::error!(store = spec.name, store_id = spec.id.0, reason, "some rows cannot be read");
                }
                if let Err(error) = name_log(&store, log.id()) {
                    tracing::warn!(
                        store = spec.name,
                        error,
                        "the embedded store keeps the log's former name until its next record"
                    );
                }
                return Ok(Opened { store, not_truncated: truncation.lock() });
            }
        },
        Err(error @ EmbeddedError::Damaged(_)) => error.to_string(),
        Err(error) => return Err(error.into()),
    };
    let not_truncated = truncation.lock();
    let oldest = log.oldest(spec.id);
    if oldest > Lsn(1) {
        return Err(format!("{wrong}. {}", cannot_refill(oldest, is_member)).into());
    }
    let aside = EmbeddedStore::set_aside(dir)?;
    tracing::warn!(
        store = spec.name,
        reason = wrong,
        "rebuilding the embedded store from its log; its former files are in {}, for you to delete",
        aside.display()
    );
    let store = open()?;
    Ok(Opened { store, not_truncated })
}

/// Opens a store once it is closed: an earlier declaration of it may have left it open, with readers or a flush.
fn once_closed(open: impl Fn() -> Result<EmbeddedStore, EmbeddedError>) -> Result<EmbeddedStore, EmbeddedError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(EmbeddedError::InUse { .. }) if begun.elapsed() < CLOSED_WITHIN => std::thread::sleep(CLOSED_POLL),
            opened => return opened,
        }
    }
}

/// Updates the log's name in the store, for example after a salvage. The log has just proved that it contains the
/// store's applied records; once it is truncated, or on another node, only the name identifies it.
fn name_log(store: &EmbeddedStore, log: LogId) -> Result<(), String> {
    let watermark = store.watermark();
    if watermark.lsn == Lsn(0) || watermark.log == log {
        return Ok(());
    }
    store.set_watermark(Watermark { log, ..watermark }).map_err(|error| error.to_string())
}

/// Describes the difference between the store and the log, if there is one.
fn difference(store: &EmbeddedStore, spec: &StoreSpec, log: &dyn EpochSource) -> Result<Option<String>, EmbeddedError> {
    let watermark = store.watermark();
    let is_of_log = log.contains(spec.id, &watermark)?;
    let (lsn, id, head) = (watermark.lsn, log.id(), log.head(spec.id));
    Ok((!is_of_log).then(|| {
        format!(
            "the embedded store followed another log: it has applied LSN {lsn} of log {}, this one is {id} and ends at \
             LSN {head}",
            watermark.log
        )
    }))
}
