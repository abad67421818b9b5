//! Addresses that cannot work are reported at once, as such; reads are bounded as a whole.

#[path = "support/endpoints.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod endpoints;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use endpoints::{Endpoint, Reply, client, prepared, refused};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tribunal_client::{BeginOptions, Client, ClientOptions, Error, KeyRange, Lsn, RetryPolicy, RowRead, Transaction};

/// A server that sends these bytes to every connection after a first request, and counts the connections.
async fn answering(bytes: &'static [u8]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let address = listener.local_addr().expect("bound").to_string();
    let connections = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(bytes).await;
            });
        }
    });
    (address, connections)
}

fn misuse_of<T: std::fmt::Debug>(ended: Result<T, Error>) -> String {
    match ended {
        Err(Error::Misuse(text)) => text,
        other => panic!("not to be repeated: {other:?}"),
    }
}

/// Makes each kind of call once, and returns the errors.
async fn errors_of(client: &Client) -> Vec<String> {
    let put = async |txn: &mut Transaction| txn.put("kv", "a", &1);
    vec![
        misuse_of(client.row("kv", "a").await),
        misuse_of(client.read_ranges("kv", &[KeyRange::new("", "", 1)]).await),
        misuse_of(client.begin(BeginOptions::stores(["kv"])).await.map(|txn| txn.id().to_owned())),
        misuse_of(client.run(BeginOptions::stores(["kv"]), put).await),
        misuse_of(client.log("kv", Lsn(0)).next().await),
        misuse_of(client.log("kv", Lsn(0)).follow().await),
        misuse_of(client.state("kv").await.map(|image| image.lsn())),
        misuse_of(client.stores().await.map(|stores| stores.len())),
    ]
}

#[tokio::test]
async fn https_where_no_tls_is_spoken_is_a_misuse() {
    let (address, connections) = answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let client = Client::new(&format!("https://{address}")).expect("a URL");
    let texts = errors_of(&client).await;
    assert!(texts.iter().all(|text| text.contains("is it `http://`?")), "{texts:?}");
    assert_eq!(connections.load(Ordering::Relaxed), texts.len(), "nothing is repeated");
    // Nothing was sent, so there is no doubt.
    let text = misuse_of(client.commit(&prepared(&client)).await);
    assert!(text.contains("is it `http://`?"), "{text}");
}

#[tokio::test]
async fn http_where_tls_is_spoken_is_a_misuse_and_a_commit_there_of_unknown_outcome() {
    let (address, connections) = answering(b"\x15\x03\x03\x00\x02\x02\x46").await;
    let client = Client::new(&format!("http://{address}")).expect("a URL");
    let texts = errors_of(&client).await;
    assert!(texts.iter().all(|text| text.contains("say `https://`")), "{texts:?}");
    assert_eq!(connections.load(Ordering::Relaxed), texts.len(), "nothing is repeated");
    let unknown = client.commit(&prepared(&client)).await;
    assert!(matches!(&unknown, Err(Error::OutcomeUnknown { text, .. }) if text.contains("`https://`")), "{unknown:?}");
}

#[test]
fn a_url_that_is_none_of_an_endpoint_is_a_misuse() {
    for (url, expected) in [
        ("127.0.0.1:7420", "is not of the form"),
        ("ftp://127.0.0.1", "is not of the form"),
        ("http://127.0.0.1:7420?key=x", "is not of the form"),
        ("http://127.0.0.1:99999", "no valid port"),
        ("http://127.0.0.1:", "no valid port"),
        ("http://engine:secret@127.0.0.1:7420", "`api_key`"),
    ] {
        let text = misuse_of(Client::new(url).map(|client| client.url().to_owned()));
        assert!(text.contains(expected) && !text.contains("secret"), "{url}: {text}");
    }
    for url in ["http://127.0.0.1:7420/", "https://[::1]:7420", "http://[::1]", "http://host/prefix"] {
        Client::new(url).expect(url);
    }
}

