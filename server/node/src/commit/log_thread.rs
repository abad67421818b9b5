//! The only thread that writes the log. Jobs in, durability events out.
//!
//! Invariants: jobs are carried out in the order given; an epoch is reported durable only after the one `sync` that
//! made it so; after a failed sync nothing is ever reported again and the process ends with the reason.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tribunal_log::{DiskLog, DurableLog, HoldBack, ImageWriter, LogError};
use tribunal_replica::CapturedImage;
use tribunal_types::{Batch, ControlEntry, ControlIndex, Epoch, StoreId};

use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch};
use crate::commit::image_columns::image_of;
use crate::commit::message::Message;
use crate::telemetry::metrics::Metrics;

/// Requests to the log thread.
pub enum Job {
    /// Append a sealed batch, make it durable, report it.
    Append(Arc<Batch>),
    /// Note what an epoch decided; durable with the next batch.
    Outcome(Arc<ResolvedEpoch>),
    /// Append a control entry, make it durable, report it.
    Control(ControlIndex, ControlEntry),
    /// Store a state image beside the log, then drop what is no longer needed.
    Image {
        /// The state.
        image: Box<CapturedImage>,
        /// What the stores that the log waits for have applied.
        applied: Vec<(StoreId, Epoch)>,
        /// The node stops: this one must be written even if another is under way.
        last: bool,
    },
    /// Drop epochs, as far as retention allows.
    Truncate {
        /// Epochs below this one.
        below: Epoch,
        /// But only as far as these stores have applied them.
        applied: Vec<(StoreId, Epoch)>,
        /// Whether embedded stores that lag are told to flush, and stores that exceed their quota are reported. Once for
        /// each image is enough.
        ask_stores: bool,
    },
    /// Have an embedded store flush.
    Flush(StoreId),
    /// Finish and end.
    Stop,
}

/// What the log thread is tied to.
pub struct LogThreadContext {
    /// Its own queue.
    pub jobs: Sender<Job>,
    /// The sequencer's queue.
    pub events: Sender<Message>,
    /// Where epochs may leave once their outcome is in the log.
    pub cache: Arc<EpochCache>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// How much of the log a store may hold back.
    pub quota: HoldBack,
    /// Returns the first epoch that a reader still needs.
    pub needed: Box<dyn Fn() -> Option<Epoch> + Send>,
    /// How much of the log readers may hold back.
    pub readers_quota: HoldBack,
    /// Has an embedded store write to its disk what only the log holds durably. Must not wait for that.
    pub flush: Box<dyn Fn(StoreId) + Send>,
}

/// Tells the sequencer if the log thread panics: nothing would ever become durable again.
struct ReportPanic<'a>(&'a Sender<Message>);

impl Drop for ReportPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Message::LogFailed("the log thread panicked".into()));
        }
    }
}

/// How long the log stays quiet before its mark is brought up to date.
const IDLE_MARK_AFTER: Duration = Duration::from_millis(5);

