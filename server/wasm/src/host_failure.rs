//! Host failures: this machine could not run a plugin, for reasons that prove nothing about the plugin.
//!
//! Any decision made then, even by the fallback, could differ from what the other replicas decide. So the process
//! stops; after its restart it resolves the same epochs from the same inputs.

use std::sync::OnceLock;

static HOOK: OnceLock<fn(&str)> = OnceLock::new();

/// Sets what is called, with a sentence for people, right before the process aborts. Only the first call counts.
pub fn set_hook(hook: fn(&str)) {
    // A second hook is ignored on purpose: the binary sets one at start, and tests must not replace it.
    let _ = HOOK.set(hook);
}

/// Reports `reason` and aborts the process.
pub(crate) fn stop(reason: &str) -> ! {
    let text = format!("a plugin cannot run on this machine, so no verdict can be given: {reason}");
    match HOOK.get() {
        Some(hook) => hook(&text),
        None => eprintln!("tribunal: {text}"),
    }
    std::process::abort()
}
