//! The thread that writes the log, except while no job waits and the sequencer writes inline ([`LogQueue`]). Jobs in,
//! durability events out.
//!
//! Invariants: jobs run in order; an epoch counts as durable, here and on the sequencer's thread, only after the `sync`
//! that made it so; after a failed sync nothing is ever reported again, and the process ends with the reason.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender};
use parking_lot::Mutex;
use tribunal_codec::GroupCursors;
use tribunal_log::{DiskLog, DurableLog, HoldBack, ImageWriter, LogError};
use tribunal_member::image_of;
use tribunal_replica::{AppliedTo, CapturedImage};
use tribunal_types::{ControlIndex, Epoch, GroupId, StoreId};

use crate::commit::image_cursors::ImageCursors;
use crate::commit::log_job::{Job, Occasion};
use crate::commit::log_queue::{LogJobs, LogQueue, LogWriter};
use crate::commit::message::Message;

/// The log thread's connections.
pub struct LogThreadContext {
    /// Its own queue.
    pub queue: LogQueue,
    /// The sequencer's queue.
    pub events: Sender<Message>,
    /// How much of the log a store may hold back.
    pub quota: HoldBack,
    /// Returns the first epoch that a reader still needs.
    pub needed: Box<dyn Fn() -> Option<Epoch> + Send>,
    /// How much of the log readers may hold back.
    pub readers_quota: HoldBack,
    /// How far the recovered state image has read the Raft groups; empty on a single node.
    pub image: GroupCursors,
    /// Has an embedded store write to disk what only the log holds durably. Must not block.
    pub flush: Box<dyn Fn(StoreId) + Send>,
    /// Held while the log is truncated, and while an embedded store starts to be refilled from it: nothing is truncated
    /// then.
    pub truncation: Arc<Mutex<()>>,
    /// Returns the open embedded stores that the log waits for, each with the first epoch that its disk lacks. Reports
    /// from before a store was opened do not count.
    pub awaited: Box<dyn Fn() -> Vec<(StoreId, Epoch)> + Send>,
    /// Returns the stores that are being filled, or are being attached.
    pub attached: Box<dyn Fn() -> Vec<Attached> + Send>,
    /// Returns whether the disk has room for this many bytes more, besides what the node needs to continue.
    pub has_room: Box<dyn Fn(u64) -> bool + Send>,
}

/// A store that is being filled from the log, or is being attached.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    /// The store.
    pub store: StoreId,
    /// The control entry that declared or attached it as it is now; `None` if it is being attached.
    pub generation: Option<ControlIndex>,
}

impl Attached {
    fn is_among(&self, applied: &[AppliedTo]) -> bool {
        let is_same = |to: &AppliedTo| to.store == self.store && self.generation.is_none_or(|own| own == to.generation);
        applied.iter().any(is_same)
    }
}

/// Reports a panic of the log thread to the sequencer: nothing would ever become durable again.
struct ReportPanic<'a>(&'a Sender<Message>);

impl Drop for ReportPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Message::LogFailed("the log thread panicked".into()));
        }
    }
}

/// How long the log must be quiet before its mark is updated.
const IDLE_MARK_AFTER: Duration = Duration::from_millis(5);

/// Maximum number of Raft group rounds that one sync covers; then the waiters come first.
const ROUNDS_PER_SYNC_MAX: u32 = 64;

/// A sync that Raft group rounds wait for. Deferred while more rounds are queued: one sync covers them all.
#[derive(Default)]
struct DueSync {
    number: Option<u64>,
    rounds: u32,
}

impl DueSync {
    fn note(&mut self, number: Option<u64>) {
        self.number = number.or(self.number);
        self.rounds += 1;
    }

    fn take_if(&mut self, idle: bool) -> Option<u64> {
        if idle || self.rounds >= ROUNDS_PER_SYNC_MAX {
            self.rounds = 0;
            self.number.take()
        } else {
            None
        }
    }
}

/// State images.
struct Images {
    /// The thread that is writing one.
    writing: Option<JoinHandle<()>>,
    cursors: ImageCursors,
    /// A truncation that is repeated once Raft groups are compacted.
    compacting: Option<Compacting>,
}

