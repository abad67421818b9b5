//! Plugins as seen by the API: uploads are checked and kept, activations go through the control log.
//!
//! Invariants: a component is durable before the entry that names it is written; it is also compiled and configured
//! before that, so that an entry never names a plugin that cannot run here. One change at a time.

mod deactivation;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::Sender;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tribunal_core::control::slots::{SlotState, SlotUse, Slots};
use tribunal_replica::ControlReply;
use tribunal_service::plugins::digest as read_digest;
use tribunal_service::plugins::{
    Activate, Activation, Deactivate, Health, Measured, Overview, Plugin, PluginApi, Replaced, Slot, Upload, Uploaded,
    Version,
};
use tribunal_service::{ServiceError, ServiceFuture};
use tribunal_types::{
    ControlChange, ControlIndex, EMBEDDED_ADAPTOR, FilledBy, Isolation, PluginActivation, PluginChoice, PluginSlot,
    SlotEntry, StoreId,
};
use tribunal_wasm::{BUILTINS, World};

use crate::commit::message::Message;
use crate::commit::refusals::refused;
use crate::config::PolicyHost;
use crate::plugins::activations::{shown, shown_past};
use crate::plugins::cluster_plugins::{ClusterPlugins, Readiness, component_of};
use crate::plugins::compiled_files::Loads;
use crate::plugins::digest::{ArtefactDigest, hex};
use crate::plugins::engine::{Language, engine};
use crate::plugins::plugin_check::{self, CheckError, Rejected};
use crate::plugins::plugin_loader::{PluginLoader, builtin_by_digest, builtin_digest};
use crate::plugins::plugin_store::{Artefact, Checked};
use crate::plugins::signatures::Signed;
use crate::stores::catalog::Stores;

/// Hint on where the existing plugins are listed.
const LISTED_BY: &str = "`tribunal plugin ls` (`GET /v1/admin/plugins`) lists them";
/// Maximum size of a failing input that a refusal quotes, bytes; `tribunal plugin test` prints larger ones.
const INPUT_BYTES_MAX: usize = 4096;

/// How long an activation waits until all members of a cluster have the plugin ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an activation waits until this node knows the plugin.
const ANNOUNCED_TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval of these waits.
const READY_POLL: Duration = Duration::from_millis(20);

/// The node's plugins.
pub struct PluginAdmin {
    parts: Arc<Parts>,
    runtime: Handle,
    /// Serializes changes: a check takes a core and memory, and two activations of a slot must not mix.
    changing: Arc<tokio::sync::Mutex<()>>,
}

struct Parts {
    loader: Arc<PluginLoader>,
    slots: Arc<RwLock<Slots>>,
    stores: Arc<Stores>,
    messages: Sender<Message>,
    /// Set on a member of a cluster.
    cluster: Option<ClusterPlugins>,
}

/// A version that can be activated.
struct Candidate {
    digest: ArtefactDigest,
    world: World,
    /// `None` for a built-in version.
    artefact: Option<Artefact>,
}

fn mistake(code: &'static str, pointer: &str, detail: impl Into<String>) -> ServiceError {
    ServiceError::ClientMistake { code, pointer: pointer.to_owned(), detail: detail.into() }
}

fn unavailable(detail: impl Into<String>) -> ServiceError {
    ServiceError::Unavailable { detail: detail.into() }
}

impl PluginAdmin {
    /// Creates the admin.
    #[must_use]
    pub fn new(
        loader: Arc<PluginLoader>,
        slots: Arc<RwLock<Slots>>,
        stores: Arc<Stores>,
        messages: Sender<Message>,
        runtime: Handle,
        cluster: Option<ClusterPlugins>,
    ) -> PluginAdmin {
        let parts = Arc::new(Parts { loader, slots, stores, messages, cluster });
        PluginAdmin { parts, runtime, changing: Arc::default() }
    }

    /// Returns whether the control log names a plugin for a slot.
    #[must_use]
    pub fn is_named(&self, slot: &PluginSlot) -> bool {
        self.parts.slots.read().slot(slot).is_some_and(|state| state.active().is_some())
    }

    /// Returns the counters of every slot.
    #[must_use]
    pub fn health(&self) -> Vec<(PluginSlot, Health)> {
        self.parts.loader.board.all()
    }

