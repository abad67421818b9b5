//! The worlds that a plugin can be written for.

use std::sync::OnceLock;

use wit_parser::{Resolve, WorldId};

/// The whole package; `lifecycle.wit` comes first because it names the package.
const WIT: &str = concat!(
    include_str!("../../../plugins/wit/lifecycle.wit"),
    include_str!("../../../plugins/wit/rule.wit"),
    include_str!("../../../plugins/wit/validator.wit"),
    include_str!("../../../plugins/wit/adaptor.wit"),
);

/// A world of the package `tribunal:plugin@1.0.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum World {
    /// Orders transactions that contend for rows.
    ConflictRule,
    /// Judges transactions of one isolation level.
    IsolationValidator,
    /// Turns log records into a storage's own language.
    LogAdaptor,
}

impl World {
    /// Returns the world's name in WIT.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            World::ConflictRule => "conflict-rule",
            World::IsolationValidator => "isolation-validator",
            World::LogAdaptor => "log-adaptor",
        }
    }

    /// Returns the name of the interface that the world exports beside `lifecycle`.
    pub(crate) fn interface(self) -> &'static str {
        match self {
            World::ConflictRule => "tribunal:plugin/rule@1.0.0",
            World::IsolationValidator => "tribunal:plugin/validator@1.0.0",
            World::LogAdaptor => "tribunal:plugin/adaptor@1.0.0",
        }
    }

    /// Returns the parsed WIT and this world's place in it.
    pub(crate) fn resolve(self) -> (&'static Resolve, WorldId) {
        static PARSED: OnceLock<(Resolve, [WorldId; 3])> = OnceLock::new();
        let (resolve, worlds) = PARSED.get_or_init(parse);
        (resolve, worlds[self as usize])
    }
}

fn parse() -> (Resolve, [WorldId; 3]) {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_source("plugin.wit", WIT)
        .unwrap_or_else(|e| panic!("plugins/wit is part of this program and parses: {e:#}"));
    let worlds = [World::ConflictRule, World::IsolationValidator, World::LogAdaptor]
        .map(|world| resolve.select_world(&[package], Some(world.name())).expect("plugins/wit defines every world"));
    (resolve, worlds)
}