/// Raft groups that are being compacted, so that the log can be truncated.
struct Compacting {
    /// Each group's last entry that is not needed any longer.
    upto: Vec<(GroupId, u64)>,
    below: Epoch,
    applied: Vec<AppliedTo>,
}

/// Runs the log thread until it is stopped or durability is in doubt.
pub fn run(jobs: &LogJobs, context: &LogThreadContext) {
    let _report = ReportPanic(&context.events);
    let mut images = Images { writing: None, cursors: ImageCursors::new(context.image.clone()), compacting: None };
    let mut mark_is_due = false;
    let mut due = DueSync::default();
    loop {
        if let Some(number) = due.take_if(jobs.jobs.is_empty()) {
            if let Err(error) = jobs.writer().sync() {
                let _ = context.events.send(Message::LogFailed(error.to_string()));
                return;
            }
            let _ = context.events.send(Message::Persisted(number));
            mark_is_due = true;
        }
        let job = match jobs.jobs.recv_timeout(if mark_is_due { IDLE_MARK_AFTER } else { Duration::from_secs(3600) }) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut writer = jobs.writer();
        if writer.failed {
            return;
        }
        let stops = matches!(job, Some(Job::Stop));
        let awaited = match &job {
            Some(Job::AppendAwaited(_, report)) => Some(report.clone()),
            _ => None,
        };
        if let Some(Job::Groups(round)) = &job {
            due.note(round.sync);
        }
        let done = match job {
            None => writer.write(|writer| {
                mark_if_quiet(writer)?;
                truncate_compacted(writer, &mut images, context)
            }),
            Some(Job::Stop) => {
                join(images.writing.take());
                writer.write(|writer| writer.log.sync().and_then(|()| writer.log.idle_mark()))
            }
            Some(job) => {
                let done = writer.write(|writer| carry_out(job, writer, &mut images, context));
                jobs.done();
                done
            }
        };
        if let Err(error) = done {
            // Waiting requests are answered with an unknown outcome; the process then ends with this reason.
            awaited.into_iter().for_each(|report| drop(report.send(Err(error.to_string()))));
            let _ = context.events.send(Message::LogFailed(error.to_string()));
            return;
        }
        if stops {
            return;
        }
        mark_is_due = writer.mark_due_since.is_some();
        drop(writer);
        // The sequencer finds the log free, and can write the outcome.
        awaited.into_iter().for_each(|report| drop(report.send(Ok(()))));
    }
}

/// Updates the mark once the log has been quiet for a while.
fn mark_if_quiet(writer: &mut LogWriter) -> Result<(), LogError> {
    if writer.mark_due_since.is_some_and(|since| since.elapsed() >= IDLE_MARK_AFTER) {
        writer.log.idle_mark()?;
        writer.mark_due_since = None;
    }
    Ok(())
}

fn carry_out(
    job: Job,
    writer: &mut LogWriter,
    images: &mut Images,
    context: &LogThreadContext,
) -> Result<(), LogError> {
    match job {
        Job::Append(batch) => {
            writer.append(&batch)?;
            let _ = context.events.send(Message::Durable(batch));
        }
        Job::AppendAwaited(batch, _) => writer.append(&batch)?,
        Job::Outcome(epoch, entries) => writer.append_outcome(&epoch, &entries)?,
        Job::Groups(round) => writer.append_records(round.records)?,
        Job::Control(index, entry) => {
            writer.log.append_control(index, &entry)?;
            writer.log.sync()?;
            writer.mark_due_since = Some(Instant::now());
            let _ = context.events.send(Message::ControlDurable(index, entry));
            compact_control(&mut writer.log)?;
        }
        // Commits do not wait for an image: while one is being written, the next one is skipped.
        Job::Image { last: false, .. } if images.writing.as_ref().is_some_and(|thread| !thread.is_finished()) => {}
        Job::Image { image, groups, applied, .. } => {
            // Sync the log first: an image that outlived its epoch's outcome would leave a hole in the stores' logs.
            writer.log.sync()?;
            join(images.writing.take());
            images.writing = store_image(writer.log.image_writer(), image, groups, applied, context.queue.clone());
        }
        Job::ImageStored(groups) => images.cursors.stored(groups),
        Job::Truncate { below, applied, occasion } => {
            if occasion == Occasion::Image {
                ask_lagging(&writer.log, below, &applied, context);
            }
            return without_doubt(truncate(&mut writer.log, below, applied, occasion, images, context));
        }
        Job::Flush(store) => (context.flush)(store),
        // These jobs only wake the thread.
        Job::MarkIsDue | Job::Stop => {}
    }
    Ok(())
}

