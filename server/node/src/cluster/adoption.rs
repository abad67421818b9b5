//! Turns a single node into the first member of a cluster: its state, including data kept beside its log, becomes the
//! image from which the member starts, and its log continues.
//!
//! The image replaces the first entry of the node's group and of the control group, which no node has: a node added
//! later therefore always copies the state. The image is installed like a copy of another member's state.

use std::path::Path;

use tribunal_core::control::{Moment, ReplicatedState};
use tribunal_core::epochs::FoldPosition;
use tribunal_log::{ClusterIdentity, EntryId, GroupCursor, GroupCursors};
use tribunal_member::{Members, first_image};
use tribunal_types::{ControlChange, ControlIndex, Csn, GroupId, GroupJoin, NodeId, ReaderMove, StateImage, StoreId};

use crate::cluster::identity::FIRST;
use crate::cluster::membership::Membership;
use crate::cluster::state_copy::incoming::Incoming;
use crate::commit::recovery::Recovered;
use crate::plugins::cluster_plugins::component_of;
use crate::plugins::plugin_loader::{PluginLoader, named};
use crate::plugins::policies::policy_slots;
use crate::readers::consumer_state::{self, load};
use crate::stores::fork_file::ForkFile;

/// The entry of each group that the image replaces.
const INCLUDED: EntryId = EntryId { term: 1, index: 1 };

/// The member that a single node becomes.
pub struct FirstMember {
    /// Its number.
    pub node: NodeId,
    /// The identity shared by all logs of its cluster: that of the node's own log.
    pub identity: ClusterIdentity,
    /// The image that it starts from.
    image: StateImage,
}

impl FirstMember {
    /// Reads the state of a single node, and the data kept in its data directory. Changes nothing.
    ///
    /// # Errors
    /// A description of the state that a cluster could not continue with, and the remedy.
    pub fn of(mut recovered: Recovered, data: &Path, loader: &PluginLoader) -> Result<FirstMember, String> {
        check_engines(&recovered.replicated, loader)?;
        let node = recovered.group.node;
        let group = Membership::group_of(node);
        let next = recovered.epochs.last_complete().next();
        let mut entries = Entries { recovered: &mut recovered };
        entries.uploads(loader)?;
        entries.forks(data)?;
        entries.readers(data)?;
        let Recovered { mut resolver, mut replicated, epochs, batcher, reader, row_secret, .. } = recovered;
        replicated.found(GroupJoin { group, first: next });
        // Complete empty epochs are not decided again: snapshots of them were handed out.
        resolver.pass_over(next.prev());
        let fold = FoldPosition {
            next,
            epoch_time_ms: epochs.epoch_time_ms(),
            control: replicated.index(),
            groups: vec![(group, next)],
            ended: Vec::new(),
        };
        let members = Members::first([node]).encode();
        let cursor = |stamp: Csn| GroupCursor { included: INCLUDED, stamp, members: members.clone() };
        let groups =
            GroupCursors::from([(GroupId::CONTROL, cursor(Csn::default())), (group, cursor(batcher.last_csn()))]);
        let identity = ClusterIdentity { id: reader.id(), incarnation: FIRST, row_secret };
        Ok(FirstMember { node, identity, image: first_image(&resolver, &replicated, &fold, &groups) })
    }

    /// Prepares the image in the data directory. A single node ignores it.
    ///
    /// # Errors
    /// A description of the failure; the image does not count then, and can be prepared again.
    pub fn prepare(&self, data: &Path) -> Result<(), String> {
        let incoming = Incoming::restart(data)?;
        incoming.put_image(&self.image)?;
        incoming.complete()
    }
}

/// Checks that uploaded rules and validators return the same results on all nodes from the cluster's first epoch on.
fn check_engines(replicated: &ReplicatedState, loader: &PluginLoader) -> Result<(), String> {
    let own = loader.host_name()?;
    let active = policy_slots().filter_map(|slot| replicated.slots().slot(&slot)?.active());
    let mut uploaded =
        active.map(|entry| &entry.activation.choice).filter(|choice| loader.store.find(&choice.digest).is_some());
    uploaded.find(|choice| choice.host != own).map_or(Ok(()), |choice| {
        Err(format!(
            "the plugin {} was activated for another engine ({}) than the one of this release ({own}): start the node once as before \
             (`tribunal serve`), stop it, and repeat this",
            named(choice),
            choice.host
        ))
    })
}

/// Data that a node keeps beside its log, as control log entries that exist only in the image.
struct Entries<'a> {
    recovered: &'a mut Recovered,
}

impl Entries<'_> {
    fn add(&mut self, what: &str, change: ControlChange) -> Result<(), String> {
        let Recovered { replicated, resolver, epochs, .. } = &mut *self.recovered;
        let index = ControlIndex(replicated.index().0 + 1);
        let is_existence_fixed = |store: StoreId| resolver.is_existence_fixed(store);
        let next = epochs.last_complete().next();
        let moment = Moment { next, is_existence_fixed: &is_existence_fixed, members: &[] };
        let applied = replicated.apply(index, &change.into(), moment);
        applied.map(drop).map_err(|refusal| format!("{what} cannot be taken over: {refusal:?}"))
    }

    /// Adds uploaded plugins: members fetch them from one another.
    fn uploads(&mut self, loader: &PluginLoader) -> Result<(), String> {
        for (digest, artefact) in loader.store.list() {
            let what = format!("the plugin {}", artefact.name);
            self.add(&what, ControlChange::AnnounceComponent(component_of(digest, &artefact)))?;
        }
        Ok(())
    }

    /// Adds storages that were found ahead of their logs.
    fn forks(&mut self, data: &Path) -> Result<(), String> {
        let stores: Vec<_> = self.recovered.replicated.stores().stores().map(|s| (s.spec.id, s.generation)).collect();
        for (store, generation) in stores {
            if let Some(fork) = ForkFile::new(data, store).read(generation)? {
                let change = ControlChange::ForkPush { store, generation, fork: Some(fork) };
                self.add("the state of a storage", change)?;
            }
        }
        Ok(())
    }

    /// Adds consumer offsets and webhooks.
    fn readers(&mut self, data: &Path) -> Result<(), String> {
        let remembered = load(&data.join(consumer_state::FILE))?;
        let declared: Vec<StoreId> = self.recovered.replicated.stores().stores().map(|store| store.spec.id).collect();
        let offsets = remembered.offsets.into_iter().filter(|offset| declared.contains(&offset.store));
        let moves: Vec<ReaderMove> = offsets.map(ReaderMove::Offset).collect();
        if !moves.is_empty() {
            self.add("the offsets of consumers", ControlChange::MoveReaders(moves))?;
        }
        for webhook in remembered.webhooks.into_iter().filter(|webhook| declared.contains(&webhook.store)) {
            self.add("a webhook", ControlChange::RegisterWebhook { webhook, resumes: false })?;
        }
        Ok(())
    }
}
