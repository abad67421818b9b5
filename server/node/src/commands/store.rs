//! `tribunal store ls` and `tribunal store get`.

use serde_json::json;
use tribunal_client::{Client, Error};

use crate::cli::Target;

fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(work).map_err(|error| error.to_string())
}

/// Lists stores with their head, what is applied, and their lag.
///
/// # Errors
/// If the service cannot be reached.
pub fn ls(target: &Target) -> Result<(), String> {
    let stores = block_on(async { Client::new(&target.url)?.stores().await })?;
    if target.json {
        for store in stores {
            println!("{}", serde_json::to_string(&store).map_err(|error| error.to_string())?);
        }
        return Ok(());
    }
    println!("{:<20} {:<8} {:>10} {:>10} {:>10} {:>8}  push", "store", "adaptor", "head", "acked", "applied", "lag ms");
    for store in stores {
        println!(
            "{:<20} {:<8} {:>10} {:>10} {:>10} {:>8}  {}{}",
            store.store,
            store.adaptor.as_deref().unwrap_or("-"),
            store.head_lsn,
            store.acked_lsn,
            store.applied,
            store.push.lag_ms,
            store.push.state,
            store.push.last_error.map(|error| format!(": {error}")).unwrap_or_default()
        );
    }
    Ok(())
}

/// Prints one row of an embedded store.
///
/// # Errors
/// If there is no such row, or the store is not embedded.
pub fn get(target: &Target, store: &str, key: &str) -> Result<(), String> {
    let row = block_on(async { Client::new(&target.url)?.row(store, key).await })?;
    let Some(row) = row else { return Err(format!("store `{store}` has no row `{key}`")) };
    if target.json {
        let version = row.version.map(|version| version.to_string());
        println!("{}", json!({"store": store, "key": key, "value": row.value, "version": version}));
    } else {
        println!("{}", row.value);
    }
    Ok(())
}
