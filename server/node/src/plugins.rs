//! The Wasm engine of the process, and the built-in modules in it.

use std::sync::{Arc, OnceLock};

use tribunal_push::{Adaptor, AdaptorFault};
use tribunal_types::{Ack, Lsn, PushRequest, RecordBatch, StorageReply};
use tribunal_wasm::{Builtin, PluginEngine, PluginLimits, WasmAdaptor, World};

/// Returns the engine, which is made at the first call.
///
/// # Errors
/// If this machine cannot run it.
pub fn engine() -> Result<&'static Arc<PluginEngine>, String> {
    static ENGINE: OnceLock<Result<Arc<PluginEngine>, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        tribunal_wasm::trouble::set_hook(|reason| {
            tracing::error!(reason, "the host of the plugins is in trouble; that is no verdict, so the node ends");
        });
        PluginEngine::new(PluginLimits::default()).map_err(|error| format!("cannot start the Wasm engine: {error}"))
    });
    engine.as_ref().map_err(Clone::clone)
}

/// Returns a built-in module by world and name.
///
/// # Errors
/// Says which ones there are.
pub fn builtin(world: World, name: &str) -> Result<&'static Builtin, String> {
    Builtin::find(world, name).ok_or_else(|| {
        let names = tribunal_wasm::BUILTINS.iter().filter(|b| b.world == world).map(|b| b.name);
        format!("there is no {} `{name}`; built in are {}", world.name(), names.collect::<Vec<_>>().join(", "))
    })
}

/// A LogAdaptor in Wasm, as the push knows it.
pub struct LogAdaptor(WasmAdaptor);

/// Makes the LogAdaptor `name` for the store `store`.
///
/// # Errors
/// If there is none of that name, or it refuses the configuration.
pub fn adaptor(name: &str, store: &str, config: &str) -> Result<LogAdaptor, String> {
    let module = builtin(World::LogAdaptor, name)?.load(engine()?, config).map_err(|error| error.to_string())?;
    WasmAdaptor::new(module, store).map(LogAdaptor).map_err(|error| error.to_string())
}

impl Adaptor for LogAdaptor {
    fn watermark(&self) -> Result<PushRequest, AdaptorFault> {
        self.0.watermark().map_err(fault)
    }

    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault> {
        self.0.read_watermark(reply).map_err(fault)
    }

    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault> {
        self.0.encode(records).map_err(fault)
    }

    fn classify(&self, reply: &StorageReply) -> Ack {
        self.0.classify(reply)
    }
}

fn fault(fault: tribunal_wasm::AdaptorFault) -> AdaptorFault {
    AdaptorFault::new(fault.0)
}
