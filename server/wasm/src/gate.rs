//! Static checks of a component, before any of it is compiled.

use wasmparser::{Parser, Payload, Validator, WasmFeatures};

use crate::limits::PluginLimits;
use crate::world::{OtherVersion, World, other_version};

/// Bytes of a page of linear memory.
const PAGE_BYTES: u64 = 65_536;

/// Why a component is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is too large.
    #[error("the component has {bytes} bytes, {max} are allowed")]
    TooLarge {
        /// Size of the component.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A core module, precompiled code, text, or anything else.
    #[error("not a Wasm component: {0}")]
    NotAComponent(&'static str),
    /// It is invalid, or needs a feature that is off.
    #[error("the component is invalid, or needs a feature that is off: {0}")]
    Invalid(String),
    /// It has imports.
    #[error("the component imports {0}; plugins must not import anything")]
    Imports(String),
    /// It does not export the functions that its world requires.
    #[error("the component is not of world {world}: {why}")]
    OtherWorld {
        /// The world.
        world: &'static str,
        /// The difference.
        why: String,
    },
    /// It was built for another version of the interfaces.
    #[error(
        "the component has the interface {found}, and this release of Tribunal has {known}: build the plugin with the interfaces of \
         this release, which `tribunal plugin new` writes, or use a release that has those of the plugin"
    )]
    OtherVersion {
        /// Interface that the component exports.
        found: String,
        /// The same interface in this release's version.
        known: &'static str,
    },
    /// Its initial memory exceeds the limit, or it has several memories.
    #[error("the component needs {0}")]
    Memory(String),
    /// It has too many core modules.
    #[error("the component has {count} core modules, {max} are allowed")]
    TooManyModules {
        /// Number of core modules.
        count: u32,
        /// The limit.
        max: u32,
    },
}

/// Checks a component for a world, before it is compiled.
///
/// # Errors
/// See [`Refusal`].
pub fn check(bytes: &[u8], world: World, limits: &PluginLimits) -> Result<(), Refusal> {
    if bytes.len() > limits.component_bytes_max {
        return Err(Refusal::TooLarge { bytes: bytes.len(), max: limits.component_bytes_max });
    }
    check_kind(bytes)?;
    Validator::new_with_features(features()).validate_all(bytes).map_err(|e| Refusal::Invalid(e.to_string()))?;
    check_parts(bytes, limits.memory_of(world), limits.core_modules_max)?;
    if let Some(OtherVersion { found, known }) = other_version(bytes) {
        return Err(Refusal::OtherVersion { found, known });
    }
    let (resolve, id) = world.resolve();
    wit_component::targets(resolve, id, bytes)
        .map_err(|e| Refusal::OtherWorld { world: world.name(), why: format!("{e:#}") })
}

/// The features that wasmtime is configured to accept, as flags of its parser.
fn features() -> WasmFeatures {
    WasmFeatures::WASM2 | WasmFeatures::EXTENDED_CONST | WasmFeatures::COMPONENT_MODEL | WasmFeatures::GC_TYPES
}

fn check_kind(bytes: &[u8]) -> Result<(), Refusal> {
    if Parser::is_component(bytes) {
        return Ok(());
    }
    Err(Refusal::NotAComponent(if Parser::is_core_wasm(bytes) {
        "it is a core module; encode it first (`wasm-tools component new`)"
    } else if bytes.starts_with(b"\x7fELF") {
        "it is precompiled code, which is never accepted"
    } else {
        "it does not begin with a WebAssembly header"
    }))
}

/// Checks the component and everything nested in it.
fn check_parts(bytes: &[u8], memory_bytes_max: usize, modules_max: u32) -> Result<(), Refusal> {
    let invalid = |e: wasmparser::BinaryReaderError| Refusal::Invalid(e.to_string());
    let (mut depth, mut modules, mut memories) = (0u32, 0u32, 0u32);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            Payload::ModuleSection { .. } => {
                depth += 1;
                modules += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 0 => {
                if let Some(import) = imports.into_iter().next() {
                    return Err(Refusal::Imports(import.map_err(invalid)?.name.name.to_owned()));
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    memories += 1;
                    check_memory(memory.map_err(invalid)?.initial, memories, memory_bytes_max)?;
                }
            }
            _ => {}
        }
    }
    if modules > modules_max {
        return Err(Refusal::TooManyModules { count: modules, max: modules_max });
    }
    Ok(())
}

fn check_memory(pages: u64, memories: u32, max: usize) -> Result<(), Refusal> {
    let bytes = pages.saturating_mul(PAGE_BYTES);
    if bytes > max as u64 {
        return Err(Refusal::Memory(format!("{bytes} bytes of memory from the start, {max} are allowed")));
    }
    if memories > 1 {
        return Err(Refusal::Memory("more than one memory".to_owned()));
    }
    Ok(())
}
