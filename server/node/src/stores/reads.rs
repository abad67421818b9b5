//! Reads of embedded stores: rows and ranges of several stores, all at one epoch that includes every acknowledged commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout_at;
use tribunal_push::{EmbeddedError, EmbeddedStore, ReadAt, ScanPage, View};
use tribunal_service::{ReadAnswer, ReadQuery, RowQuery, RowState, ServiceError};
use tribunal_types::limits::READ_BYTES_MAX;
use tribunal_types::{Epoch, Lsn, StoreId};

use crate::stores::catalog::Records;
use crate::stores::long_reads::LongReads;
use crate::stores::pushes::Pushes;
use crate::stores::range_reads::{read_ranges, too_large};

/// Maximum number of rows that are looked up on the caller's thread, which may be one that drives connections.
/// As many as take about as long as a batch of commits takes to be parsed there.
const ROWS_IN_PLACE_MAX: usize = 512;
/// Number of rows from which on all are loaded into the processor's caches before the first is read.
const WARMED_MIN: usize = 4;
/// When to retry if a store is not open yet, milliseconds.
const UNREPORTED_RETRY_MS: u64 = 20;
/// Interval at which a waiting read looks whether its stores are open.
const OPENING_POLL: Duration = Duration::from_millis(UNREPORTED_RETRY_MS);

/// Reads rows. Cheap to clone.
#[derive(Clone)]
pub struct RowReader {
    /// The open stores.
    pub pushes: Arc<Pushes>,
    /// Their logs.
    pub records: Records,
    /// Runs reads that may block on the disk.
    pub runtime: Handle,
    /// Limits them.
    pub long_reads: LongReads,
}

/// Where rows may be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Memory,
    Disk,
}

impl RowReader {
    /// Reads rows and ranges: on the caller's thread if all of them are in memory and not very many, otherwise on a blocking
    /// thread. Rows in memory should not require a thread switch.
    ///
    /// # Errors
    /// See [`tribunal_service::StoreApi::read`].
    pub async fn read(&self, query: &ReadQuery) -> Result<ReadAnswer, ServiceError> {
        let near = |store: &StoreId| {
            let embedded = self.pushes.embedded(*store);
            embedded.is_none_or(|embedded| embedded.has_room() && self.records.is_near(*store, embedded.applied()))
        };
        let few = query.ranges.is_empty() && query.rows.len() <= ROWS_IN_PLACE_MAX;
        let stores = query.stores();
        if few
            && stores.iter().all(near)
            && let Some(answer) = self.look(query, &stores, Depth::Memory)?
        {
            return Ok(answer);
        }
        let namespace = stores.first().map(|store| self.pushes.namespace_of(*store));
        let permit = self.long_reads.permit(namespace.unwrap_or_default()).await;
        let (this, query) = (self.clone(), query.clone());
        // The read goes on, and keeps its permit, if its client disconnects.
        let read = self.runtime.spawn_blocking(move || (this.look(&query, &stores, Depth::Disk), permit)).await;
        let (read, _permit) = read.map_err(|error| ServiceError::Unavailable { detail: error.to_string() })?;
        read?.ok_or_else(|| ServiceError::Unavailable { detail: "the rows were not read".into() })
    }

    /// Reads as [`RowReader::read`] does, and waits until `deadline` for a store that is still being opened.
    ///
    /// # Errors
    /// See [`tribunal_service::StoreApi::read`].
    pub async fn read_by(&self, query: &ReadQuery, deadline: Instant) -> Result<ReadAnswer, ServiceError> {
        let mut read = self.read(query).await;
        if !is_lagging(&read) {
            return read;
        }
        let mut ended = self.records.progress.ended();
        // A store that cannot be opened changes no progress, so the reason is found by looking.
        while is_lagging(&read) && Instant::now() < deadline {
            let look = deadline.min(Instant::now() + OPENING_POLL);
            if timeout_at(look.into(), ended.wait_for(|ended| *ended)).await.is_ok() {
                return read;
            }
            read = self.read(query).await;
        }
        read
    }