/// Compacts the control log once entries without effect are a large part of it. Commits wait meanwhile: some tens of
/// milliseconds once in thousands of changes.
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

/// Has the stores that have not applied up to `below` flush, and reports those that hold back more of the log than
/// their quota.
fn ask_lagging(log: &DiskLog, below: Epoch, applied: &[AppliedTo], context: &LogThreadContext) {
    let bound = log.held_back_below(context.quota).min(below);
    for (store, _) in needed_by_each(applied, &(context.awaited)()).filter(|(_, needed)| *needed < bound) {
        let _ = context.events.send(Message::OverQuota(store, bound));
    }
    applied.iter().filter(|applied| applied.epoch < below).for_each(|applied| (context.flush)(applied.store));
}

/// Requests a state image if only that lets the log shrink to its size, and the disk has room for one.
fn request_image(log: &DiskLog, images: &Images, context: &LogThreadContext) {
    let Some(newest) = log.image_to_follow(images.cursors.is_older_known()) else { return };
    let bytes = std::fs::metadata(&newest).map_or(u64::MAX, |file| file.len());
    if (context.has_room)(bytes.saturating_mul(2)) {
        tracing::info!(
            "the log is larger than `log.retention_bytes`: the next state image, after the next commit, lets it be truncated"
        );
        let _ = context.events.send(Message::TakeImage);
    } else {
        tracing::warn!(
            image_mib = bytes >> 20,
            "the log is larger than `log.retention_bytes`, but can only be truncated after another state image, for which the disk \
             has no room: free space for twice its size"
        );
    }
}

/// Truncates the log once more if the Raft groups were compacted since an image. Called while the log is quiet; otherwise the
/// next image truncates it.
fn truncate_compacted(writer: &mut LogWriter, images: &mut Images, context: &LogThreadContext) -> Result<(), LogError> {
    match images.compacting.take_if(|compacting| writer.log.are_compacted(&compacting.upto)) {
        Some(Compacting { below, applied, .. }) => {
            without_doubt(truncate(&mut writer.log, below, applied, Occasion::Stores, images, context))
        }
        None => Ok(()),
    }
}

/// Passes over a failure to truncate the log, unless it puts durability in doubt.
fn without_doubt(truncated: Result<(), LogError>) -> Result<(), LogError> {
    match truncated {
        Err(error @ (LogError::Io { .. } | LogError::Damaged { .. })) => {
            // Nothing was removed. A damaged old part concerns only those who read it.
            tracing::error!(%error, "the log was not truncated; retrying with the next image");
            Ok(())
        }
        done => done,
    }
}

