//! What one commit request costs without a socket and without the node: reading the body, writing the answer, and the
//! whole way through the router, beside the route that answers a constant.

use std::hint::black_box;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tower::ServiceExt;
use tribunal_http::answer::{JsonWriter, decision};
use tribunal_http::fault::Path;
use tribunal_http::json::document;
use tribunal_http::service::{Catalog, Decided, Phases};
use tribunal_http::txn_body::{Poster, TxnSeed, txn_id};
use tribunal_http::{RouterOptions, Service};
use tribunal_types::{Cen, Csn, Lsn, NamespaceId, NodeId, StoreId, StoreSpec, TxnRequest, Verdict, Version};

const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

/// Five reads and five writes of 100 bytes on distinct rows.
fn body() -> String {
    let value = "v".repeat(100);
    let reads: Vec<_> = (0..5)
        .map(|n| format!(r#"{{"store":"kv","key":"user{:010}","version":"{}"}}"#, n * 7919, 9_271_508_992_u64 + n))
        .collect();
    let writes: Vec<_> = (0..5)
        .map(|n| format!(r#"{{"op":"put","store":"kv","key":"user{:010}","value":"{value}"}}"#, n * 104_729))
        .collect();
    format!(
        r#"{{"isolation":"serializable","snapshots":{{"kv":"8841"}},"reads":[{}],"writes":[{}]}}"#,
        reads.join(","),
        writes.join(",")
    )
}

fn catalog() -> Catalog {
    let spec = StoreSpec { id: StoreId(1), name: "kv".to_owned(), ..StoreSpec::default() };
    let name_row = |namespace: NamespaceId, store: StoreId, key: &[u8]| {
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(key, u64::from(store.0 ^ namespace.0));
        tribunal_types::RowKey { hi: (hash >> 64) as u64, lo: hash as u64 }
    };
    Catalog::new([spec], Arc::new(name_row))
}

fn decided() -> Decided {
    let cen = Cen(8842);
    let version = Version::new(cen, 5).expect("in range");
    Decided {
        verdict: Verdict::Committed {
            cen,
            csn: Csn::new(1_765_000_000_000_000, NodeId(1)),
            version,
            lsns: vec![(StoreId(1), Lsn(120))],
        },
        csn: None,
        replayed: false,
        applied: None,
        phases: Phases { queue_us: 100, sync_us: 200, resolve_us: 50, apply_us: 0 },
    }
}

mod constant_node {
    //! A node that commits everything at once.

    use tribunal_http::feeds::{Feeds, StoreState};
    use tribunal_http::plugin_service::{Activate, Activation, Overview, Plugins, Upload, Uploaded};
    use tribunal_http::service::*;
    use tribunal_types::*;

    use super::{Arc, Service};

    pub struct ConstantNode(pub Arc<Catalog>);

    fn never<T: Send + 'static>() -> Answer<'static, T> {
        Box::pin(std::future::ready(Err(ServiceError::Unavailable { detail: String::new() })))
    }

    impl Feeds for ConstantNode {
        fn state(&self, _: StoreId) -> Answer<'_, StoreState> {
            never()
        }
    }

    impl Plugins for ConstantNode {
        fn upload(&self, _: Upload) -> Answer<'_, Uploaded> {
            never()
        }
        fn overview(&self) -> Answer<'_, Overview> {
            never()
        }
        fn activate(&self, _: Activate) -> Answer<'_, Activation> {
            never()
        }
        fn roll_back(&self, _: String, _: Option<PluginSlot>) -> Answer<'_, Activation> {
            never()
        }
    }

    impl Service for ConstantNode {
        fn catalog(&self) -> Arc<Catalog> {
            Arc::clone(&self.0)
        }
        fn begin(&self, _: Begin) -> Answer<'_, Begun> {
            never()
        }
        fn commit(&self, txn: TxnRequest, _: AckMode) -> Answer<'_, Decided> {
            std::hint::black_box(&txn);
            Box::pin(std::future::ready(Ok(super::decided())))
        }
        fn commit_many(&self, txns: Vec<TxnRequest>, _: AckMode) -> Answer<'_, Vec<Result<Decided, ServiceError>>> {
            Box::pin(std::future::ready(Ok(txns.iter().map(|_| Ok(super::decided())).collect())))
        }
        fn abort(&self, _: NamespaceId, _: TxnId) -> Answer<'_, Decided> {
            never()
        }
        fn validate(&self, _: TxnRequest) -> Answer<'_, Verdict> {
            never()
        }
        fn status(&self, _: StatusQuery) -> Answer<'_, TxnStatus> {
            never()
        }
        fn log_page(&self, _: LogQuery) -> Answer<'_, LogPage> {
            never()
        }
        fn declare_store(&self, _: StoreSpec) -> Answer<'_, Declared> {
            never()
        }
        fn store_status(&self, _: StoreId) -> Result<StoreStatus, ServiceError> {
            Ok(StoreStatus::default())
        }
        fn row(&self, _: StoreId, _: Vec<u8>) -> Answer<'_, RowAnswer> {
            never()
        }
        fn rows(&self, _: RowsQuery) -> Answer<'_, RowsAnswer> {
            never()
        }
        fn watermarks(&self, _: StoreId) -> Result<Watermarks, ServiceError> {
            Ok(Watermarks::default())
        }
        fn import(&self, _: NamespaceId, _: Vec<ImportedVersion>) -> Answer<'_, u64> {
            never()
        }
        fn resume_push(&self, _: StoreId) -> Answer<'_, ()> {
            never()
        }
        fn skip_record(&self, _: SkipRequest) -> Answer<'_, ()> {
            never()
        }
        fn skips(&self, _: StoreId) -> Vec<Skip> {
            Vec::new()
        }
        fn attach_push(&self, _: StoreId, _: Option<Lsn>) -> Answer<'_, ()> {
            never()
        }
        fn plugins(&self) -> &dyn Plugins {
            self
        }
        fn metrics(&self) -> String {
            String::new()
        }
        fn readiness(&self) -> Readiness {
            Readiness::default()
        }
        fn identity(&self) -> VersionInfo {
            VersionInfo::default()
        }
    }
}

