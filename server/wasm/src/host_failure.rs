//! Host failures: this machine cannot run a plugin, for reasons unrelated to the plugin.
//!
//! Any decision made then, even by the native fallback, could differ from that of other replicas. So the process aborts.
//! After a restart, it resolves the same epochs from the same inputs.

use std::io::Write;
use std::sync::OnceLock;

static HOOK: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function that is called with a message for the operator right before the process aborts. Only the first
/// call counts.
pub fn set_hook(hook: fn(&str)) {
    // Ignoring a second hook is intended: the binary sets one at start, and tests must not replace it.
    let _ = HOOK.set(hook);
}

/// Reports `reason` and aborts the process.
pub(crate) fn stop(reason: &str) -> ! {
    let text = format!("a plugin cannot run on this machine, so no verdict can be given: {reason}");
    match HOOK.get() {
        Some(hook) => hook(&text),
        None => drop(writeln!(std::io::stderr(), "tribunal: {text}")),
    }
    std::process::abort()
}
