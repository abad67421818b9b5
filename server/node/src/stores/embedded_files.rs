//! Opens embedded stores: one that is not what its log holds, or that is damaged, is filled from the log again.
//!
//! A copy of the data directory, a salvaged log or a restored backup leaves a store beside a log that it did not follow:
//! then the store has applied records that the log does not have, or has others in their place. Both are told by the
//! digest that the store keeps beside its watermark, at every opening, before anything is pushed. If the log is no longer
//! complete, the store stays closed: nothing else has its rows. The former files are set aside, because the log may be what
//! is wrong.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tribunal_push::{EmbeddedError, EmbeddedStore, EpochSource};
use tribunal_types::{LogId, Lsn, StoreSpec, Watermark};

/// An open store.
pub struct Opened<'a> {
    /// The store.
    pub store: EmbeddedStore,
    /// It is to be filled from the log again. While this is held, the log is not truncated.
    pub rebuilt: Option<MutexGuard<'a, ()>>,
}

/// What is done about a store that cannot be filled from its log, because that does not begin with its first record.
const RESTORE: &str = "restore log and store from one backup, or remove the store's directory, load its rows from elsewhere and \
                       attach it with `loaded_lsn`";
/// The same, on a member of a cluster.
const COPY: &str = "`tribunal store resume` at this node restarts it with a copy of another node's state";

/// Returns what is done about a store that the log cannot fill.
#[must_use]
pub fn way_out(is_member: bool) -> &'static str {
    if is_member { COPY } else { RESTORE }
}

/// Opens the store in `dir`, rebuilding it from `log` if need be. `truncation` is held while the log is truncated.
///
/// # Errors
/// In words: what is wrong and what to do about it.
pub fn open<'a>(
    dir: &Path,
    memory_bytes: u64,
    spec: &StoreSpec,
    log: &Arc<dyn EpochSource>,
    truncation: &'a Mutex<()>,
    is_member: bool,
) -> Result<Opened<'a>, String> {
    let open = || EmbeddedStore::open(dir, memory_bytes, spec.id, Arc::clone(log));
    let wrong = match open() {
        Ok(store) => match (difference(&store, spec, &**log)?, EmbeddedStore::damage_in(dir)) {
            (Some(difference), _) => difference,
            (None, Some(damage)) if log.oldest(spec.id) == Lsn(1) => damage,
            // Without a whole log, what is left of a damaged store is better than nothing.
            (None, _) => {
                if let Err(error) = name_log(&store, log.id()) {
                    tracing::warn!(
                        store = spec.name,
                        error,
                        "the embedded store keeps the log's former name until its next record"
                    );
                }
                return Ok(Opened { store, rebuilt: None });
            }
        },
        Err(error @ EmbeddedError::Damaged(_)) => error.to_string(),
        Err(error) => return Err(error.to_string()),
    };
    // From here until the caller counts the store as one that lacks everything.
    let not_truncated = truncation.lock();
    let oldest = log.oldest(spec.id);
    if oldest > Lsn(1) {
        return Err(format!(
            "{wrong}. Its log begins at LSN {oldest}, so the store cannot be filled from it again: {}",
            way_out(is_member)
        ));
    }
    let aside = EmbeddedStore::set_aside(dir).map_err(|error| error.to_string())?;
    tracing::warn!(
        store = spec.name,
        reason = wrong,
        "rebuilding the embedded store from its log; its former files are in {}, for you to delete",
        aside.display()
    );
    let store = open().map_err(|error| error.to_string())?;
    Ok(Opened { store, rebuilt: Some(not_truncated) })
}

/// Has the store name the log as it is named now, for example since it was salvaged. The log has just proved that it contains what the
/// store has applied; once it is truncated, or on another node, only the name can tell.
fn name_log(store: &EmbeddedStore, log: LogId) -> Result<(), String> {
    let watermark = store.watermark();
    if watermark.lsn == Lsn(0) || watermark.log == log {
        return Ok(());
    }
    store.set_watermark(Watermark { log, ..watermark }).map_err(|error| error.to_string())
}

/// Tells in words how the store differs from the log, if it does.
fn difference(store: &EmbeddedStore, spec: &StoreSpec, log: &dyn EpochSource) -> Result<Option<String>, String> {
    let watermark = store.watermark();
    let is_of_log = log.contains(spec.id, &watermark).map_err(|error| error.to_string())?;
    let (lsn, id, head) = (watermark.lsn, log.id(), log.head(spec.id));
    Ok((!is_of_log).then(|| {
        format!(
            "the embedded store followed another log: it has applied LSN {lsn} of log {}, this one is {id} and ends at \
             LSN {head}",
            watermark.log
        )
    }))
}
