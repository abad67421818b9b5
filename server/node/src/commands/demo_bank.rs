//! `tribunal demo bank`: concurrent clients transfer money over HTTP. At the end no cent is missing, and the replayed log
//! equals the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tribunal_api::IsolationLevel;
use tribunal_client::{BeginOptions, Client, ClientOptions, Error, Outcome};
use tribunal_types::Lsn;

use crate::commands::cli::Bank;
use crate::commands::output::out;
use crate::config::Config;
use crate::node::Node;

const STORE: &str = "kv";
const DEPOSIT: i64 = 1_000;

/// The clients' shared counters.
#[derive(Default)]
struct Tally {
    committed: AtomicU64,
    aborted: AtomicU64,
    reasons: Mutex<BTreeMap<String, u64>>,
    /// Latencies of the commits of this second, microseconds.
    second: Mutex<Latencies>,
}

/// A histogram with a default.
struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new(3).expect("three digits are supported"))
    }
}

/// The final findings.
struct Audit {
    in_store: i64,
    in_log: i64,
    records: u64,
    equal: bool,
}

/// Runs the demo.
///
/// # Errors
/// If the service cannot be reached, or money is missing.
pub fn run(flags: &Bank) -> Result<(), String> {
    let embedded = match &flags.url {
        Some(_) => None,
        None => Some(start_node()?),
    };
    let url = match (&flags.url, &embedded) {
        (Some(url), _) => url.clone(),
        (None, Some((node, _))) => format!("http://{}", node.address()),
        (None, None) => unreachable!("a node was started"),
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    let result = runtime.block_on(story(flags, &url)).map_err(|error| error.to_string());
    if let Some((node, data)) = embedded {
        node.stop().map_err(|error| error.to_string())?;
        data.close().map_err(|error| format!("cannot remove the demo's data: {error}"))?;
    }
    match result? {
        true => Ok(()),
        false => {
            Err("the books do not balance: this is a defect of tribunal, please report it with this output".into())
        }
    }
}

fn start_node() -> Result<(Node, tempfile::TempDir), String> {
    let data = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), data: data.path().to_owned(), ..Config::load(None)? };
    let node = Node::start(&config, true).map_err(|error| error.to_string())?;
    Ok((node, data))
}

fn account(n: u32) -> String {
    format!("acct/{n:06}")
}

async fn story(flags: &Bank, url: &str) -> Result<bool, Error> {
    let client = Client::with_options(url, ClientOptions::from_env())?;
    let from = client.store(STORE).await?.head_lsn.parse().map(Lsn).unwrap_or_default();
    open_accounts(&client, flags.accounts).await?;
    let tally = Arc::new(Tally::default());
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let mut clients = Vec::new();
    for seed in 0..flags.clients {
        let (client, tally, stop) = (client.clone(), Arc::clone(&tally), Arc::clone(&stop));
        let accounts = flags.accounts;
        clients.push(tokio::spawn(async move { teller(client, accounts, u64::from(seed), &tally, &stop).await }));
    }
    let series = show_progress(flags, &tally, start).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Histogram::<u64>::new(3).expect("three digits are supported");
    for teller in clients {
        let seen = teller.await.map_err(|error| Error::Misuse(error.to_string()))??;
        latencies.add(seen).expect("histograms of one shape");
    }
    let elapsed = start.elapsed();
    let audit = audit(&client, from, flags.accounts).await?;
    let expected = i64::from(flags.accounts) * DEPOSIT;
    let balanced = audit.equal && audit.in_store == expected && audit.in_log == expected;
    report(flags, &tally, &series, elapsed, &latencies, &audit, expected);
    Ok(balanced)
}

async fn open_accounts(client: &Client, accounts: u32) -> Result<(), Error> {
    for first in (0..accounts).step_by(1000) {
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        for n in first..accounts.min(first + 1000) {
            txn.put(STORE, account(n), &DEPOSIT)?;
        }
        txn.set_ack(tribunal_api::Ack::Applied);
        if let Outcome::Aborted(aborted) = txn.commit().await? {
            return Err(Error::Misuse(format!(
                "the accounts cannot be opened, because {aborted}. The demo needs a service whose plugins accept {} new rows in one \
                 transaction",
                accounts.min(first + 1000) - first
            )));
        }
    }
    Ok(())
}

/// Moves money between random accounts until stopped; returns the latencies of commits, microseconds.
async fn teller(
    client: Client,
    accounts: u32,
    seed: u64,
    tally: &Tally,
    stop: &AtomicBool,
) -> Result<Histogram<u64>, Error> {
    let mut latencies = Histogram::<u64>::new(3).expect("three digits are supported");
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    while !stop.load(Ordering::Relaxed) {
        let from = dice.below(accounts);
        let to = (from + 1 + dice.below(accounts - 1)) % accounts;
        let amount = i64::from(1 + dice.below(50));
        let mut txn = client.begin(BeginOptions::stores([STORE])).await?;
        let balance = async |txn: &mut tribunal_client::Transaction, n| -> Result<i64, Error> {
            let row = txn.get(STORE, account(n)).await?;
            Ok(row.and_then(|row| row.value.as_i64()).unwrap_or(0))
        };
        let (source, target) = (balance(&mut txn, from).await?, balance(&mut txn, to).await?);
        txn.put(STORE, account(from), &(source - amount))?;
        txn.put(STORE, account(to), &(target + amount))?;
        let asked = Instant::now();
        match txn.commit().await? {
            Outcome::Committed(_) => {
                tally.committed.fetch_add(1, Ordering::Relaxed);
                let us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
                latencies.record(us).expect("the histogram resizes itself");
                tally.second.lock().0.record(us).expect("the histogram resizes itself");
            }
            Outcome::Aborted(aborted) => {
                tally.aborted.fetch_add(1, Ordering::Relaxed);
                *tally.reasons.lock().entry(aborted.reason).or_default() += 1;
            }
        }
    }
    Ok(latencies)
}

