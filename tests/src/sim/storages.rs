//! Storages outside of the nodes: each has a watermark, and the node that the control log assigns pushes to it.
//!
//! A storage accepts records from the expected position only, atomically with its watermark, as the adaptors do.
//! Requests may be in flight for seconds, so that those of a replaced node arrive after those of its successor. A
//! node's view of a storage comes from the replica and the members: the pusher's reports, and the reports that members
//! exchange.

use std::collections::BTreeMap;

use tribunal_core::control::ReplicatedState;
use tribunal_core::resolver::Resolver;
use tribunal_core::visibility::{Delivery, Visibility};
use tribunal_member::Input;
use tribunal_replica::{Event, PushReport, delivery};
use tribunal_types::{ControlIndex, DeclaredStore, Epoch, Lsn, NodeId};

use crate::sim::happening::Happening;
use crate::sim::planted::Planted;
use crate::sim::storage_messages::{Reply, Request};
use crate::sim::world::World;

/// Maximum number of records in a request.
const RECORDS_MAX: u64 = 8;
/// Maximum one-way delay between a node and a storage, microseconds; and that of the few requests that hang.
const WAY_US: u64 = 8_000;
const HANGS_US: u64 = 3_000_000;
/// Requests that hang, per mille.
const HANGS_PER_MILLE: u64 = 20;
/// Delay before a node queries a storage again, microseconds.
const AGAIN_US: u64 = 200_000;

/// The watermarks of the storages, by configuration: a different declaration is a different storage.
#[derive(Default)]
pub(super) struct Storages {
    watermarks: BTreeMap<String, Lsn>,
    /// The storages send no results.
    pub away: bool,
}

/// A node's push to a storage.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The control entry that started it.
    push: ControlIndex,
    /// The storage's watermark, as far as this push knows.
    at: Option<Lsn>,
    /// Time of the next request, unless a reply comes first, microseconds.
    due_us: u64,
}

/// Counts of the storages of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoragesReport {
    /// Records that storages have accepted.
    pub records: u64,
    /// Requests from a position other than the storage's.
    pub too_late: u64,
    /// Times that a node had a report on a storage that another node pushes to.
    pub believed: u64,
}

/// Returns the applied positions that a starting node knows.
pub(super) fn visibility_of(replicated: &ReplicatedState, resolver: &Resolver, complete: Epoch) -> Visibility {
    let mut visibility = Visibility::new(complete);
    for store in replicated.stores().stores() {
        visibility.track(store.spec.id, delivery(&store.spec), resolver.head_lsn(store.spec.id));
        if store.detached.is_some() {
            visibility.track(store.spec.id, Delivery::Detached, Lsn(0));
        }
    }
    visibility
}

impl World {
    /// Sends a node's due requests to the storages that it pushes to.
    pub(super) fn push(&mut self, node: u16) -> Result<(), String> {
        self.invariant_nobody_believes_more_than_a_storage_has(node)?;
        let time_us = self.time_us;
        let Some(process) = &mut self.machines[usize::from(node) - 1].process else { return Ok(()) };
        let replica = process.member.replica();
        let is_own = |store: &&DeclaredStore| {
            let pusher = store.pusher.map(|pusher| pusher.node);
            store.is_external() && store.detached.is_none() && pusher == Some(NodeId(node))
        };
        let mut requests = Vec::new();
        for store in replica.replicated().stores().stores().filter(is_own) {
            let fresh = Push { push: store.push(), at: None, due_us: 0 };
            let push = process.pushes.entry(store.spec.id).or_insert(fresh);
            if push.push != store.push() {
                *push = fresh;
            }
            let head = replica.resolver().head_lsn(store.spec.id);
            if push.due_us > time_us || push.at.is_some_and(|at| at >= head) {
                continue;
            }
            push.due_us = time_us + HANGS_US + AGAIN_US;
            let records = push.at.map(|at| (at, head.min(Lsn(at.0 + RECORDS_MAX))));
            requests.push((store.spec.id, push.push, store.spec.adaptor_config.clone(), records));
        }
        let start = self.machine(node).starts;
        for (store, push, storage, records) in requests {
            let hangs = self.random.chance(HANGS_PER_MILLE);
            let wait_us = self.random.between(100, if hangs { HANGS_US } else { WAY_US });
            self.later(wait_us, Happening::Storage(Request { node, start, store, push, storage, records }));
        }
        Ok(())
    }

