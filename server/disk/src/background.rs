//! Threads whose work nobody waits for.

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// Niceness of such threads: a third of what others get of busy cores, so they are slow then and do not starve.
const NICENESS: i32 = 5;

/// Lets other threads run before the one that calls this, which writes an image or merges files: while all cores are busy,
/// commits would wait for it by turns. Where the system refuses, nothing changes.
pub fn give_way() {
    // Linux keeps a niceness for each thread, and takes the thread's id for a process's.
    let _ = setpriority_process(Some(gettid()), NICENESS);
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn only_the_thread_that_asks_for_it_gives_way() {
        let before = getpriority_process(None).unwrap();
        let there = std::thread::spawn(|| {
            give_way();
            getpriority_process(Some(gettid())).unwrap()
        });
        assert_eq!(there.join().unwrap(), NICENESS.max(before));
        assert_eq!(getpriority_process(Some(gettid())).unwrap(), before);
    }
}
