//! A real redis-server as a child process, with its own port and directory.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A redis-server. Dropping it kills the process and removes the directory.
pub struct RedisServer {
    child: Option<Child>,
    dir: PathBuf,
    port: u16,
    fsync: &'static str,
}

impl RedisServer {
    pub fn start(fsync: &'static str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("tribunal-push-redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(unique);
        // A killed test with the same process id may have left it.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        let port = free_port();
        let mut server = RedisServer { child: None, dir, port, fsync };
        server.restart();
        server
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Restarts the process with the same port and directory, and waits until it accepts connections.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "killed before it is restarted");
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", self.fsync, "--dir"])
            .arg(&self.dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed (Debian: apt-get install redis-server)");
        self.child = Some(child);
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(120), "redis-server did not come up on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the process as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
        }
    }

    /// Pauses or resumes the process.
    pub fn pause(&self, paused: bool) {
        let child = self.child.as_ref().expect("it runs");
        let signal = if paused { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the child is ours");
    }

    /// Copies the append-only file as it is now.
    pub fn copy_data(&self) -> PathBuf {
        let copy = self.dir.join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&self.dir.join("appendonlydir"), &copy);
        copy
    }

    /// Replaces the data with a copy. The process must not be running.
    pub fn restore_data(&self, copy: &Path) {
        assert!(self.child.is_none(), "killed before its data changes");
        let data = self.dir.join("appendonlydir");
        fs::remove_dir_all(&data).expect("its own directory");
        copy_dir(copy, &data);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns a free port below the ephemeral range, so that it stays free while a server is down.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (offset % 18_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("its own directory");
    for entry in fs::read_dir(from).expect("redis-server made it") {
        let path = entry.expect("readable").path();
        fs::copy(&path, to.join(path.file_name().expect("a file"))).expect("copies");
    }
}
