//! `tribunal log tail` and `tribunal log salvage`.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tokio::sync::watch;
use tribunal_client::{Client, Error, LogRecord, StoredValue};
use tribunal_log::{LogError, SalvageReport};
use tribunal_types::{LogId, Lsn};

use crate::cluster::first_start;
use crate::commands::output::{self, out, printable};
use crate::commands::store::block_on;
use crate::commands::target::Target;
use crate::data_dir::log_dir;

/// Number of records shown if no start is given.
const NEWEST: u64 = 10;

/// Maximum number of retries to store an offset while the service is unavailable: as long as a follower reconnects.
const NOTE_RETRIES_MAX: u32 = 300;
/// Retry interval if the service returns none.
const NOTE_RETRY: Duration = Duration::from_secs(1);

/// The records to print.
pub struct Tail {
    /// The store.
    pub store: String,
    /// The position to start after.
    pub after: Option<u64>,
    /// Whether to print more records as they arrive.
    pub follow: bool,
    /// The consumer whose offset to start after and to advance.
    pub consumer: Option<String>,
}

/// Prints a store's committed log; with `follow`, records are printed as they arrive.
///
/// # Errors
/// If the service cannot be reached, has no such store, or no longer keeps that part of the log.
pub fn tail(target: &Target, tail: &Tail) -> Result<(), String> {
    block_on(print(target, tail))
}

async fn print(target: &Target, tail: &Tail) -> Result<(), Error> {
    let client = target.client()?;
    let store = tail.store.as_str();
    let head: u64 = client.store(store).await?.head_lsn.parse().unwrap_or(0);
    let offset = match &tail.consumer {
        Some(name) => client.offset(name, store).await?,
        None => None,
    };
    let after = match (offset, &tail.consumer) {
        (Some(offset), _) => offset.lsn,
        // A new consumer starts at the beginning, so that it misses nothing.
        (None, Some(_)) => Lsn(0),
        (None, None) => Lsn(tail.after.unwrap_or(head.saturating_sub(NEWEST))),
    };
    let mut reader = client.log(store, after).wait_ms(if tail.follow { 30_000 } else { 0 });
    if let Some(offset) = offset {
        reader = reader.of_log(offset.log);
    }
    let (printed, to_note) = watch::channel((after, reader.log_id()));
    let print = async move {
        let mut at = after;
        loop {
            // Once per page.
            if at > printed.borrow().0 && reader.is_page_over() {
                printed.send_replace((at, reader.log_id()));
            }
            let next = if tail.follow { Some(reader.follow().await?) } else { reader.next().await? };
            let Some(record) = next else { return Ok(()) };
            let line = if target.json { as_json(store, &record) } else { as_text(&record) };
            out!("{line}");
            at = record.lsn;
        }
    };
    match &tail.consumer {
        Some(name) => {
            // Printed records are stored even if the log ends with an error.
            let print = async { Ok(print.await) };
            let (printed, ()) = tokio::try_join!(print, note(&client, name, store, to_note))?;
            printed
        }
        None => print.await,
    }
}

