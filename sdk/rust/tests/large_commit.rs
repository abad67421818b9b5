//! A commit that is larger than the service accepts: its outcome is no question.

#[expect(dead_code, reason = "other tests use the proxy")]
mod support;

use support::Server;
use tribunal_client::{Client, Error, IsolationLevel, Outcome};

#[tokio::test]
async fn a_commit_that_is_too_large_is_not_sent() {
    let Some(server) = Server::start("large-commit") else { return };
    let client = Client::new(&server.url).expect("a URL");
    for _ in 0..10 {
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        txn.put("kv", "a", &"x".repeat(11 << 20)).expect("text");
        let refused = client.batch(&[txn.prepare()]).await;
        assert!(matches!(&refused, Err(Error::Misuse(_))), "{refused:?}");
        let refused = txn.commit().await;
        assert!(matches!(&refused, Err(Error::Misuse(text)) if text.contains("limit")), "{refused:?}");
    }
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    for n in 0..9 {
        txn.put("kv", format!("a{n}"), &"x".repeat(1000 << 10)).expect("text");
    }
    assert!(matches!(txn.commit().await, Ok(Outcome::Committed(_))));
}
