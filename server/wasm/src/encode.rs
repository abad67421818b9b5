//! Makes a component of the core module that a compiler gives. For people who write plugins; the host itself takes
//! components only.

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::world::World;

/// Why a module becomes no component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It is something else, or broken.
    #[error("this is no core module of WebAssembly: {0}")]
    NotAModule(String),
    /// It wants something from outside.
    #[error("it imports {}; plugins import nothing", .0.join(", "))]
    Imports(Vec<String>),
    /// It does not export what its world asks for.
    #[error("it does not fit the world {world}: {why}")]
    OtherWorld {
        /// The world.
        world: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// Names everything that a core module imports, as `module::name`.
///
/// # Errors
/// [`EncodeError::NotAModule`]
pub fn imports(module: &[u8]) -> Result<Vec<String>, EncodeError> {
    if !Parser::is_core_wasm(module) {
        return Err(EncodeError::NotAModule("its first bytes say otherwise".to_owned()));
    }
    let broken = |e: wasmparser::BinaryReaderError| EncodeError::NotAModule(e.to_string());
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::ImportSection(section) = payload.map_err(broken)? {
            for import in section.into_imports() {
                let import = import.map_err(broken)?;
                found.push(format!("{}::{}", import.module, import.name));
            }
        }
    }
    Ok(found)
}

/// Encodes a core module as a component of a world.
///
/// # Errors
/// If it imports anything, or does not export what the world asks for.
pub fn encode(module: &[u8], world: World) -> Result<Vec<u8>, EncodeError> {
    let imports = imports(module)?;
    if !imports.is_empty() {
        return Err(EncodeError::Imports(imports));
    }
    let misfit = |why: String| EncodeError::OtherWorld { world: world.name(), why };
    let mut bytes = module.to_vec();
    if !has_metadata(module) {
        // Bindings of C have their types in an object file; without it the world itself says them.
        let (resolve, id) = world.resolve();
        embed_component_metadata(&mut bytes, resolve, id, StringEncoding::UTF8)
            .map_err(|e| misfit(format!("{e:#}")))?;
    }
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true).module(&bytes).and_then(|encoder| encoder.encode()).map_err(|e| misfit(format!("{e:#}")))
}

fn has_metadata(module: &[u8]) -> bool {
    Parser::new(0).parse_all(module).flatten().any(
        |payload| matches!(payload, Payload::CustomSection(section) if section.name().starts_with("component-type")),
    )
}
