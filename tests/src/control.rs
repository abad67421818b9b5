//! Random histories of the control log, and the invariants of the state that they produce.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_core::control::{Applied, Effect, Moment, ReplicatedState};
use tribunal_types::{
    ApiKey, Bounds, ControlChange, ControlEntry, ControlIndex, Detachment, Epoch, Existence, FilledBy, Generation,
    Generations, GroupId, GroupJoin, Incarnation, Lsn, NamespaceId, NodeId, PluginActivation, PluginChoice, PluginSlot,
    ProposalId, Release, Skip, StoreId, StoreSpec,
};

/// A step of a history. It refers to objects by name, as a person would: a proposer does not know more.
#[derive(Clone, Debug)]
pub enum Step {
    /// Declares a store.
    Declare(DeclareStep),
    /// Detaches a store's push.
    Detach(u8),
    /// Attaches a store's push again.
    Attach(u8),
    /// Skips a record of a store.
    Skip(u8, u64),
    /// Fills a slot.
    Activate(ActivateStep),
    /// Deletes code.
    Forget(u8),
    /// Sets the bounds.
    Bounds(u8),
    /// Creates the key with this number for a tenant. The flag states whether the proposer knows the tenant's number.
    CreateKey(u8, u8, bool),
    /// Revokes a key.
    RevokeKey(u8),
    /// Admits a node.
    Admit(u8),
    /// Binds a node to a data directory.
    Claim(u8, u8),
    /// Makes a node's group join, in this incarnation.
    Join(u8, u8),
    /// Drains a node, or lets it resume.
    Drain(u8, bool),
    /// Announces a node's release: the oldest and the newest generation in which it can decide.
    Announce(u8, u32, u32),
    /// Switches to a generation.
    Switch(u32),
    /// Makes a node the only one.
    LeaveAlone(u8),
    /// Repeats an earlier entry: its proposer has sent it twice.
    Repeat(u8),
    /// Seals this many epochs, the last of which writes to a store.
    Seal(u64, u8),
}

/// A declaration.
#[derive(Clone, Debug)]
pub struct DeclareStep {
    /// Number of the store's name.
    pub name: u8,
    /// Its configuration.
    pub config: u8,
    /// Its source of existence.
    pub existence: Existence,
    /// Whether its proposer knows the store's number.
    pub knows: bool,
}

/// An activation.
#[derive(Clone, Debug)]
pub struct ActivateStep {
    /// Number of the slot.
    pub slot: u8,
    /// Number of the code.
    pub code: u8,
    /// Distance in epochs from now.
    pub after: u64,
    /// Its cause.
    pub by: FilledBy,
}

/// Generates histories.
pub fn histories() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..4_u8;
    let existence = proptest::sample::select(vec![Existence::Tracked, Existence::Declared]);
    let causes = proptest::sample::select(FilledBy::ALL.to_vec());
    let step = prop_oneof![
        4 => (name.clone(), 0..3_u8, existence, any::<bool>()).prop_map(|(name, config, existence, knows)| {
            Step::Declare(DeclareStep { name, config, existence, knows })
        }),
        1 => name.clone().prop_map(Step::Detach),
        1 => name.clone().prop_map(Step::Attach),
        1 => (name.clone(), 1..3_u64).prop_map(|(name, lsn)| Step::Skip(name, lsn)),
        3 => (0..3_u8, 0..3_u8, 0..3_u64, causes).prop_map(|(slot, code, after, by)| {
            Step::Activate(ActivateStep { slot, code, after, by })
        }),
        1 => (0..3_u8).prop_map(Step::Forget),
        1 => (0..2_u8).prop_map(Step::Bounds),
        3 => (0..5_u8, 0..4_u8, any::<bool>()).prop_map(|(id, tenant, knows)| Step::CreateKey(id, tenant, knows)),
        2 => (0..5_u8).prop_map(Step::RevokeKey),
        1 => (0..3_u8).prop_map(Step::Admit),
        1 => (0..4_u8, 0..3_u8).prop_map(|(node, directory)| Step::Claim(node, directory)),
        1 => (0..4_u8, 0..2_u8).prop_map(|(node, incarnation)| Step::Join(node, incarnation)),
        1 => (0..4_u8, any::<bool>()).prop_map(|(node, drained)| Step::Drain(node, drained)),
        1 => (0..4_u8, 1..3_u32, 1..4_u32).prop_map(|(node, oldest, newest)| Step::Announce(node, oldest, newest)),
        1 => (1..4_u32).prop_map(Step::Switch),
        1 => (1..8_u8).prop_map(Step::LeaveAlone),
        3 => any::<u8>().prop_map(Step::Repeat),
        3 => (1..3_u64, name).prop_map(|(epochs, name)| Step::Seal(epochs, name)),
    ];
    vec(step, 1..40)
}

/// State of a node that applies a history.
#[derive(Clone, Default)]
struct Follower {
    state: ReplicatedState,
    /// The last sealed epoch.
    sealed: Epoch,
    /// Stores with records.
    written: BTreeSet<StoreId>,
}

