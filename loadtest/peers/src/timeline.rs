//! The experience of three nodes' clients over time: while a node is killed and restarted, while one is paused, and
//! while a fourth one is added.
//!
//! Each client has one commit in flight. When its node does not respond, it tries the next one; only the time in which
//! no client's commit ends is measured.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rustix::process::Signal;
use tribunal_bench::body::mint_id;
use tribunal_bench::chart::{self, Line, Panel, round};
use tribunal_bench::error::BenchError;
use tribunal_bench::rpc::Rpc;
use tribunal_bench::wire::write_post;

use crate::cluster::{Cluster, is_ready};
use crate::process::{Place, Process, command, free_addr};

/// Duration of one point of a chart.
const BUCKET: Duration = Duration::from_millis(100);
/// Times of the event and of the recovery, and the total duration.
const HAPPENS: Duration = Duration::from_secs(2);
const BACK: Duration = Duration::from_secs(5);
const LASTS: Duration = Duration::from_secs(9);
/// Number of keys that clients write: few aborts, and no growth.
const KEYS: u64 = 100_000;

/// Takes the timelines.
#[derive(Debug, clap::Args)]
pub struct Timeline {
    /// Tribunal's binary.
    #[arg(long)]
    tribunal: PathBuf,
    /// Where the nodes may put their data.
    #[arg(long, default_value = ".")]
    data_dir: PathBuf,
    /// Clients, spread over the nodes.
    #[arg(long, default_value_t = 24)]
    clients: u64,
    /// Folder of the charts.
    #[arg(long)]
    charts: PathBuf,
}

/// Times of the ends of commits since the start, ascending.
struct Ends(Vec<Duration>);

/// Time and name of an event.
type Moment = (Duration, &'static str);

impl Timeline {
    /// Measures, prints a line for each timeline, and draws them.
    ///
    /// # Errors
    /// If the nodes do not start, or a chart cannot be written.
    pub fn run(&self) -> Result<(), BenchError> {
        let (ends, moments) = self.measure(|cluster, since| {
            cluster.nodes[2].take().into_iter().for_each(|node| node.kill());
            sleep_until(since, BACK);
            let started = since.elapsed();
            cluster.start(3)?;
            let ready = since.elapsed();
            Ok(vec![(HAPPENS, "one node is killed (SIGKILL)"), (started, "started again"), (ready, "ready")])
        })?;
        self.draw("recovery", "Three nodes, one of them is killed and comes back", &ends, &moments)?;
        let (ends, moments) = self.measure(|cluster, since| {
            cluster.nodes[2].iter().for_each(Process::freeze);
            sleep_until(since, BACK);
            cluster.nodes[2].iter().for_each(Process::thaw);
            Ok(vec![(HAPPENS, "one node is stopped (SIGSTOP)"), (BACK, "it continues")])
        })?;
        self.draw("pause", "Three nodes, one of them is paused", &ends, &moments)?;
        let (ends, moments) = self.measure(|cluster, since| {
            cluster.add()?;
            let admitted = since.elapsed();
            cluster.start(4)?;
            let ready = since.elapsed();
            Ok(vec![(HAPPENS, "`cluster add`"), (admitted, "the fourth node is started"), (ready, "it takes commits")])
        })?;
        self.draw("add-a-node", "Three nodes, and a fourth one is added", &ends, &moments)
    }

    /// Runs clients while a function changes the cluster.
    fn measure(
        &self,
        happens: impl FnOnce(&mut Nodes, Instant) -> Result<Vec<Moment>, BenchError>,
    ) -> Result<(Ends, Vec<Moment>), BenchError> {
        let mut nodes = Nodes::three(&self.tribunal, &self.data_dir)?;
        let addrs: Vec<SocketAddr> = nodes.addrs.clone();
        let (stop, since) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|number| {
                    let (addrs, stop) = (&addrs, &stop);
                    scope.spawn(move || client(number, addrs, stop, since))
                })
                .collect();
            sleep_until(since, HAPPENS);
            let moments = happens(&mut nodes, since);
            sleep_until(since, LASTS);
            stop.store(true, Ordering::Relaxed);
            let mut ends: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
            ends.sort_unstable();
            Ok((Ends(ends), moments?))
        })
    }

    fn draw(&self, file: &str, title: &str, ends: &Ends, moments: &[Moment]) -> Result<(), BenchError> {
        let (rates, pauses) = ends.buckets();
        let places = (0..rates.len()).map(|at| if at % 10 == 0 { (at / 10).to_string() } else { String::new() });
        let panel = |name: &str, figures: Vec<f64>| Panel {
            name: name.to_owned(),
            lines: vec![Line { name: String::new(), figures: figures.into_iter().map(Some).collect() }],
        };
        let mut told = title.to_owned();
        for (at, what) in moments {
            let _ = write!(told, "; {:.1} s: {what}", at.as_secs_f64());
        }
        let longest = pauses.iter().copied().fold(0.0, f64::max);
        let mean = |from: Duration, to: Duration| {
            let count = ends.0.iter().filter(|end| (from..to).contains(*end)).count();
            count as f64 / (to - from).as_secs_f64()
        };
        println!(
            "{told}: {}/s before, {}/s in the last 2 s; longest time without a commit {} ms",
            round(mean(Duration::from_millis(500), HAPPENS)),
            round(mean(LASTS - Duration::from_secs(2), LASTS)),
            round(longest)
        );
        let panels = [panel("committed/s", rates), panel("longest pause, ms", pauses)];
        let places: Vec<String> = places.collect();
        chart::write(&self.charts.join(format!("{file}.svg")), &chart::panels(&told, "seconds", &places, &panels))
    }
}

