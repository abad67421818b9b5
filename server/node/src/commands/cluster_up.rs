//! `tribunal cluster up`: runs a cluster on this machine; creates its files first.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tribunal_api::{NodeStage, StoreDeclaration};
use tribunal_client::Client;

use crate::cluster::first_start;
use crate::commands::cli::{ClusterUp, program};
use crate::commands::cluster_files::{self, CONFIG_FILE, NodeFiles, SECRET_FILE};
use crate::commands::output::out;
use crate::commands::store::block_on;
use crate::config::Config;
use crate::data_dir::log_dir;
use crate::listening::cannot_listen;

/// Name of clusters on a single machine.
const LOCAL: &str = "local";
/// The port of the first node, if none is given.
const PORT: u16 = 7420;
/// Offset of the peer ports from the API ports.
const PEER_PORTS: u16 = 10;
/// How long the nodes may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the nodes may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// How long to wait before a node that ended is restarted.
const RESTART_AFTER: Duration = Duration::from_secs(2);
/// Poll interval for added nodes.
const ADDED_POLL: Duration = Duration::from_secs(1);
/// Poll interval for the nodes' processes.
const POLL: Duration = Duration::from_millis(50);
/// Why the command ends if it is interrupted before all nodes run.
const STOPPED: &str = "interrupted while the nodes were starting; they are stopped";

/// A node of a cluster on this machine.
struct LocalNode {
    id: u16,
    dir: PathBuf,
    url: String,
    listen: SocketAddr,
    data: PathBuf,
    process: Option<Child>,
    /// When it ended, if it is not running.
    ended: Option<Instant>,
}

/// Runs a cluster on loopback until it is stopped.
///
/// # Errors
/// If files cannot be written, a node does not start, or the cluster is not configured.
pub fn run(flags: &ClusterUp) -> Result<(), String> {
    let is_new = !flags.data.join(SECRET_FILE).exists();
    if is_new {
        create(flags)?;
    }
    let mut nodes = read_nodes(&flags.data)?;
    if let Some(port) = flags.port.filter(|port| !is_new && *port != 0 && !has_ports_from(&nodes, *port)) {
        let ports: Vec<_> = nodes.iter().map(|node| node.listen.port().to_string()).collect();
        return Err(format!(
            "{} has a cluster, whose nodes use the ports {}, and not those from {port} on; leave --port out, or use another directory \
             with --data",
            flags.data.display(),
            ports.join(", ")
        ));
    }
    refuse_running(&nodes)?;
    if flags.nodes.is_some_and(|wanted| usize::from(wanted) != nodes.len()) {
        return Err(format!(
            "{} has a cluster of {} nodes; leave --nodes out, or use another directory with --data",
            flags.data.display(),
            nodes.len()
        ));
    }
    let stop = stop_signal()?;
    let started = start_all(&mut nodes, &stop).and_then(|()| declare_kv(&nodes, &stop));
    let ran = started.map(|()| {
        tell(&nodes);
        watch(&mut nodes, &flags.data, &stop);
    });
    stop_all(&mut nodes);
    ran
}

/// Creates the files of a new cluster.
fn create(flags: &ClusterUp) -> Result<(), String> {
    if log_dir(&flags.data).is_dir() {
        let data = flags.data.display();
        return Err(if first_start::has_note(&flags.data) {
            format!("{data} is the data directory of a member of a cluster: name that of the whole cluster with --data")
        } else {
            format!(
                "{data} is the data directory of a node that runs alone: name another one for the cluster with --data. `{} cluster \
                 adopt` makes that node the first one of a cluster",
                program()
            )
        });
    }
    let (count, port) = (flags.nodes.unwrap_or(3), flags.port.unwrap_or(PORT));
    // All ports stay taken until all are known, so that none is assigned twice.
    let take = |offset: u16| {
        take_port(port, offset).map_err(|error| match port {
            0 => error,
            _ => format!("{error}. {}", ports_of(port, count)),
        })
    };
    let apis = (0..count).map(take).collect::<Result<Vec<_>, _>>()?;
    let peers = (0..count).map(|ix| take(PEER_PORTS + ix)).collect::<Result<Vec<_>, _>>()?;
    tribunal_disk::create_private_directories(&flags.data)
        .map_err(|error| format!("cannot create {}: {error}", flags.data.display()))?;
    let root = fs::canonicalize(&flags.data).map_err(|error| format!("{}: {error}", flags.data.display()))?;
    let address = |listener: &TcpListener| listener.local_addr().map_err(|error| error.to_string());
    let mut nodes = Vec::new();
    for ((id, api), peer) in (1..).zip(&apis).zip(&peers) {
        let (api, listen, dir) = (address(api)?, address(peer)?, root.join(format!("node-{id}")));
        let (host, data) = (listen.ip().to_string(), dir.join("data"));
        nodes.push(NodeFiles { id, address: listen.to_string(), listen, host, api, data, dir });
    }
    cluster_files::create(&root, &root, LOCAL, &nodes, false)
}

