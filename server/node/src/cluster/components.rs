//! Components of plugins uploaded to the cluster: this node fetches missing ones from a peer, checks and compiles them
//! itself, and reports in the control log that each is ready, or why it cannot run.
//!
//! A dedicated thread handles one component after another; failures are retried. A component is identified by the
//! SHA-256 of its bytes, which is verified on receipt, so any node may serve it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tribunal_core::control::components::Components;
use tribunal_core::control::slots::SlotUse;
use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_peer::Peers;
use tribunal_types::limits::{PART_BYTES_MAX, PLUGIN_BYTES_MAX, PLUGIN_PROBLEM_BYTES_MAX};
use tribunal_types::{AnnouncedComponent, Component, ComponentReport, ControlChange, NodeId, PluginChoice, PluginSlot};
use tribunal_wasm::World;

use crate::cluster::transfers::{Source, Transfers};
use crate::commit::change_under_way::ChangeUnderWay;
use crate::commit::message::Message;
use crate::config::PolicyHost;
use crate::plugins::digest::{ArtefactDigest, hex};
use crate::plugins::plugin_check::{self, CheckError};
use crate::plugins::plugin_loader::PluginLoader;
use crate::plugins::plugin_store::Artefact;
use crate::plugins::signatures::signature_of;
use crate::stores::pushes::Pushes;

/// Time between two checks for missing components, if nothing changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after which a report without effect is proposed again.
const REPORT_AGAIN: Duration = Duration::from_secs(10);
/// Time between two log lines about a component that cannot be fetched.
const TOLD_EVERY: Duration = Duration::from_secs(30);
/// Prefix of the name by which a component is pulled; its digest follows.
const NAME: &str = "component/";

/// The components in the control log, for all parts of the node.
#[derive(Default)]
pub struct AnnouncedPlugins {
    /// The components, and the control entry as of which they are current.
    state: RwLock<(Components, u64)>,
    poke: RwLock<Option<Sender<()>>>,
}

impl AnnouncedPlugins {
    /// Starts with the recovered components.
    #[must_use]
    pub fn new(replicated: &ReplicatedState) -> AnnouncedPlugins {
        let announced = AnnouncedPlugins::default();
        *announced.state.write() = (replicated.components().clone(), replicated.index().0);
        announced
    }

    /// Applies the effect of a control entry. Never blocks.
    pub fn follow(&self, replicated: &ReplicatedState, effect: &Effect) {
        let is_about_components =
            matches!(effect, Effect::ComponentAnnounced(_) | Effect::ComponentReported(_) | Effect::PluginForgotten(_));
        if is_about_components {
            *self.state.write() = (replicated.components().clone(), replicated.index().0);
            if let Some(poke) = &*self.poke.read() {
                // One pending poke is enough.
                let _ = poke.try_send(());
            }
        }
    }

    /// Returns the components.
    #[must_use]
    pub fn components(&self) -> Components {
        self.state.read().0.clone()
    }

    /// Returns the components, and the control entry as of which they are current.
    #[must_use]
    fn state(&self) -> (Components, u64) {
        self.state.read().clone()
    }
}

/// Serves components of this node to the others.
struct Served(Arc<PluginLoader>);

impl Source for Served {
    fn part(&self, _: NodeId, name: &str, offset: u64) -> Option<Result<(u64, Bytes), String>> {
        let digest = tribunal_service::plugins::digest(name.strip_prefix(NAME)?)?;
        let part = self.0.store.part(&digest, offset, PART_BYTES_MAX);
        Some(part.map(|(total, part)| (total, part.into())).ok_or_else(|| "it does not have that plugin".to_owned()))
    }
}

/// The thread's connections.
pub struct Fetching {
    /// This node.
    pub node: NodeId,
    /// The engine that runs plugins here.
    pub engine: String,
    /// The announced components.
    pub announced: Arc<AnnouncedPlugins>,
    /// Keeps, checks and compiles components.
    pub loader: Arc<PluginLoader>,
    /// The connected nodes.
    pub peers: Weak<Peers>,
    /// Pulls components.
    pub transfers: Arc<Transfers>,
    /// The sequencer's queue.
    pub messages: Sender<Message>,
    /// The slots' current plugins.
    pub slots: Arc<RwLock<tribunal_core::control::slots::Slots>>,
    /// The users of adaptors.
    pub pushes: Weak<Pushes>,
}

impl Fetching {
    /// Starts to serve other nodes, and starts the thread, which ends with the connections to the other nodes.
    ///
    /// # Errors
    /// If the thread does not start.
    pub fn start(self) -> Result<(), String> {
        let (poke, poked) = bounded(1);
        *self.announced.poke.write() = Some(poke);
        self.transfers.serve(Arc::new(Served(Arc::clone(&self.loader))));
        let thread = std::thread::Builder::new().name("components".into());
        let worker = Worker { parts: self, settled: BTreeMap::new(), reported: BTreeMap::new(), told: None };
        thread.spawn(move || worker.run(&poked)).map(drop).map_err(|error| format!("no thread for components: {error}"))
    }
}

