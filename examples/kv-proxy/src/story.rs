//! The story: two proxies, three workloads, one Redis that is killed and comes back with older data, and no row amiss.
//!
//! Starts every process itself, on loopback and in one temporary directory, and ends them all in any case.

mod caller;
mod check;
mod children;
mod random;
mod tally;
mod workload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::value::to_raw_value;
use tribunal_client::{Client, Lsn, StoreDeclaration, StoreExistence};

use crate::storage::Storage;
use caller::Caller;
use children::{Child, Redis, Workspace, free_address};
use tally::Tally;
use workload::{Role, Sizes, Worker};

const STORE: &str = "redis";
const PREFIX: &str = "kv:";
/// How long Redis may take to catch up with the log at the end.
const CATCH_UP_MAX: Duration = Duration::from_secs(120);

/// Flags of `kv-proxy story`.
#[derive(Args)]
pub struct Story {
    /// The `tribunal` binary; the one beside this program if left out.
    #[arg(long, value_name = "FILE")]
    tribunal_bin: Option<PathBuf>,
    /// The `redis-server` binary.
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis_bin: PathBuf,
    /// How long the workloads run.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(3..=3600))]
    seconds: u64,
    /// Clients of each workload, on each proxy.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    clients: u64,
    /// Rows of the YCSB table.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    rows: u64,
    /// Bank accounts.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=5_000))]
    accounts: u64,
    /// Operations of one YCSB transaction.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    ops: u32,
}

/// Runs the story.
///
/// # Errors
/// A process does not start, Redis does not catch up, or a check fails.
pub async fn tell(story: Story) -> Result<(), Box<dyn std::error::Error>> {
    tokio::select! {
        told = act(&story) => Ok(told?),
        () = crate::stopped() => Err("interrupted".into()),
    }
}

async fn act(story: &Story) -> Result<(), String> {
    let sizes = Sizes { rows: story.rows, accounts: story.accounts, ops_per_txn: story.ops };
    let workspace = Workspace::new().map_err(|e| e.to_string())?;
    let mut redis = Redis::start(&story.redis_bin, workspace.path()).await?;
    let (_tribunal, client) = start_tribunal(story, workspace.path()).await?;
    declare(&client, redis.address()).await?;
    let mut proxies = Vec::new();
    let mut callers = Vec::new();
    for number in 1..=2 {
        let listen = free_address()?;
        proxies.push(start_proxy(number, listen, redis.address(), &client, workspace.path()).await?);
        callers.push(Caller::new(listen));
    }
    println!("Redis on {}, Tribunal on {}, two proxies", redis.address(), client.url());
    let storage = Storage::new(&redis.address().to_string(), PREFIX).map_err(|e| e.to_string())?;
    workload::load(&callers[0], sizes).await?;
    caught_up(&client).await?;
    println!("loaded {} rows and {} accounts", sizes.rows, sizes.accounts);

    let begun = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let workers = spawn_workers(story, sizes, &callers, &stop);
    let length = Duration::from_secs(story.seconds);
    tokio::time::sleep(length.mul_f64(0.3)).await;
    redis.copy_data()?;
    let copied = watermark(&storage).await?;
    tokio::time::sleep(length.mul_f64(0.2)).await;
    let killed = watermark(&storage).await?;
    redis.kill_and_set_back().await?;
    println!("Redis killed at LSN {killed} and started again from a copy that ends at LSN {copied} or before");
    tokio::time::sleep(length.mul_f64(0.5)).await;
    stop.store(true, Ordering::Relaxed);
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for worker in workers {
        let tally = worker.await.map_err(|e| format!("a client failed: {e}"))?;
        tallies.entry(tally.name).or_insert_with(|| Tally::new(tally.name)).merge(tally);
    }
    let lasted = begun.elapsed();
    let waited = caught_up(&client).await?;
    println!("Redis caught up {:.2} s after the last transaction\n", waited.as_secs_f64());
    judge(&client, &storage, sizes, &tallies, lasted, killed > copied).await
}

