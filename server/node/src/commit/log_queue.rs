//! The log, and the jobs waiting for it.
//!
//! The log thread runs jobs in order. A caller that is otherwise idle writes on its own thread while no job waits: two
//! thread switches take as long as a sync on a fast disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Mutex, MutexGuard};
use tribunal_log::{DiskLog, DurableLog, LogError, LogReader};
use tribunal_types::{Batch, GroupId};

use crate::cluster::recovery::append_or_compare;
use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch};
use crate::commit::log_job::{GroupWrite, Job};
use crate::telemetry::metrics::Metrics;

/// The log, with the bookkeeping of every write.
pub struct LogWriter {
    /// The log.
    pub log: DiskLog,
    /// Cache whose epochs may be evicted once their outcome is in the log.
    pub cache: Arc<EpochCache>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Since when the log is quiet while its mark lags, if so.
    pub mark_due_since: Option<Instant>,
    /// Durability is in doubt, or a write is in progress: nothing else is written. A panic during a write thus counts
    /// as a failure.
    pub failed: bool,
    /// Reads the log, if it is a cluster member's.
    members: Option<LogReader>,
    last_sync: Duration,
}

/// Sync time below which a disk is fast. A slower disk gains nothing from avoiding a thread switch, and would hold up
/// the caller.
const FAST_SYNC: Duration = Duration::from_millis(1);

impl LogWriter {
    /// Creates a writer for a log that was just opened.
    #[must_use]
    pub fn new(log: DiskLog, cache: Arc<EpochCache>, metrics: Arc<Metrics>) -> LogWriter {
        let (mark_due_since, members, last_sync) = (None, None, Duration::ZERO);
        LogWriter { log, cache, metrics, mark_due_since, failed: false, members, last_sync }
    }

    /// Marks the log as a cluster member's.
    #[must_use]
    pub fn of_member(mut self, reader: LogReader) -> LogWriter {
        self.members = Some(reader);
        self
    }

    /// Runs a write, and records whether it failed.
    ///
    /// # Errors
    /// Durability is in doubt.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut LogWriter) -> Result<T, LogError>) -> Result<T, LogError> {
        self.failed = true;
        let written = write(self);
        self.failed = written.is_err();
        written
    }

    /// Appends a batch and makes it durable.
    ///
    /// # Errors
    /// Durability is in doubt.
    pub fn append(&mut self, batch: &Batch) -> Result<(), LogError> {
        self.write(|this| {
            let start = Instant::now();
            this.log.append(batch)?;
            this.metrics.log.append_seconds.observe(start.elapsed().as_secs_f64());
            this.sync_now()
        })
    }

    /// Appends records of Raft groups; durable with the next sync.
    ///
    /// # Errors
    /// Durability is in doubt; or a record would break a promise made to the group, which is a bug.
    pub fn append_records(&mut self, records: Vec<GroupWrite>) -> Result<(), LogError> {
        self.write(|this| {
            let start = Instant::now();
            for record in records {
                match record {
                    GroupWrite::Entry(group, id, content) => this.log.append_group_entry(group, id, &content)?,
                    GroupWrite::Copy(group, id, content) => this.log.append_group_copy(group, id, &content)?,
                    GroupWrite::State(group, state) => this.log.set_group_state(group, &state)?,
                }
            }
            this.metrics.log.append_seconds.observe(start.elapsed().as_secs_f64());
            Ok(())
        })
    }

    /// Makes all appended data durable.
    ///
    /// # Errors
    /// Durability is in doubt.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.write(LogWriter::sync_now)
    }

    fn sync_now(&mut self) -> Result<(), LogError> {
        let start = Instant::now();
        self.log.sync()?;
        let synced = Instant::now();
        self.mark_due_since = Some(synced);
        self.last_sync = synced - start;
        self.metrics.log.sync_seconds.observe(self.last_sync.as_secs_f64());
        self.metrics.log.set(self.log.stats());
        Ok(())
    }

    /// Appends an epoch's outcome; durable with the next batch. For an epoch of several groups, `entries` are those it
    /// was decided from; its outcome may then exist from before the process started, and must be the same.
    ///
    /// # Errors
    /// Durability is in doubt, or the epoch was decided differently before.
    pub fn append_outcome(&mut self, epoch: &ResolvedEpoch, entries: &[(GroupId, u64)]) -> Result<(), LogError> {
        let outcome = &epoch.outcome;
        self.write(|this| match &this.members {
            None => this.log.append_outcome(outcome),
            Some(reader) => append_or_compare(&mut this.log, reader, &epoch.input, outcome, entries),
        })?;
        self.cache.logged(outcome.epoch);
        Ok(())
    }

    /// Returns whether the last sync was fast.
    #[must_use]
    pub fn syncs_fast(&self) -> bool {
        self.last_sync < FAST_SYNC
    }
}

/// Hands jobs to the log thread, or the log itself to a caller. Cheap to clone.
#[derive(Clone)]
pub struct LogQueue {
    jobs: Sender<Job>,
    /// Number of unfinished jobs.
    waiting: Arc<AtomicUsize>,
    writer: Arc<Mutex<LogWriter>>,
}

/// The log thread's side.
pub struct LogJobs {
    /// Jobs, in order.
    pub jobs: Receiver<Job>,
    waiting: Arc<AtomicUsize>,
    writer: Arc<Mutex<LogWriter>>,
}

impl LogQueue {
    /// Creates both sides.
    #[must_use]
    pub fn new(writer: LogWriter) -> (LogQueue, LogJobs) {
        let (jobs, inbox) = crossbeam_channel::unbounded();
        let (waiting, writer) = (Arc::default(), Arc::new(Mutex::new(writer)));
        let thread = LogJobs { jobs: inbox, waiting: Arc::clone(&waiting), writer: Arc::clone(&writer) };
        (LogQueue { jobs, waiting, writer }, thread)
    }

    /// Hands a job to the log thread.
    pub fn send(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // A log thread that ended has reported why.
        let _ = self.jobs.send(job);
    }

    /// Has the log thread append a batch and make it durable, and returns what receives its report; `None` if the caller
    /// would wait for another job, or for a slow disk.
    #[must_use]
    pub fn append_awaited(&self, batch: &Arc<Batch>) -> Option<Receiver<Result<(), String>>> {
        if !self.try_writer().is_some_and(|writer| writer.syncs_fast()) {
            return None;
        }
        let (report, durable) = crossbeam_channel::bounded(1);
        self.send(Job::AppendAwaited(Arc::clone(batch), report));
        Some(durable)
    }

    /// Returns the log if no job waits. Jobs sent meanwhile wait for the guard.
    #[must_use]
    pub fn try_writer(&self) -> Option<MutexGuard<'_, LogWriter>> {
        if self.waiting.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.writer.try_lock().filter(|writer| !writer.failed)
    }
}

impl LogJobs {
    /// Returns the log, for the next job.
    pub fn writer(&self) -> MutexGuard<'_, LogWriter> {
        self.writer.lock()
    }

    /// Records that a job is done.
    pub fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
