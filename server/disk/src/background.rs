//! Threads whose work is not waited for.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// Niceness of such threads relative to the process: on busy cores they get a third of the time that other threads get,
/// so they become slow but do not starve.
const NICER: i32 = 5;
/// The maximum niceness.
const NICEST: i32 = 19;

/// Gives other threads priority over the calling one, which writes an image or merges files: while all cores are busy,
/// commits would otherwise compete with it for time. If the system refuses, nothing changes.
pub fn give_way() {
    // Linux keeps a niceness for each thread, and accepts a thread's id in place of a process's.
    let this = Some(gettid());
    let _ = getpriority_process(this).and_then(|own| setpriority_process(this, (own + NICER).min(NICEST)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_asks_for_it_gives_way() {
        let before = getpriority_process(None).unwrap();
        let there = std::thread::spawn(|| {
            give_way();
            getpriority_process(Some(gettid())).unwrap()
        });
        assert_eq!(there.join().unwrap(), (before + NICER).min(NICEST));
        assert_eq!(getpriority_process(Some(gettid())).unwrap(), before);
    }
}