/// The thread's state.
struct Worker {
    parts: Fetching,
    /// Components that this node has ready (with an empty reason), or cannot run (with the reason).
    settled: BTreeMap<ArtefactDigest, (Component, String)>,
    /// The last report of each component.
    reported: BTreeMap<ArtefactDigest, Reported>,
    /// When missing components were last logged.
    told: Option<Instant>,
}

/// A report to the other nodes.
struct Reported {
    at: Instant,
    under_way: ChangeUnderWay,
}

impl Reported {
    /// Returns whether its effect may still arrive.
    fn is_awaited(&mut self) -> bool {
        self.under_way.is_under_way() || self.at.elapsed() < REPORT_AGAIN
    }
}

impl Worker {
    fn run(mut self, poked: &Receiver<()>) {
        loop {
            match poked.recv_timeout(LOOK_EVERY) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(peers) = self.parts.peers.upgrade() else { return };
            let (components, index) = self.parts.announced.state();
            self.hide_deleted(&components, index);
            components.iter().for_each(|announced| self.settle(announced, &peers));
        }
    }

    /// Hides components that the control log announced before, and no longer does.
    fn hide_deleted(&mut self, components: &Components, index: u64) {
        self.settled.retain(|digest, _| components.get(digest).is_some());
        for (digest, artefact) in self.parts.loader.store.list() {
            // A process that has just started may not have re-applied the announcement yet.
            let was_announced = artefact.announced.is_some_and(|announced| announced <= index);
            if was_announced && components.get(&digest).is_none() {
                match self.parts.loader.store.hide(&digest, index) {
                    Ok(()) => {
                        tracing::info!(plugin = artefact.name, digest = hex(&digest), "a plugin version was deleted")
                    }
                    Err(error) => tracing::warn!(error, "a deleted plugin version cannot be hidden"),
                }
            }
        }
    }