    /// Returns how often code of uploaded components was compiled, and how often it was loaded from a file.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.parts.loader.compiled.loads()
    }

    /// Rolls a slot back to the plugin before entry `failed`, whose plugin failed too often in a row.
    pub async fn roll_back_after_faults(&self, slot: PluginSlot, failed: ControlIndex) {
        let name = slot.to_string();
        let active = self.parts.slots.read().slot(&slot).and_then(|state| state.active().cloned());
        let Some(faulty) = active.filter(|active| active.index == failed) else {
            // Another node or an operator was faster.
            return;
        };
        let faulty = faulty.activation.choice.name;
        let fault = self.parts.loader.board.of(&slot).last_fault().map(|(_, text)| text);
        match self.change(move |parts| parts.roll_back_after_faults(&slot, failed)).await {
            Ok(done) => tracing::error!(
                slot = name,
                plugin = faulty,
                fault,
                now = done.name,
                "a slot was rolled back after too many consecutive faults of its plugin"
            ),
            Err(error) => tracing::error!(
                slot = name,
                plugin = faulty,
                ?error,
                "a slot's plugin fails in every epoch, and the slot cannot be rolled back; its fallback decides"
            ),
        }
    }

    /// Waits for a while until every member of the cluster has the requested version ready, and names it in the
    /// request. A single node always has it ready.
    async fn ready_everywhere(&self, request: Activate) -> Result<Activate, ServiceError> {
        self.parts.check_started()?;
        let Some(cluster) = &self.parts.cluster else { return Ok(request) };
        if BUILTINS.iter().any(|builtin| builtin.name == request.name) {
            return Ok(request);
        }
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            match cluster.readiness(&request.name, request.digest) {
                Readiness::Ready(digest) => return Ok(Activate { digest: Some(digest), ..request }),
                Readiness::Refused(detail) => return Err(mistake("plugin_refused", "", detail)),
                Readiness::Waiting(detail) if waited >= READY_TIMEOUT => return Err(unavailable(detail)),
                // Another node may have announced it a moment ago.
                Readiness::Unknown if waited >= ANNOUNCED_TIMEOUT => {
                    let what = format!("plugin \"{}\", or no such version; {LISTED_BY}", request.name);
                    return Err(ServiceError::NotFound { what });
                }
                Readiness::Waiting(_) | Readiness::Unknown => tokio::time::sleep(READY_POLL).await,
            }
        }
    }

    /// Runs blocking work, serialized, and to completion even if the caller stops waiting.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Parts) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let one_at_a_time = Arc::clone(&self.changing).lock_owned().await;
        let parts = Arc::clone(&self.parts);
        let done = self.runtime.spawn_blocking(move || {
            let _one_at_a_time = one_at_a_time;
            work(&parts)
        });
        done.await.unwrap_or_else(|_| Err(unavailable("the change was broken off; look at what is there now")))
    }
}

impl PluginApi for PluginAdmin {
    fn upload(&self, upload: Upload) -> ServiceFuture<'_, Uploaded> {
        Box::pin(self.change(move |parts| {
            parts.check_started()?;
            let uploaded = parts.upload(&upload)?;
            parts.announce(&uploaded)?;
            Ok(uploaded)
        }))
    }

    fn overview(&self) -> ServiceFuture<'_, Overview> {
        Box::pin(std::future::ready(Ok(self.parts.overview())))
    }

    fn activate(&self, request: Activate) -> ServiceFuture<'_, Activation> {
        Box::pin(async move {
            let request = self.ready_everywhere(request).await?;
            self.change(move |parts| parts.activate(&request)).await
        })
    }

    fn roll_back(&self, name: String, slot: Option<PluginSlot>, who: String) -> ServiceFuture<'_, Activation> {
        Box::pin(self.change(move |parts| parts.roll_back(&name, slot, who)))
    }

    fn deactivate(&self, request: Deactivate) -> ServiceFuture<'_, Activation> {
        Box::pin(self.change(move |parts| {
            parts.check_started()?;
            parts.deactivate(request)
        }))
    }

    fn delete(&self, name: String, digest: Option<ArtefactDigest>) -> ServiceFuture<'_, Vec<ArtefactDigest>> {
        Box::pin(self.change(move |parts| parts.delete(&name, digest)))
    }
}