/// Stores the offset of printed records until printing ends. One request at a time covers all records printed
/// meanwhile: storing each record's offset takes longer than printing it.
async fn note(
    client: &Client,
    consumer: &str,
    store: &str,
    mut printed: watch::Receiver<(Lsn, Option<LogId>)>,
) -> Result<(), Error> {
    while printed.changed().await.is_ok() {
        let mut failed = 0;
        loop {
            let (at, log) = *printed.borrow_and_update();
            match client.set_offset(consumer, store, at, log).await {
                Ok(_) => break,
                Err(Error::Unavailable { retry_after, .. }) if failed < NOTE_RETRIES_MAX => {
                    failed += 1;
                    tokio::time::sleep(retry_after.unwrap_or(NOTE_RETRY)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn as_text(record: &LogRecord) -> String {
    let mut line = format!("{:>8}  epoch {:<8} {}", record.lsn, record.epoch, record.txn_id);
    for write in &record.writes {
        let key = String::from_utf8_lossy(&write.key);
        line.push_str(&format!("\n          {} {}", write.op.name(), printable(&key)));
        if let Some(value) = &write.value {
            line.push_str(&format!(" = {value}"));
        }
    }
    line
}

/// A record as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    store: &'a str,
    lsn: String,
    prev_lsn: String,
    epoch: String,
    csn: String,
    version: String,
    txn_id: &'a str,
    writes: Vec<Written<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

#[derive(Serialize)]
struct Written<'a> {
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    /// As it was posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a StoredValue>,
}

fn as_json(store: &str, record: &LogRecord) -> String {
    let writes = record.writes.iter().map(|write| {
        let key = str::from_utf8(&write.key).ok();
        let key_b64 = key.is_none().then(|| STANDARD.encode(&write.key));
        Written { op: write.op.name(), key, key_b64, value: write.value.as_ref() }
    });
    let line = Line {
        store,
        lsn: record.lsn.to_string(),
        // Positions have no gaps, as verified by the client.
        prev_lsn: record.lsn.0.saturating_sub(1).to_string(),
        epoch: record.epoch.to_string(),
        csn: record.csn.to_string(),
        version: record.version.to_string(),
        txn_id: &record.txn_id,
        writes: writes.collect(),
        checksum: record.checksum.as_deref(),
        traceparent: record.traceparent.as_deref(),
    };
    serde_json::to_string(&line).expect("texts only")
}

/// Rebuilds a damaged log from the verifiable parts, and reports the losses.
///
/// Changes nothing if no damage is found, unless `rebuild` is set.
///
/// # Errors
/// If the loss was not accepted, the node runs, or nothing can be read.
pub fn salvage(data: &Path, accept_loss: bool, rebuild: bool) -> Result<(), String> {
    let dir = log_dir(data);
    if !dir.is_dir() {
        return Err(format!("there is no log in {}; `--data` names a node's data directory", data.display()));
    }
    tribunal_log::check_unused(&dir).map_err(|error| match error {
        LogError::Locked { path, holder } => format!(
            "{} is in use by {holder}: stop that node first. If it runs well, there is nothing to salvage: a node checks \
             its log when it starts",
            path.display()
        ),
        error => error.to_string(),
    })?;
    if first_start::has_note(data) {
        tribunal_log::check_salvage(&dir).map_err(|error| error.to_string())?;
        return Err(format!(
            "{} belongs to a member of a cluster that has not started yet: repeat `tribunal cluster adopt`, or start it with the \
             configuration that this has written",
            data.display()
        ));
    }
    // Logs that must not be salvaged are refused before anything else is requested.
    tribunal_log::check_salvage(&dir).map_err(|error| error.to_string())?;
    let damage = match tribunal_log::find_damage(&dir) {
        Ok(Some(damage)) => damage,
        Ok(None) if rebuild => "rebuilt without any".to_owned(),
        Ok(None) => {
            let dir = dir.display();
            output::write(format_args!(
                "nothing is damaged in {dir}, and nothing was changed: start the node. If it reports damage all the same, repeat \
                 the command with --accept-loss --rebuild\n"
            ));
            return Ok(());
        }
        Err(error @ tribunal_log::LogError::Locked { .. }) => return Err(error.to_string()),
        Err(error) => format!("it cannot be checked: {error}"),
    };
    if !accept_loss {
        // Needs as much disk space as the salvage itself, and a full disk may be why the log is damaged.
        let preview = match tribunal_log::preview_salvage(&dir) {
            Ok(report) => format!("This is what it would keep and lose:\n{}", kept_and_lost(&report)),
            Err(error) => format!("What it would keep and lose cannot be told: {error}.\n"),
        };
        return Err(format!(
            "the log in {} is damaged: {damage}. A salvage keeps what it can prove and gives up the rest, acknowledged \
             commits included if they are unreadable; the damaged files stay beside the new log. {preview}nothing was changed: \
             repeat the command with --accept-loss",
            dir.display(),
        ));
    }
    let report = tribunal_log::salvage(&dir).map_err(|error| error.to_string())?;
    let (told, id, next, aside) = (kept_and_lost(&report), report.id, report.next, report.set_aside.display());
    output::write(format_args!(
        "{told}the log has a new id, {id}, and continues with epoch {next}\nthe damaged log is in {aside}\n"
    ));
    Ok(())
}

/// Describes what a salvage keeps, and the known losses.
fn kept_and_lost(report: &SalvageReport) -> String {
    let mut text = String::new();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    match (report.entries, report.image) {
        (Some((first, last)), _) => line(format!("kept: entries {first} to {last}")),
        (None, Some(image)) => line(format!("kept: the state at epoch {image}, and no entry after it")),
        (None, None) => line("kept: no entry".into()),
    }
    match report.lost {
        Some(0) if report.end_is_unreadable => line(
            "lost: no entry that is known to have been durable; but the bytes after the last one kept cannot be read, \
             and commits acknowledged in the last moments before the stop may have been there"
                .into(),
        ),
        Some(0) => line("lost: no entry".into()),
        Some(lost) => line(format!("lost: at least {lost} entries that were durable, with acknowledged commits")),
        None => line("lost: unknown, because nothing readable tells how far the log reached".into()),
    }
    if let Some((first, last)) = report.only_in_image {
        line(format!(
            "entries {first} to {last} are in the state image only, not as records: a storage or consumer that had not \
             followed them must be loaded again"
        ));
    }
    if let Some(path) = &report.lost_transactions {
        let (entries, txns) = (report.stranded, report.stranded_txns);
        line(format!(
            "{entries} entries after the first lost one are readable but cannot be kept; {} lists their {txns} transactions",
            path.display()
        ));
    }
    line(format!(
        "outcomes: {} kept, {} to be resolved again at the next start",
        report.outcomes, report.outcomes_lost
    ));
    line(format!("control log: {} entries kept", report.control));
    if !report.control_lost.is_empty() {
        let lost: Vec<_> = report.control_lost.iter().map(u64::to_string).collect();
        line(format!(
            "control log: lost are the entries {}. Each declared a store, created or REVOKED a key, activated a plugin, or \
             set a bound: check `tribunal store ls`, `tribunal key ls` and `tribunal plugin ls` before others are let in",
            lost.join(", ")
        ));
    }
    for (store, head) in &report.heads {
        line(format!(
            "store {store}: its log ends with record {head}; a storage that applied more must be loaded again"
        ));
    }
    text
}
