//! Converts a compiler's core module into a component. For plugin authors; the host itself accepts only components.

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::world::World;

/// Why a module cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It is not a module, or it is damaged.
    #[error("this is not a WebAssembly core module: {0}")]
    NotAModule(String),
    /// It has imports.
    #[error("it imports {}; plugins must not import anything", .0.join(", "))]
    Imports(Vec<String>),
    /// It does not export the functions that its world requires.
    #[error("it does not fit the world {world}: {why}")]
    OtherWorld {
        /// The world.
        world: &'static str,
        /// The fault.
        why: String,
    },
}

/// Returns the imports of a core module, as `module::name`.
///
/// # Errors
/// [`EncodeError::NotAModule`]
pub fn imports(module: &[u8]) -> Result<Vec<String>, EncodeError> {
    if !Parser::is_core_wasm(module) {
        return Err(EncodeError::NotAModule("it does not begin with the header of one".to_owned()));
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
/// If it imports anything, or does not export the functions that the world requires.
pub fn encode(module: &[u8], world: World) -> Result<Vec<u8>, EncodeError> {
    let imports = imports(module)?;
    if !imports.is_empty() {
        return Err(EncodeError::Imports(imports));
    }
    let misfit = |why: String| EncodeError::OtherWorld { world: world.name(), why };
    let mut bytes = module.to_vec();
    if !has_metadata(module) {
        // C bindings keep the type metadata in an object file. If that was not linked, add the metadata of the world.
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
