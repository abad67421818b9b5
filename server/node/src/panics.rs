//! Panics that end the process immediately: those of the main thread, and of a thread that cannot even start.
//!
//! Must not unwind: drops during unwinding wait for threads. For example, a runtime that cannot start its second thread
//! panics, and then waits forever for its first one, which was never told to stop.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;

use crate::commands::last_line::{is_json, write_reason};

/// Exit status of a process whose main thread has panicked, the same as without this module.
const STATUS: i32 = 101;

/// Makes a panic of the calling thread end the process, with the reason as its last line. Other threads panic as
/// before, unless they lack the memory to start.
pub fn end_the_process() {
    let this = std::thread::current().id();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let cannot_begin = cannot_begin(panic);
        if !cannot_begin {
            // The report's backtrace takes memory.
            if is_json() {
                let thread = std::thread::current();
                let (name, backtrace) = (thread.name().unwrap_or("without a name"), Backtrace::capture());
                write_reason(&format!("thread {name} {panic}\n{backtrace}"));
            } else {
                report(panic);
            }
        }
        if cannot_begin || std::thread::current().id() == this {
            write_reason(&reason(panic));
            std::process::exit(STATUS);
        }
    }));
}

/// Returns whether the standard library lacks memory for a new thread's signal stack. It aborts the process after this
/// panic.
fn cannot_begin(panic: &PanicHookInfo<'_>) -> bool {
    panic.payload_as_str().is_some_and(|message| message.contains("alternative stack"))
}

fn reason(panic: &PanicHookInfo<'_>) -> String {
    let message = panic.payload_as_str().unwrap_or("it panicked");
    // Tokio's panic message; it returns no error for this.
    if message.contains("can't spawn") || cannot_begin(panic) {
        return format!(
            "cannot start threads: {message}. Raise the limits of threads and memory (`ulimit -u`, `ulimit -d`)"
        );
    }
    format!(
        "it panicked, so the process ends: {message}. Nothing acknowledged is lost. Please report this with the lines above"
    )
}
