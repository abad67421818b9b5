//! A real PostgreSQL as a child process: own directory, own loopback port, own password, synced commits.
//!
//! PostgreSQL refuses to run as root, so root starts it as the user `postgres`. It always ends with its owner: stopped
//! on drop, killed if it does not stop, and its directory removed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Role that owns the database.
pub const ROLE: &str = "tribunal";
/// The database.
pub const DATABASE: &str = "postgres";
/// How long initialising, starting or stopping may take.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// User and group that root switches to for it.
type Owner = (u32, u32);

/// A server that is stopped on drop.
pub struct PostgresServer {
    binaries: PathBuf,
    dir: PathBuf,
    owner: Option<Owner>,
    settings: Vec<String>,
    port: u16,
    password: String,
    child: Option<Child>,
}

impl PostgresServer {
    /// Initialises a database and starts it with additional `settings`, each `name=value`.
    ///
    /// # Errors
    /// In words, with the install command if there is no PostgreSQL.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        let binaries =
            find_binaries().ok_or("PostgreSQL is not installed: on Debian `apt-get install postgresql` brings it")?;
        let mut server = PostgresServer {
            binaries,
            dir: fresh_dir()?,
            owner: owner()?,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            port: free_port()?,
            password: random_word()?,
            child: None,
        };
        server.initialise()?;
        server.restart()?;
        Ok(server)
    }

    /// Returns `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the password of [`ROLE`].
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Returns the address with role, password and database: for engines, not for declarations.
    pub fn url(&self) -> String {
        format!("postgres://{ROLE}:{}@{}/{DATABASE}", self.password, self.address())
    }

    /// Restarts it on the same port and data.
    ///
    /// # Errors
    /// If it does not come up; the end of its log contains the reason.
    pub fn restart(&mut self) -> Result<(), String> {
        let log = self.dir.join("log");
        let output = File::options().create(true).append(true).open(&log).map_err(|e| e.to_string())?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        for setting in ["unix_socket_directories=", "dynamic_shared_memory_type=mmap", "shared_buffers=128MB"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.stdout(output.try_clone().map_err(|e| e.to_string())?).stderr(output);
        self.child = Some(command.spawn().map_err(|e| format!("postgres does not start: {e}"))?);
        let begun = Instant::now();
        while !self.answers() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || begun.elapsed() > WAIT_MAX {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(10).collect();
                return Err(format!("postgres does not come up ({ended:?}), newest first:\n{}", tail.join("\n")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills all of its processes at once, as `kill -9` does, and waits until they have exited: a dying backend still
    /// holds the shared memory, and a server that starts meanwhile refuses to run.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Halted first: otherwise it would see its backends die, and recover before it is killed itself, or fork new
        // ones.
        signal("STOP", child.id());
        wait_until(|| !matches!(state_of(child.id()), Some(state) if state != 'T' && state != 'Z'));
        let backends = children_of(child.id());
        for backend in &backends {
            signal("KILL", *backend);
        }
        let _ = child.kill();
        let _ = child.wait();
        wait_until(|| backends.iter().all(|backend| matches!(state_of(*backend), None | Some('Z'))));
    }

    /// Halts or resumes all of its processes.
    pub fn pause(&self, paused: bool) {
        let Some(child) = &self.child else { return };
        let backends = children_of(child.id());
        let name = if paused { "STOP" } else { "CONT" };
        for pid in [child.id()].into_iter().chain(backends) {
            signal(name, pid);
        }
    }

    fn initialise(&self) -> Result<(), String> {
        let word = self.dir.join("word");
        File::create(&word).and_then(|mut file| file.write_all(self.password.as_bytes())).map_err(|e| e.to_string())?;
        self.own(&word)?;
        let mut command = self.command("initdb");
        command.arg("-D").arg(self.data()).arg(format!("--pwfile={}", word.display()));
        command.args(["-U", ROLE, "--auth=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let output = command.output().map_err(|e| format!("initdb does not start: {e}"))?;
        let _ = fs::remove_file(&word);
        succeeded("initdb", output.status, &output.stderr)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C in the terminal is for the owner to handle.
        command.process_group(0);
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn answers(&self) -> bool {
        let mut command = self.command("pg_isready");
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        command.status().is_ok_and(|status| status.success())
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn own(&self, path: &Path) -> Result<(), String> {
        match self.owner {
            Some((user, group)) => chown(path, Some(user), Some(group)).map_err(|e| format!("{}: {e}", path.display())),
            None => Ok(()),
        }
    }

    /// Frees the shared memory segment by which a killed server guarded its data.
    fn free_segment(&self) {
        let Ok(text) = fs::read_to_string(self.data().join("postmaster.pid")) else { return };
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            signal("CONT", child.id());
            signal("INT", child.id());
            let begun = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.kill();
        self.free_segment();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn find_binaries() -> Option<PathBuf> {
    let has_all = |dir: &PathBuf| ["postgres", "initdb", "pg_isready"].iter().all(|name| dir.join(name).is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut packaged: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    packaged.sort();
    packaged.into_iter().rev().chain(std::env::split_paths(&path)).find(has_all)
}

/// Returns the user and group to run as, if this process is root.
fn owner() -> Result<Option<Owner>, String> {
    let own = fs::metadata("/proc/self").map_err(|e| e.to_string())?.uid();
    if own != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
    let ids = |line: &str| {
        let mut fields = line.split(':').skip(2).map(str::parse);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    let found = users.lines().find(|line| line.starts_with("postgres:")).and_then(ids);
    found.map(Some).ok_or_else(|| "root cannot run PostgreSQL, and there is no user `postgres` to run it".to_owned())
}

fn fresh_dir() -> Result<PathBuf, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("tribunal-postgres-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(unique);
    // A killed process with the same id may have left it.
    let _ = fs::remove_dir_all(&dir);
    let made = fs::create_dir_all(&dir).and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)));
    made.map_err(|e| format!("{}: {e}", dir.display()))?;
    if let Some((user, group)) = owner()? {
        chown(&dir, Some(user), Some(group)).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(dir)
}

/// Returns a free port below the ephemeral range, so that it stays free while a server is down.
fn free_port() -> Result<u16, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61);
    let next = || first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 18_000;
    let mut ports = (0..18_000).map(|_| 12_000 + next() as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).ok_or_else(|| "no port is free".to_owned())
}

fn random_word() -> Result<String, String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).map_err(|e| e.to_string())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn succeeded(name: &str, status: ExitStatus, errors: &[u8]) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("{name} failed: {}", String::from_utf8_lossy(errors))) }
}

fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Waits for the effect of a signal.
fn wait_until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() && begun.elapsed() < WAIT_MAX {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a process's state as `ps` shows it; `None` after it has exited.
fn state_of(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

fn children_of(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
