//! Low limits on memory or threads: the process either serves or exits with the reason. It never deadlocks.

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than a start takes on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a node under a limit; returns whether it listens, and its stderr if it exited.
fn start_under(limit: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let run = format!("{limit}; exec \"$0\" dev --listen 127.0.0.1:0 --data \"$1\"");
    let mut command = Command::new("bash");
    command.args(["-c", &run, env!("CARGO_BIN_EXE_tribunal")]).arg(dir.path().join("data"));
    // Backtraces take memory, too.
    command.env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    let file = |path| std::fs::File::create(path).expect("a file");
    let mut child = command.stdout(file(&out)).stderr(file(&err)).spawn().expect("bash");
    let begun = Instant::now();
    let ended = loop {
        if std::fs::read_to_string(&out).expect("text").contains("listens on") {
            stop(&mut child);
            break Ok(());
        }
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(!status.success(), "{limit}: it ended without a reason");
            break Err(String::from_utf8_lossy(&std::fs::read(&err).expect("a file")).into_owned());
        }
        if begun.elapsed() > START_TIMEOUT {
            stop(&mut child);
            panic!("{limit}: it neither listens nor ends: {}", std::fs::read_to_string(&err).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ended.as_ref().err().is_none_or(|text| text.contains("tribunal: ")), "{limit}: no reason: {ended:?}");
    ended
}

fn stop(child: &mut Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn too_little_memory_ends_a_start_with_the_reason() {
    let mut refused = 0;
    for kib in (20_000..=300_000).step_by(5_000) {
        refused += u32::from(start_under(&format!("ulimit -d {kib}")).is_err());
    }
    assert!(refused > 0, "none of the limits was too low");
}

#[test]
fn too_little_address_space_ends_a_start_with_advice() {
    for kib in [1_000_000, 16_000_000] {
        let told = start_under(&format!("ulimit -v {kib}")).expect_err("too little");
        assert!(told.contains("ulimit -v"), "{told}");
    }
}