/// Runs the log thread until it is stopped or durability is in doubt.
pub fn run(mut log: DiskLog, jobs: &Receiver<Job>, context: &LogThreadContext) {
    let LogThreadContext { events, cache, metrics, .. } = context;
    let _report = ReportPanic(events);
    let mut image: Option<JoinHandle<()>> = None;
    let failed = |error: LogError| {
        // Requests that wait learn that the outcome is unknown; the process then ends with this reason.
        let _ = events.send(Message::LogFailed(error.to_string()));
    };
    let mut mark_is_behind = false;
    loop {
        let job = match jobs.recv_timeout(if mark_is_behind { IDLE_MARK_AFTER } else { Duration::from_secs(3600) }) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) => {
                if mark_is_behind {
                    if let Err(error) = log.idle_mark() {
                        return failed(error);
                    }
                    mark_is_behind = false;
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let done = match job {
            Job::Append(batch) => {
                mark_is_behind = true;
                append(&mut log, &batch, metrics).map(|()| {
                    let _ = events.send(Message::Durable(batch));
                })
            }
            Job::Outcome(epoch) => log.append_outcome(&epoch.outcome).map(|()| cache.logged(epoch.outcome.epoch)),
            Job::Control(index, entry) => {
                mark_is_behind = true;
                log.append_control(index, &entry).and_then(|()| log.sync()).and_then(|()| {
                    let _ = events.send(Message::ControlDurable(index, entry));
                    compact_control(&mut log)
                })
            }
            // Commits do not wait for an image: while one is being written, the next one is left out.
            Job::Image { last: false, .. } if image.as_ref().is_some_and(|thread| !thread.is_finished()) => Ok(()),
            Job::Image { image: next, applied, .. } => {
                // The log first: an image that outlived the outcome of its epoch would leave a hole in the stores' logs.
                log.sync().map(|()| {
                    join(image.take());
                    image = store_image(log.image_writer(), next, applied, context.jobs.clone());
                })
            }
            Job::Truncate { below, applied, ask_stores } => {
                if ask_stores {
                    ask_lagging(&log, below, &applied, context);
                }
                match truncate(&mut log, below, &applied, context) {
                    Err(LogError::Io { reason }) => {
                        // The log is whole, and only longer than it need be.
                        tracing::error!(reason, "the log was not truncated; retrying with the next image");
                        Ok(())
                    }
                    done => done,
                }
            }
            Job::Flush(store) => {
                (context.flush)(store);
                Ok(())
            }
            Job::Stop => {
                join(image.take());
                if let Err(error) = log.sync().and_then(|()| log.idle_mark()) {
                    failed(error);
                }
                return;
            }
        };
        if let Err(error) = done {
            return failed(error);
        }
    }
}

/// Writes the control log again without entries that have no effect any more, once they are much of it. Commits wait for
/// that, some tens of milliseconds once in thousands of changes.
fn compact_control(log: &mut DiskLog) -> Result<(), LogError> {
    match log.compact_control() {
        Ok(true) => tracing::info!("the control log was compacted"),
        Ok(false) => {}
        Err(LogError::Io { reason }) => {
            tracing::error!(reason, "the control log was not compacted; retrying when it has grown");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn append(log: &mut DiskLog, batch: &Batch, metrics: &Metrics) -> Result<(), LogError> {
    let start = Instant::now();
    log.append(batch)?;
    let written = Instant::now();
    log.sync()?;
    metrics.append_seconds.observe((written - start).as_secs_f64());
    metrics.sync_seconds.observe(written.elapsed().as_secs_f64());
    metrics.set_log(log.stats());
    Ok(())
}

/// Tells the stores that have not applied what is below `below` to flush, and reports those that keep the log from being
/// shorter than their quota.
fn ask_lagging(log: &DiskLog, below: Epoch, applied: &[(StoreId, Epoch)], context: &LogThreadContext) {
    let bound = log.held_back_below(context.quota).min(below);
    for (store, _) in applied.iter().filter(|(_, applied)| *applied < bound) {
        let _ = context.events.send(Message::OverQuota(*store, bound));
    }
    applied.iter().filter(|(_, applied)| *applied < below).for_each(|(store, _)| (context.flush)(*store));
}

/// Drops what every store has applied.
fn truncate(
    log: &mut DiskLog,
    below: Epoch,
    applied: &[(StoreId, Epoch)],
    context: &LogThreadContext,
) -> Result<(), LogError> {
    let stores = applied.iter().map(|(_, applied)| *applied).fold(below, Epoch::min);
    // A consumer's offset retains the log beyond its age, but not beyond its size.
    let readers = (context.needed)().map_or(stores, |needed| needed.max(log.held_back_below(context.readers_quota)));
    log.truncate(stores.min(readers))
}

fn store_image(
    writer: ImageWriter,
    image: Box<CapturedImage>,
    applied: Vec<(StoreId, Epoch)>,
    jobs: Sender<Job>,
) -> Option<JoinHandle<()>> {
    let run = move || {
        let image = image_of(*image);
        match writer.write(&image) {
            Ok(()) => {
                let _ = jobs.send(Job::Truncate { below: image.epoch, applied, ask_stores: true });
            }
            // The log is whole without it; only a restart takes longer, and nothing is truncated.
            Err(error) => tracing::error!(%error, epoch = image.epoch.0, "no state image was written"),
        }
    };
    match std::thread::Builder::new().name("image".into()).spawn(run) {
        Ok(thread) => Some(thread),
        Err(error) => {
            tracing::error!(%error, "cannot start a thread to write a state image");
            None
        }
    }
}

fn join(image: Option<JoinHandle<()>>) {
    if let Some(thread) = image {
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;
    use parking_lot::Mutex;
    use tribunal_log::LogOptions;

    use super::*;

    /// With N embedded stores, each flush that ends has the log truncated: asking the others each time would be N^2 requests.
    #[test]
    fn stores_that_lag_are_told_to_flush_by_an_image_and_not_by_a_flush_that_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = tribunal_log::open(dir.path(), &LogOptions::default()).expect("a new log").writer;
        let ((jobs, queue), (events, _messages)) = (unbounded(), unbounded());
        let told = Arc::new(Mutex::new(Vec::new()));
        let no_quota = HoldBack { age_ms: u64::MAX / 2, bytes: u64::MAX / 2 };
        let context = LogThreadContext {
            jobs: jobs.clone(),
            events,
            cache: Arc::new(EpochCache::new(0)),
            metrics: Arc::new(Metrics::new()),
            quota: no_quota,
            needed: Box::new(|| None),
            readers_quota: no_quota,
            flush: {
                let told = Arc::clone(&told);
                Box::new(move |store: StoreId| told.lock().push(store.0))
            },
        };
        let applied = || vec![(StoreId(1), Epoch(3)), (StoreId(2), Epoch(7)), (StoreId(3), Epoch(4))];
        let truncate = |ask_stores| Job::Truncate { below: Epoch(5), applied: applied(), ask_stores };
        for job in [truncate(false), truncate(true), truncate(false), Job::Flush(StoreId(2)), Job::Stop] {
            jobs.send(job).expect("the queue is open");
        }
        run(log, &queue, &context);
        assert_eq!(*told.lock(), [1, 3, 2]);
    }
}
