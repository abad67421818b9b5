//! Real processes as the nodes of one cluster on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use tribunal_peer::Authority;
use tribunal_types::NodeId;

use super::faulty_proxy::{Link, Links};
use super::wrong_clock::Clocks;
use super::{Node, eventually};

/// A cluster. Its nodes are killed on drop.
pub struct Cluster {
    dir: tempfile::TempDir,
    /// Each node, while it runs.
    nodes: Vec<Option<Node>>,
    /// The nodes' clocks, if they differ from the true time.
    pub clocks: Option<Clocks>,
}

/// Returns the address of a free port.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Returns a free port below the ephemeral range.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = (std::process::id() as u16).wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + offset % 18_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

impl Cluster {
    /// Writes the files of `count` nodes; starts none.
    pub fn prepare(count: u16) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::create("test").expect("an authority");
        std::fs::write(dir.path().join("authority.pem"), authority.certificate_pem()).expect("written");
        std::fs::write(dir.path().join("authority.key"), authority.key_pem()).expect("written");
        std::fs::write(dir.path().join("cluster.secret"), "0123456789abcdef0123456789abcdef").expect("written");
        let ports: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let mut nodes = String::new();
        for (id, port) in (1..).zip(&ports) {
            let _ = write!(nodes, "[[cluster.nodes]]\nid = {id}\naddress = \"127.0.0.1:{port}\"\n");
        }
        for (id, port) in (1..).zip(&ports) {
            let node = dir.path().join(format!("node-{id}"));
            std::fs::create_dir(&node).expect("a directory");
            let certificate = authority.node_certificate(NodeId(id), &[]).expect("a certificate");
            std::fs::write(node.join("node.pem"), certificate.certificate_pem).expect("written");
            std::fs::write(node.join("node.key"), certificate.key_pem).expect("written");
            let (root, own) = (dir.path().display(), node.display());
            let config = format!(
                "listen = \"127.0.0.1:0\"\ndata = \"{own}/data\"\n[cluster]\nname = \"test\"\nnode = {id}\nlisten = \"127.0.0.1:{port}\"\n\
                 secret_file = \"{root}/cluster.secret\"\ncert_file = \"{own}/node.pem\"\nkey_file = \"{own}/node.key\"\n\
                 authority_file = \"{root}/authority.pem\"\n{nodes}"
            );
            std::fs::write(node.join("tribunal.toml"), config).expect("written");
        }
        Cluster { dir, nodes: (0..count).map(|_| None).collect(), clocks: None }
    }

    /// Takes over the files of a cluster that starts with one node; starts none.
    pub fn adopted(dir: tempfile::TempDir) -> Cluster {
        Cluster { dir, nodes: vec![None], clocks: None }
    }

    /// Starts `count` nodes with an embedded store `kv`, and waits until all of them accept transactions.
    pub fn start(count: u16) -> Cluster {
        Cluster::start_with(count, "")
    }

    /// Starts them with additional configuration.
    pub fn start_with(count: u16, more: &str) -> Cluster {
        let mut cluster = Cluster::prepare(count);
        for id in cluster.ids() {
            let file = cluster.node_dir(id).join("tribunal.toml");
            let config = std::fs::read_to_string(&file).expect("written") + more;
            std::fs::write(&file, config).expect("written");
        }
        cluster.found();
        cluster
    }

    /// Starts them so that each node reaches each other one through a separate link.
    pub fn start_linked(count: u16) -> (Cluster, Links) {
        Cluster::start_linked_at(count, None)
    }

    /// The same, with separate clocks.
    pub fn start_linked_at(count: u16, clocks: Option<Clocks>) -> (Cluster, Links) {
        let mut cluster = Cluster::prepare(count);
        cluster.clocks = clocks;
        let mut links = BTreeMap::new();
        for from in cluster.ids() {
            let file = cluster.node_dir(from).join("tribunal.toml");
            let config = std::fs::read_to_string(&file).expect("written");
            let (own, nodes) = config.split_once("[[cluster.nodes]]").expect("it has nodes");
            let mut linked = own.to_owned();
            for (to, node) in (1..).zip(nodes.split("[[cluster.nodes]]")) {
                let address = node.split('"').nth(1).expect("an address");
                let target = address.parse().expect("an address");
                let link = (to != from).then(|| links.entry((from, to)).or_insert_with(|| Link::to(target)).address());
                let address = link.unwrap_or(target);
                let _ = write!(linked, "[[cluster.nodes]]\nid = {to}\naddress = \"{address}\"\n");
            }
            std::fs::write(&file, linked).expect("written");
        }
        cluster.found();
        (cluster, Links::new(links))
    }

    /// Starts all nodes of a new cluster, and declares the store.
    fn found(&mut self) {
        self.start_all();
        eventually("the store to be declared", || {
            let declared = self.node(1).put("/v1/stores/kv", &json!({"adaptor": "kv"}));
            (declared.status < 300).then_some(())
        });
        self.ready();
    }

    /// Starts all nodes that are not running. Nodes of a new cluster wait for each other.
    pub fn start_all(&mut self) {
        let missing: Vec<u16> = self.ids().filter(|id| self.nodes[usize::from(id - 1)].is_none()).collect();
        let started: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = missing.iter().map(|id| scope.spawn(|| Node::spawn(self.command(*id)))).collect();
            starts.into_iter().map(|start| start.join().expect("no panic")).collect()
        });
        for (id, node) in missing.into_iter().zip(started) {
            self.nodes[usize::from(id - 1)] = Some(node.unwrap_or_else(|stderr| panic!("node {id}: {stderr}")));
        }
    }

    /// Starts one node, even if other nodes are not running.
    pub fn start_node(&mut self, id: u16) {
        let node = Node::spawn(self.command(id)).unwrap_or_else(|stderr| panic!("node {id}: {stderr}"));
        self.nodes[usize::from(id - 1)] = Some(node);
    }

    /// Adds a node through the command line, which writes its files; returns its number. It is not started yet.
    pub fn add(&mut self) -> u16 {
        let urls: Vec<&str> = self.running().map(|node| &*node.url).collect();
        let added = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(["cluster", "add", "--json", "--url", &urls.join(",")])
            .args(["--peer-port", &free_port().to_string(), "--port", "0", "--files"])
            .arg(self.dir())
            .output()
            .expect("it runs");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let told: Value = serde_json::from_slice(&added.stdout).expect("JSON");
        let id = told["node"].as_u64().expect("a number") as u16;
        self.nodes.resize_with(usize::from(id), || None);
        id
    }

    /// Removes a node through the command line, by request to the other nodes, and waits until that is complete.
    pub fn remove(&self, id: u16) {
        self.change(id, "remove");
    }

    /// Drains, resumes or removes a node through the command line, by request to the other nodes, and waits until that
    /// is complete.
    pub fn change(&self, id: u16, what: &str) {
        let others = (1..).zip(&self.nodes).filter(|(other, _)| *other != id);
        let urls: Vec<&str> = others.filter_map(|(_, node)| node.as_ref()).map(|node| &*node.url).collect();
        let changed = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(["cluster", what, &id.to_string(), "--url", &urls.join(",")])
            .output()
            .expect("it runs");
        assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    }

    /// Runs `cluster recover` for a node; returns whether it succeeded, and what it printed.
    pub fn recover(&self, id: u16, flags: &[&str]) -> (bool, String) {
        let run = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(["cluster", "recover", "--config"])
            .arg(self.node_dir(id).join("tribunal.toml"))
            .args(flags)
            .output()
            .expect("it runs");
        let success = run.status.success();
        (success, String::from_utf8_lossy(if success { &run.stdout } else { &run.stderr }).into())
    }

    /// Returns the command that runs a node.
    pub fn command(&self, id: u16) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.arg("serve").arg("--config").arg(self.node_dir(id).join("tribunal.toml"));
        self.clocks.iter().for_each(|clocks| clocks.give(id, &mut command));
        command
    }

    pub fn node_dir(&self, id: u16) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.nodes.len() as u16
    }

    pub fn node(&self, id: u16) -> &Node {
        self.nodes[usize::from(id - 1)].as_ref().expect("it runs")
    }

    /// Takes over a node that was started elsewhere.
    pub fn insert(&mut self, id: u16, node: Node) {
        self.nodes[usize::from(id - 1)] = Some(node);
    }

    /// Removes a node from the cluster's list, to kill or to stop it.
    pub fn take(&mut self, id: u16) -> Node {
        self.nodes[usize::from(id - 1)].take().expect("it runs")
    }

    pub fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    /// Waits until all running nodes accept transactions and know the store `kv`.
    pub fn ready(&self) {
        for node in self.running() {
            eventually("a node to be ready", || {
                let is_there = |path: &str| node.try_get(path).is_ok_and(|answer| answer.status == 200);
                (is_there("/readyz") && is_there("/v1/stores/kv")).then_some(())
            });
        }
    }

    /// Waits until all running nodes have decided the same epochs, and returns that state.
    pub fn settled(&self) -> Value {
        eventually("all nodes to decide the same", || {
            // A node that copies another node's state is briefly unreachable.
            let mut states = self.running().map(|node| {
                let info = node.try_get("/v1/cluster").ok()?.body;
                Some(json!([info["epoch"], info["digest"]]))
            });
            let first = states.next()??;
            states.all(|state| state.as_ref() == Some(&first)).then_some(first)
        })
    }
}