/// Drops epochs that every store has applied. A member's log shrinks with its Raft groups' compaction: they are
/// notified here of their new bound. After an image, the entries are dropped once the groups are compacted and the log is
/// quiet, otherwise with the next image.
fn truncate(
    log: &mut DiskLog,
    below: Epoch,
    applied: Vec<AppliedTo>,
    occasion: Occasion,
    images: &mut Images,
    context: &LogThreadContext,
) -> Result<(), LogError> {
    let no_store_is_opening = context.truncation.try_lock();
    // What a store needs that was declared or attached since `applied` was determined is not known.
    if no_store_is_opening.is_none() || !(context.attached)().iter().all(|attached| attached.is_among(&applied)) {
        // The next image retries. Without commits, there may be none.
        if occasion != Occasion::Image {
            let _ = context.events.send(Message::TruncationPutOff);
        }
        if occasion == Occasion::Start {
            request_image(log, images, context);
        }
        return Ok(());
    }
    let (image, awaited) = (below, (context.awaited)());
    let stores = needed_by_each(&applied, &awaited).map(|(_, needed)| needed).fold(below, Epoch::min);
    // A consumer's offset retains the log beyond its age, but not beyond its size.
    let readers = (context.needed)().map_or(stores, |needed| needed.max(log.held_back_below(context.readers_quota)));
    let below = stores.min(readers);
    let compactable = images.cursors.compactable(&log.spare_group_entries(below));
    if !compactable.is_empty() {
        let _ = context.events.send(Message::Compact(compactable.clone()));
    }
    if occasion == Occasion::Image {
        images.compacting =
            (!compactable.is_empty()).then_some(Compacting { upto: compactable, below: image, applied });
    }
    log.truncate(below)?;
    if occasion == Occasion::Start {
        request_image(log, images, context);
    }
    Ok(())
}

/// Returns the stores that the log waits for, each with an epoch below which it needs nothing. Entries in `applied` may
/// predate the opening of a store that was declared embedded, or rebuilt, and the damage of another one, so `awaited`
/// counts too.
fn needed_by_each(applied: &[AppliedTo], awaited: &[(StoreId, Epoch)]) -> impl Iterator<Item = (StoreId, Epoch)> {
    applied.iter().map(|&AppliedTo { store, epoch, .. }| {
        let own = awaited.iter().filter(|(of, _)| *of == store).map(|(_, needed)| *needed);
        (store, own.fold(epoch, Epoch::min))
    })
}