#[tokio::test]
async fn names_that_are_empty_and_traces_that_no_header_can_have_are_a_misuse() {
    let client = Client::new("http://127.0.0.1:1").expect("a URL");
    assert!(misuse_of(client.status("", false, 0).await).contains("id of the transaction"));
    assert!(misuse_of(client.abort("").await).contains("id of the transaction"));
    assert!(misuse_of(client.forget_consumer("").await).contains("name of the consumer"));
    assert!(misuse_of(client.set_offset("", "kv", Lsn(0), None).await).contains("name of the consumer"));
    let mut txn = client.begin_local(Default::default());
    txn.set_traceparent(Some("00-\n".to_owned()));
    assert!(misuse_of(txn.commit().await).contains("traceparent"));
}

fn bounded(timeout_ms: u64, coalesce: bool) -> ClientOptions {
    let retry = RetryPolicy { attempts_max: 1_000, ..RetryPolicy::default() };
    ClientOptions { timeout: Duration::from_millis(timeout_ms), retry, coalesce, ..ClientOptions::default() }
}

#[tokio::test]
async fn a_read_has_the_timeout_as_a_whole() {
    let silent = Endpoint::start(|_, _, _| Reply::Silent).await;
    let down = Endpoint::start(|_, _, _| refused(503, "unavailable")).await;
    for (endpoint, coalesce) in [(&silent, true), (&silent, false), (&down, true), (&down, false)] {
        let client = client(&[&endpoint.url], bounded(300, coalesce));
        let begun = Instant::now();
        let asked = [RowRead { key: b"a", known: None }];
        // Several at once, of which only two have a request in flight.
        let (one, two, three, range) = tokio::join!(
            client.row("kv", "a"),
            client.read_rows("kv", &asked),
            client.stored_row("kv", "b"),
            client.rows("kv", "", "", 1)
        );
        let took = begun.elapsed();
        let ends = [one.err(), two.err(), three.err(), range.err()];
        let unavailable = |end: &Option<Error>| matches!(end, Some(Error::Unavailable { .. }));
        assert!(ends.iter().all(unavailable), "{ends:?}");
        // Many repetitions would take 300 s.
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    assert!(down.asked().len() > 4, "it was repeated");
    let urls = [silent.url.as_str(), down.url.as_str()];
    let ended = client(&urls, bounded(300, false)).row("kv", "a").await;
    let Err(Error::Unavailable { text, .. }) = &ended else { panic!("{ended:?}") };
    assert!(urls.iter().all(|url| text.contains(url)), "each endpoint is described: {text}");
}

#[tokio::test]
async fn a_store_that_begin_did_not_name_is_a_misuse_and_a_read_of_no_rows_sends_nothing() {
    let begun = r#"{"txn_id":"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a","snapshots":{"kv":"7"},"epoch":"8","expires_at":"2026-01-01T00:00:00Z","session":"s"}"#;
    let response = format!(
        "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{begun}",
        begun.len()
    );
    let (address, connections) = answering(response.leak().as_bytes()).await;
    let client = Client::new(&format!("http://{address}")).expect("a URL");
    let none = client.read_rows("kv", &[]).await.expect("nothing to read");
    assert_eq!((none.rows.len(), connections.load(Ordering::Relaxed)), (0, 0));
    let mut txn = client.begin(BeginOptions::stores(["kv"])).await.expect("begun");
    txn.put("kv", "a", &1).expect("a value");
    for text in [
        misuse_of(txn.put("other", "a", &1)),
        misuse_of(txn.add("other", "a", 1)),
        misuse_of(txn.get("other", "a").await),
        misuse_of(txn.get_many("other", &["a"]).await),
        misuse_of(txn.scan("other", "", "", 1).await),
    ] {
        assert!(text.starts_with("store_not_named: Begin did not name store `other`, only `kv`"), "{text}");
    }
}
