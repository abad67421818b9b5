//! Clusters as peers: all processes on this machine, started by one process, so that its tree's CPU time is the
//! cluster's.
//!
//! To simulate network latency, the nodes reach each other through proxies that delay everything. Unlike other peers, a
//! cluster is not stopped between its turns: its nodes would consider each other dead.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tribunal_bench::error::BenchError;
use tribunal_bench::rpc::Rpc;

use crate::faulty_proxy::{Fault, Link};
use crate::process::{Place, Process, command};

/// Distance between the ports of the API and those for other nodes, as in `tribunal cluster up`. No cluster has more
/// nodes.
const PEER_PORTS: u16 = 10;
const READY_TRIES: u32 = 1200;

/// A running cluster.
pub struct Cluster {
    process: Process,
    addrs: Vec<SocketAddr>,
    sent_bytes: &'static str,
    _links: Vec<Link>,
    data: TempDir,
}

impl Cluster {
    /// Starts nodes of Tribunal.
    ///
    /// # Errors
    /// If they do not start, or do not accept transactions.
    pub fn tribunal(binary: &Path, parent: &Path, nodes: u16, rtt: Duration) -> Result<Cluster, BenchError> {
        let (data, port) = (folder(parent)?, free_ports(nodes));
        let start = |is_new: bool| {
            let mut up = command(binary, None);
            up.args(["cluster", "up", "--data"]).arg(data.path().join("nodes")).env("TRIBUNAL_LOG", "warn");
            if is_new {
                up.args(["--nodes", &nodes.to_string(), "--port", &port.to_string()]);
            }
            let process = Process::start("the cluster of Tribunal", up, Signal::TERM, place(parent, port)?)?;
            apis(port, nodes).try_for_each(is_ready)?;
            Ok(process)
        };
        let mut process = start(true)?;
        let links = links(port, nodes, rtt);
        if !links.is_empty() {
            drop(process);
            for node in 1..=nodes {
                let file = data.path().join(format!("nodes/node-{node}/tribunal.toml"));
                let mut config = fs::read_to_string(&file).map_err(BenchError::io("read a configuration"))?;
                for (to, link) in peers(port, nodes).zip(&links) {
                    config =
                        config.replace(&format!("address = \"{to}\""), &format!("address = \"{}\"", link.address()));
                }
                fs::write(&file, config).map_err(BenchError::io("write a configuration"))?;
            }
            process = start(false)?;
        }
        let sent_bytes = "tribunal_peer_sent_bytes_total{";
        Ok(Cluster { process, addrs: apis(port, nodes).collect(), sent_bytes, _links: links, data })
    }

    /// Starts nodes of etcd.
    ///
    /// # Errors
    /// If they do not start.
    pub fn etcd(
        binary: &Path,
        parent: &Path,
        nodes: u16,
        rtt: Duration,
        more: &[String],
    ) -> Result<Cluster, BenchError> {
        let (data, port) = (folder(parent)?, free_ports(nodes));
        let links = links(port, nodes, rtt);
        let reached: Vec<_> =
            if links.is_empty() { peers(port, nodes).collect() } else { links.iter().map(Link::address).collect() };
        let cluster: Vec<_> = reached.iter().enumerate().map(|(node, peer)| format!("n{node}=http://{peer}")).collect();
        // One process for all of them; when stopped, it stops all.
        let mut script = "trap 'kill $nodes; wait' TERM; nodes=\n".to_owned();
        for (node, ((api, listens), peer)) in apis(port, nodes).zip(peers(port, nodes)).zip(&reached).enumerate() {
            script += &format!(
                "'{}' --name n{node} --log-level error --data-dir '{}/{node}' --listen-client-urls http://{api} \
                 --advertise-client-urls http://{api} --listen-peer-urls http://{listens} \
                 --initial-advertise-peer-urls http://{peer} --initial-cluster {} {} & nodes=\"$nodes $!\"\n",
                binary.display(),
                data.path().display(),
                cluster.join(","),
                more.join(" ")
            );
        }
        script += "wait";
        let mut all = command(Path::new("sh"), None);
        all.args(["-c", &script]);
        let process = Process::start("the cluster of etcd", all, Signal::TERM, place(parent, port)?)?;
        let sent_bytes = "etcd_network_peer_sent_bytes_total{";
        let etcd = Cluster { process, addrs: apis(port, nodes).collect(), sent_bytes, _links: links, data };
        for addr in &etcd.addrs {
            until(|| Ok(Rpc::connect(*addr)?.get("/health")?.0 == 200))?;
        }
        Ok(etcd)
    }