impl Parts {
    /// Checks that a cluster has its configuration; a single node always has one.
    fn check_started(&self) -> Result<(), ServiceError> {
        let is_named = || self.slots.read().slot(&PluginSlot::Rule).is_some_and(|state| state.active().is_some());
        if self.cluster.is_none() || is_named() {
            return Ok(());
        }
        Err(unavailable("the cluster has not started yet"))
    }

    /// Announces an upload, so that the other members of a cluster fetch it.
    fn announce(&self, uploaded: &Uploaded) -> Result<(), ServiceError> {
        if self.cluster.is_none() {
            return Ok(());
        }
        let digest = uploaded.version.digest;
        let artefact = self.loader.store.find(&digest);
        let artefact = artefact.ok_or_else(|| unavailable("it was deleted meanwhile; push it again"))?;
        let announced = self.control(ControlChange::AnnounceComponent(component_of(digest, &artefact)));
        if matches!(announced, Err(ServiceError::ClientMistake { .. })) && uploaded.created {
            self.loader.store.remove(&digest).map_err(unavailable)?;
        }
        announced.map(drop)
    }

    fn upload(&self, upload: &Upload) -> Result<Uploaded, ServiceError> {
        let world = match &upload.world {
            None => None,
            Some(name) => Some(World::by_name(name).ok_or_else(|| {
                let names = World::ALL.map(World::name).join(", ");
                mistake("plugin_refused", "?world", format!("there is no world \"{name}\"; worlds are {names}"))
            })?),
        };
        if upload.name == EMBEDDED_ADAPTOR || BUILTINS.iter().any(|builtin| builtin.name == upload.name) {
            let detail = format!("\"{}\" is the name of a built-in plugin; choose another one", upload.name);
            return Err(mistake("plugin_name_taken", "{name}", detail));
        }
        let digest: ArtefactDigest = Sha256::digest(&upload.bytes).into();
        // Its fallback would depend on whether a release embeds these bytes.
        let worlds = [World::ConflictRule, World::IsolationValidator];
        if let Some(builtin) = worlds.into_iter().find_map(|world| builtin_by_digest(world, &digest)) {
            let detail = format!(
                "this very component is built in as \"{}\": activate it by that name, without a push",
                builtin.name
            );
            return Err(mistake("plugin_built_in", "{name}", detail));
        }
        // Before anything is compiled: an unsigned upload costs no more than its bytes.
        let signed = self.loader.signers.check(&upload.name, &digest, upload.signature.as_ref());
        let signed = signed.map_err(|why| mistake("plugin_signature", "?signature", why))?;
        if let Some(known) = self.loader.store.find(&digest) {
            if known.name != upload.name {
                let detail = format!("this very component was uploaded as \"{}\"", known.name);
                return Err(mistake("plugin_name_taken", "{name}", detail));
            }
            let known = match signed {
                Some(signed) if known.signed.as_ref() != Some(&signed) => {
                    self.loader.store.note_signed(&digest, signed).map_err(unavailable)?
                }
                _ => known,
            };
            let known = if known.checked.config == upload.config {
                known
            } else {
                let found = self.checked(&upload.bytes, world, &upload.config)?;
                self.loader.store.note_checked(&digest, found.checked).map_err(unavailable)?
            };
            return Ok(uploaded(digest, &known, false));
        }
        self.loader.store.check_room().map_err(|why| mistake("too_many_plugins", "", why))?;
        let found = self.checked(&upload.bytes, world, &upload.config)?;
        let other_world =
            |(_, known): &(ArtefactDigest, Artefact)| known.name == upload.name && known.world != found.world;
        if let Some((_, known)) = self.loader.store.list().into_iter().find(other_world) {
            let detail = format!("\"{}\" is of world {}, this component of {}", upload.name, known.world, found.world);
            return Err(mistake("plugin_name_taken", "{name}", detail));
        }
        let artefact = Artefact {
            name: upload.name.clone(),
            world: found.world,
            version: found.version,
            about: found.about,
            bytes: upload.bytes.len() as u64,
            uploaded_ms: unix_ms(),
            signed,
            checked: found.checked,
            announced: None,
            deleted: None,
        };
        let digest = self.loader.store.keep(&upload.bytes, artefact.clone()).map_err(unavailable)?;
        tracing::info!(plugin = artefact.name, digest = hex(&digest), "a plugin was uploaded");
        Ok(uploaded(digest, &artefact, true))
    }

