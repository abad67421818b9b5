//! The server under test: a running one, or one that is started here and stopped at the end.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::machine::cpu_of;
use crate::options::Common;
use crate::rpc::Rpc;
use crate::wire::{host_with_key, write_post, write_put};

const STARTUP: Duration = Duration::from_secs(60);
const SHUTDOWN: Duration = Duration::from_secs(20);

/// A server to measure. Dropping it stops a spawned one and removes its data.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    /// Host value of requests, with the key.
    host: String,
    pid: Option<u32>,
    spawned: Option<Spawned>,
}

#[derive(Debug)]
struct Spawned {
    child: Child,
    data: PathBuf,
}

impl Server {
    /// Finds or starts the server that the flags name, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started or does not become ready.
    pub fn reach(common: &Common) -> Result<Server, BenchError> {
        let mut server = match &common.spawn {
            Some(binary) => Server::spawn(binary, common)?,
            None => {
                let host = host_with_key(common.addr, common.api_key()?.as_deref());
                Server { addr: common.addr, host, pid: common.server_pid, spawned: None }
            }
        };
        server.wait_ready(if common.declare { "kv" } else { &common.store })?;
        Ok(server)
    }

    /// Returns its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the host value of requests.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// If it does not listen.
    pub fn rpc(&self) -> Result<Rpc, BenchError> {
        Rpc::connect_as(self.addr, self.host.clone())
    }

    /// Returns its CPU time so far, if its process is known.
    #[must_use]
    pub fn cpu(&self) -> Option<Duration> {
        self.pid.and_then(cpu_of)
    }

    /// Declares a store that has a log but no storage.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn declare(&self, store: &str) -> Result<(), BenchError> {
        let mut put = Vec::new();
        write_put(&mut put, &self.host, &format!("/v1/stores/{store}"), b"{}");
        let mut rpc = self.rpc()?;
        let (status, body) = rpc.exchange(&put)?;
        if status != 200 && status != 201 {
            let answer = format!("{status} {}", String::from_utf8_lossy(body));
            return Err(BenchError::Refused { what: format!("the store {store}"), answer });
        }
        Ok(())
    }

    /// Makes a plugin the conflict rule from the next epoch on. With `binary`, uploads it first, from a folder or
    /// component.
    ///
    /// # Errors
    /// If the plugin is not accepted, or the server has none with this name.
    pub fn activate_rule(&self, plugin: &str, binary: Option<&Path>) -> Result<(), BenchError> {
        let name = match binary {
            Some(binary) => self.upload(plugin, binary)?,
            None => plugin.to_owned(),
        };
        let mut post = Vec::new();
        let path = ["/v1/admin/plugins/", &name, "/activate"];
        write_post(&mut post, &self.host, &path, br#"{"slot":"rule"}"#);
        let mut rpc = self.rpc()?;
        let (status, body) = rpc.exchange(&post)?;
        if status != 200 {
            let answer = format!("{status} {}", String::from_utf8_lossy(body));
            return Err(BenchError::Refused { what: format!("the rule {name}"), answer });
        }
        Ok(())
    }

    /// Uploads a plugin with the server's own command, and returns its name.
    fn upload(&self, plugin: &str, binary: &Path) -> Result<String, BenchError> {
        let output = Command::new(binary)
            .args(["plugin", "push", "--json", "--url", &format!("http://{}", self.addr), plugin])
            .output()
            .map_err(BenchError::io(format!("start {}", binary.display())))?;
        let refused = |answer: &[u8]| BenchError::Refused {
            what: format!("the plugin {plugin}"),
            answer: String::from_utf8_lossy(answer).trim().to_owned(),
        };
        if !output.status.success() {
            return Err(refused(&output.stderr));
        }
        let uploaded: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|_| refused(&output.stdout))?;
        uploaded["name"].as_str().map(str::to_owned).ok_or_else(|| refused(&output.stdout))
    }

    fn spawn(binary: &Path, common: &Common) -> Result<Server, BenchError> {
        let probe = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let addr = probe.map_err(BenchError::io("find a free port"))?;
        // The port distinguishes two servers of one run.
        let data = common.data_dir.join(format!("tribunal-bench-{}-{}", std::process::id(), addr.port()));
        let child = Command::new(binary)
            .args(["dev", "--listen", &addr.to_string(), "--data"])
            .arg(&data)
            .args(&common.serve_arg)
            .env("TRIBUNAL_LOG", "warn")
            .envs(common.serve_env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(BenchError::io(format!("start {}", binary.display())))?;
        Ok(Server { addr, host: addr.to_string(), pid: Some(child.id()), spawned: Some(Spawned { child, data }) })
    }

    /// Waits until the server is ready and has the store.
    fn wait_ready(&mut self, store: &str) -> Result<(), BenchError> {
        let start = Instant::now();
        let paths = ["/readyz".to_owned(), format!("/v1/snapshot?store={store}")];
        loop {
            let answers = |rpc: &mut Rpc, path: &str| rpc.get(path).is_ok_and(|(status, _)| status == 200);
            if self.rpc().is_ok_and(|mut rpc| paths.iter().all(|path| answers(&mut rpc, path))) {
                return Ok(());
            }
            if let Some(spawned) = &mut self.spawned
                && let Ok(Some(status)) = spawned.child.try_wait()
            {
                return Err(BenchError::TooLate(format!("the server stopped before it was ready: {status}")));
            }
            let timeout = if self.spawned.is_some() { STARTUP } else { Duration::from_secs(3) };
            if start.elapsed() > timeout {
                return Err(BenchError::TooLate(format!("no server with a store {store} is ready at {}", self.addr)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(spawned) = &mut self.spawned else { return };
        let pid = i32::try_from(spawned.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // A failure means that it has already ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < SHUTDOWN && matches!(spawned.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = spawned.child.kill();
        let _ = spawned.child.wait();
        if let Err(error) = std::fs::remove_dir_all(&spawned.data) {
            eprintln!("could not remove {}: {error}", spawned.data.display());
        }
    }
}
