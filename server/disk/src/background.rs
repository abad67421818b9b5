//! Threads whose work nobody waits for.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// How much nicer than the process such threads are: they get a third of what its others get of busy cores, so they are slow then
/// and do not starve.
const NICER: i32 = 5;
/// The most that there is.
const NICEST: i32 = 19;

/// Lets other threads run before the one that calls this, which writes an image or merges files: while all cores are busy,
/// commits would wait for it by turns. Where the system refuses, nothing changes.
pub fn give_way() {
    // Linux keeps a niceness for each thread, and takes the thread's id for a process's.
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