impl Follower {
    fn apply(&mut self, index: ControlIndex, entry: &ControlEntry) -> Applied {
        let is_existence_fixed = |store: StoreId| self.written.contains(&store);
        self.state.apply(
            index,
            entry,
            Moment { next: self.sealed.next(), is_existence_fixed: &is_existence_fixed, members: &[] },
        )
    }

    fn seal(&mut self, epochs: u64, name: u8) {
        for _ in 0..epochs {
            self.state.advance(self.sealed.next());
            self.sealed = self.sealed.next();
        }
        let written = self.state.stores().named(NamespaceId(0), &store_name(name)).map(|store| store.spec.id);
        self.written.extend(written);
    }

    /// Returns the change that a proposer writes for a step now.
    fn change(&self, step: &Step) -> Option<ControlChange> {
        let store = |name: u8| self.state.stores().named(NamespaceId(0), &store_name(name));
        let known = |name: u8| store(name).map_or(StoreId(0), |store| store.spec.id);
        Some(match step.clone() {
            Step::Seal(..) | Step::Repeat(_) => return None,
            Step::Declare(DeclareStep { name, config, existence, knows }) => ControlChange::DeclareStore(StoreSpec {
                id: if knows { known(name) } else { StoreId(0) },
                name: store_name(name),
                existence,
                adaptor_config: config.to_string(),
                ..StoreSpec::default()
            }),
            Step::Detach(name) => ControlChange::DetachPush(Detachment {
                store: known(name),
                declared: store(name).map_or(ControlIndex(0), |store| store.generation),
                at: self.sealed,
                acked: Lsn(1),
                reason: String::new(),
            }),
            Step::Attach(name) => ControlChange::AttachPush { store: known(name) },
            Step::Skip(name, lsn) => ControlChange::SkipRecord(Skip {
                store: known(name),
                lsn: Lsn(lsn),
                at_ms: 0,
                by: String::new(),
                reason: String::new(),
            }),
            Step::Activate(step) => self.activation(&step),
            Step::Forget(code) => ControlChange::ForgetPlugin { digest: [code; 32] },
            Step::Bounds(size) => ControlChange::SetBounds(Bounds {
                window_bytes_max: size.into(),
                status_bytes_max: 0,
                plugin_faults_max: 0,
                partitions: 1,
            }),
            Step::CreateKey(id, tenant, knows) => {
                let namespace_name = format!("tenant-{tenant}");
                let known = self.state.keys().namespace(&namespace_name).filter(|_| knows);
                let (id, namespace) = (format!("key-{id}"), known.unwrap_or_default());
                ControlChange::CreateKey(ApiKey { id, namespace, namespace_name, ..ApiKey::default() })
            }
            Step::RevokeKey(id) => ControlChange::RevokeKey { id: format!("key-{id}") },
            Step::Admit(name) => {
                ControlChange::AdmitNode { name: format!("node-{name}"), address: "h:1".into(), voters: Vec::new() }
            }
            Step::Claim(node, directory) => {
                ControlChange::ClaimNode { node: NodeId(node.into()), directory: directory.into() }
            }
            Step::Drain(node, drained) => ControlChange::DrainNode { node: NodeId(node.into()), drained },
            Step::LeaveAlone(node) => ControlChange::SoleNode { node: NodeId(node.into()) },
            Step::Announce(node, oldest, newest) => {
                let generations = Generations { oldest: Generation(oldest), newest: Generation(newest) };
                let release = Release { generations, ..Release::default() };
                ControlChange::AnnounceRelease { node: NodeId(node.into()), release }
            }
            Step::Switch(generation) => ControlChange::SwitchGeneration(Generation(generation)),
            Step::Join(node, incarnation) => {
                let group = GroupId { node: NodeId(node.into()), incarnation: Incarnation(incarnation.into()) };
                ControlChange::JoinGroup(GroupJoin { group, first: self.sealed.next() })
            }
        })
    }

    fn activation(&self, step: &ActivateStep) -> ControlChange {
        let ActivateStep { slot, code, after, by } = *step;
        let slot = match slot {
            0 => PluginSlot::Rule,
            n => PluginSlot::Adaptor(format!("adaptor-{n}")),
        };
        let active = self.state.slots().slot(&slot).and_then(|state| state.active());
        let replaces = active.map_or(ControlIndex(0), |entry| entry.index);
        let name = format!("plugin-{code}");
        let choice = PluginChoice { slot, name, digest: [code; 32], ..PluginChoice::default() };
        let from = Epoch(self.sealed.0 + after);
        ControlChange::ActivatePlugin(PluginActivation { choice, from, by, replaces, ..PluginActivation::default() })
    }
}

fn store_name(name: u8) -> String {
    format!("store-{name}")
}

/// The numbers assigned so far.
#[derive(Default)]
struct Numbers {
    by_name: BTreeMap<String, u64>,
    given: BTreeMap<&'static str, BTreeSet<u64>>,
}