/// Waits until the clients have worked long enough; returns an entry per second.
async fn show_progress(flags: &Bank, tally: &Tally, start: Instant) -> Vec<Value> {
    let bar = if flags.json { ProgressBar::hidden() } else { ProgressBar::new(flags.seconds) };
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {msg}").expect("the template is valid");
    bar.set_style(style.progress_chars("=> "));
    let (mut before, mut aborted_before) = (0, 0);
    let mut series = Vec::new();
    for second in 1..=flags.seconds {
        tokio::time::sleep_until((start + Duration::from_secs(second)).into()).await;
        let committed = tally.committed.load(Ordering::Relaxed);
        let aborted = tally.aborted.load(Ordering::Relaxed);
        bar.set_position(second);
        bar.set_message(format!("{:>7} commits/s, {aborted} aborts so far", committed - before));
        let latencies = std::mem::take(&mut *tally.second.lock()).0;
        series.push(json!({
            "second": second, "committed": committed - before, "aborted": aborted - aborted_before,
            "commit_us": {"p50": latencies.value_at_quantile(0.5), "p99": latencies.value_at_quantile(0.99)},
        }));
        (before, aborted_before) = (committed, aborted);
    }
    bar.finish();
    series
}

/// Adds up the store and the log, and compares them row by row.
async fn audit(client: &Client, from: Lsn, accounts: u32) -> Result<Audit, Error> {
    wait_until_applied(client).await?;
    let mut store: HashMap<String, (i64, u64)> = HashMap::new();
    for n in 0..accounts {
        if let Some(row) = client.row(STORE, account(n)).await? {
            let version = row.version.map_or(0, |version| version.bits());
            store.insert(account(n), (row.value.as_i64().unwrap_or(0), version));
        }
    }
    let mut log: HashMap<String, (i64, u64)> = HashMap::new();
    let mut reader = client.log(STORE, from).wait_ms(0);
    let mut records = 0;
    while let Some(record) = reader.next().await? {
        records += 1;
        for write in record.writes {
            let key = String::from_utf8_lossy(&write.key).into_owned();
            let value = write.value.as_ref().and_then(|value| value.parse().ok()).unwrap_or(0);
            log.insert(key, (value, record.version.bits()));
        }
    }
    Ok(Audit {
        in_store: store.values().map(|row| row.0).sum(),
        in_log: log.values().map(|row| row.0).sum(),
        records,
        equal: store == log,
    })
}

async fn wait_until_applied(client: &Client) -> Result<(), Error> {
    loop {
        let store = client.store(STORE).await?;
        if store.head_lsn == store.acked_lsn {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn report(
    flags: &Bank,
    tally: &Tally,
    series: &[Value],
    elapsed: Duration,
    latencies: &Histogram<u64>,
    audit: &Audit,
    expected: i64,
) {
    let committed = tally.committed.load(Ordering::Relaxed);
    let aborted = tally.aborted.load(Ordering::Relaxed);
    let goodput = committed as f64 / elapsed.as_secs_f64();
    let share = 100.0 * aborted as f64 / (committed + aborted).max(1) as f64;
    let reasons = tally.reasons.lock().clone();
    let at = |quantile| latencies.value_at_quantile(quantile);
    if flags.json {
        let result = json!({
            "seconds": elapsed.as_secs_f64(), "clients": flags.clients, "accounts": flags.accounts,
            "committed": committed, "aborted": aborted, "aborts_by_reason": reasons, "goodput_per_s": goodput,
            "commit_us": {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": latencies.max()},
            "money": {"expected": expected, "store": audit.in_store, "log": audit.in_log},
            "log_records": audit.records, "store_equals_log": audit.equal, "series": series,
        });
        out!("{result}");
        return;
    }
    out!("\n{committed} transfers committed in {:.1} s: {goodput:.0} per second", elapsed.as_secs_f64());
    out!("{aborted} aborted ({share:.1} %), each with the row that caused it:");
    for (reason, count) in &reasons {
        out!("  {reason:<20} {count}");
    }
    let ms = |quantile| at(quantile) as f64 / 1000.0;
    out!("commit latency: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms", ms(0.5), ms(0.9), ms(0.99));
    out!("money: {expected} expected, {} in the store, {} in the replayed log", audit.in_store, audit.in_log);
    out!(
        "the log's {} records, replayed, {} the store row by row",
        audit.records,
        if audit.equal { "equal" } else { "DIFFER FROM" }
    );
}

/// A small random generator for the load; nothing depends on its quality.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(bound)).expect("below a u32")
    }
}