impl Ends {
    /// Returns for each bucket the rate, and the longest time without a commit that ended in it, milliseconds.
    fn buckets(&self) -> (Vec<f64>, Vec<f64>) {
        let count = (LASTS.as_millis() / BUCKET.as_millis()) as usize;
        let (mut rates, mut pauses) = (vec![0.0; count], vec![0.0_f64; count]);
        let mut last = Duration::ZERO;
        for end in &self.0 {
            let at = (end.as_millis() / BUCKET.as_millis()) as usize;
            if at < count {
                rates[at] += 1.0 / BUCKET.as_secs_f64();
                pauses[at] = pauses[at].max((*end - last).as_secs_f64() * 1000.0);
            }
            last = *end;
        }
        // The first commit ends some time after the start; that is not a pause.
        pauses[..2].fill(0.0);
        (rates, pauses)
    }
}

/// Nodes of a cluster, each a separate process.
struct Nodes {
    // Dropped before their data.
    nodes: Vec<Option<Process>>,
    binary: PathBuf,
    data: tempfile::TempDir,
    addrs: Vec<SocketAddr>,
}

impl Nodes {
    fn three(binary: &Path, parent: &Path) -> Result<Nodes, BenchError> {
        let up = Cluster::tribunal(binary, parent, 3, Duration::ZERO)?;
        let (addrs, data) = up.stop();
        let mut nodes = Nodes { binary: binary.to_owned(), data, addrs, nodes: [const { None }; 4].into() };
        // The nodes wait for each other.
        for node in 1..=3 {
            nodes.spawn(node)?;
        }
        (1..=3).try_for_each(|node| is_ready(nodes.addrs[node - 1]))?;
        Ok(nodes)
    }

    fn folder(&self, node: usize) -> PathBuf {
        self.data.path().join(format!("nodes/node-{node}"))
    }

    fn spawn(&mut self, node: usize) -> Result<(), BenchError> {
        let mut serve = command(&self.binary, None);
        serve.args(["serve", "--config"]).arg(self.folder(node).join("tribunal.toml")).env("TRIBUNAL_LOG", "warn");
        let place = Place { addr: self.addrs[node - 1], ..Place::find("timeline", self.data.path())? };
        self.nodes[node - 1] = Some(Process::start("node", serve, Signal::TERM, place)?);
        Ok(())
    }

    /// Starts a node, and waits until it accepts commits.
    fn start(&mut self, node: usize) -> Result<(), BenchError> {
        self.spawn(node)?;
        is_ready(self.addrs[node - 1])
    }

    /// Admits a fourth node, and writes its files.
    fn add(&mut self) -> Result<(), BenchError> {
        let urls: Vec<String> = self.addrs.iter().map(|addr| format!("http://{addr}")).collect();
        let api = free_addr()?;
        let added = command(&self.binary, None)
            .args(["cluster", "add", "--url", &urls.join(","), "--port", &api.port().to_string(), "--files"])
            .arg(self.data.path().join("nodes"))
            .stdout(Stdio::null())
            .status();
        let added = added.map_err(BenchError::io("run `cluster add`"))?;
        if !added.success() || fs::metadata(self.folder(4)).is_err() {
            return Err(BenchError::TooLate("`cluster add` admits no fourth node".to_owned()));
        }
        self.addrs.push(api);
        Ok(())
    }
}

fn sleep_until(since: Instant, at: Duration) {
    std::thread::sleep(at.saturating_sub(since.elapsed()));
}

/// Commits one transaction after another on the same node while it responds; returns when each commit ended.
fn client(number: u64, addrs: &[SocketAddr], stop: &AtomicBool, since: Instant) -> Vec<Duration> {
    let (mut rng, mut ends, mut node) = (StdRng::seed_from_u64(number), Vec::new(), number as usize);
    let (mut request, mut text, mut at) = (Vec::new(), [0; 36], number);
    while !stop.load(Ordering::Relaxed) {
        let addr = addrs[node % addrs.len()];
        let Ok(mut rpc) = Rpc::connect(addr) else {
            node += 1;
            continue;
        };
        let host = addr.to_string();
        while !stop.load(Ordering::Relaxed) {
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let id = mint_id(unix.as_millis() as u64, &mut rng, &mut text).to_owned();
            at = (at + 7919) % KEYS;
            let body =
                format!("{{\"writes\":[{{\"op\":\"put\",\"store\":\"kv\",\"key\":\"row/{at}\",\"value\":{number}}}]}}");
            request.clear();
            write_post(&mut request, &host, &["/v1/txns/", &id, "/commit"], body.as_bytes());
            match rpc.exchange(&request) {
                Ok((200, _)) => ends.push(since.elapsed()),
                // This node cannot decide at the moment, but another one may.
                Ok(_) => {
                    std::thread::sleep(Duration::from_millis(10));
                    break;
                }
                Err(_) => break,
            }
        }
        node += 1;
    }
    ends
}
