//! A real redis-server as a child process: own port, own directory, killed by its id; and a minimal client of its
//! protocol.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A redis-server. Dropping it ends the process and removes its directory.
pub struct Redis {
    child: Option<Child>,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Redis {
    /// Starts one that syncs before every reply; returns `None` if redis-server is not installed.
    pub fn start() -> Option<Redis> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("SKIPPED: redis-server is not installed (Debian: apt-get install redis-server)");
            return None;
        }
        let address = super::cluster::free_address().parse().expect("an address");
        let mut redis = Redis { child: None, dir: tempfile::tempdir().expect("a temporary directory"), address };
        redis.restart();
        Some(redis)
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Restarts the process on the same port and directory, and waits until it responds.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "killed before it is restarted");
        let child = Command::new("redis-server")
            .args(["--port", &self.address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(self.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        self.child = Some(child);
        super::eventually("redis-server to answer", || self.try_call(&["PING"]).filter(|answer| answer == "PONG"));
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

    /// Sends one command and returns the reply as text: the value of a bulk string, otherwise the line; "nil" for none.
    pub fn call(&self, command: &[&str]) -> String {
        self.try_call(command).expect("redis-server answers")
    }

    fn try_call(&self, command: &[&str]) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(request.as_bytes()).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        match line.split_at_checked(1)? {
            ("$", "-1") => Some("nil".to_owned()),
            ("$", _) => {
                let mut text = String::new();
                reader.read_line(&mut text).ok()?;
                Some(text.trim_end().to_owned())
            }
            (_, rest) => Some(rest.to_owned()),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