    /// Handles a request that has arrived at its storage, whatever became of its sender.
    pub(super) fn storage_is_asked(&mut self, request: Request) -> Result<(), String> {
        let Request { node, start, store, push, storage, records } = request;
        let watermark = self.storages.watermarks.entry(storage.clone()).or_default();
        let mut moved = false;
        // While the storages are away, half of the requests get through.
        let is_lost = self.storages.away && self.random.chance(500);
        if let Some((expected, last)) = records.filter(|_| !is_lost) {
            let checks = self.planted != Some(Planted::TwoPushers);
            moved = *watermark == expected || !checks;
            if moved && expected != *watermark {
                return Err(format!(
                    "the storage of store {store} has records up to {}, and node {node} moves its watermark from {} to {}",
                    watermark.0, expected.0, last.0
                ));
            }
            if moved {
                *watermark = last;
                self.report.storages.records += last.0 - expected.0;
            } else {
                self.report.storages.too_late += 1;
            }
        }
        let watermark = (!self.storages.away).then_some(*watermark);
        let wait_us = self.random.between(100, WAY_US);
        self.later(wait_us, Happening::StorageReplies(Reply { node, start, store, push, watermark, moved }));
        Ok(())
    }

    /// Handles a storage's reply, or the timeout of a missing one.
    pub(super) fn storage_replies(&mut self, reply: Reply) -> Result<(), String> {
        let Reply { node, start, store, push, watermark, moved } = reply;
        let time_us = self.time_us;
        let machine = &mut self.machines[usize::from(node) - 1];
        let Some(process) = machine.process.as_mut().filter(|_| machine.starts == start) else { return Ok(()) };
        let head = process.member.replica().resolver().head_lsn(store);
        let Some(known) = process.pushes.get_mut(&store).filter(|known| known.push == push) else { return Ok(()) };
        let before = known.at;
        // A watermark ahead of the node's head was pushed by another node, and is known here a little later.
        known.at = watermark.filter(|at| *at <= head && (moved || before.is_none()));
        known.due_us = if known.at.is_some() { time_us } else { time_us + AGAIN_US };
        let Some(at) = known.at else { return Ok(()) };
        let report = PushReport { rewound: before.is_none().then_some(at), acked: Some(at), ..PushReport::default() };
        self.step(node, Input::Replica(Event::Pushed { store, push, report }))
    }

    /// The snapshot of a storage that a node would return at a Begin is one that the storage has.
    fn invariant_nobody_believes_more_than_a_storage_has(&mut self, node: u16) -> Result<(), String> {
        let machine = &self.machines[usize::from(node) - 1];
        let now = machine.now(self.time_us).monotonic;
        let Some(process) = &machine.process else { return Ok(()) };
        let replica = process.member.replica();
        let mut told = 0;
        for (store, progress) in replica.stores() {
            let declared = replica.replicated().stores().store(store).ok_or("it is declared")?;
            let counts = progress.reported && progress.known_until.is_none_or(|until| now < until);
            if !declared.is_external() || progress.detached || !counts {
                continue;
            }
            let watermark = self.storages.watermarks.get(&declared.spec.adaptor_config).copied().unwrap_or_default();
            told += u64::from(progress.known_until.is_some() && progress.acked > Lsn(0));
            if progress.acked > watermark {
                return Err(format!(
                    "node {node} believes that the storage of store {store} has records up to {}, and it has {}",
                    progress.acked.0, watermark.0
                ));
            }
        }
        self.report.storages.believed += told;
        Ok(())
    }

    /// After the last fault, every storage has all records, and every node knows it.
    pub(super) fn invariant_storages_have_everything(&self, members: &[u16]) -> Result<(), String> {
        for &node in members {
            let replica = self.member(node).ok_or("it runs")?.replica();
            for (store, progress) in replica.stores() {
                let declared = replica.replicated().stores().store(store).ok_or("it is declared")?;
                if !declared.is_external() || progress.detached {
                    continue;
                }
                let watermark = self.storages.watermarks.get(&declared.spec.adaptor_config);
                let name = &declared.spec.name;
                if watermark.copied().unwrap_or_default() != progress.head {
                    return Err(format!("store {name} has {} records, and its storage {watermark:?}", progress.head.0));
                }
                if !progress.reported || progress.acked != progress.head {
                    return Err(format!("node {node} knows {progress:?} of the storage of store {name}"));
                }
            }
        }
        Ok(())
    }
}