    /// Reads rows and ranges of `stores`, which the query names; `None` if that takes the disk and must not.
    fn look(&self, query: &ReadQuery, stores: &[StoreId], depth: Depth) -> Result<Option<ReadAnswer>, ServiceError> {
        let opened = stores.iter().map(|store| self.open(*store, query)).collect::<Result<Vec<_>, _>>()?;
        let mut applied = Epoch(0);
        let views = match &opened[..] {
            [] => Vec::new(),
            [store] => {
                let progress = self.records.progress.store(store.id()).unwrap_or_default();
                if !progress.detached {
                    store.catch_up().map_err(unreadable)?;
                }
                let view = if query.ranges.is_empty() { store.view() } else { store.sorted_view() };
                applied = progress.applied.max(view.at().epoch);
                vec![view]
            }
            stores => self.cut(stores, &mut applied)?,
        };
        let view = |store: StoreId| stores.binary_search(&store).ok().map(|at| &views[at]);
        if depth == Depth::Memory && query.rows.len() >= WARMED_MIN {
            for (store, view) in stores.iter().zip(&views) {
                view.warm(query.rows.iter().filter(|row| row.store == *store).map(|row| &*row.key));
            }
        }
        let mut answer = ReadAnswer { applied, ..ReadAnswer::default() };
        let mut bytes = 0;
        for row in &query.rows {
            let Some(state) = view(row.store).map_or(Ok(Some(RowState::Absent)), |view| read_row(view, row, depth))?
            else {
                return Ok(None);
            };
            if let RowState::Found { value, .. } = &state {
                bytes += value.len();
            }
            if bytes > READ_BYTES_MAX {
                return Err(too_large(format!("/read/{}", answer.rows.len())));
            }
            answer.rows.push(state);
        }
        answer.ranges =
            read_ranges(&query.ranges, READ_BYTES_MAX - bytes, |range, start, max| match view(range.store) {
                Some(view) => view.scan_within(start, &range.end, max).map_err(unreadable),
                None => Ok(ScanPage { rows: Vec::new(), next: None, at: ReadAt { lsn: Lsn(0), epoch: applied } }),
            })?;
        Ok(Some(answer))
    }

    /// Checks that a store of a query can be read here, now or once it is open.
    ///
    /// # Errors
    /// If it is not embedded, or differs from its log.
    pub fn check(&self, store: StoreId, query: &ReadQuery) -> Result<(), ServiceError> {
        let open = self.open(store, query);
        if is_lagging(&open) { Ok(()) } else { open.map(drop) }
    }

    fn open(&self, store: StoreId, query: &ReadQuery) -> Result<Arc<EmbeddedStore>, ServiceError> {
        let closed = || {
            let reason = self.pushes.closed_because(store)?;
            Some(ServiceError::Unavailable { detail: cannot_read(&reason) })
        };
        let lagging = || ServiceError::StoreLagging { store, retry_after_ms: UNREPORTED_RETRY_MS };
        let open = self.pushes.embedded(store).ok_or_else(|| match closed() {
            Some(closed) => closed,
            // It is being opened.
            None if self.pushes.is_embedded(store) => lagging(),
            None => ServiceError::ClientMistake {
                code: "store_not_embedded",
                pointer: query.place_of(store),
                detail: format!(
                    "only stores with the `kv` adaptor can be read here, and `{}` has another one or none; read other stores from their \
                     own storage, or from a copy that follows the log",
                    self.pushes.name_of(store)
                ),
            },
        })?;
        match self.records.progress.store(store) {
            Some(progress) if !progress.reported => Err(closed().unwrap_or_else(lagging)),
            _ => Ok(open),
        }
    }

    /// Returns views of several stores at one epoch, and sets `applied` to it.
    fn cut<'a>(&self, stores: &'a [Arc<EmbeddedStore>], applied: &mut Epoch) -> Result<Vec<View<'a>>, ServiceError> {
        let progress = &self.records.progress;
        let detached = |store: &&Arc<EmbeddedStore>| progress.store(store.id()).is_some_and(|p| p.detached);
        if let Some(detached) = stores.iter().find(detached) {
            return Err(ServiceError::StoreDetached { store: detached.id() });
        }
        let stores: Vec<&EmbeddedStore> = stores.iter().map(|store| &**store).collect();
        let ids: Vec<StoreId> = stores.iter().map(|store| store.id()).collect();
        let heads = || {
            let (epoch, heads) = progress.heads(&ids);
            *applied = epoch;
            heads
        };
        EmbeddedStore::cut(&stores, heads).map_err(unreadable)
    }
}

/// Describes why this node cannot read a store.
pub(crate) fn cannot_read(reason: &str) -> String {
    format!("this node cannot read the store: {reason}")
}

/// Returns whether a store is not open yet, or has not reported.
fn is_lagging<T>(read: &Result<T, ServiceError>) -> bool {
    matches!(read, Err(ServiceError::StoreLagging { .. }))
}

fn read_row(view: &View<'_>, asked: &RowQuery, depth: Depth) -> Result<Option<RowState>, ServiceError> {
    let found = match (view.get_in_memory(&asked.key), depth) {
        (Some(found), _) => found,
        (None, Depth::Memory) => return Ok(None),
        (None, Depth::Disk) => view.get(&asked.key).map_err(unreadable)?,
    };
    Ok(Some(match found {
        None => RowState::Absent,
        Some(row) if asked.known == Some(row.version) => RowState::Unchanged(row.version),
        Some(row) => RowState::Found { value: row.value, version: row.version },
    }))
}

/// Converts an error of an embedded store, without revealing paths.
pub(crate) fn unreadable(error: EmbeddedError) -> ServiceError {
    let detail = match &error {
        EmbeddedError::OutOfUse(_) => cannot_read(&format!("{error}; the node opens the store again by itself")),
        EmbeddedError::InUse { .. } | EmbeddedError::Io { .. } => {
            tracing::error!(%error, "an embedded store cannot be read");
            "the store's files cannot be read; the server's log has the reason".into()
        }
        _ => error.to_string(),
    };
    ServiceError::Unavailable { detail }
}
