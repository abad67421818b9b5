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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::{Value, json};

    use super::*;
    use crate::commands::last_line::use_json;

    /// Set in the process that panics: the format of its lines.
    const CHILD: &str = "TRIBUNAL_CHILD_THAT_PANICS";

    /// Does nothing unless it is run as a process of its own.
    #[test]
    fn child_that_panics() {
        let Ok(format) = std::env::var(CHILD) else { return };
        if format == "json" {
            use_json(Some(3));
        }
        end_the_process();
        let other = std::thread::Builder::new().name("other".into()).spawn(|| panic!("on another\nthread"));
        assert!(other.expect("a thread").join().is_err());
        panic!("on the main\nthread");
    }

    /// Runs it; returns its exit status and its standard error.
    fn panicking(format: &str) -> (Option<i32>, String) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "panics::tests::child_that_panics", "--nocapture"])
            .env(CHILD, format)
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn panics_are_json_where_log_lines_are_and_that_of_the_main_thread_ends_the_process() {
        let (status, printed) = panicking("json");
        assert_eq!(status, Some(STATUS), "{printed}");
        let lines: Vec<Value> = printed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}\n{printed}")))
            .collect();
        assert!(lines.iter().all(|line| line["level"] == "ERROR" && line["node"] == json!(3)), "{printed}");
        let [other, main, reason] = &lines[..] else { panic!("one line for each panic, then the reason: {printed}") };
        let message = |line: &Value| line["fields"]["message"].as_str().unwrap().to_owned();
        for (line, thread, text) in
            [(other, "thread other ", "on another\nthread"), (main, "thread ", "on the main\nthread")]
        {
            let message = message(line);
            assert!(message.starts_with(thread) && message.contains(text), "{message}");
            assert!(
                message.contains("panics.rs:") && message.contains("child_that_panics"),
                "with its place: {message}"
            );
        }
        assert!(message(reason).starts_with("it panicked, so the process ends: on the main\nthread."), "{reason}");
    }

    #[test]
    fn panics_are_text_otherwise_and_the_reason_is_last() {
        let (status, printed) = panicking("text");
        assert_eq!(status, Some(STATUS), "{printed}");
        let found = [
            "thread 'other'",
            "on another\nthread",
            "on the main\nthread",
            "tribunal: it panicked, so the process ends",
        ]
        .map(|text| printed.find(text).unwrap_or_else(|| panic!("{text} is missing: {printed}")));
        assert!(found.is_sorted(), "{printed}");
    }
}
