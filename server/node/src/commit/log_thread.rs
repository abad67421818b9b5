//! The only thread that writes the log. Jobs in, durability events out.
//!
//! Invariants: jobs are carried out in the order given; an epoch is reported durable only after the one `sync` that
//! made it so; after a failed sync nothing is ever reported again and the process ends with the reason.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tribunal_log::{DiskLog, DurableLog, HoldBack, ImageWriter, LogError};
use tribunal_types::{Batch, ControlChange, ControlIndex, Epoch, StoreId};

use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch};
use crate::commit::image_capture::CapturedImage;
use crate::commit::message::Message;
use crate::telemetry::metrics::Metrics;

/// Requests to the log thread.
pub enum Job {
    /// Append a sealed batch, make it durable, report it.
    Append(Arc<Batch>),
    /// Note what an epoch decided; durable with the next batch.
    Outcome(Arc<ResolvedEpoch>),
    /// Append a control entry, make it durable, report it.
    Control(ControlIndex, ControlChange),
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
    },
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
            Job::Control(index, change) => {
                mark_is_behind = true;
                log.append_control(index, &change).and_then(|()| log.sync()).and_then(|()| {
                    let _ = events.send(Message::ControlDurable(index, change));
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
            Job::Truncate { below, applied } => match truncate(&mut log, below, &applied, context) {
                Err(LogError::Io { reason }) => {
                    // The log is whole, and only longer than it need be.
                    tracing::error!(reason, "the log was not truncated; retrying with the next image");
                    Ok(())
                }
                done => done,
            },
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

/// Drops what every store has applied, and names the stores that keep the log from being shorter than their quota.
fn truncate(
    log: &mut DiskLog,
    below: Epoch,
    applied: &[(StoreId, Epoch)],
    context: &LogThreadContext,
) -> Result<(), LogError> {
    let bound = log.held_back_below(context.quota).min(below);
    for (store, _) in applied.iter().filter(|(_, applied)| *applied < bound) {
        let _ = context.events.send(Message::OverQuota(*store, bound));
    }
    // They are further at the next image.
    applied.iter().filter(|(_, applied)| *applied < below).for_each(|(store, _)| (context.flush)(*store));
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
        let image = image.into_image();
        match writer.write(&image) {
            Ok(()) => {
                let _ = jobs.send(Job::Truncate { below: image.epoch, applied });
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