/// Prints the report.
///
/// # Errors
/// A check fails.
async fn judge(
    client: &Client,
    storage: &Storage,
    sizes: Sizes,
    tallies: &BTreeMap<&str, Tally>,
    lasted: Duration,
    fell_back: bool,
) -> Result<(), String> {
    let replay = check::replay(client, STORE).await?;
    let mut wrong = check::differences(storage, &replay, sizes).await?;
    let mut acknowledged = 0;
    for tally in tallies.values() {
        tally.print(lasted);
        acknowledged += tally.acknowledged.len();
        wrong.extend(replay.missing(&tally.acknowledged));
        wrong.extend(tally.violations.iter().cloned());
        if tally.committed == 0 {
            wrong.push(format!("{} committed nothing", tally.name));
        }
    }
    if !fell_back {
        wrong.push("nothing was pushed between the copy and the kill: run longer".to_owned());
    }
    println!("\nlog: {} records, dense; {acknowledged} acknowledged writes, each in the log", replay.head);
    if wrong.is_empty() {
        println!("Redis equals the log in all {} rows, values and versions; no money lost", replay.rows.len());
        return Ok(());
    }
    for line in wrong.iter().take(20) {
        println!("WRONG: {line}");
    }
    Err(format!("{} things are not as they must be", wrong.len()))
}

async fn start_tribunal(story: &Story, workspace: &Path) -> Result<(Child, Client), String> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("tribunal")));
    let program = story.tribunal_bin.clone().or(beside).filter(|program| program.exists()).ok_or(
        "there is no `tribunal` beside this program: build it with `cargo build --release --bin tribunal`, or name it \
         with --tribunal-bin",
    )?;
    let listen = free_address()?;
    let mut command = Command::new(program);
    command.args(["dev", "--listen", &listen.to_string(), "--data"]).arg(workspace.join("tribunal"));
    let child = Child::start("tribunal", command, workspace, listen).await?;
    let client = Client::new(&format!("http://{listen}")).map_err(|e| e.to_string())?;
    Ok((child, client))
}

async fn start_proxy(
    number: u32,
    listen: SocketAddr,
    redis: SocketAddr,
    client: &Client,
    workspace: &Path,
) -> Result<Child, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["serve", "--store", STORE, "--prefix", PREFIX, "--tribunal", client.url()]);
    command.args(["--redis", &redis.to_string(), "--listen", &listen.to_string()]);
    Child::start(&format!("proxy-{number}"), command, workspace, listen).await
}

async fn declare(client: &Client, redis: SocketAddr) -> Result<(), String> {
    let config = serde_json::json!({ "endpoint": redis.to_string(), "prefix": PREFIX });
    let declaration = StoreDeclaration {
        existence: Some(StoreExistence::Tracked),
        adaptor: Some("redis".to_owned()),
        adaptor_config: Some(to_raw_value(&config).map_err(|e| e.to_string())?),
        ..StoreDeclaration::default()
    };
    client.declare_store(STORE, &declaration).await.map(drop).map_err(|e| e.to_string())
}

fn spawn_workers(
    story: &Story,
    sizes: Sizes,
    callers: &[Caller],
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<Tally>> {
    let mut workers = Vec::new();
    for caller in callers {
        for role in [Role::Ycsb { updates: 50 }, Role::Ycsb { updates: 5 }, Role::Teller, Role::Auditor] {
            let clients = if role == Role::Auditor { 1 } else { story.clients };
            for _ in 0..clients {
                let number = workers.len() as u64;
                let worker = Worker { number, role, sizes, caller: caller.clone(), stop: Arc::clone(stop) };
                workers.push(tokio::spawn(worker.run()));
            }
        }
    }
    workers
}

/// Waits until Redis has acknowledged the entire log.
async fn caught_up(client: &Client) -> Result<Duration, String> {
    let begun = Instant::now();
    loop {
        let info = client.store(STORE).await.map_err(|e| e.to_string())?;
        if info.acked_lsn == info.head_lsn {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > CATCH_UP_MAX {
            let (acked, head, push) = (info.acked_lsn, info.head_lsn, info.push);
            return Err(format!("Redis does not catch up: LSN {acked} of {head}, push {push:?}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn watermark(storage: &Storage) -> Result<Lsn, String> {
    storage.get("").await.map(|(_, watermark)| watermark).map_err(|e| e.to_string())
}