/// Refuses to start nodes that already run, for example because `cluster up` was killed.
fn refuse_running(nodes: &[LocalNode]) -> Result<(), String> {
    let running = nodes.iter().find(|node| TcpListener::bind(node.listen).is_err());
    running.map_or(Ok(()), |node| {
        Err(format!(
            "something listens on {}, the address of node {}: if this cluster runs already, stop it first (its nodes are the \
             processes `serve --config {}/node-*/{CONFIG_FILE}`)",
            node.listen,
            node.id,
            node.dir.parent().unwrap_or(&node.dir).display()
        ))
    })
}

/// Binds the port at `offset` from the first one, or any free port if that is 0.
fn take_port(first: u16, offset: u16) -> Result<TcpListener, String> {
    let port = if first == 0 { 0 } else { first.checked_add(offset).ok_or("--port is too large")? };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).map_err(|error| cannot_listen(address, "--port; 0 takes free ones", &error))
}

/// Describes the ports that a new cluster uses.
fn ports_of(first: u16, count: u16) -> String {
    let (first, peers) = (u32::from(first), u32::from(first) + u32::from(PEER_PORTS));
    let ports = |first: u32| match count {
        1 => format!("port {first}"),
        _ => format!("ports {first} to {}", first + u32::from(count) - 1),
    };
    let nodes = if count == 1 { "one node" } else { &*format!("{count} nodes") };
    let limit = if peers + u32::from(count) - 1 > u32::from(u16::MAX) { "; there are none above 65535" } else { "" };
    format!(
        "{nodes} from --port {first} on would use {} for clients and {} for each other{limit}",
        ports(first),
        ports(peers)
    )
}

/// Returns whether nodes have the ports that a new cluster would get from this one on. Added nodes have others.
fn has_ports_from(nodes: &[LocalNode], first: u16) -> bool {
    nodes.iter().any(|node| Some(node.listen.port()) == first.checked_add(node.id.saturating_sub(1)))
}

/// Returns the nodes of an existing cluster, except those that were removed from it.
fn read_nodes(data: &Path) -> Result<Vec<LocalNode>, String> {
    let mut nodes = BTreeMap::<u16, LocalNode>::new();
    for entry in fs::read_dir(data).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node-")).and_then(|id| id.parse().ok());
        let (Some(id), dir) = (number, data.join(&name)) else { continue };
        let file = dir.join(CONFIG_FILE);
        if !file.exists() {
            continue;
        }
        let config = Config::read(Some(&file))?;
        let url = format!("http://{}", config.listen);
        let listen = config.listen;
        if !first_start::is_removed(&config.data) {
            nodes.insert(id, LocalNode { id, dir, url, listen, data: config.data, process: None, ended: None });
        }
    }
    if nodes.is_empty() {
        return Err(format!(
            "{} has no node-*/{CONFIG_FILE} of a node that is still a member; remove the directory to make a new cluster",
            data.display()
        ));
    }
    Ok(nodes.into_values().collect())
}

