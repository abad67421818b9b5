//! The log, and the jobs that wait for it.
//!
//! Jobs are carried out in their order by the log thread. A caller that has nothing else to do writes on its own thread,
//! while no job waits: changing threads twice takes as long as a fast disk takes for a sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Mutex, MutexGuard};
use tribunal_log::{DiskLog, DurableLog, LogError, LogReader};
use tribunal_types::{Batch, GroupId};

use crate::cluster::recovery::append_or_compare;
use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch};
use crate::commit::log_thread::{GroupWrite, Job};
use crate::telemetry::metrics::Metrics;

/// The log, with what follows every write.
pub struct LogWriter {
    /// The log.
    pub log: DiskLog,
    /// Where epochs may leave once their outcome is in the log.
    pub cache: Arc<EpochCache>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Since when the log is quiet with a mark that lags behind it, if so.
    pub mark_due_since: Option<Instant>,
    /// Durability is in doubt, or a write is under way: nothing else is written. So a panic amid a write counts as a failure.
    pub failed: bool,
    /// Reads the log, if it is that of a cluster's member.
    members: Option<LogReader>,
    last_sync: Duration,
}

/// A disk that takes longer for a sync gains nothing from a thread that is not changed, and holds up everything else.
const FAST_SYNC: Duration = Duration::from_millis(1);

impl LogWriter {
    /// Starts with a log that was just opened.
    #[must_use]
    pub fn new(log: DiskLog, cache: Arc<EpochCache>, metrics: Arc<Metrics>) -> LogWriter {
        let (mark_due_since, members, last_sync) = (None, None, Duration::ZERO);
        LogWriter { log, cache, metrics, mark_due_since, failed: false, members, last_sync }
    }

    /// Marks the log as that of a cluster's member.
    #[must_use]
    pub fn of_member(mut self, reader: LogReader) -> LogWriter {
        self.members = Some(reader);
        self
    }

    /// Writes, and remembers whether that failed.
    ///
    /// # Errors
    /// Durability is in doubt.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut LogWriter) -> Result<T, LogError>) -> Result<T, LogError> {
        self.failed = true;
        let written = write(self);
        self.failed = written.is_err();
        written
    }

    /// Makes a batch durable.
    ///
    /// # Errors
    /// Durability is in doubt.
    pub fn append(&mut self, batch: &Batch) -> Result<(), LogError> {
        self.write(|this| {
            let start = Instant::now();
            this.log.append(batch)?;
            this.metrics.append_seconds.observe(start.elapsed().as_secs_f64());
            this.sync_now()
        })
    }

    /// Appends records of Raft groups; durable with the next sync.
    ///
    /// # Errors
    /// Durability is in doubt; or a record would break what the group was promised, which is a defect.
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
            this.metrics.append_seconds.observe(start.elapsed().as_secs_f64());
            Ok(())
        })
    }

    /// Makes everything durable that was appended.
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
        self.metrics.sync_seconds.observe(self.last_sync.as_secs_f64());
        self.metrics.set_log(self.log.stats());
        Ok(())
    }

    /// Notes what an epoch decided; durable with the next batch. Of an epoch of several groups, `entries` are the ones that it
    /// was decided from; then it may be there from before the process started, and must be the same.
    ///
    /// # Errors
    /// Durability is in doubt, or the epoch was decided otherwise.
    pub fn append_outcome(&mut self, epoch: &ResolvedEpoch, entries: &[(GroupId, u64)]) -> Result<(), LogError> {
        let outcome = &epoch.outcome;
        self.write(|this| match &this.members {
            None => this.log.append_outcome(outcome),
            Some(reader) => append_or_compare(&mut this.log, reader, &epoch.input, outcome, entries),
        })?;
        self.cache.logged(outcome.epoch);
        Ok(())
    }

    /// Returns whether the last batch was durable soon.
    #[must_use]
    pub fn syncs_fast(&self) -> bool {
        self.last_sync < FAST_SYNC
    }
}

/// Hands jobs to the log thread, or the log itself to a caller. Cheap to clone.
#[derive(Clone)]
pub struct LogQueue {
    jobs: Sender<Job>,
    /// Jobs that are not done.
    waiting: Arc<AtomicUsize>,
    writer: Arc<Mutex<LogWriter>>,
}

/// The log thread's side.
pub struct LogJobs {
    /// Jobs, in their order.
    pub jobs: Receiver<Job>,
    waiting: Arc<AtomicUsize>,
    writer: Arc<Mutex<LogWriter>>,
}

impl LogQueue {
    /// Makes both sides.
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
        // A log thread that ended has said why.
        let _ = self.jobs.send(job);
    }

    /// Returns the log if no job waits. Jobs that come meanwhile wait for the guard.
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

    /// Notes that a job is done.
    pub fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
