//! The conformance kit: checks the part of a plugin's contract that its types do not express, with fixed and random input.
//!
//! The same kit runs for authors (`tribunal plugin test`), at upload and before an activation. It finds violations, but
//! cannot prove that there are none. Random input is the same each time, so a plugin that passes once passes again. The
//! kit has no effect on anything but the plugin.
//!
//! | check | rule | validator | adaptor |
//! |---|---|---|---|
//! | golden vectors: hand-written edge cases, digest of the results | x | x | x |
//! | the order of a batch does not affect results | x | x | |
//! | other transactions of a batch do not affect results | x | x | |
//! | spreading operations over shards does not affect results | | x | |
//! | a fresh instance gives the same result for the same fuel | x | x | x |
//! | anomalies that each level forbids | | x | |
//! | the same records give the same requests; an error is not classified as success | | | x |
//! | no record is named as the last one that the storage has not named | | | x |
//! | fuel per item against the budget | x | x | x |

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

/// A check that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// Number of inputs.
    pub cases: u32,
}

/// Fuel that a plugin uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Fuel of a call with the smallest input, including instantiation and `init`.
    pub fuel_per_call: u64,
    /// Fuel of each further transaction or record.
    pub fuel_per_item: u64,
    /// Fuel that the limits allow per transaction or record.
    pub budget_per_item: u64,
}

/// The report on a plugin that passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// World of the plugin.
    pub world: World,
    /// SHA-256 of the component.
    pub digest: [u8; 32],
    /// The plugin's description of itself.
    pub description: Description,
    /// The checks.
    pub checks: Vec<Check>,
    /// Fuel that the plugin uses.
    pub cost: Cost,
    /// SHA-256 of the results on the golden vectors: equal for versions that behave alike on them.
    pub behaviour: [u8; 32],
    /// Levels that a validator enforces: it rejects all of their anomalies.
    pub levels: Vec<Isolation>,
    /// The other levels, each with the first anomaly that the validator accepts.
    pub misses: Vec<(Isolation, &'static str)>,
}

/// Why a plugin is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It exports the interface of no world.
    #[error("the component exports none of {}", World::ALL.map(World::interface).join(", "))]
    NoWorld,
    /// It exports the interface of a world other than the one that the caller named.
    #[error("the component is of world {found}, not of {expected}")]
    AnotherWorld {
        /// World that the caller named.
        expected: &'static str,
        /// World whose interface the component exports.
        found: &'static str,
    },
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It failed on an input of the kit.
    #[error("{check}: {fault}")]
    Fault {
        /// The check.
        check: &'static str,
        /// The fault.
        fault: Fault,
        /// The failing input; empty if no particular input is to blame.
        input: Box<Vector>,
    },
    /// It violated its contract.
    #[error("{check}: {why}")]
    Broken {
        /// The check.
        check: &'static str,
        /// The violation.
        why: String,
        /// The failing input; empty if no particular input is to blame.
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

    /// Attaches the failing input.
    fn on(mut self, vector: Vector) -> Failure {
        if let Failure::Fault { input, .. } | Failure::Broken { input, .. } = &mut self {
            **input = vector;
        }
        self
    }
}

/// The checks that passed so far, and the digest of the results.
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

/// The findings of the checks of one world.
#[derive(Default)]
struct Findings {
    cost: Cost,
    levels: Vec<Isolation>,
    misses: Vec<(Isolation, &'static str)>,
}

/// Loads a component with a configuration and checks it. `expected` is the world that the caller named.
///
/// # Errors
/// The first failure.
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

/// Returns the world that a component claims to implement, after the static checks that do not depend on it.
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
