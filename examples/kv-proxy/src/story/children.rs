//! Child processes on loopback, killed by their ids however the story ends, and the directory that they use.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

/// How long a process may take until it listens.
const START_MAX: Duration = Duration::from_secs(60);

/// A directory that is removed with its content on drop.
pub struct Workspace {
    path: PathBuf,
}

impl Workspace {
    pub fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("kv-proxy-story-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Workspace { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A running child. Dropping it kills it.
pub struct Child {
    process: std::process::Child,
}

impl Child {
    /// Starts a process with its output in `<name>.log`, and waits until it listens.
    pub async fn start(name: &str, mut command: Command, logs: &Path, listens: SocketAddr) -> Result<Self, String> {
        let log = logs.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).map_err(|e| format!("{name}: {e}"))?;
        let errors = output.try_clone().map_err(|e| format!("{name}: {e}"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let program = command.get_program().to_string_lossy().into_owned();
        let process = command.spawn().map_err(|e| format!("{name}: `{program}` does not start: {e}"))?;
        let mut child = Child { process };
        let begun = Instant::now();
        while TcpStream::connect(listens).await.is_err() {
            let exited = child.process.try_wait().map_err(|e| e.to_string())?;
            if exited.is_some() || begun.elapsed() > START_MAX {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let tail: Vec<&str> = said.lines().rev().take(10).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(format!("{name} does not listen on {listens} ({exited:?}):\n{}", tail.join("\n")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(child)
    }

    /// Kills the process as `kill -9` does, and waits for its end.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a free loopback address whose port is below the ephemeral range, so that it stays free while a server is
/// down.
pub fn free_address() -> Result<SocketAddr, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61);
    let next = || first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 18_000;
    let mut ports = (0..18_000).map(|_| 12_000 + next() as u16);
    let free = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok_or_else(|| "no port is free".to_owned())
}

/// A real redis-server whose append-only file can be set back.
pub struct Redis {
    program: PathBuf,
    dir: PathBuf,
    logs: PathBuf,
    address: SocketAddr,
    child: Option<Child>,
}

impl Redis {
    pub async fn start(program: &Path, workspace: &Path) -> Result<Self, String> {
        let dir = workspace.join("redis");
        fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let (program, logs) = (program.to_owned(), workspace.to_owned());
        let mut redis = Redis { program, dir, logs, address: free_address()?, child: None };
        redis.restart().await?;
        Ok(redis)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Copies the append-only file as it is now, while Redis keeps running.
    pub fn copy_data(&self) -> Result<(), String> {
        copy_dir(&self.data(), &self.dir.join("older")).map_err(|e| format!("copy of Redis' data: {e}"))
    }

    /// Kills Redis and restarts it with the older copy.
    pub async fn kill_and_set_back(&mut self) -> Result<(), String> {
        if let Some(child) = self.child.take() {
            child.kill();
        }
        fs::remove_dir_all(self.data())
            .and_then(|()| copy_dir(&self.dir.join("older"), &self.data()))
            .map_err(|e| format!("older copy of Redis' data: {e}"))?;
        self.restart().await
    }

    fn data(&self) -> PathBuf {
        self.dir.join("appendonlydir")
    }

    async fn restart(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
        command.arg("--port").arg(self.address.port().to_string()).arg("--dir").arg(&self.dir);
        self.child = Some(Child::start("redis", command, &self.logs, self.address).await?);
        Ok(())
    }
}

fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let Some(name) = path.file_name() {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
