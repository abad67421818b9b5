//! A node whose log has been read, before its threads start: single, or a member of a cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tribunal_core::control::ReplicatedState;
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DiskLog, GroupCursors, HoldBack, LogReader};
use tribunal_replica::{Now, Replica, ReplicaStart, Settings};
use tribunal_types::{Bounds, Generation, GroupId, PluginActivation};

use crate::cluster::first_start::FirstStart;
use crate::cluster::generations::own_generations;
use crate::cluster::membership::Membership;
use crate::cluster::node_member::NodeMember;
use crate::cluster::recovery::{Drawn, recover_member};
use crate::commit::batch_size::single_node_bytes_max;
use crate::commit::decider::Decider;
use crate::commit::recovery::{recover, wanted_bounds};
use crate::commit::shards::Workers;
use crate::config::{Config, EpochLength};
use crate::ignored_settings::ignored_by_member;
use crate::plugins::plugin_loader::PluginLoader;
use crate::plugins::policies::PolicySet;

/// A node whose log has been read, before its threads start.
pub struct Ready {
    /// Writes the log.
    pub log: DiskLog,
    /// Reads it.
    pub reader: LogReader,
    /// How far the state image that a member started from has read the Raft groups.
    pub image: GroupCursors,
    /// Hashes row keys.
    pub keyer: RowKeyer,
    /// The group that it leads in normal operation.
    pub group: GroupId,
    /// Folded state of the control log.
    pub replicated: ReplicatedState,
    /// Replicated time of the last epoch.
    pub epoch_time_ms: u64,
    /// Origin of the decider's monotonic clock.
    pub started: Instant,
    /// Plugins that the configuration names and the control log does not contain yet.
    pub activations: Vec<PluginActivation>,
    /// Bounds that the configuration names and the control log does not contain yet.
    pub bounds: Option<Bounds>,
    /// The generation in which a single node decides from its start on, if it differs from the current one. Members
    /// agree on theirs.
    pub generation: Option<Generation>,
    /// The future decider.
    pub deciding: Deciding,
}

/// The future decider.
pub enum Deciding {
    /// A replica.
    Alone(Box<ReplicaStart<PolicySet, Workers>>),
    /// A member.
    Member(Box<NodeMember>, FirstStart),
}

impl Deciding {
    /// Starts the decider.
    pub fn begin(self, now: Now) -> Decider {
        match self {
            Deciding::Alone(start) => Decider::Alone(Box::new(Replica::new(*start, now))),
            Deciding::Member(member, first_start) => Decider::Member(member, first_start),
        }
    }
}

impl Ready {
    /// Recovers a single node.
    ///
    /// # Errors
    /// A description of the problem and its remedy.
    pub fn alone(config: &Config, loader: Arc<PluginLoader>) -> Result<Ready, String> {
        let recovered = recover(config, loader)?;
        let generation = recovered.replicated.releases().generation();
        let start = ReplicaStart {
            group: recovered.group,
            leads: true,
            resolver: recovered.resolver,
            epochs: recovered.epochs,
            batcher: recovered.batcher,
            visibility: recovered.visibility,
            replicated: recovered.replicated,
            control: recovered.control,
            run: draw()?,
            policies: recovered.policies,
            executor: recovered.workers,
            replayed: recovered.replayed,
            settings: settings_of(config),
        };
        Ok(Ready {
            log: recovered.log,
            reader: recovered.reader,
            image: GroupCursors::new(),
            keyer: recovered.keyer,
            group: recovered.group,
            replicated: start.replicated.clone(),
            epoch_time_ms: start.resolver.epoch_time_ms(),
            started: Instant::now(),
            activations: recovered.activations,
            bounds: recovered.bounds,
            generation: Some(own_generations().newest).filter(|newest| *newest > generation),
            deciding: Deciding::Alone(Box::new(start)),
        })
    }

    /// Recovers a member of a cluster.
    ///
    /// # Errors
    /// A description of the problem and its remedy.
    pub fn member(config: &Config, membership: &Membership, loader: Arc<PluginLoader>) -> Result<Ready, String> {
        let drawn = Drawn { run: draw()?, seed: draw()? };
        let recovered = recover_member(config, membership, loader, settings_of(config), drawn)?;
        let replica = recovered.member.replica();
        let replicated = replica.replicated().clone();
        for ignored in ignored_by_member(config, replicated.bounds(), replicated.slots()) {
            tracing::warn!("{ignored}");
        }
        // A node's configuration applies to a cluster that has none; which node's must not depend on a race.
        let bounds = replicated.bounds().is_none().then(|| wanted_bounds(config, None));
        Ok(Ready {
            log: recovered.log,
            reader: recovered.reader,
            image: recovered.image,
            keyer: recovered.keyer,
            group: Membership::group_of(membership.node),
            epoch_time_ms: replica.resolver().epoch_time_ms(),
            started: recovered.started,
            activations: recovered.activations,
            bounds,
            generation: None,
            replicated,
            deciding: Deciding::Member(recovered.member, recovered.first_start),
        })
    }
}

/// Number of bytes that an epoch counts for state images, in addition to its items: deciding it again takes some 70 us
/// regardless of its content, the time to decide as many bytes of items.
pub const EPOCH_BYTES: u64 = 16 * 1024;

/// Returns how much of the log a store may hold back.
pub fn quota_of(config: &Config) -> HoldBack {
    HoldBack { age_ms: config.push.detach_after_hours * 3_600_000, bytes: config.push.detach_after_bytes }
}

/// Returns the settings of a single node's replica; recovery adapts them for a member.
fn settings_of(config: &Config) -> Settings {
    Settings {
        epoch_length: match config.epoch {
            EpochLength::Adaptive => None,
            EpochLength::Fixed(ms) => Some(Duration::from_millis(ms)),
        },
        image_every_bytes: config.log.image_every_bytes,
        epoch_bytes: EPOCH_BYTES,
        quota: quota_of(config).to_string(),
        in_flight_max: 1,
        pause_min: Duration::ZERO,
        batch_bytes_max: single_node_bytes_max(&config.epoch),
        take_over_after: None,
    }
}

/// Draws a number that no other process has drawn.
///
/// # Errors
/// A description of the failure.
pub fn draw() -> Result<u64, String> {
    let mut run = [0; 8];
    let drawn = SystemRandom::new().fill(&mut run);
    drawn.map_err(|_| "the operating system gives no random bytes".to_owned())?;
    Ok(u64::from_le_bytes(run))
}