fn parts(criterion: &mut Criterion) {
    let (catalog, body, poster) = (catalog(), body(), Poster::default());
    let id = txn_id(ID).expect("a UUIDv7");
    let mut group = criterion.benchmark_group("commit");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("read_body", |bencher| {
        bencher.iter(|| {
            let text = std::str::from_utf8(black_box(body.as_bytes())).expect("text");
            let seed =
                TxnSeed { catalog: &catalog, poster: &poster, id: Some(id), at: Path::Root, bytes_hint: text.len() };
            document(text, seed).expect("JSON")
        });
    });
    group.bench_function("generic_json_value", |bencher| {
        bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(body.as_bytes())).expect("JSON"));
    });
    group.bench_function("hash_body", |bencher| {
        let text = body.as_str();
        let seed = TxnSeed { catalog: &catalog, poster: &poster, id: Some(id), at: Path::Root, bytes_hint: text.len() };
        let txn: TxnRequest = document(text, seed).expect("JSON").txn;
        bencher.iter(|| tribunal_http::body_hash::body_hash(black_box(&txn)));
    });
    let decided = decided();
    group.bench_function("write_answer", |bencher| {
        bencher.iter(|| {
            let mut json = JsonWriter::with_capacity(256);
            decision(&mut json, id, black_box(&decided), &catalog);
            json.finish()
        });
    });
    group.finish();
}

fn whole(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let node: Arc<dyn Service> = Arc::new(constant_node::ConstantNode(Arc::new(catalog())));
    let router = tribunal_http::router(node, RouterOptions { debug_routes: true, ..RouterOptions::default() });
    let body = axum::body::Bytes::from(body());
    let mut group = criterion.benchmark_group("route");
    for (name, path) in [("commit", format!("/v1/txns/{ID}/commit")), ("constant", "/v1/debug/constant".to_owned())] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let request = Request::post(path.as_str())
                    .header("content-type", "application/json")
                    .header("content-length", body.len())
                    .body(Body::from(body.clone()))
                    .expect("a request");
                let response = runtime.block_on(router.clone().oneshot(request)).expect("infallible");
                assert_eq!(response.status(), 200);
                response
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parts, whole);
criterion_main!(benches);
