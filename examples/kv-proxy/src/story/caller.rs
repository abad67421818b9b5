//! Calls a proxy over HTTP, as an application would.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Begin, Begun, End, Ended, Got, OneKey, Pair, Put, Refused, Scan, Scanned, Written};

const TIMEOUT: Duration = Duration::from_secs(60);

/// An application's connection to one proxy. Clones share it.
#[derive(Clone)]
pub struct Caller {
    pool: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

/// A call without a result.
#[derive(Debug)]
pub struct NoResult {
    /// For programs.
    pub code: String,
    /// For people.
    pub detail: String,
}

impl Caller {
    pub fn new(proxy: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Client::builder(TokioExecutor::new()).build(connector);
        Caller { pool, base: format!("http://{proxy}") }
    }

    pub async fn begin(&self) -> Result<OpenTxn<'_>, NoResult> {
        let begun: Begun = self.post("/begin", &Begin::default()).await?;
        Ok(OpenTxn { caller: self, txn: begun.txn })
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, NoResult> {
        let lost = |detail: String| NoResult { code: "lost".to_owned(), detail };
        let body = serde_json::to_vec(body).map_err(|e| lost(e.to_string()))?;
        let request = Request::post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| lost(e.to_string()))?;
        let exchange = async {
            let response = self.pool.request(request).await.map_err(|e| lost(e.to_string()))?;
            let status = response.status();
            let body = response.into_body().collect().await.map_err(|e| lost(e.to_string()))?.to_bytes();
            if status.is_success() {
                return serde_json::from_slice(&body).map_err(|e| lost(e.to_string()));
            }
            let refused: Refused = serde_json::from_slice(&body).map_err(|e| lost(format!("{status}: {e}")))?;
            Err(NoResult { code: refused.code, detail: refused.detail })
        };
        tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(lost("no answer in time".to_owned())))
    }
}

/// A transaction at a proxy. The proxy drops it after a minute if it is not ended.
pub struct OpenTxn<'a> {
    caller: &'a Caller,
    txn: String,
}

impl OpenTxn<'_> {
    pub async fn get(&self, key: &str) -> Result<Option<Value>, NoResult> {
        let asked = OneKey { txn: self.txn.clone(), key: key.to_owned() };
        Ok(self.caller.post::<Got>("/get", &asked).await?.value)
    }

    pub async fn put(&self, key: &str, value: Value) -> Result<(), NoResult> {
        let asked = Put { txn: self.txn.clone(), key: key.to_owned(), value };
        self.caller.post::<Written>("/put", &asked).await.map(drop)
    }

    pub async fn delete(&self, key: &str) -> Result<bool, NoResult> {
        let asked = OneKey { txn: self.txn.clone(), key: key.to_owned() };
        Ok(self.caller.post::<Written>("/delete", &asked).await?.existed == Some(true))
    }

    pub async fn scan(&self, start: &str, end: &str, limit: usize) -> Result<Vec<Pair>, NoResult> {
        let asked = Scan { txn: self.txn.clone(), start: start.to_owned(), end: end.to_owned(), limit };
        Ok(self.caller.post::<Scanned>("/scan", &asked).await?.rows)
    }

    pub async fn commit(self) -> Result<Ended, NoResult> {
        self.caller.post("/commit", &End { txn: self.txn }).await
    }

    pub async fn rollback(self) -> Result<(), NoResult> {
        self.caller.post::<Ended>("/rollback", &End { txn: self.txn }).await.map(drop)
    }
}
