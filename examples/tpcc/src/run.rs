//! A run: a separate schema, the population, working terminals, and the audit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio_postgres::Client as Postgres;
use tribunal_client::{Client, ClientOptions, Lsn, Outcome, StoreDeclaration, StoreExistence, StorePushState};

use crate::audit::{self, Audit};
use crate::conditions::{self, Condition};
use crate::database::{Database, said};
use crate::engine::{Attempt, Input, Terminal, Trouble};
use crate::population;
use crate::random::{Random, Sizes};
use crate::tally::{Live, Tally, line};
use crate::{Options, schema};

/// How long PostgreSQL may take to catch up with the log.
const CATCH_UP_MAX: Duration = Duration::from_secs(300);
/// Maximum backoff before a retry.
const WAIT_MAX: Duration = Duration::from_millis(64);

type Tallies = BTreeMap<&'static str, Tally>;

/// All results of a run.
struct Findings {
    tallies: Tallies,
    lasted: Duration,
    /// Commits and aborts of each second.
    series: Vec<Value>,
    caught_up: Duration,
    conditions: Vec<(&'static Condition, i64)>,
    audit: Audit,
    /// Acknowledged commits that are missing from the tables.
    wrong: Vec<String>,
}

/// Runs terminals against an existing Tribunal and PostgreSQL; returns whether every check passed.
///
/// # Errors
/// In words, if the run could not take place.
pub async fn run(options: &Options, tribunal: &str, database: &Database) -> Result<bool, String> {
    let client = Client::with_options(tribunal, ClientOptions::from_env()).map_err(|e| e.to_string())?;
    // Letters and digits only: it is a name in SQL and in the API.
    let name = format!("tpcc_{}_{}", std::process::id(), crate::clock::now_us() / 1000);
    let admin = database.connect("public").await?;
    admin.batch_execute(&format!("CREATE SCHEMA {name}")).await.map_err(said)?;
    let result = tokio::select! {
        result = within(options, &client, database, &name) => result,
        () = interrupted() => Err("interrupted".to_owned()),
    };
    if !options.keep {
        // Keep only its log from now on: nothing is pushed to dropped tables.
        let existence = Some(StoreExistence::Tracked);
        let log_only = StoreDeclaration { existence, log_only: Some(true), ..StoreDeclaration::default() };
        let _ = client.declare_store(&name, &log_only).await;
        admin.batch_execute(&format!("DROP SCHEMA {name} CASCADE")).await.map_err(said)?;
    }
    let findings = result?;
    Ok(report(options, &name, &findings))
}

async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn within(options: &Options, client: &Client, database: &Database, name: &str) -> Result<Findings, String> {
    let sizes = options.sizes();
    let say = |text: String| {
        if !options.json {
            line(format_args!("{text}"));
        }
    };
    declare(client, database, name).await?;
    let begun = Instant::now();
    let rows = population::load(client, name, sizes).await?;
    say(format!("{rows} rows committed through Tribunal in {:.1} s", begun.elapsed().as_secs_f64()));
    let waited = caught_up(client, name).await?;
    say(format!("PostgreSQL has them all {:.1} s later", waited.as_secs_f64()));
    let postgres = database.connect(name).await?;
    let index = "CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first); ANALYZE";
    postgres.batch_execute(index).await.map_err(said)?;
    let (before_orders, before_payments) = counts(&postgres).await?;

    let terminals = terminals(options, client, database, name).await?;
    let (tallies, lasted, series) = work(options, terminals, sizes).await?;
    let waited = caught_up(client, name).await?;

    let (orders, payments) = counts(&postgres).await?;
    let mut wrong = Vec::new();
    for (kind, grown) in [("NewOrder", orders - before_orders), ("Payment", payments - before_payments)] {
        let acknowledged = tallies.get(kind).map_or(0, |tally| tally.committed);
        if i64::try_from(acknowledged) != Ok(grown) {
            wrong.push(format!("{acknowledged} {kind} were acknowledged, the tables grew by {grown}"));
        }
        if acknowledged == 0 {
            wrong.push(format!("no {kind} committed"));
        }
    }
    let delivered = sizes.customers - sizes.customers * 3 / 10;
    let conditions = conditions::violations(&postgres, delivered).await.map_err(said)?;
    let audit = audit::compare(client, name, &postgres).await?;
    Ok(Findings { tallies, lasted, series, caught_up: waited, conditions, audit, wrong })
}

async fn declare(client: &Client, database: &Database, name: &str) -> Result<(), String> {
    let config = schema::adaptor_config(&database.endpoint()?, name);
    let declaration = StoreDeclaration {
        existence: Some(StoreExistence::Tracked),
        adaptor: Some("postgres".to_owned()),
        adaptor_config: Some(to_raw_value(&config).map_err(|e| e.to_string())?),
        ..StoreDeclaration::default()
    };
    client.declare_store(name, &declaration).await.map(drop).map_err(|e| e.to_string())
}

async fn counts(postgres: &Postgres) -> Result<(i64, i64), String> {
    let question = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM history)";
    let row = postgres.query_one(question, &[]).await.map_err(said)?;
    Ok((row.try_get(0).map_err(said)?, row.try_get(1).map_err(said)?))
}