    /// Stops the nodes; returns their addresses, and the folder with their files.
    #[must_use]
    pub fn stop(self) -> (Vec<SocketAddr>, TempDir) {
        drop(self.process);
        (self.addrs, self.data)
    }

    /// Returns the process that started the nodes.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the addresses of the nodes' APIs.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the bytes that the nodes have sent to each other, from their own metrics: frames, without TLS and HTTP.
    ///
    /// # Errors
    /// If a node does not respond.
    pub fn sent_bytes(&self) -> Result<f64, BenchError> {
        let mut sum = 0.0;
        for addr in &self.addrs {
            let text = metrics(*addr).map_err(BenchError::io("read the figures of a node"))?;
            let lines = text.lines().filter(|line| line.starts_with(self.sent_bytes));
            sum += lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(sum)
    }
}

/// Returns a node's metrics, after the response head. Uses HTTP 1.0, because etcd would send chunks.
fn metrics(addr: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nhost: {addr}\r\n\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn folder(parent: &Path) -> Result<TempDir, BenchError> {
    let folder = tempfile::Builder::new().prefix("tribunal-peers-cluster-").tempdir_in(parent);
    folder.map_err(BenchError::io(format!("make a folder in {}", parent.display())))
}

fn place(parent: &Path, port: u16) -> Result<Place, BenchError> {
    Ok(Place { addr: local(port), ..Place::find("cluster", parent)? })
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn apis(port: u16, nodes: u16) -> impl Iterator<Item = SocketAddr> {
    (port..port + nodes).map(local)
}

fn peers(port: u16, nodes: u16) -> impl Iterator<Item = SocketAddr> {
    apis(port + PEER_PORTS, nodes)
}

/// Finds the first port for a cluster, below those that the system assigns.
fn free_ports(nodes: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let nth = (std::process::id() as u16).wrapping_mul(7).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 900;
        let port = 12_000 + nth * 20;
        if apis(port, nodes).chain(peers(port, nodes)).all(|addr| TcpListener::bind(addr).is_ok()) {
            return port;
        }
    }
}

/// Starts a proxy in front of each node, unless the network has no latency.
fn links(port: u16, nodes: u16, rtt: Duration) -> Vec<Link> {
    if rtt.is_zero() {
        return Vec::new();
    }
    let links: Vec<_> = peers(port, nodes).map(Link::to).collect();
    links.iter().for_each(|link| link.set(Fault::Slow(rtt / 2)));
    links
}

/// Waits until a node accepts commits.
///
/// # Errors
/// If it does not do so for a long time.
pub fn is_ready(addr: SocketAddr) -> Result<(), BenchError> {
    until(|| {
        let mut rpc = Rpc::connect(addr)?;
        Ok(rpc.get("/readyz")?.0 == 200 && rpc.get("/v1/snapshot?store=kv")?.0 == 200)
    })
}

fn until(is_so: impl Fn() -> Result<bool, BenchError>) -> Result<(), BenchError> {
    for _ in 0..READY_TRIES {
        // A node that does not listen yet is queried again.
        if is_so().unwrap_or(false) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(BenchError::TooLate("a cluster does not become ready".to_owned()))
}
