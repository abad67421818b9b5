//! Host trouble: this machine could not run a plugin, for reasons that say nothing about the plugin.
//!
//! Deciding anything then, be it by the fallback, could differ from what the other replicas decide. So the process
//! stops; after its restart it resolves the same epochs from the same inputs.

use std::sync::OnceLock;

static HOOK: OnceLock<fn(&str)> = OnceLock::new();

/// Sets what is called, with a sentence for people, right before the process aborts. Only the first call counts.
pub fn set_hook(hook: fn(&str)) {
    // A second hook is ignored on purpose: the binary sets one at start, tests must not replace it.
    let _ = HOOK.set(hook);
}

/// Reports `what` and aborts the process.
pub(crate) fn stop(what: &str) -> ! {
    let text = format!("a plugin cannot run on this machine, so no verdict can be given: {what}");
    match HOOK.get() {
        Some(hook) => hook(&text),
        None => eprintln!("tribunal: {text}"),
    }
    std::process::abort()
}