async fn terminals(
    options: &Options,
    client: &Client,
    database: &Database,
    name: &str,
) -> Result<Vec<(i32, Terminal)>, String> {
    let mut terminals = Vec::new();
    for n in 0..options.terminals {
        let home = i32::try_from(n).unwrap_or(0) % options.warehouses + 1;
        let postgres = database.connect(name).await?;
        let terminal = Terminal::new(client.clone(), postgres, name, home).await.map_err(|e| e.to_string())?;
        terminals.push((home, terminal));
    }
    Ok(terminals)
}

/// Runs the terminals for the requested duration.
async fn work(
    options: &Options,
    terminals: Vec<(i32, Terminal)>,
    sizes: Sizes,
) -> Result<(Tallies, Duration, Vec<Value>), String> {
    let (stop, live) = (Arc::new(AtomicBool::new(false)), Arc::new(Live::default()));
    let begun = Instant::now();
    let mut working = tokio::task::JoinSet::new();
    for (n, (home, terminal)) in (0..).zip(terminals) {
        let (stop, live) = (Arc::clone(&stop), Arc::clone(&live));
        working.spawn(async move { one(terminal, Random::new(n), sizes, home, &stop, &live).await });
    }
    let mut progress = std::pin::pin!(show_progress(options, &live, begun));
    let mut tallies = Tallies::new();
    let mut series = None;
    while !working.is_empty() {
        tokio::select! {
            seconds = &mut progress, if series.is_none() => {
                series = Some(seconds);
                stop.store(true, Ordering::Relaxed);
            }
            Some(ended) = working.join_next() => {
                let counted = ended.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
                for (kind, tally) in counted {
                    tallies.entry(kind).or_default().merge(&tally);
                }
            }
        }
    }
    Ok((tallies, begun.elapsed(), series.unwrap_or_default()))
}

async fn one(
    terminal: Terminal,
    mut random: Random,
    sizes: Sizes,
    home: i32,
    stop: &AtomicBool,
    live: &Live,
) -> Result<Tallies, Trouble> {
    let mut tallies = Tallies::new();
    while !stop.load(Ordering::Relaxed) {
        let input = Input::draw(&mut random, sizes, home);
        let tally = tallies.entry(input.name()).or_default();
        let asked = Instant::now();
        let mut failed = 0;
        loop {
            let tried = Instant::now();
            let aborted = match terminal.attempt(&input).await? {
                Attempt::RolledBack => {
                    tally.rolled_back += 1;
                    break;
                }
                Attempt::Verdict(Outcome::Committed(_)) => {
                    tally.committed(asked.elapsed(), tried.elapsed());
                    live.committed(asked.elapsed());
                    break;
                }
                Attempt::Verdict(Outcome::Aborted(aborted)) => aborted,
            };
            live.aborted.fetch_add(1, Ordering::Relaxed);
            // A taken number is an order that was committed after a stale read: read again.
            let again = aborted.retryable || aborted.reason == "row_exists";
            tally.aborted(aborted.reason);
            if !again || stop.load(Ordering::Relaxed) {
                break;
            }
            failed += 1;
            let step_ms = random.within(1, 1 << i32::min(failed, 6));
            let step = Duration::from_millis(u64::try_from(step_ms).unwrap_or(1));
            tokio::time::sleep(aborted.retry_after.max(step).min(WAIT_MAX)).await;
        }
    }
    Ok(tallies)
}

