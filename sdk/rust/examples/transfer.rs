//! Moves money between two accounts of an embedded store, and reads the log. README.md has the same code.

use serde_json::json;
use tribunal_client::{BeginOptions, Client, ClientOptions, Error, Lsn, Outcome};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::var("TRIBUNAL_URL").unwrap_or("http://127.0.0.1:7420".into());
    // With the key in `TRIBUNAL_API_KEY`, if the service requires one.
    let client = Client::with_options(&url, ClientOptions::from_env())?;

    // A single attempt: you handle the verdict.
    let mut opening = client.begin(BeginOptions::stores(["kv"])).await?;
    opening.put("kv", "acct/1", &json!({"balance": 100}))?;
    opening.put("kv", "acct/2", &json!({"balance": 0}))?;
    if let Outcome::Aborted(aborted) = opening.commit().await? {
        return Err(Error::Aborted(aborted));
    }

    // With retries: after a conflict the work runs again, on fresh reads.
    let (result, committed) = client
        .run(BeginOptions::stores(["kv"]), async |txn| {
            let mut balances = [0, 0];
            for (key, balance) in ["acct/1", "acct/2"].into_iter().zip(&mut balances) {
                *balance = txn.get("kv", key).await?.and_then(|row| row.value["balance"].as_i64()).unwrap_or(0);
            }
            let [payer, payee] = balances;
            if payer < 10 {
                return Ok("not enough");
            }
            txn.put("kv", "acct/1", &json!({"balance": payer - 10}))?;
            txn.put("kv", "acct/2", &json!({"balance": payee + 10}))?;
            Ok::<_, Error>("moved")
        })
        .await?;
    println!("{result} in epoch {}", committed.epoch);

    // The committed log, from an offset that you keep. Without `wait_ms(0)` the reader waits for further records.
    let mut log = client.log("kv", Lsn(0)).wait_ms(0);
    while let Some(record) = log.next().await? {
        for write in record.writes {
            let value = write.value.map_or(String::new(), |value| value.to_string());
            println!("{} {:?} {} {value}", record.lsn, write.op, write.key.escape_ascii());
        }
    }
    println!("resume at offset {}", log.offset());
    Ok(())
}