impl Numbers {
    /// Records that the object `name` of this kind has this number. A number belongs to one name, and a name has one
    /// number.
    fn note(&mut self, kind: &'static str, name: String, number: u64) -> Result<(), String> {
        match self.by_name.get(&name) {
            Some(known) if *known != number => Err(format!("{name} was {known} and is {number} now")),
            Some(_) => Ok(()),
            None if !self.given.entry(kind).or_default().insert(number) => {
                Err(format!("{name} got {number}, which another {kind} had"))
            }
            None => {
                self.by_name.insert(name, number);
                Ok(())
            }
        }
    }

    fn note_effect(&mut self, state: &ReplicatedState, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::StoreDeclared { store, .. } | Effect::StoreKnown(store) => {
                let name = state.stores().store(*store).ok_or("a store is missing")?.spec.name.clone();
                self.note("store", name, store.0.into())
            }
            Effect::KeyCreated { key, .. } | Effect::KeyKnown(key) => {
                self.note("tenant", key.namespace_name.clone(), key.namespace.0.into())
            }
            Effect::NodeAdmitted(node) => {
                // The name of a removed node is free again.
                state.members().node(*node).ok_or("a node is missing")?;
                self.note("node", format!("node {}", node.0), node.0.into())
            }
            Effect::NodeClaimed(node) => {
                let known = state.members().node(*node).ok_or("a node is missing")?;
                let directory = known.directory.ok_or("a node has no directory")?;
                self.note("directory", format!("directory of {}", known.name), directory << 10 | u64::from(node.0))
            }
            _ => Ok(()),
        }
    }
}

/// One entry, with the epochs that were sealed before it.
type Written = (Vec<(u64, u8)>, ControlIndex, ControlEntry);

/// Plays a history and checks the resulting state.
///
/// # Errors
/// The violated invariant.
pub fn check(history: &[Step]) -> Result<(), String> {
    let (mut node, mut numbers) = (Follower::default(), Numbers::default());
    let (mut log, mut seals): (Vec<Written>, _) = (Vec::new(), Vec::new());
    let mut images = vec![node.clone()];
    for step in history {
        if let Step::Seal(epochs, name) = *step {
            node.seal(epochs, name);
            seals.push((epochs, name));
            continue;
        }
        let index = ControlIndex(node.state.index().0 + 1);
        if let Step::Repeat(at) = *step {
            let Some(entry) = log.get(usize::from(at) % log.len().max(1)).map(|written| written.2.clone()) else {
                continue;
            };
            repeat(&mut node, index, &entry)?;
            log.push((std::mem::take(&mut seals), index, entry));
            images.push(node.clone());
            continue;
        }
        let Some(change) = node.change(step) else { continue };
        // There are three proposers.
        let proposal = ProposalId { run: index.0 % 3, number: index.0 };
        let entry = ControlEntry { proposal, change };
        let applied = node.apply(index, &entry);
        if let Ok(effect) = &applied {
            numbers.note_effect(&node.state, effect).map_err(|wrong| format!("entry {}: {wrong}", index.0))?;
        }
        // If two proposers want the same change, it takes effect once.
        if !matches!(entry.change, ControlChange::ActivatePlugin(_)) {
            let mut twice = node.clone();
            let _ = twice.apply(ControlIndex(index.0 + 1), &entry.change.clone().into());
            let again = ReplicatedState::restore(with_index(&twice.state, index));
            if again != node.state {
                return Err(format!("entry {} is applied twice", index.0));
            }
        }
        log.push((std::mem::take(&mut seals), index, entry));
        images.push(node.clone());
    }
    // The last seals follow no entry.
    images.iter().enumerate().try_for_each(|(at, image)| continued(image, &log[at..], &seals, &node, at))
}

/// Applies an entry again, regardless of intermediate entries, and checks that nothing changes.
fn repeat(node: &mut Follower, index: ControlIndex, entry: &ControlEntry) -> Result<(), String> {
    let before = node.state.clone();
    let applied = node.apply(index, entry);
    if applied != Ok(Effect::Repeated) || with_index(&node.state, before.index()) != before.image() {
        return Err(format!("entry {} is a repeat, and does {applied:?}", index.0));
    }
    Ok(())
}

fn with_index(state: &ReplicatedState, index: ControlIndex) -> tribunal_types::ControlImage {
    tribunal_types::ControlImage { index, ..state.image() }
}

/// Checks that an image and the following entries produce the same state as all entries.
fn continued(
    image: &Follower,
    rest: &[Written],
    last: &[(u64, u8)],
    expected: &Follower,
    at: usize,
) -> Result<(), String> {
    let mut node = Follower { state: ReplicatedState::restore(image.state.image()), ..image.clone() };
    for (seals, index, entry) in rest {
        seals.iter().for_each(|(epochs, name)| node.seal(*epochs, *name));
        let _ = node.apply(*index, entry);
    }
    last.iter().for_each(|(epochs, name)| node.seal(*epochs, *name));
    let same = node.state == expected.state && node.state.image() == expected.state.image();
    if same { Ok(()) } else { Err(format!("the image after entry {at} continues to another state")) }
}