    /// Takes the next step for a component, and reports the result.
    fn settle(&mut self, announced: &AnnouncedComponent, peers: &Peers) {
        let component = &announced.component;
        let digest = component.digest;
        let is_settled = self.settled.get(&digest).is_some_and(|(settled, _)| settled == component);
        if !is_settled {
            match self.ready(announced, peers) {
                Ok(()) => drop(self.settled.insert(digest, (component.clone(), String::new()))),
                Err(NotReady::Refused(problem)) => {
                    tracing::error!(
                        plugin = component.name,
                        digest = hex(&digest),
                        problem,
                        "a plugin cannot run here"
                    );
                    drop(self.settled.insert(digest, (component.clone(), cut(problem))));
                }
                Err(NotReady::Later(why)) => {
                    if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                        self.told = Some(Instant::now());
                        tracing::warn!(plugin = component.name, digest = hex(&digest), why, "a plugin is not here yet");
                    }
                    return;
                }
            }
        }
        let Some((_, problem)) = self.settled.get(&digest) else { return };
        let report = ComponentReport { engine: self.parts.engine.clone(), problem: problem.clone() };
        let is_known = announced.reports.get(&self.parts.node) == Some(&report);
        if is_known || self.reported.get_mut(&digest).is_some_and(Reported::is_awaited) {
            return;
        }
        let change = ControlChange::ReportComponent { digest, node: self.parts.node, report };
        let (proposal, under_way) = ChangeUnderWay::propose(change);
        self.reported.insert(digest, Reported { at: Instant::now(), under_way });
        let _ = self.parts.messages.send(proposal);
    }

    /// Fetches a component if necessary, checks and compiles it.
    fn ready(&self, announced: &AnnouncedComponent, peers: &Peers) -> Result<(), NotReady> {
        let component = &announced.component;
        let loader = &self.parts.loader;
        let world = World::by_name(&component.world)
            .ok_or_else(|| NotReady::Refused(format!("there is no world \"{}\"", component.world)))?;
        if loader.host() == PolicyHost::Native && world != World::LogAdaptor {
            return Err(NotReady::Refused("it runs the native policies (`plugins = \"native\"`)".into()));
        }
        // The uploading node has it, and so does a restarted node, unless its file is missing.
        let known = loader.store.find(&component.digest).filter(|_| loader.store.read(&component.digest).is_ok());
        if known.is_none() {
            let bytes = self.fetch(announced, peers).map_err(NotReady::Later)?;
            let artefact = self.checked(announced, world, &bytes)?;
            loader.store.keep(&bytes, artefact).map_err(NotReady::Later)?;
            tracing::info!(plugin = component.name, digest = hex(&component.digest), "a plugin came from another node");
        } else if known.is_some_and(|known| known.announced != Some(announced.announced.0)) {
            loader.store.note_announced(&component.digest, announced.announced.0).map_err(NotReady::Later)?;
        }
        self.compile(component, world)
    }

    /// Pulls the bytes of a component from the first node that has the right ones.
    fn fetch(&self, announced: &AnnouncedComponent, peers: &Peers) -> Result<Vec<u8>, String> {
        let status = peers.status();
        let connected = status.peers.iter().filter(|(_, peer)| peer.is_connected()).map(|(node, _)| *node);
        let connected: BTreeSet<NodeId> = connected.collect();
        let (ready, others): (Vec<NodeId>, Vec<NodeId>) =
            connected.into_iter().partition(|node| announced.is_ready_on(*node));
        let digest = announced.component.digest;
        let name = format!("{NAME}{}", hex(&digest));
        let mut failed = Vec::new();
        for node in ready.into_iter().chain(others) {
            match self.parts.transfers.pull_whole(node, &name, PLUGIN_BYTES_MAX) {
                Ok(bytes) if ArtefactDigest::from(Sha256::digest(&bytes)) == digest => return Ok(bytes),
                Ok(_) => failed.push(format!("node {node}: what it has is damaged")),
                Err(error) => failed.push(error),
            }
        }
        let reasons = if failed.is_empty() { "no other node is connected".into() } else { failed.join("; ") };
        Err(format!("it could not be fetched: {reasons}"))
    }

    /// Checks a component like an upload, in a separate process.
    fn checked(&self, announced: &AnnouncedComponent, world: World, bytes: &[u8]) -> Result<Artefact, NotReady> {
        let Component { digest, name, config, uploaded_ms, signature, .. } = &announced.component;
        let signature = signature_of(signature);
        let signed = self.parts.loader.signers.check(name, digest, signature.as_ref()).map_err(NotReady::Refused)?;
        let file = tempfile::NamedTempFile::new().and_then(|file| std::fs::write(file.path(), bytes).map(|()| file));
        let file = file.map_err(|error| NotReady::Later(format!("it cannot be set down for the check: {error}")))?;
        let found = plugin_check::check(file.path(), Some(world), config).map_err(|error| match error {
            CheckError::Refused(rejected) => NotReady::Refused(rejected.reason),
            CheckError::Unavailable(why) => NotReady::Later(why),
        })?;
        Ok(Artefact {
            name: name.clone(),
            world: found.world,
            version: found.version,
            about: found.about,
            bytes: bytes.len() as u64,
            uploaded_ms: *uploaded_ms,
            signed,
            checked: found.checked,
            announced: Some(announced.announced.0),
            deleted: None,
        })
    }

    /// Compiles a component with the configuration that it was checked with, and keeps the code. An active adaptor
    /// starts to use it.
    fn compile(&self, component: &Component, world: World) -> Result<(), NotReady> {
        let loader = &self.parts.loader;
        loader.compile(world, &component.digest, &component.config).map_err(NotReady::Refused)?;
        if world != World::LogAdaptor {
            return Ok(());
        }
        for (slot, used) in self.parts.slots.read().users_of(&component.digest) {
            if let (PluginSlot::Adaptor(name), SlotUse::Active) = (&slot, used) {
                let choice = PluginChoice { slot: slot.clone(), digest: component.digest, ..PluginChoice::default() };
                if loader.lacks_adaptor(name) && loader.load_adaptor(name, &choice).is_ok() {
                    self.parts.pushes.upgrade().into_iter().for_each(|pushes| pushes.adaptor_changed(name));
                }
            }
        }
        Ok(())
    }
}

/// Why a component is not ready.
enum NotReady {
    /// It may be ready later.
    Later(String),
    /// It cannot run here.
    Refused(String),
}

/// Cuts a problem to the length that the control log accepts.
fn cut(mut problem: String) -> String {
    let mut end = problem.len().min(PLUGIN_PROBLEM_BYTES_MAX);
    while !problem.is_char_boundary(end) {
        end -= 1;
    }
    problem.truncate(end);
    if problem.is_empty() { "it cannot run".into() } else { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_never_empty_nor_too_long() {
        assert_eq!(cut(String::new()), "it cannot run", "empty would be ready");
        assert_eq!(cut("ä".repeat(PLUGIN_PROBLEM_BYTES_MAX)).len(), PLUGIN_PROBLEM_BYTES_MAX);
        let odd = format!("a{}", "ä".repeat(PLUGIN_PROBLEM_BYTES_MAX));
        assert_eq!(cut(odd).len(), PLUGIN_PROBLEM_BYTES_MAX - 1);
    }
}
