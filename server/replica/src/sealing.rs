//! When the open batch is sealed and proposed, and when images are taken.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use tribunal_core::executor::ShardExecutor;
use tribunal_types::{Batch, Epoch};

use crate::demand::AHEAD;
use crate::effect::Effect;
use crate::event::Waiters;
use crate::idle_seal::IdleSeal;
use crate::image::ImageCapture;
use crate::policy_runner::PolicyRunner;
use crate::replica::{ProposedBatch, Replica, Settings, Stopping};

/// Maximum lag of `epoch_time` in milliseconds before all groups must contribute a clock; far below the window of ids.
const EPOCH_TIME_LATE_MS: u64 = 10_000;
/// Minimum interval between such renewals: the clock may be wrong.
const RENEWED_EVERY: Duration = Duration::from_secs(5);

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    pub(crate) fn seal_if_due(&mut self) {
        // A group proposes nothing before it joins and after it has closed.
        if self.writing >= self.settings.in_flight_max || !self.may_propose() || self.closes() {
            return;
        }
        let demanded = self.demand.upto() >= self.next_own();
        let due = match (self.settings.epoch_length, self.opened_at) {
            _ if demanded || self.leaves(self.group) => true,
            // A change of configuration is applied at the end of the next epoch, so an idle node seals an epoch for it.
            (_, None) => self.sealed_control < self.control,
            (None, Some(_)) => self.paused_until().is_none_or(|until| self.now.monotonic >= until),
            (Some(length), Some(opened)) => {
                self.stopping != Stopping::No || self.now.monotonic.saturating_sub(opened) >= length
            }
        };
        if due {
            self.seal();
        }
    }

    /// Returns the time until which new items are collected because an own batch is undecided; `None` if none is in
    /// flight.
    pub(crate) fn paused_until(&self) -> Option<Duration> {
        let Settings { in_flight_max, pause_min, .. } = self.settings;
        let paces = !pause_min.is_zero() && self.stopping == Stopping::No && self.proposals.iter().next().is_some();
        paces.then(|| self.idle.sealed_at() + self.pace.pause(in_flight_max, pause_min))
    }

    /// Returns the first epoch that the own group has neither sealed nor covered by a pending proposal.
    pub(crate) fn next_own(&self) -> Epoch {
        // Agreed proposals waiting for other groups may be numerous, and precede the others.
        let mut others = self.writing;
        let newest = self.proposals.iter().rev().take_while(|proposed| {
            let is_needed = others > 0;
            others -= usize::from(is_needed && proposed.durable_at.is_none());
            is_needed
        });
        let newest = newest.count();
        // A proposal that does not start where the previous one ends is void, and nothing follows it.
        let under_way = self.proposals.newest(newest).filter(|proposed| proposed.durable_at.is_none());
        under_way.fold(self.epochs.next_of(self.group), |next, proposed| {
            if proposed.batch.first == next { proposed.batch.last.next() } else { next }
        })
    }

    /// Returns whether the entry that closes the own group is in flight: any entry after it would be void.
    fn closes(&self) -> bool {
        self.proposals.iter().any(|proposed| proposed.batch.closes)
    }

    /// Seals the epochs that another node's batch needs as soon as that is known, so that both are agreed on at the
    /// same time.
    pub(crate) fn demanded(&mut self, last: Epoch) {
        self.demand.note(last, self.now.monotonic);
        self.seal_if_due();
        self.seal_for_others();
    }

    fn seal(&mut self) {
        self.take_import();
        let first = self.next_own();
        let last = if self.opened_at.is_some() { self.last_with_items() } else { self.last_without_items(first) };
        self.seal_epochs(first, last.max(first));
        // Before the waiting transactions, which may fill every batch.
        self.take_import();
        self.take_backlog();
        if self.open.import.is_some() || !self.imports.is_empty() {
            self.opened();
        }
    }

    /// Returns the epoch of a batch with items: the last one that the other groups' batches need, or the next one.
    ///
    /// Epochs that other groups sealed ahead carry the clocks of that time. To keep `epoch_time` from standing still
    /// for that long, a batch occasionally goes past all of them, so that every group contributes a clock.
    fn last_with_items(&mut self) -> Epoch {
        let now = self.now;
        let late = now.unix_ms() > self.epochs.epoch_time_ms() + EPOCH_TIME_LATE_MS;
        if late && now.monotonic.saturating_sub(self.renewed_at) >= RENEWED_EVERY {
            self.renewed_at = now.monotonic;
            let ahead = self.epochs.groups().map(|(_, next)| next).max();
            return self.demand.upto().max(ahead.unwrap_or_default());
        }
        self.demand.upto()
    }

    /// Returns the last epoch of a batch without items. A node that has had no items for a while seals ahead.
    fn last_without_items(&self, first: Epoch) -> Epoch {
        let idle = self.now.monotonic.saturating_sub(self.items_at) >= AHEAD;
        match self.demand.upto() {
            // No node waits for this group afterwards.
            _ if self.leaves(self.group) => first,
            // For a change of configuration.
            upto if upto < first => first,
            _ if idle => self.demand.ahead(),
            upto => upto,
        }
    }

    /// Returns the last epoch that an idle node seals: the one before a pending activation. `None` if the node is not
    /// idle or no activation is pending.
    pub(crate) fn last_idle_epoch(&self) -> Option<Epoch> {
        let idle = self.writing == 0 && self.opened_at.is_none() && self.may_propose();
        let from = if idle { self.replicated.slots().next_activation()? } else { return None };
        IdleSeal::last_before(self.next_own(), from)
    }

    /// Seals empty epochs on an idle node, as one range, so that an activation waiting for its epoch takes effect.
    pub(crate) fn seal_idle_if_due(&mut self) {
        if !self.idle.due_in(self.now.monotonic).is_zero() {
            return;
        }
        if let Some(last) = self.last_idle_epoch() {
            self.seal_epochs(self.next_own(), last);
        }
    }

    /// Seals these epochs; all pending items belong to the last one. If the node is being removed, this closes its
    /// group.
    fn seal_epochs(&mut self, first: Epoch, last: Epoch) {
        let batch = self.batcher.seal(first, last, self.control, self.now.unix_ms());
        let batch = Arc::new(Batch { closes: self.leaves(self.group), ..batch });
        let sealed_at = self.now.monotonic;
        self.idle.sealed(sealed_at);
        let items = core::mem::take(&mut self.open);
        self.proposals.add(&batch, ProposedBatch { batch: Arc::clone(&batch), items, sealed_at, durable_at: None });
        self.writing += 1;
        if !batch.is_empty() {
            self.items_at = sealed_at;
            self.demand.note(last, sealed_at);
        }
        self.sealed_control = self.control;
        self.opened_at = None;
        self.effects.push_back(Effect::Append(batch));
    }

    /// Begins an image of the state after the last resolved epoch.
    pub(crate) fn begin_image(&mut self) {
        self.image_bytes = 0;
        let control = self.replicated.clone();
        self.image = Some(ImageCapture::begin(&mut self.resolver, control, &self.resolved_to));
    }

    /// Copies a slice of the image being taken, and emits the image once it is complete.
    pub(crate) fn copy_image(&mut self) {
        let Some(image) = &mut self.image else { return };
        if let Some(taken) = image.copy(&mut self.resolver) {
            self.image = None;
            (self.image_at, self.newest_image) = (taken.epoch(), taken.epoch());
            let last = self.stopping == Stopping::Done;
            self.effects.push_back(Effect::Image { image: Box::new(taken), applied: self.applied(), last });
        }
    }
}