impl LocalNode {
    /// Starts the process; returns its output, which reports when it listens.
    fn start(&mut self) -> Result<ChildStdout, String> {
        let failed = |error: std::io::Error| format!("cannot start node {}: {error}", self.id);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(self.dir.join(CONFIG_FILE));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        // Ctrl-C in a terminal reaches all of its processes: stop the nodes one by one instead.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn().map_err(failed)?;
        let output = process.stdout.take().ok_or_else(|| format!("node {} has no output", self.id))?;
        self.process = Some(process);
        self.ended = None;
        Ok(output)
    }

    /// Describes the node's address and process, for people.
    fn line(&self) -> String {
        let pid = self.process.as_ref().map_or(0, Child::id);
        format!("  node {}  {}  process {pid}, log {}", self.id, self.url, self.log_file().display())
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("log.txt")
    }

    /// Checks whether the process has ended; returns its status, the first time.
    fn look(&mut self) -> Option<String> {
        let status = self.process.as_mut()?.try_wait().ok().flatten()?;
        self.process = None;
        self.ended = Some(Instant::now());
        Some(status.to_string())
    }
}

/// Starts all nodes and waits until all of them listen.
fn start_all(nodes: &mut [LocalNode], stop: &Receiver<()>) -> Result<(), String> {
    let outputs = nodes.iter_mut().map(LocalNode::start).collect::<Result<Vec<_>, _>>()?;
    let (told, listening) = channel();
    for (id, output) in (1_u16..).zip(outputs) {
        let told = told.clone();
        std::thread::spawn(move || {
            // Read to the end, or the node could not write.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line.contains("listens on") {
                    let _ = told.send(id);
                }
            }
        });
    }
    let deadline = Instant::now() + START_TIMEOUT;
    let mut missing = nodes.len();
    while missing > 0 {
        if listening.recv_timeout(POLL).is_ok() {
            missing -= 1;
        }
        if stop.try_recv().is_ok() {
            return Err(STOPPED.into());
        }
        for node in &mut *nodes {
            if let Some(status) = node.look() {
                return Err(format!("node {} did not start ({status}): {}", node.id, last_line(&node.log_file())));
            }
        }
        if Instant::now() >= deadline {
            let logs = nodes[0].log_file();
            let seconds = START_TIMEOUT.as_secs();
            return Err(format!(
                "the nodes did not start within {seconds} s; see {} and those beside it",
                logs.display()
            ));
        }
    }
    Ok(())
}

/// Returns why a node ended: the last line of its log.
fn last_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let Some(line) = text.lines().next_back() else { return format!("see {}", file.display()) };
    // The node may log JSON.
    let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let message = object.as_ref().and_then(|object| object["fields"]["message"].as_str());
    message.unwrap_or(line).to_owned()
}

/// Returns whether a node takes transactions: it leads its own log, or need not.
async fn takes_transactions(client: &Client) -> bool {
    client.cluster().await.is_ok_and(|info| {
        let mut own = info.nodes.iter().filter(|node| node.node == info.node);
        own.any(|own| own.stage != NodeStage::Member || (info.takes_commits && own.led_by == Some(info.node)))
    })
}

/// Declares the embedded store `kv`, as `tribunal dev` does, and waits until all nodes have it and take transactions.
fn declare_kv(nodes: &[LocalNode], stop: &Receiver<()>) -> Result<(), String> {
    let stopped = async {
        while stop.try_recv().is_err() {
            tokio::time::sleep(POLL).await;
        }
    };
    block_on(async move {
        tokio::select! {
            declared = declare_kv_at(nodes) => declared,
            () = stopped => Ok(Err(STOPPED.into())),
        }
    })?
}

