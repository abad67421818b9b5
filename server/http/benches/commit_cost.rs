//! The cost of one commit request without a socket and without the node: reading the body, writing the response, and
//! the whole path through the router, compared with the route that returns a constant.

use std::hint::black_box;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tower::ServiceExt;
use tribunal_http::RouterOptions;
use tribunal_http::request::json::document;
use tribunal_http::request::plain_commit::commit_document;
use tribunal_http::request::txn_body::{TxnSeed, txn_id};
use tribunal_http::response::field_error::Path;
use tribunal_http::response::response_json::{JsonWriter, decision};
use tribunal_service::Service;
use tribunal_service::{Catalog, Decided, Phases};
use tribunal_types::{Csn, Epoch, Lsn, NamespaceId, NodeId, StoreId, StoreSpec, TxnRequest, Verdict, Version};

const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

/// Returns five reads and five writes of 100 bytes on distinct rows.
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
    let epoch = Epoch(8842);
    let version = Version::new(epoch, 5).expect("in range");
    Decided {
        verdict: Verdict::Committed {
            epoch,
            csn: Csn::new(1_765_000_000_000_000, NodeId(1)),
            version,
            lsns: vec![(StoreId(1), Lsn(120))],
        },
        csn: None,
        replayed: false,
        applied: None,
        phases: Phases { queue_us: 100, sync_us: 200, resolve_us: 50, apply_us: 0 },
        traceparent: None,
    }
}

/// The node of this crate's tests: a repeated request for one id gets the stored response.
#[path = "../tests/fake_node/mod.rs"]
mod fake_node;

fn parts(criterion: &mut Criterion) {
    let (catalog, body, caller) = (catalog(), body(), tribunal_http::request::caller::CallerContext::default());
    let id = txn_id(ID).expect("a UUIDv7");
    let mut group = criterion.benchmark_group("commit");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("read_body", |bencher| {
        bencher.iter(|| {
            let text = std::str::from_utf8(black_box(body.as_bytes())).expect("text");
            let seed =
                TxnSeed { catalog: &catalog, caller: &caller, id: Some(id), at: Path::Root, bytes_hint: text.len() };
            commit_document(text, seed).expect("JSON")
        });
    });
    group.bench_function("read_any_body", |bencher| {
        bencher.iter(|| {
            let text = std::str::from_utf8(black_box(body.as_bytes())).expect("text");
            let seed =
                TxnSeed { catalog: &catalog, caller: &caller, id: Some(id), at: Path::Root, bytes_hint: text.len() };
            document(text, seed).expect("JSON")
        });
    });
    group.bench_function("generic_json_value", |bencher| {
        bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(body.as_bytes())).expect("JSON"));
    });
    group.bench_function("hash_body", |bencher| {
        let text = body.as_str();
        let seed = TxnSeed { catalog: &catalog, caller: &caller, id: Some(id), at: Path::Root, bytes_hint: text.len() };
        let txn: TxnRequest = document(text, seed).expect("JSON").txn;
        bencher.iter(|| tribunal_http::request::body_hash::body_hash(black_box(&txn)));
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
    let node = Service::of(&Arc::new(fake_node::FakeNode::new()));
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
