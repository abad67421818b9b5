//! `tribunal consumer ls` and `tribunal consumer rm`.

use crate::commands::output::out;
use crate::commands::store::block_on;
use crate::commands::target::Target;

/// Lists consumers with their offsets and lag, one line per store that they read.
///
/// # Errors
/// If the service cannot be reached.
pub fn ls(target: &Target) -> Result<(), String> {
    let consumers = block_on(async { target.client()?.consumers().await })?;
    if target.json {
        for consumer in consumers {
            out!("{}", serde_json::to_string(&consumer).map_err(|error| error.to_string())?);
        }
        return Ok(());
    }
    out!("{:<24} {:<20} {:>10} {:>10} {:>8} {:>8}", "consumer", "store", "done", "head", "lag", "lag ms");
    for consumer in consumers {
        for at in consumer.offsets {
            out!(
                "{:<24} {:<20} {:>10} {:>10} {:>8} {:>8}",
                consumer.name,
                at.store,
                at.lsn,
                at.head_lsn,
                at.lag_records,
                at.lag_ms
            );
            if at.log != consumer.log {
                out!("{:<24} is of another log: restart from the state of the store, and store a new offset", "");
            } else if let Some(oldest) = at.truncated_below {
                out!(
                    "{:<24} has records before {oldest} to read, which this node has truncated: read them from another node of the \
                     cluster, or restart from the state of the store, and store a new offset",
                    ""
                );
            }
        }
    }
    Ok(())
}

/// Deletes a consumer.
///
/// # Errors
/// If there is none of this name, or the service cannot be reached.
pub fn rm(target: &Target, name: &str) -> Result<(), String> {
    block_on(async { target.client()?.forget_consumer(name).await })?;
    if !target.json {
        out!("consumer `{name}` is deleted");
    }
    Ok(())
}