/// Does the same; returns why a node does not follow.
async fn declare_kv_at(nodes: &[LocalNode]) -> Result<Result<(), String>, tribunal_client::Error> {
    let declaration = StoreDeclaration { adaptor: Some("kv".to_owned()), ..StoreDeclaration::default() };
    let (client, deadline) = (Client::new(&nodes[0].url)?, Instant::now() + START_TIMEOUT);
    // Its node may not lead its own log again yet.
    while let Err(error) = client.declare_store("kv", &declaration).await {
        if Instant::now() >= deadline {
            return Err(error);
        }
        tokio::time::sleep(POLL).await;
    }
    // Each node applies the configuration itself, a moment later.
    for node in nodes {
        let client = Client::new(&node.url)?;
        while !client.stores().await?.iter().any(|store| store.store == "kv") {
            if Instant::now() >= deadline {
                let (id, seconds, log) = (node.id, START_TIMEOUT.as_secs(), node.log_file());
                return Ok(Err(format!(
                    "node {id} does not know the store `kv` after {seconds} s; see {}",
                    log.display()
                )));
            }
            tokio::time::sleep(POLL).await;
        }
        // Other nodes may have led its log until it was up.
        while !takes_transactions(&client).await && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(Ok(()))
}

fn tell(nodes: &[LocalNode]) {
    out!("tribunal runs a cluster of {} nodes, with the embedded store `kv`:\n", nodes.len());
    nodes.iter().for_each(|node| out!("{}", node.line()));
    let pid = nodes.last().and_then(|node| node.process.as_ref()).map_or(0, Child::id);
    match nodes.len() {
        0..=2 => out!(
            "\nEvery node takes transactions. All have to run: a majority decides, so with three nodes one may fail."
        ),
        _ => {
            out!("\nEvery node takes transactions. Kill one, and nothing that was acknowledged is lost: kill -9 {pid}")
        }
    }
    let urls: Vec<&str> = nodes.iter().map(|node| node.url.as_str()).collect();
    out!(
        "It is started again after {} s. State: {} cluster status --url {}",
        RESTART_AFTER.as_secs(),
        program(),
        urls.join(",")
    );
    out!("Ctrl-C stops all.");
}

/// Restarts nodes that end, until stopped.
fn watch(nodes: &mut Vec<LocalNode>, data: &Path, stop: &Receiver<()>) {
    let mut looked = Instant::now();
    while stop.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
        if looked.elapsed() >= ADDED_POLL {
            looked = Instant::now();
            start_added(nodes, data);
        }
        nodes.retain_mut(|node| {
            let Some(status) = node.look() else { return true };
            let removed = first_start::is_removed(&node.data);
            if removed {
                out!("node {} was removed from the cluster, and has ended", node.id);
            } else {
                out!("node {} ended ({status})", node.id);
            }
            !removed
        });
        for node in &mut *nodes {
            if node.ended.is_some_and(|ended| ended.elapsed() >= RESTART_AFTER) {
                restart(node);
            }
        }
    }
}

/// Starts the nodes that were added to the cluster's files.
fn start_added(nodes: &mut Vec<LocalNode>, data: &Path) {
    // A node with incomplete files is found the next time.
    let found = read_nodes(data).unwrap_or_default();
    for mut added in found {
        if nodes.iter().any(|node| node.id == added.id) {
            continue;
        }
        restart(&mut added);
        out!("node {} was added:\n\n{}", added.id, added.line());
        nodes.push(added);
    }
}

fn restart(node: &mut LocalNode) {
    match node.start() {
        Ok(output) => {
            let (id, process) = (node.id, node.process.as_ref().map_or(0, Child::id));
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if line.contains("listens on") {
                        out!("node {id} listens, process {process}");
                    }
                }
            });
        }
        Err(error) => {
            out!("{error}");
            node.ended = Some(Instant::now());
        }
    }
}

fn stop_all(nodes: &mut [LocalNode]) {
    for process in nodes.iter().filter_map(|node| node.process.as_ref()) {
        if let Some(pid) = rustix::process::Pid::from_raw(process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    for node in nodes {
        let Some(process) = &mut node.process else { continue };
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        // A process that has ended cannot be killed, and must be waited for.
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Returns a channel that receives on SIGINT, SIGTERM and SIGHUP.
fn stop_signal() -> Result<Receiver<()>, String> {
    let (told, stop) = channel();
    let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate, mut hang_up) = {
        use tokio::signal::unix::{SignalKind, signal};
        let _entered = runtime.enter();
        let caught = |kind| signal(kind).map_err(failed);
        (caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?, caught(SignalKind::hangup())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hang_up.recv() => {}
                }
                if told.send(()).is_err() {
                    return;
                }
            }
        });
    });
    Ok(stop)
}
