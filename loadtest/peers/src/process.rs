//! A peer as a child process, with its own port and folder. Its CPU time is that of its whole tree, and it is suspended
//! (SIGSTOP) during the other peers' turns, so that no peer pays for another one's vacuum, compaction or push.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tribunal_bench::error::BenchError;

const STARTUP: Duration = Duration::from_secs(90);
const SHUTDOWN: Duration = Duration::from_secs(20);

/// A running peer. Dropping it stops it and removes its folder.
pub struct Process {
    name: &'static str,
    child: Mutex<Child>,
    pid: u32,
    stop: Signal,
    addr: SocketAddr,
    _folder: TempDir,
}

/// A peer's folder and address.
pub struct Place {
    /// The peer's folder.
    pub folder: TempDir,
    /// An address that was free a moment ago.
    pub addr: SocketAddr,
}

impl Place {
    /// Creates a folder in `parent` and finds a free port.
    ///
    /// # Errors
    /// If either is not possible.
    pub fn find(name: &str, parent: &Path) -> Result<Place, BenchError> {
        let folder = tempfile::Builder::new().prefix(&format!("tribunal-peers-{name}-")).tempdir_in(parent);
        let folder = folder.map_err(BenchError::io(format!("make a folder in {}", parent.display())))?;
        Ok(Place { folder, addr: free_addr()? })
    }

    /// Returns a path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Finds a free loopback port.
///
/// # Errors
/// If there is none.
pub fn free_addr() -> Result<SocketAddr, BenchError> {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    found.map_err(BenchError::io("find a free port"))
}

/// Builds a command that dies with this process; `user` is the user that the command switches to, as some servers
/// refuse to run as root.
#[must_use]
pub fn command(program: &Path, user: Option<&str>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

impl Process {
    /// Starts the command and waits until it accepts connections.
    ///
    /// # Errors
    /// If it does not, with its last output.
    pub fn start(name: &'static str, mut command: Command, stop: Signal, place: Place) -> Result<Process, BenchError> {
        let said = place.path("said");
        let output = fs::File::create(&said).and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) = output.map_err(BenchError::io(format!("write {}", said.display())))?;
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
        let child = child.map_err(BenchError::io(format!("start {name}")))?;
        let pid = child.id();
        let process = Process { name, child: Mutex::new(child), pid, stop, addr: place.addr, _folder: place.folder };
        let start = Instant::now();
        while TcpStream::connect(process.addr).is_err() {
            if process.ended() || start.elapsed() > STARTUP {
                let text = fs::read_to_string(&said).unwrap_or_default();
                let last: Vec<_> = text.lines().rev().take(8).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(BenchError::TooLate(format!("{name} accepts no connections; it said:\n{last}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(process)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the CPU time of its tree so far, including ended children.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let ticks: u64 = tree(self.pid).iter().filter_map(|pid| Stat::of(*pid)).map(|stat| stat.ticks).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Suspends its tree.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Kills it, as a machine failure would.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Resumes its tree.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        for pid in tree(self.pid) {
            // A process that has ended in between needs no signal.
            let _ = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
        }
    }

    fn ended(&self) -> bool {
        self.child.lock().is_ok_and(|mut child| !matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.thaw();
        let _ = i32::try_from(self.pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, self.stop));
        let start = Instant::now();
        while !self.ended() && start.elapsed() < SHUTDOWN {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.ended() {
            eprintln!("{} does not stop: killed", self.name);
            self.signal(Signal::KILL);
            if let Ok(mut child) = self.child.lock() {
                let _ = child.wait();
            }
        }
    }
}

/// Values of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => Stat::read(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(_) => None,
        }
    }

    /// Parses the parent and the CPU time, including that of children that were waited for.
    fn read(stat: &str) -> Option<Stat> {
        // The second field may contain spaces and parentheses.
        let fields: Vec<_> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
        Some(Stat { parent: u32::try_from(number(1)?).ok()?, ticks })
    }
}

/// Returns a process and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<_> = pids.filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) (c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0";
        assert_eq!(Stat::read(stat), Some(Stat { parent: 3, ticks: 100 }));
    }

    #[test]
    fn a_process_tree_can_be_paused_and_resumed() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        while tree(child.id()).len() < 2 && start.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let pids = tree(child.id());
        assert_eq!(pids.len(), 2, "the shell and its sleep");
        for pid in pids.into_iter().rev() {
            kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(tree(child.id()), [child.id()]);
    }
}