    /// Runs the check in a separate process, on a temporary file.
    fn checked(&self, bytes: &[u8], world: Option<World>, config: &str) -> Result<plugin_check::Found, ServiceError> {
        let file = tempfile::NamedTempFile::new().and_then(|file| std::fs::write(file.path(), bytes).map(|()| file));
        let file = file.map_err(|error| unavailable(format!("the component cannot be set down: {error}")))?;
        plugin_check::check(file.path(), world, config).map_err(|error| match error {
            CheckError::Refused(Rejected { reason, input }) => {
                let shown = input.map(|input| input.to_string()).filter(|text| text.len() <= INPUT_BYTES_MAX);
                let shown = shown.map_or(String::new(), |text| format!("; it failed on this input: {text}"));
                mistake("plugin_refused", "", reason + &shown)
            }
            CheckError::Unavailable(why) => unavailable(why),
        })
    }

    fn overview(&self) -> Overview {
        let mut plugins: BTreeMap<(String, &str), Plugin> = BTreeMap::new();
        for builtin in BUILTINS {
            let plugin = Plugin {
                name: builtin.name.to_owned(),
                world: builtin.world.name().to_owned(),
                builtin: true,
                versions: vec![Version {
                    digest: builtin_digest(builtin.world, builtin.name).unwrap_or_default(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    about: builtin.about.to_owned(),
                    bytes: builtin.bytes.len() as u64,
                    uploaded_ms: None,
                    signed: None,
                    measured: None,
                }],
            };
            plugins.insert((plugin.name.clone(), builtin.world.name()), plugin);
        }
        for (digest, artefact) in self.loader.store.list() {
            let Some(world) = World::by_name(&artefact.world) else { continue };
            let plugin = plugins.entry((artefact.name.clone(), world.name())).or_insert_with(|| Plugin {
                name: artefact.name.clone(),
                world: artefact.world.clone(),
                builtin: false,
                versions: Vec::new(),
            });
            plugin.versions.push(version(digest, &artefact));
        }
        let mut plugins: Vec<Plugin> = plugins.into_values().collect();
        for plugin in &mut plugins {
            plugin.versions.sort_by_key(|version| std::cmp::Reverse(version.uploaded_ms));
        }
        let slots = self.slots.read();
        let slots = slots.iter().filter_map(|(slot, state)| {
            let active = &state.active()?.activation;
            let mut health = Health::default();
            if !active.choice.is_none() {
                health = self.loader.board.of(slot).read();
            }
            if active.by == FilledBy::Faults && health.last_fault.is_none() {
                let fault = self.loader.board.earlier_fault(slot);
                health.last_fault = fault.map(|(plugin, text)| format!("{plugin}, which was rolled back: {text}"));
            }
            Some(Slot {
                active: shown(state.active()?),
                since: state.active()?.since,
                pending: state.waiting().map(shown),
                history: state.history().map(shown_past).collect(),
                health,
            })
        });
        Overview { plugins, slots: slots.collect() }
    }

    fn activate(&self, request: &Activate) -> Result<Activation, ServiceError> {
        let candidate = self.candidate(request)?;
        let slot = slot_for(request, candidate.world)?;
        check_fit(&slot, &candidate)?;
        if let Some(Artefact { name, signed, .. }) = &candidate.artefact {
            let signed = self.loader.signers.check_kept(name, &candidate.digest, signed.as_ref());
            signed.map_err(|why| mistake("plugin_signature", "", format!("{why}; then push it again")))?;
        }
        if self.loader.host() == PolicyHost::Native && !matches!(slot, PluginSlot::Adaptor(_)) {
            let detail = "this node runs the native policies (`plugins = \"native\"`), which no plugin can replace";
            return Err(mistake("plugins_native", "", detail));
        }
        if matches!(slot, PluginSlot::Adaptor(_)) && !request.config.is_empty() {
            let detail = "an adaptor has no configuration of its own, but that of each store which declares it";
            return Err(mistake("plugin_config", "/config", detail));
        }
        let choice = PluginChoice {
            slot,
            name: request.name.clone(),
            digest: candidate.digest,
            host: self.loader.host_name().map_err(unavailable)?,
            config: request.config.clone(),
            announced: self.cluster.is_some() && candidate.artefact.is_some(),
        };
        if let Some(artefact) = &candidate.artefact {
            self.check_transport(&choice, artefact)?;
            let checked = self.checked_under(&candidate, artefact, &request.config)?;
            check_levels(&choice.slot, &checked.levels, &checked.misses)?;
        }
        let declare_again = self.outdated(&choice);
        let done = self.write(PluginActivation {
            choice,
            from: request.from.unwrap_or_default(),
            by: FilledBy::Request,
            who: request.who.clone(),
            at_ms: unix_ms(),
            ..PluginActivation::default()
        })?;
        Ok(Activation { declare_again, ..done })
    }

    /// Returns the stores that must be declared again once an adaptor is active.
    fn outdated(&self, choice: &PluginChoice) -> Vec<StoreId> {
        let PluginSlot::Adaptor(name) = &choice.slot else { return Vec::new() };
        if choice.is_none() {
            return Vec::new();
        }
        let stores = self.stores.all();
        let users = stores.iter().map(|store| &store.spec).filter(|spec| spec.adaptor.as_ref() == Some(name));
        // Code that cannot be loaded is refused when the entry is written.
        self.loader.outdated(choice, users).unwrap_or_default()
    }

    /// Checks that an adaptor's requests can be sent: a store that used it would stop otherwise.
    fn check_transport(&self, choice: &PluginChoice, artefact: &Artefact) -> Result<(), ServiceError> {
        if !matches!(choice.slot, PluginSlot::Adaptor(_)) {
            return Ok(());
        }
        let refused = |why: String| mistake("plugin_refused", "", why);
        match self.loader.language(choice, &artefact.checked.config).map_err(refused)? {
            Language::Resp | Language::Sql => Ok(()),
            language @ (Language::Http | Language::Raw) => Err(refused(language.no_transport())),
        }
    }

    /// Returns the kit's results for a component under the exact configuration to be activated. Results for another
    /// configuration or engine prove nothing: the configuration may turn it into another plugin.
    fn checked_under(&self, candidate: &Candidate, artefact: &Artefact, config: &str) -> Result<Checked, ServiceError> {
        let engine = engine().map_err(unavailable)?.fingerprint().to_string();
        let known = &artefact.checked;
        // An adaptor is configured by each store that declares it, and decides no verdict.
        if candidate.world == World::LogAdaptor || (known.config == config && known.engine == engine) {
            return Ok(known.clone());
        }
        let bytes = self.loader.component(candidate.world, &candidate.digest).map_err(unavailable)?;
        Ok(self.checked(&bytes, Some(candidate.world), config)?.checked)
    }

    fn candidate(&self, request: &Activate) -> Result<Candidate, ServiceError> {
        let world_of = |slot: &PluginSlot| match slot {
            PluginSlot::Rule => World::ConflictRule,
            PluginSlot::Validator(_) => World::IsolationValidator,
            PluginSlot::Adaptor(_) => World::LogAdaptor,
        };
        let builtin = BUILTINS.iter().find(|builtin| {
            builtin.name == request.name && request.slot.as_ref().is_none_or(|slot| world_of(slot) == builtin.world)
        });
        if let Some(builtin) = builtin {
            let digest = builtin_digest(builtin.world, builtin.name).unwrap_or_default();
            return match request.digest {
                Some(other) if other != digest => Err(no_version(&request.name)),
                _ => Ok(Candidate { digest, world: builtin.world, artefact: None }),
            };
        }
        let mut versions = self.loader.store.list();
        versions.retain(|(_, artefact)| artefact.name == request.name);
        if versions.is_empty() {
            // A built-in plugin that does not fit the slot is rejected with that reason.
            if let Some(builtin) = BUILTINS.iter().find(|builtin| builtin.name == request.name) {
                let digest = builtin_digest(builtin.world, builtin.name).unwrap_or_default();
                return Ok(Candidate { digest, world: builtin.world, artefact: None });
            }
            let what = format!("plugin \"{}\"; {LISTED_BY}", request.name);
            return Err(ServiceError::NotFound { what });
        }
        let found = match request.digest {
            Some(digest) => versions.into_iter().find(|(known, _)| *known == digest),
            None => versions.into_iter().max_by_key(|(_, artefact)| artefact.uploaded_ms),
        };
        let (digest, artefact) = found.ok_or_else(|| no_version(&request.name))?;
        let world = World::by_name(&artefact.world).ok_or_else(|| unavailable("its description is of no world"))?;
        Ok(Candidate { digest, world, artefact: Some(artefact) })
    }

    /// Checks that a plugin that is to decide again is signed by a currently configured signer, unless it is built in.
    fn check_signed_still(&self, choice: &PluginChoice) -> Result<(), ServiceError> {
        let Some(Artefact { name, signed, .. }) = self.loader.store.find(&choice.digest) else { return Ok(()) };
        self.loader.signers.check_kept(&name, &choice.digest, signed.as_ref()).map_err(|why| {
            let detail = format!("{why}; activate something else, or push that version again with a signature");
            mistake("plugin_signature", "", detail)
        })
    }

    fn roll_back(&self, name: &str, slot: Option<PluginSlot>, who: String) -> Result<Activation, ServiceError> {
        let (slot, mut choice, by, replaces) = {
            let slots = self.slots.read();
            // A pending entry can also be cancelled under the name of the plugin it replaces, and a deactivation be undone
            // under the name of the plugin that it ended. That plugin is no longer among those that a rollback returns to: it
            // is activated again, if its code still exists.
            let concerned = |state: &SlotState| {
                let present = [state.waiting(), state.active()].into_iter().flatten();
                present.chain(self.deactivated_as(name, state)).any(|entry| entry.activation.choice.name == name)
            };
            let filled: Vec<_> = slots
                .iter()
                .filter(|(known, state)| concerned(state) && slot.as_ref().is_none_or(|slot| slot == *known))
                .collect();
            let (slot, state) = match filled[..] {
                [one] => one,
                [] => {
                    let detail = format!(
                        "\"{name}\" is neither active nor pending in that slot, so there is nothing to roll back"
                    );
                    return Err(mistake("not_active", "/slot", detail));
                }
                _ => {
                    let names = filled.iter().map(|(slot, _)| slot.to_string()).collect::<Vec<_>>().join(", ");
                    return Err(mistake("slot_required", "/slot", format!("it fills {names}; name one of them")));
                }
            };
            // A pending entry is dropped by proposing the active one again.
            let (target, returns, by) = match self.deactivated_as(name, state) {
                _ if state.waiting().is_some() => (state.active(), false, FilledBy::Rollback),
                Some(ended) => (Some(ended), true, FilledBy::Request),
                None => (state.before(), true, FilledBy::Rollback),
            };
            let undone =
                state.active().filter(|_| by == FilledBy::Request).map_or(ControlIndex(0), |active| active.index);
            let target = target.ok_or_else(|| {
                let way_out = if self.is_built_in(slot, state) {
                    "what is active is built in: activate another plugin in place of it"
                } else {
                    "`deactivate` removes what is there"
                };
                let detail = format!("slot {slot} has no earlier activation; {way_out}");
                mistake("nothing_before", "/slot", detail)
            })?;
            if returns {
                self.check_signed_still(&target.activation.choice)?;
            }
            if target.activation.choice.is_none() {
                self.check_unused(name)?;
            }
            (slot.clone(), target.activation.choice.clone(), by, undone)
        };
        if !matches!(slot, PluginSlot::Adaptor(_)) {
            choice.host = self.loader.host_name().map_err(unavailable)?;
        }
        let (at_ms, declare_again) = (unix_ms(), self.outdated(&choice));
        let done = self.write(PluginActivation { choice, by, replaces, who, at_ms, ..PluginActivation::default() })?;
        Ok(Activation { declare_again, ..done })
    }

    fn roll_back_after_faults(&self, slot: &PluginSlot, failed: ControlIndex) -> Result<Activation, ServiceError> {
        let target = {
            let slots = self.slots.read();
            let state = slots.slot(slot);
            let (active, before) = (state.and_then(SlotState::active), state.and_then(SlotState::before));
            match (active, before) {
                (Some(active), Some(before)) if active.index == failed => before.activation.choice.clone(),
                _ => {
                    let detail = format!("slot {slot} has no earlier activation");
                    return Err(mistake("nothing_before", "/slot", detail));
                }
            }
        };
        self.check_signed_still(&target)?;
        let host = self.loader.host_name().map_err(unavailable)?;
        let choice = PluginChoice { host, ..target };
        let (by, at_ms, replaces) = (FilledBy::Faults, unix_ms(), failed);
        self.write(PluginActivation { choice, by, replaces, at_ms, ..PluginActivation::default() })
    }

    /// Deletes versions that no slot holds. Their control log entries come first: once those are durable, so are the
    /// outcomes of all epochs that the versions decided, and no replay needs them.
    fn delete(&self, name: &str, digest: Option<ArtefactDigest>) -> Result<Vec<ArtefactDigest>, ServiceError> {
        let mut digests: Vec<_> = self.loader.store.list();
        digests.retain(|(known, artefact)| artefact.name == name && digest.is_none_or(|digest| digest == *known));
        let mut digests: Vec<ArtefactDigest> = digests.into_iter().map(|(digest, _)| digest).collect();
        // The other nodes may have versions that this one has not fetched yet.
        digests.extend(self.cluster.iter().flat_map(|cluster| cluster.versions(name, digest)));
        digests.sort_unstable();
        digests.dedup();
        if digests.is_empty() {
            if BUILTINS.iter().any(|builtin| builtin.name == name) {
                return Err(mistake(
                    "plugin_built_in",
                    "{name}",
                    format!("\"{name}\" is built in, so it cannot be deleted"),
                ));
            }
            return Err(match digest {
                Some(_) => no_version(name),
                None => ServiceError::NotFound { what: format!("plugin \"{name}\"; {LISTED_BY}") },
            });
        }
        // In a cluster, another node may have changed a slot a moment ago: the control log determines what each slot
        // holds.
        for digest in digests.iter().filter(|_| self.cluster.is_none()) {
            let users = self.slots.read().users_of(digest);
            let Some((slot, found)) = users.first() else { continue };
            let short = &hex(digest)[..12];
            let detail = match found {
                SlotUse::Active => format!(
                    "plugin version {short} is active in slot {slot}: deactivate it first (`tribunal plugin deactivate {name} --slot {slot}`)"
                ),
                SlotUse::Pending => format!(
                    "plugin version {short} is scheduled for slot {slot}: cancel that first (`tribunal plugin rollback {name} --slot {slot}`)"
                ),
            };
            return Err(mistake("plugin_in_use", "{name}", detail));
        }
        for digest in &digests {
            let index = self.control(ControlChange::ForgetPlugin { digest: *digest })?;
            if self.cluster.is_some() {
                // Epochs may be decided again with it, here or on a lagging node.
                if self.loader.store.find(digest).is_some() {
                    self.loader.store.hide(digest, index.0).map_err(unavailable)?;
                }
            } else {
                self.loader.store.remove(digest).map_err(unavailable)?;
                self.loader.compiled.remove(digest);
            }
            tracing::info!(plugin = name, digest = hex(digest), "a plugin version was deleted");
        }
        Ok(digests)
    }

    /// Writes a control log entry; returns its index when it is durable and applied by the sequencer.
    fn control(&self, change: ControlChange) -> Result<ControlIndex, ServiceError> {
        let (reply, applied) = oneshot::channel();
        self.messages.send(Message::Control(change, reply)).map_err(|_| unavailable("the node is stopping"))?;
        let ControlReply { index, applied } = applied.blocking_recv().map_err(|_| ServiceError::OutcomeUnknown {
            detail: "the entry was sent to the control log, but did not become durable in time; list the slots".into(),
        })?;
        applied.map(|_| index).map_err(refused)
    }

    /// Loads a plugin and writes its entry; returns when the entry is durable and applied by the sequencer.
    fn write(&self, activation: PluginActivation) -> Result<Activation, ServiceError> {
        let choice = activation.choice.clone();
        let ready = self.loader.load(&choice).map_err(|why| mistake("plugin_refused", "/config", why))?;
        self.loader.prepare(ready);
        let pending = self.slots.read().slot(&choice.slot).and_then(SlotState::waiting).cloned();
        let index = self.control(ControlChange::ActivatePlugin(activation))?;
        let slots = self.slots.read();
        let past = |index| slots.slot(&choice.slot)?.history().find(|past| past.entry.index == index);
        let Some(entry) = past(index) else {
            return Err(unavailable(format!("slot {} was filled by another activation meanwhile", choice.slot)));
        };
        // It may have taken effect meanwhile.
        let replaces = pending.filter(|entry| past(entry.index).is_none_or(|past| past.entry.since.is_none()));
        let entry = Activation { replaces: replaces.as_ref().map(replaced), ..shown_past(entry) };
        tracing::info!(plugin = choice.name, slot = %choice.slot, from = entry.since.map(|since| since.0), "a plugin was activated");
        Ok(entry)
    }
}

fn replaced(entry: &SlotEntry) -> Replaced {
    let PluginActivation { choice, from, .. } = &entry.activation;
    Replaced { control: entry.index, name: choice.name.clone(), digest: choice.digest, from: *from }
}

fn no_version(name: &str) -> ServiceError {
    ServiceError::NotFound { what: format!("such version of plugin \"{name}\"") }
}

/// Returns the slot of a request: the one it names, or the only one of its world.
fn slot_for(request: &Activate, world: World) -> Result<PluginSlot, ServiceError> {
    match (&request.slot, world) {
        (Some(slot), _) => Ok(slot.clone()),
        (None, World::ConflictRule) => Ok(PluginSlot::Rule),
        (None, World::LogAdaptor) => Ok(PluginSlot::Adaptor(request.name.clone())),
        (None, World::IsolationValidator) => {
            let names = Isolation::ALL.map(|level| PluginSlot::Validator(level).to_string()).join(", ");
            Err(mistake("slot_required", "/slot", format!("a validator fills the slot of one level; name it: {names}")))
        }
    }
}

/// Checks that a version may fill a slot.
fn check_fit(slot: &PluginSlot, candidate: &Candidate) -> Result<(), ServiceError> {
    let misfit = |detail: String| Err(mistake("slot_misfit", "/slot", detail));
    match (slot, candidate.world) {
        (PluginSlot::Rule, World::ConflictRule) => Ok(()),
        (PluginSlot::Adaptor(name), World::LogAdaptor) => {
            let own = match &candidate.artefact {
                Some(artefact) => artefact.name.clone(),
                None => builtin_by_digest(World::LogAdaptor, &candidate.digest).map_or("", |b| b.name).to_owned(),
            };
            if *name == own {
                return Ok(());
            }
            misfit(format!("an adaptor fills the slot of its own name, adaptor:{own}; stores declare it by that"))
        }
        (PluginSlot::Validator(level), World::IsolationValidator) => match &candidate.artefact {
            // Its strength depends on its configuration.
            Some(_) => Ok(()),
            None if builtin_digest(World::IsolationValidator, level.name()) == Some(candidate.digest) => Ok(()),
            None => misfit(format!("the built-in validator of {level} is the one of that name", level = level.name())),
        },
        (slot, world) => misfit(format!("a component of world {} does not fit slot {slot}", world.name())),
    }
}

/// Checks that a validator upholds the guarantees of its slot's level.
fn check_levels(slot: &PluginSlot, levels: &[String], misses: &[(String, String)]) -> Result<(), ServiceError> {
    let PluginSlot::Validator(level) = slot else { return Ok(()) };
    if levels.iter().any(|kept| kept == level.name()) {
        return Ok(());
    }
    let missed = misses.iter().find(|(missed, _)| missed == level.name()).map_or("", |(_, why)| why.as_str());
    let detail = format!("{} forbids what this validator accepts: {missed}", level.name());
    Err(mistake("too_weak", "/slot", detail))
}

fn uploaded(digest: ArtefactDigest, artefact: &Artefact, created: bool) -> Uploaded {
    Uploaded {
        world: artefact.world.clone(),
        version: version(digest, artefact),
        checks: artefact.checked.checks.clone(),
        created,
    }
}

fn version(digest: ArtefactDigest, artefact: &Artefact) -> Version {
    let level = |name: &String| Isolation::ALL.into_iter().find(|level| level.name() == name);
    let checked = &artefact.checked;
    Version {
        digest,
        version: artefact.version.clone(),
        about: artefact.about.clone(),
        bytes: artefact.bytes,
        uploaded_ms: Some(artefact.uploaded_ms),
        signed: artefact.signed.clone().map(|Signed { signer, signature }| (signer, signature)),
        measured: Some(Measured {
            fuel_per_call: checked.fuel_per_call,
            fuel_per_item: checked.fuel_per_item,
            budget_per_item: checked.budget_per_item,
            behaviour: read_digest(&checked.behaviour).unwrap_or_default(),
            levels: checked.levels.iter().filter_map(level).collect(),
            misses: checked.misses.iter().filter_map(|(name, why)| Some((level(name)?, why.clone()))).collect(),
        }),
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
