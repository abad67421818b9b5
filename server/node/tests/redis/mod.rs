//! A real `redis-server` on loopback, as a child process with its own folder, and a few queries to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A running Redis. Killed by its process id on drop.
pub struct Redis {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Redis {
    /// Starts a server; returns `None` and prints a message if none is installed.
    pub fn start() -> Option<Redis> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = crate::support::cluster::free_port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                println!("SKIPPED: redis-server cannot be started: {error}");
                return None;
            }
        };
        let redis = Redis { process, port, _folder: folder };
        crate::support::eventually("redis-server to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
        Some(redis)
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns a string.
    pub fn text(&self, key: &str) -> Option<String> {
        self.ask(&format!("GET {key}")).into_iter().next().flatten()
    }

    /// Returns a hash's fields and values, by field.
    pub fn hash(&self, key: &str) -> Vec<(String, String)> {
        let words: Vec<String> = self.ask(&format!("HGETALL {key}")).into_iter().flatten().collect();
        let mut fields: Vec<_> = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        fields.sort();
        fields
    }

    /// Sends one query in the inline form; returns the strings of the reply.
    fn ask(&self, question: &str) -> Vec<Option<String>> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).expect("it listens"));
        stream.get_mut().write_all(format!("{question}\r\n").as_bytes()).expect("sent");
        let head = line(&mut stream);
        match head.split_at(1) {
            ("*", count) => {
                let count: usize = count.parse().expect("a count");
                let each = |_| {
                    let head = line(&mut stream);
                    text(&mut stream, &head)
                };
                (0..count).map(each).collect()
            }
            _ => vec![text(&mut stream, &head)],
        }
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

/// Reads a bulk string whose head was read.
fn text(stream: &mut BufReader<TcpStream>, head: &str) -> Option<String> {
    let length: usize = head.strip_prefix('$')?.parse().ok()?;
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes).expect("a string");
    bytes.truncate(length);
    Some(String::from_utf8(bytes).expect("UTF-8"))
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