/// Waits until the terminals have worked long enough; returns an entry for each second.
async fn show_progress(options: &Options, live: &Live, begun: Instant) -> Vec<Value> {
    let bar = if options.json { ProgressBar::hidden() } else { ProgressBar::new(options.seconds) };
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {msg}").expect("the template is valid");
    bar.set_style(style.progress_chars("=> "));
    let (mut before, mut aborted_before) = (0, 0);
    let mut series = Vec::new();
    for second in 1..=options.seconds {
        tokio::time::sleep_until((begun + Duration::from_secs(second)).into()).await;
        let (committed, aborted) = live.read();
        bar.set_position(second);
        bar.set_message(format!("{:>6} commits/s, {aborted} aborts so far", committed - before));
        let (p50, p99) = live.take_second();
        series.push(json!({
            "second": second, "committed": committed - before, "aborted": aborted - aborted_before,
            "response_us": {"p50": p50, "p99": p99},
        }));
        (before, aborted_before) = (committed, aborted);
    }
    bar.finish();
    series
}

/// Waits until PostgreSQL has acknowledged the entire log.
async fn caught_up(client: &Client, store: &str) -> Result<Duration, String> {
    let begun = Instant::now();
    loop {
        let info = client.store(store).await.map_err(|e| e.to_string())?;
        let lsn = |text: &str| text.parse::<u64>().map(Lsn).unwrap_or_default();
        let (acked, head) = (lsn(&info.acked_lsn), lsn(&info.head_lsn));
        if acked == head && info.push.state == StorePushState::Running {
            return Ok(begun.elapsed());
        }
        if info.push.state == StorePushState::Stopped || begun.elapsed() > CATCH_UP_MAX {
            let reason = info.push.last_error.unwrap_or_default();
            return Err(format!(
                "PostgreSQL does not catch up: LSN {acked} of {head}, {}: {reason}",
                info.push.state.name()
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Prints the report; returns whether every check passed.
fn report(options: &Options, store: &str, findings: &Findings) -> bool {
    let Findings { tallies, lasted, series, caught_up, conditions, audit, wrong } = findings;
    let hold = conditions.iter().all(|(_, violations)| *violations == 0);
    let good = hold && audit.differing == 0 && wrong.is_empty();
    let seconds = lasted.as_secs_f64();
    if options.json {
        let kinds: BTreeMap<&str, Value> = tallies.iter().map(|(kind, tally)| (*kind, tally.json(seconds))).collect();
        let conditions: BTreeMap<String, i64> =
            conditions.iter().map(|(condition, found)| (format!("3.3.2.{}", condition.number), *found)).collect();
        let result = json!({
            "seconds": seconds, "terminals": options.terminals, "warehouses": options.warehouses, "store": store,
            "transactions": kinds, "caught_up_s": caught_up.as_secs_f64(), "violations": conditions,
            "log_records": audit.records, "rows": audit.rows, "rows_that_differ": audit.differing,
            "wrong": wrong, "all_as_it_must_be": good, "series": series,
        });
        line(format_args!("{result}"));
        return good;
    }
    line(format_args!(""));
    for (kind, tally) in tallies {
        tally.print(kind, seconds);
    }
    line(format_args!("PostgreSQL caught up {:.2} s after the last transaction", caught_up.as_secs_f64()));
    for (condition, violations) in conditions {
        let verdict = if *violations == 0 { "holds".to_owned() } else { format!("VIOLATED {violations} times") };
        line(format_args!("  condition {:>2} {verdict}: {}", condition.number, condition.says));
    }
    for finding in wrong.iter().chain(&audit.listed) {
        line(format_args!("WRONG: {finding}"));
    }
    line(format_args!(
        "the log's {} records, replayed, {} PostgreSQL in all {} rows, values and versions",
        audit.records,
        if audit.differing == 0 { "equal" } else { "DIFFER FROM" },
        audit.rows
    ));
    good
}
