//! Plugins as they are uploaded: whatever the bytes, the gate answers; what it lets through loads, or says why not.

use std::sync::{Arc, OnceLock};

use tribunal_wasm::{BUILTINS, Module, PluginEngine, PluginLimits, World, gate};

/// Bytes of the longest text about a plugin.
const TEXT_BYTES_MAX: usize = 64 * 1024;

fn engine() -> &'static Arc<PluginEngine> {
    static ENGINE: OnceLock<Arc<PluginEngine>> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let limits = PluginLimits { instances_max: 2, ..PluginLimits::default() };
        PluginEngine::new(limits).expect("the engine starts")
    })
}

/// Sends the bytes through the gate of every world; tells whether they were loaded into the one that they claim.
pub fn run(data: &[u8]) -> bool {
    let engine = engine();
    let claimed = World::claimed_by(data);
    let mut loaded = false;
    for world in World::ALL {
        let checked = gate::check(data, world, &PluginLimits::default());
        if let Err(refusal) = &checked {
            told(&refusal.to_string());
        }
        if checked.is_ok() {
            assert_eq!(claimed, Some(world), "what passes the gate of a world exports its interface");
            match Module::load(engine, world, data, "") {
                Ok(_) => loaded = true,
                Err(error) => told(&error.to_string()),
            }
        }
    }
    loaded
}

fn told(text: &str) {
    assert!(!text.is_empty() && text.len() <= TEXT_BYTES_MAX, "{} bytes of reason", text.len());
}

/// The built-in plugins: what mutations begin with.
#[must_use]
pub fn made() -> Vec<Vec<u8>> {
    BUILTINS.iter().map(|builtin| builtin.bytes.to_vec()).collect()
}

/// Makes the engine.
pub fn warm_up() {
    let _ = engine();
}
