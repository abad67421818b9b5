//! The worlds that plugins can implement.

use std::sync::OnceLock;

use wasmparser::{Parser, Payload};
use wit_parser::{Resolve, WorldId};

/// Names and texts of the package's files. `lifecycle.wit` comes first because it declares the package.
pub const WIT_FILES: [(&str, &str); 4] = [
    ("lifecycle.wit", include_str!("../../../plugins/wit/lifecycle.wit")),
    ("rule.wit", include_str!("../../../plugins/wit/rule.wit")),
    ("validator.wit", include_str!("../../../plugins/wit/validator.wit")),
    ("adaptor.wit", include_str!("../../../plugins/wit/adaptor.wit")),
];

/// Optional interfaces that were added later, each in a separate package.
pub const OPTIONAL_WIT_FILES: [(&str, &str); 2] = [
    ("deps/record-ids/record-ids.wit", include_str!("../../../plugins/wit/deps/record-ids/record-ids.wit")),
    ("deps/traces/traces.wit", include_str!("../../../plugins/wit/deps/traces/traces.wit")),
];

/// The optional interface of LogAdaptors whose storages keep the record that they have applied last.
pub(crate) const RECORD_IDS: &str = "tribunal:plugin-record-ids/record-ids@1.0.0";

/// The optional interface of LogAdaptors that receive trace contexts.
pub(crate) const TRACES: &str = "tribunal:plugin-traces/traces@1.0.0";

/// A world of the package `tribunal:plugin@1.0.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum World {
    /// Orders transactions that contend for rows.
    ConflictRule,
    /// Judges transactions of one isolation level.
    IsolationValidator,
    /// Translates log records into requests to a storage.
    LogAdaptor,
}

impl World {
    /// All worlds.
    pub const ALL: [World; 3] = [World::ConflictRule, World::IsolationValidator, World::LogAdaptor];

    /// Returns the world of this name in WIT.
    #[must_use]
    pub fn by_name(name: &str) -> Option<World> {
        World::ALL.into_iter().find(|world| world.name() == name)
    }

    /// Returns the world whose interface a component exports, judged by the interface's name alone; `None` if it
    /// exports none. The static checks verify that the component implements the interface.
    #[must_use]
    pub fn claimed_by(component: &[u8]) -> Option<World> {
        let exports = exports(component);
        exports.into_iter().find_map(|export| World::ALL.into_iter().find(|world| world.interface() == export))
    }

    /// Returns the world's name in WIT.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            World::ConflictRule => "conflict-rule",
            World::IsolationValidator => "isolation-validator",
            World::LogAdaptor => "log-adaptor",
        }
    }

    /// Returns the name of the interface that the world exports in addition to `lifecycle`.
    pub(crate) fn interface(self) -> &'static str {
        match self {
            World::ConflictRule => "tribunal:plugin/rule@1.0.0",
            World::IsolationValidator => "tribunal:plugin/validator@1.0.0",
            World::LogAdaptor => "tribunal:plugin/adaptor@1.0.0",
        }
    }

    /// Returns the parsed WIT and the id of this world in it.
    pub(crate) fn resolve(self) -> (&'static Resolve, WorldId) {
        static PARSED: OnceLock<(Resolve, [WorldId; 3])> = OnceLock::new();
        let (resolve, worlds) = PARSED.get_or_init(parse);
        (resolve, worlds[self as usize])
    }
}

/// The interface that all worlds export.
pub(crate) const LIFECYCLE: &str = "tribunal:plugin/lifecycle@1.0.0";

/// A plugin interface that a component exports in another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherVersion {
    /// The interface, with the component's version.
    pub(crate) found: String,
    /// The same interface in this release's version.
    pub(crate) known: &'static str,
}

/// Returns the first plugin interface that a component exports in another version than this release's.
pub(crate) fn other_version(component: &[u8]) -> Option<OtherVersion> {
    let known = || World::ALL.map(World::interface).into_iter().chain([LIFECYCLE]);
    exports(component).into_iter().find_map(|found| {
        let (name, version) = found.split_once('@')?;
        let of_name = |known: &&str| known.split_once('@').is_some_and(|(own, at)| own == name && at != version);
        let known = known().find(of_name)?;
        Some(OtherVersion { found: found.to_owned(), known })
    })
}

/// Returns the names of a component's exports; those after an unreadable part are missing.
fn exports(component: &[u8]) -> Vec<&str> {
    let mut names = Vec::new();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload {
            Ok(Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::ComponentExportSection(exports)) if depth == 0 => {
                names.extend(exports.into_iter().flatten().map(|export| export.name.name));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    names
}

fn parse() -> (Resolve, [WorldId; 3]) {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_source("plugin.wit", &WIT_FILES.map(|(_, text)| text).concat())
        .unwrap_or_else(|e| panic!("plugins/wit is part of this program and parses: {e:#}"));
    let worlds = World::ALL
        .map(|world| resolve.select_world(&[package], Some(world.name())).expect("plugins/wit defines every world"));
    (resolve, worlds)
}
