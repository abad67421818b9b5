//! How a replica ends: by finishing the work in flight, by a timeout, or because nothing will become durable any more.

use alloc::vec::Vec;

use tribunal_core::executor::ShardExecutor;
use tribunal_types::Epoch;

use crate::answer::{Answer, Imported, KnownNow};
use crate::backlog::Deferred;
use crate::effect::Effect;
use crate::event::{Commit, Event, Waiters};
use crate::policy_runner::PolicyRunner;
use crate::replica::{Replica, Stopping};

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Refuses requests that a stopping replica, or one whose group is not a member, does not take; returns all other
    /// events.
    pub(crate) fn refuse(&mut self, event: Event<W>, answer: Answer, imported: Imported) -> Option<Event<W>> {
        match event {
            Event::Commits(commits) => {
                for Commit { txn, waiter } in commits {
                    let known = self.resolver.known(txn.namespace, txn.id);
                    let answer = self.answer_to_known(&txn, known).unwrap_or(answer);
                    self.answer(waiter, answer, Some(txn));
                }
            }
            Event::Abort(namespace, id, waiter) | Event::Fence(namespace, id, waiter) => {
                let answer = match self.known(namespace, id) {
                    KnownNow::At(at) => Answer::Stored(at),
                    _ => answer,
                };
                self.answer(waiter, answer, None);
            }
            Event::Import(_, waiter) => self.effects.push_back(Effect::Imported(waiter, imported)),
            Event::Watch(..) | Event::Control(..) | Event::Propose(_) | Event::OverQuota { .. } | Event::Stop
                if self.stopping != Stopping::No => {}
            Event::StopNow if self.stopping == Stopping::Done => {}
            event => return Some(event),
        }
        None
    }

    /// Answers the queued items of a group that has closed in the meantime, or that this node no longer leads: none of
    /// them is taken.
    pub(crate) fn refuse_gathered(&mut self) {
        if self.may_propose() || self.opened_at.is_none() {
            return;
        }
        let open = core::mem::take(&mut self.open);
        let batch = self.batcher.seal(Epoch::MAX, Epoch::MAX, self.control, 0);
        self.forget_in_flight(&batch);
        self.opened_at = None;
        let effects = &mut self.effects;
        let import = open.answer_all(Answer::NotTaken, |waiter, answer, spent| {
            effects.push_back(Effect::Answer(waiter, answer, spent));
        });
        let imports = import.into_iter().chain(self.imports.drain(..).map(|(_, waiter)| waiter));
        effects.extend(imports.map(|waiter| Effect::Imported(waiter, Imported::NotTaken)));
        for item in self.backlog.take_all() {
            let event = match item {
                Deferred::Commit(commit) => Event::Commits(Vec::from([commit])),
                Deferred::Abort(namespace, id, waiter) => Event::Abort(namespace, id, waiter),
                Deferred::Fence(namespace, id, waiter) => Event::Fence(namespace, id, waiter),
            };
            self.refuse(event, Answer::NotTaken, Imported::NotTaken);
        }
    }

    /// Takes a last image and ends, once a stopping replica has no work in flight. Returns whether it did.
    pub(crate) fn finish(&mut self) -> bool {
        if self.stopping != Stopping::Finishing || self.gathers() || !self.proposals.is_empty() {
            return false;
        }
        self.end();
        true
    }

    /// Ends without the work in flight, whose outcome is unknown.
    pub(crate) fn stop_now(&mut self) {
        self.fail();
        self.end();
    }

    fn end(&mut self) {
        self.stopping = Stopping::Done;
        if self.settings.image_every_bytes < u64::MAX && self.resolver.last() > self.image_at {
            self.begin_image();
        }
        while self.image.is_some() {
            self.copy_image();
        }
        self.effects.push_back(Effect::Stopped);
    }

    /// Answers every waiter with an unknown outcome.
    pub(crate) fn fail(&mut self) {
        let open = core::mem::take(&mut self.open);
        // It has no waiters any more, so it must never be proposed.
        drop(self.batcher.seal(Epoch::MAX, Epoch::MAX, self.control, 0));
        (self.opened_at, self.writing) = (None, 0);
        let effects = &mut self.effects;
        let mut unknown = |waiter, spent| effects.push_back(Effect::Answer(waiter, Answer::Unknown, spent));
        let mut imports = Vec::new();
        for items in self.proposals.take_all().into_iter().map(|proposed| proposed.items).chain([open]) {
            imports.extend(items.answer_all(Answer::Unknown, |waiter, _, spent| unknown(waiter, spent)));
        }
        for item in self.backlog.take_all() {
            match item {
                Deferred::Commit(commit) => unknown(commit.waiter, Some(commit.txn)),
                Deferred::Abort(_, _, waiter) | Deferred::Fence(_, _, waiter) => unknown(waiter, None),
            }
        }
        let imports = imports.into_iter().chain(self.imports.drain(..).map(|(_, waiter)| waiter));
        effects.extend(imports.map(|waiter| Effect::Imported(waiter, Imported::Unknown)));
        // No further events matter.
        (self.stopping, self.folded) = (Stopping::Done, false);
    }
}
