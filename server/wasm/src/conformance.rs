//! The conformance kit: what a plugin must keep beyond its types, checked with fixed and with random input.
//!
//! The same kit runs for an author (`tribunal plugin test`), at upload and before an activation. It finds broken promises
//! and proves none kept: random input is the same each time, so a plugin that passes once passes again. It never touches
//! anything but the plugin.
//!
//! | check | rule | validator | adaptor |
//! |---|---|---|---|
//! | golden vectors: hand-made edges, answers digested | x | x | x |
//! | shuffled batches change nothing | x | x | |
//! | the rest of the batch changes nothing | x | x | |
//! | operations spread over shards change nothing | | x | |
//! | a fresh instance gives the same answer for the same fuel | x | x | x |
//! | anomalies that each level forbids | | x | |
//! | the same records make the same requests; an error is no success | | | x |
//! | fuel of an item against the budget | x | x | x |

mod adaptors;
mod anomalies;
pub mod random;
mod rules;
mod validators;
pub mod vector;

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tribunal_types::Isolation;

use crate::engine::PluginEngine;
use crate::fault::Fault;
use crate::gate::Refusal;
use crate::module::{Description, LoadError, Module};
use crate::world::World;

use vector::Vector;

/// One check that was passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// On how many inputs.
    pub cases: u32,
}

/// What a plugin uses of its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Fuel of a call that does next to nothing, instantiation and `init` included.
    pub fuel_per_call: u64,
    /// Fuel of each further transaction or record.
    pub fuel_per_item: u64,
    /// What the limits grant for each.
    pub budget_per_item: u64,
}

/// What is known of a plugin that keeps its promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its world.
    pub world: World,
    /// SHA-256 of its bytes.
    pub digest: [u8; 32],
    /// Its own description.
    pub description: Description,
    /// What was checked.
    pub checks: Vec<Check>,
    /// What it uses.
    pub cost: Cost,
    /// SHA-256 over its answers to the golden vectors: equal for versions that behave alike on them.
    pub behaviour: [u8; 32],
    /// A validator's levels: those whose anomalies it all rejects.
    pub levels: Vec<Isolation>,
    /// A validator's other levels, each with the first anomaly that it accepts.
    pub misses: Vec<(Isolation, &'static str)>,
}

/// Why a plugin is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It exports the interface of no world.
    #[error("the component exports none of {}", World::ALL.map(World::interface).join(", "))]
    NoWorld,
    /// The caller named one world, and it exports another one's interface.
    #[error("the component is of world {found}, not of {expected}")]
    AnotherWorld {
        /// What the caller named.
        expected: &'static str,
        /// What it exports.
        found: &'static str,
    },
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It failed on an input of the kit.
    #[error("{check}: {fault}")]
    Fault {
        /// Which check.
        check: &'static str,
        /// What happened.
        fault: Fault,
        /// On which input; empty if none is to blame.
        input: Box<Vector>,
    },
    /// It broke a promise.
    #[error("{check}: {why}")]
    Broken {
        /// Which check.
        check: &'static str,
        /// How.
        why: String,
        /// On which input; empty if none is to blame.
        input: Box<Vector>,
    },
}

impl Failure {
    /// Returns the input that the plugin failed on, if there is one to show.
    #[must_use]
    pub fn input(&self) -> Option<&Vector> {
        match self {
            Failure::Fault { input, .. } | Failure::Broken { input, .. } => {
                (!input.columns.is_empty()).then_some(input)
            }
            _ => None,
        }
    }

    /// Adds the input.
    fn on(mut self, vector: Vector) -> Failure {
        if let Failure::Fault { input, .. } | Failure::Broken { input, .. } = &mut self {
            **input = vector;
        }
        self
    }
}

/// Runs one check after the other and notes what was passed.
struct Kit {
    checks: Vec<Check>,
    answers: Sha256,
}

impl Kit {
    fn passed(&mut self, name: &'static str, cases: u32) {
        self.checks.push(Check { name, cases });
    }

    fn note(&mut self, answer: &[u8]) {
        self.answers.update((answer.len() as u64).to_le_bytes());
        self.answers.update(answer);
    }
}

/// What the checks of one world find beside "passed".
#[derive(Default)]
struct Findings {
    cost: Cost,
    levels: Vec<Isolation>,
    misses: Vec<(Isolation, &'static str)>,
}

/// Loads a component with a configuration and checks it. `expected` is the world that the caller named.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(
    engine: &Arc<PluginEngine>,
    bytes: &[u8],
    config: &str,
    expected: Option<World>,
) -> Result<Report, Failure> {
    let world = world_of(engine, bytes, expected)?;
    let module = Module::load(engine, world, bytes, config)?;
    let (digest, description) = (module.digest(), module.description().clone());
    let mut kit = Kit { checks: Vec::new(), answers: Sha256::new() };
    let findings = match world {
        World::ConflictRule => rules::check(module, &mut kit)?,
        World::IsolationValidator => validators::check(module, &mut kit)?,
        World::LogAdaptor => adaptors::check(module, &mut kit)?,
    };
    let Findings { cost, levels, misses } = findings;
    let behaviour = kit.answers.finalize().into();
    Ok(Report { world, digest, description, checks: kit.checks, cost, behaviour, levels, misses })
}

/// Finds the world that a component claims; refusals that need no world come first.
fn world_of(engine: &PluginEngine, bytes: &[u8], expected: Option<World>) -> Result<World, Failure> {
    let found = World::claimed_by(bytes);
    match (found, expected) {
        (Some(found), Some(expected)) if found != expected => {
            Err(Failure::AnotherWorld { expected: expected.name(), found: found.name() })
        }
        (Some(found), _) => Ok(found),
        (None, expected) => {
            let world = expected.unwrap_or(World::ConflictRule);
            match crate::gate::check(bytes, world, engine.limits()) {
                Err(refusal @ Refusal::OtherWorld { .. }) if expected.is_some() => {
                    Err(Failure::Load(LoadError::Refused(refusal)))
                }
                Err(Refusal::OtherWorld { .. }) | Ok(()) => Err(Failure::NoWorld),
                Err(refusal) => Err(Failure::Load(LoadError::Refused(refusal))),
            }
        }
    }
}

fn failed(check: &'static str) -> impl Fn(Fault) -> Failure {
    move |fault| Failure::Fault { check, fault, input: Box::default() }
}

fn broken(check: &'static str, why: impl Into<String>) -> Failure {
    Failure::Broken { check, why: why.into(), input: Box::default() }
}