fn store_image(
    writer: ImageWriter,
    image: Box<CapturedImage>,
    groups: GroupCursors,
    applied: Vec<AppliedTo>,
    queue: LogQueue,
) -> Option<JoinHandle<()>> {
    let run = move || {
        tribunal_disk::give_way();
        let image = image_of(*image, &groups);
        match writer.write(&image) {
            Ok(()) => {
                queue.send(Job::ImageStored(groups));
                queue.send(Job::Truncate { below: image.epoch, applied, occasion: Occasion::Image });
            }
            // The log is complete without the image; only a restart takes longer, and nothing is truncated.
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
    use std::path::Path;

    use crossbeam_channel::unbounded;
    use tribunal_log::LogOptions;
    use tribunal_types::{Batch, GroupId};

    use super::*;
    use crate::commit::epoch_cache::EpochCache;
    use crate::telemetry::metrics::Metrics;

    /// A log in a folder, and the thread's connections; its flush records the store.
    struct Parts {
        queue: LogQueue,
        jobs: LogJobs,
        context: LogThreadContext,
        group: GroupId,
        told: Arc<Mutex<Vec<u32>>>,
    }

    fn parts(dir: &Path) -> Parts {
        let opened = tribunal_log::open(dir, &LogOptions::default()).expect("a new log");
        let (cache, metrics) = (Arc::new(EpochCache::new(0)), Arc::new(Metrics::new()));
        let (queue, jobs) = LogQueue::new(LogWriter::new(opened.writer, cache, metrics));
        let no_quota = HoldBack { age_ms: u64::MAX / 2, bytes: u64::MAX / 2 };
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        let context = LogThreadContext {
            queue: queue.clone(),
            events: unbounded().0,
            quota: no_quota,
            needed: Box::new(|| None),
            readers_quota: no_quota,
            image: GroupCursors::new(),
            flush: Box::new(move |store: StoreId| noted.lock().push(store.0)),
            truncation: Arc::default(),
            awaited: Box::new(Vec::new),
            attached: Box::new(Vec::new),
            has_room: Box::new(|_| true),
        };
        Parts { queue, jobs, context, group: opened.recovered.group, told }
    }

    /// Returns these positions, of the stores' first generation.
    fn applied_to(positions: &[(u32, u64)]) -> Vec<AppliedTo> {
        let to = |(store, epoch): &(u32, u64)| AppliedTo {
            store: StoreId(*store),
            generation: ControlIndex(1),
            epoch: Epoch(*epoch),
        };
        positions.iter().map(to).collect()
    }

    /// With N embedded stores, each finished flush truncates the log: notifying the others each time would be N^2
    /// requests.
    #[test]
    fn stores_that_lag_are_told_to_flush_by_an_image_and_not_by_a_flush_that_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, jobs, context, told, .. } = parts(dir.path());
        let applied = || applied_to(&[(1, 3), (2, 7), (3, 4)]);
        let truncate = |occasion| Job::Truncate { below: Epoch(5), applied: applied(), occasion };
        for job in [
            truncate(Occasion::Stores),
            truncate(Occasion::Image),
            truncate(Occasion::Stores),
            Job::Flush(StoreId(2)),
            Job::Stop,
        ] {
            queue.send(job);
        }
        run(&jobs, &context);
        assert_eq!(*told.lock(), [1, 3, 2]);
    }

    #[test]
    fn a_store_that_is_filled_again_needs_what_its_disk_lacks_whatever_it_had_reported() {
        let applied = applied_to(&[(1, 7), (2, 9)]);
        let needed = |awaited: &[(u32, u64)]| {
            let awaited = awaited.iter().map(|(store, epoch)| (StoreId(*store), Epoch(*epoch)));
            let awaited: Vec<(StoreId, Epoch)> = awaited.collect();
            needed_by_each(&applied, &awaited).map(|(_, needed)| needed.0).fold(8, u64::min)
        };
        assert_eq!(needed(&[]), 7);
        assert_eq!(needed(&[(2, 3)]), 3);
        assert_eq!((needed(&[(1, 8)]), needed(&[(2, 11)])), (7, 7), "it has caught up");
        assert_eq!(needed(&[(3, 1)]), 7, "the log does not wait for it: it was detached");
    }

    #[test]
    fn a_store_needs_the_lesser_of_what_it_reported_and_what_its_files_lack() {
        let applied = applied_to(&[(1, 9), (2, 9)]);
        let awaited = [(StoreId(1), Epoch(0)), (StoreId(2), Epoch(11)), (StoreId(3), Epoch(1))];
        let needed: Vec<_> = needed_by_each(&applied, &awaited).collect();
        assert_eq!(needed, [(StoreId(1), Epoch(0)), (StoreId(2), Epoch(9))]);
    }

    #[test]
    fn the_log_is_not_truncated_while_a_store_begins_to_be_filled_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, jobs, mut context, .. } = parts(dir.path());
        let asked = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&asked);
        context.awaited = Box::new(move || {
            *counted.lock() += 1;
            Vec::new()
        });
        let truncation = Arc::clone(&context.truncation);
        let begins = truncation.lock();
        let truncate = || Job::Truncate { below: Epoch(5), applied: Vec::new(), occasion: Occasion::Stores };
        queue.send(truncate());
        queue.send(Job::Stop);
        run(&jobs, &context);
        assert_eq!(*asked.lock(), 0, "it is left to the next image");
        drop(begins);
        queue.send(truncate());
        queue.send(Job::Stop);
        run(&jobs, &context);
        assert_eq!(*asked.lock(), 1);
    }

    #[test]
    fn the_log_is_not_truncated_past_a_store_that_was_declared_or_attached_since() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, jobs, mut context, .. } = parts(dir.path());
        let truncations = Arc::new(Mutex::new(0));
        let noted = Arc::clone(&truncations);
        let (events, messages) = unbounded();
        context.events = events;
        let attached = |store, generation: Option<u64>| Attached {
            store: StoreId(store),
            generation: generation.map(ControlIndex),
        };
        context.attached = Box::new(move || vec![attached(1, Some(1)), attached(2, None)]);
        context.needed = Box::new(move || {
            *noted.lock() += 1;
            None
        });
        let truncated = |applied: Vec<AppliedTo>, occasion| {
            queue.send(Job::Truncate { below: Epoch(5), applied, occasion });
            queue.send(Job::Stop);
            run(&jobs, &context);
            let put_off = messages.try_iter().any(|message| matches!(message, Message::TruncationPutOff));
            (std::mem::take(&mut *truncations.lock()), put_off)
        };
        assert_eq!(truncated(applied_to(&[(1, 9)]), Occasion::Stores), (0, true), "the other one may need everything");
        assert_eq!(truncated(applied_to(&[(1, 9)]), Occasion::Image), (0, false), "there are more images");
        assert_eq!(truncated(applied_to(&[(1, 9), (2, 9), (3, 9)]), Occasion::Stores), (1, false));
        let before = AppliedTo { store: StoreId(1), generation: ControlIndex(0), epoch: Epoch(9) };
        assert_eq!(truncated(vec![before, applied_to(&[(2, 9)])[0]], Occasion::Stores), (0, true), "declared since");
    }

    #[test]
    fn the_log_is_lent_only_while_no_job_waits_and_nothing_has_failed() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, jobs, context, .. } = parts(dir.path());
        queue.try_writer().expect("no job waits").write(|_| Ok(())).expect("written");
        queue.send(Job::Flush(StoreId(1)));
        assert!(queue.try_writer().is_none(), "its turn is first");
        queue.send(Job::Stop);
        run(&jobs, &context);
        let Parts { queue, jobs, context, .. } = parts(&dir.path().join("another"));
        let failed = queue
            .try_writer()
            .expect("no job waits")
            .write(|_| -> Result<(), LogError> { Err(LogError::Io { reason: "the disk is gone".into() }) });
        assert!(failed.is_err() && queue.try_writer().is_none(), "durability is in doubt");
        queue.send(Job::MarkIsDue);
        run(&jobs, &context); // ends by itself
    }

    #[test]
    fn an_append_is_awaited_only_if_no_other_job_would_be_and_is_reported_once_it_is_durable() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, jobs, context, group, .. } = parts(dir.path());
        let batch = Arc::new(Batch { group, first: Epoch(1), last: Epoch(1), stamp_us: 1, ..Batch::default() });
        queue.send(Job::MarkIsDue);
        assert!(queue.append_awaited(&batch).is_none(), "a job waits");
        let thread = std::thread::spawn(move || run(&jobs, &context));
        let deadline = Instant::now() + Duration::from_secs(30);
        let durable = loop {
            assert!(Instant::now() < deadline, "the job is done");
            if let Some(durable) = queue.append_awaited(&batch) {
                break durable;
            }
        };
        assert_eq!(durable.recv().expect("a report"), Ok(()));
        // The same batch again is an error, of which the caller is told as well.
        let again = loop {
            assert!(Instant::now() < deadline, "the log is free");
            if let Some(durable) = queue.append_awaited(&batch) {
                break durable;
            }
        };
        assert!(again.recv().expect("a report").is_err_and(|reason| reason.contains("the next is 2")));
        thread.join().expect("it ends");
    }

    #[test]
    fn a_panic_amid_a_write_counts_as_a_failure() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, .. } = parts(dir.path());
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.try_writer().expect("no job waits").write(|_| -> Result<(), LogError> { panic!("planted") })
        }));
        assert!(written.is_err() && queue.try_writer().is_none());
    }

    #[test]
    fn the_thread_brings_the_mark_up_to_date_after_what_the_sequencer_wrote() {
        let dir = tempfile::tempdir().expect("a directory");
        let Parts { queue, jobs, context, group, .. } = parts(dir.path());
        let thread = std::thread::spawn(move || run(&jobs, &context));
        let batch = Batch { group, first: Epoch(1), last: Epoch(1), stamp_us: 1, ..Batch::default() };
        queue.try_writer().expect("no job waits").append(&batch).expect("written");
        queue.send(Job::MarkIsDue);
        let deadline = Instant::now() + Duration::from_secs(30);
        while queue.try_writer().is_none_or(|writer| writer.mark_due_since.is_some()) {
            assert!(Instant::now() < deadline, "the mark is still due");
            std::thread::sleep(Duration::from_millis(1));
        }
        queue.send(Job::Stop);
        thread.join().expect("it ends");
    }
}
