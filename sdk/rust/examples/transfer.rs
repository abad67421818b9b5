//! Moves money between two accounts of an embedded store, and reads the log. Its code stands in README.md, too.

use serde_json::json;
use tribunal_client::{BeginOptions, Client, ClientOptions, Error, Lsn, Outcome};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::var("TRIBUNAL_URL").unwrap_or("http://127.0.0.1:7420".into());
    // With the key in `TRIBUNAL_API_KEY`, where the service asks for one.
    let client = Client::with_options(&url, ClientOptions::from_env())?;

    // One attempt, the verdict in your hands.
    let mut opening = client.begin(BeginOptions::stores(["kv"])).await?;
    opening.put("kv", "acct/1", &json!({"balance": 100}))?;
    opening.put("kv", "acct/2", &json!({"balance": 0}))?;
    let session = match opening.commit().await? {
        Outcome::Committed(committed) => committed.session.unwrap_or_default(),
        Outcome::Aborted(aborted) => return Err(Error::Aborted(aborted)),
    };

    // As many attempts as it takes, within bounds: the work runs again on fresh reads.
    let begin = BeginOptions { wait_ms: Some(1_000), ..BeginOptions::stores(["kv"]).session(session) };
    let (said, committed) = client
        .run(begin, async |txn| {
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
    println!("{said} in epoch {}", committed.epoch);

    // The committed log, from a checkpoint that you keep; without `wait_ms(0)` it waits for what comes.
    let mut log = client.log("kv", Lsn(0)).wait_ms(0);
    while let Some(record) = log.next().await? {
        for write in record.writes {
            println!("{} {:?} {} {:?}", record.lsn, write.op, write.key.escape_ascii(), write.value);
        }
    }
    println!("go on from {}", log.checkpoint());
    Ok(())
}
