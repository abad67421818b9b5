//! A fake in-memory node, only for the mapping to HTTP: it validates reads against the newest version, assigns one
//! epoch per commit, and knows no isolation levels.

#![expect(dead_code, reason = "each test file uses its part of the node")]

pub mod client;
mod plugins;

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tribunal_http::{Carriers, FastPath, HostNames, Lanes, RouterOptions, ServerOptions};
use tribunal_service::*;
use tribunal_types::*;

/// The log of all positions.
pub const LOG: LogId = LogId([0x5a; 16]);
pub const KV: StoreId = StoreId(1);
pub const ORDERS: StoreId = StoreId(2);
pub const DECLARED: StoreId = StoreId(3);

#[derive(Default)]
struct State {
    epoch: u64,
    rows: BTreeMap<Vec<u8>, (Vec<u8>, Version)>,
    decided: HashMap<TxnId, (BodyHash, Decided)>,
    log: Vec<(TxnId, Epoch, Csn, Version, TxnRequest)>,
    imported: Vec<ImportedVersion>,
    specs: Vec<StoreSpec>,
    skips: Vec<Skip>,
    keys: Vec<KeyStatus>,
}

/// The node.
#[derive(Default)]
pub struct FakeNode {
    state: Mutex<State>,
    /// The error of the next commit.
    pub fail_next: Mutex<Option<ServiceError>>,
    consumers: Mutex<BTreeMap<String, Vec<ConsumerPosition>>>,
    webhooks: Mutex<HashMap<StoreId, WebhookStatus>>,
    /// The principals by their tokens.
    pub principals: Mutex<HashMap<String, Arc<Principal>>>,
    commit_takes: Duration,
    /// While true, no commit is decided.
    pub held: watch::Sender<bool>,
    /// While true, no rows are read.
    pub reads_held: watch::Sender<bool>,
    reads_waiting: AtomicUsize,
    /// Set when the node stops.
    pub stops: watch::Sender<bool>,
    begun: AtomicUsize,
    /// Objects created on other nodes, which this one learns when it catches up; `None` if it runs alone.
    pub others: Mutex<Option<Others>>,
}

/// Objects created on other nodes of a cluster.
pub struct Others {
    /// Whether the node can catch up.
    pub reachable: bool,
    /// Name of a store.
    pub store: &'static str,
    /// A token, and the principal that it authenticates.
    pub key: (&'static str, Arc<Principal>),
}

fn spec(id: StoreId, name: &str) -> StoreSpec {
    StoreSpec {
        id,
        name: name.to_owned(),
        transactional: true,
        adaptor: Some("kv".to_owned()),
        adaptor_config: "{}".to_owned(),
        ..StoreSpec::default()
    }
}

impl FakeNode {
    pub fn new() -> Self {
        let specs = vec![
            spec(KV, "kv"),
            StoreSpec { transactional: false, multi_version: true, ..spec(ORDERS, "orders/ü") },
            StoreSpec { existence: Existence::Declared, adaptor: None, ..spec(DECLARED, "declared") },
        ];
        let state = State { epoch: 10, specs, ..State::default() };
        FakeNode { state: Mutex::new(state), ..FakeNode::default() }
    }

    /// Restricts the adaptor of this store to these kinds of writes from now on.
    pub fn take_only<const N: usize>(&self, store: &str, kinds: [WriteKind; N]) {
        let mut state = self.state.lock().unwrap();
        let spec = state.specs.iter_mut().find(|spec| spec.name == store).expect("a declared store");
        spec.takes = kinds.into_iter().collect();
    }

    /// Returns a node whose commits take this long.
    pub fn slow(commit_takes: Duration) -> Self {
        FakeNode { commit_takes, ..FakeNode::new() }
    }

    pub fn imported(&self) -> Vec<ImportedVersion> {
        self.state.lock().unwrap().imported.clone()
    }

    /// Returns the number of commits received.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Returns the number of reads received while they were held.
    pub fn reads_waiting(&self) -> usize {
        self.reads_waiting.load(Ordering::SeqCst)
    }

    async fn until_released(&self) {
        let _ = self.held.subscribe().wait_for(|held| !held).await;
    }

    fn decide(&self, txn: &TxnRequest) -> Result<Decided, ServiceError> {
        if let Some(error) = self.fail_next.lock().unwrap().take() {
            return Err(error);
        }
        let mut state = self.state.lock().unwrap();
        if let Some((hash, decided)) = state.decided.get(&txn.id) {
            if *hash != txn.body_hash {
                return Err(ServiceError::BodyMismatch);
            }
            return Ok(Decided { replayed: true, ..decided.clone() });
        }
        state.epoch += 1;
        let epoch = Epoch(state.epoch);
        let csn = Csn::new(state.epoch, NodeId(1));
        let lost = txn.reads.iter().find_map(|read| {
            let key = read.key.of(&txn.keys);
            let current = state.rows.get(key).map(|row| row.1);
            (current != read.seen).then(|| Conflict {
                store: read.store,
                key: key.to_vec(),
                end: None,
                op: OpKind::Read,
                read_version: read.seen,
                current_version: current,
                by_txn: None,
                row: None,
                changed_in: None,
                stage: Stage::Validate,
            })
        });
        let verdict = match lost {
            Some(conflict) => Verdict::Aborted { epoch, reason: Reason::ReadConflict, conflicts: vec![conflict] },
            None if txn.writes.is_empty() => Verdict::ReadOnly { epoch },
            None => {
                let version = Version::new(epoch, 0).unwrap();
                for write in &txn.writes {
                    let key = write.key.of(&txn.keys).to_vec();
                    match write.kind {
                        WriteKind::Delete => state.rows.remove(&key),
                        _ => state.rows.insert(key, (write.value.of(&txn.values).to_vec(), version)),
                    };
                }
                state.log.push((txn.id, epoch, csn, version, txn.clone()));
                let lsn = Lsn(state.log.len() as u64);
                Verdict::Committed { epoch, csn, version, lsns: vec![(txn.writes[0].store, lsn)] }
            }
        };
        let phases = Phases { queue_us: 10, sync_us: 120, resolve_us: 3, apply_us: 0 };
        let decided = Decided { verdict, csn: Some(csn), replayed: false, applied: None, phases, traceparent: None };
        state.decided.insert(txn.id, (txn.body_hash, decided.clone()));
        Ok(decided)
    }
}

/// Derives row keys by a toy hash: enough to tell rows apart.
pub fn toy_row(namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
    let mut bytes = key.to_vec();
    bytes.extend_from_slice(&store.0.to_le_bytes());
    bytes.extend_from_slice(&namespace.0.to_le_bytes());
    let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
    RowKey { hi: (hash >> 64) as u64, lo: hash as u64 }
}

fn soon<T: Send + 'static>(answer: Result<T, ServiceError>) -> ServiceFuture<'static, T> {
    Box::pin(ready(answer))
}

/// The rows of a state image, one per page.
struct Pages(std::collections::VecDeque<StoredRow>);

impl StateRows for Pages {
    fn next(&mut self) -> ServiceFuture<'_, Vec<StoredRow>> {
        soon(Ok(self.0.pop_front().into_iter().collect()))
    }
}

impl TxnApi for FakeNode {
    fn begin(&self, begin: Begin) -> ServiceFuture<'_, Begun> {
        let state = self.state.lock().unwrap();
        let (epoch, head) = (Epoch(state.epoch), Lsn(state.log.len() as u64));
        if begin.freshness.session.is_some_and(|session| session.0 > epoch) {
            return soon(Err(ServiceError::StoreLagging { store: begin.stores[0], retry_after_ms: 1500 }));
        }
        let snapshots = begin.stores.iter().map(|store| StoreSnapshot { store: *store, at: epoch }).collect();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        soon(Ok(Begun {
            read: ReadAnswer::default(),
            snapshots,
            lsns: begin.stores.iter().map(|store| (*store, head)).collect(),
            epoch: epoch.next(),
            time_ms: since.as_millis() as u64,
        }))
    }

    fn commit(&self, txn: TxnRequest, ack: AckMode, _: Option<Lane>) -> ServiceFuture<'_, Decided> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if !self.commit_takes.is_zero() {
                tokio::time::sleep(self.commit_takes).await;
            }
            self.until_released().await;
            let applied = (ack == AckMode::Applied).then_some(true);
            self.decide(&txn).map(|decided| Decided { applied, ..decided })
        })
    }

    fn commit_many(&self, txns: Vec<TxnRequest>, _: AckMode) -> ServiceFuture<'_, Vec<Result<Decided, ServiceError>>> {
        self.begun.fetch_add(txns.len(), Ordering::SeqCst);
        Box::pin(async move {
            self.until_released().await;
            Ok(txns.iter().map(|txn| self.decide(txn)).collect())
        })
    }

    fn abort(&self, _: NamespaceId, id: TxnId) -> ServiceFuture<'_, Decided> {
        let mut state = self.state.lock().unwrap();
        let epoch = Epoch(state.epoch);
        let given = Decided {
            verdict: Verdict::Aborted { epoch, reason: Reason::ClientAbort, conflicts: Vec::new() },
            csn: None,
            replayed: false,
            applied: None,
            phases: Phases::default(),
            traceparent: None,
        };
        let (_, decided) = state.decided.entry(id).or_insert((BodyHash(0), given));
        soon(Ok(decided.clone()))
    }

    fn validate(&self, txn: TxnRequest) -> ServiceFuture<'_, DryRun> {
        let state = self.state.lock().unwrap();
        if let Some((_, decided)) = state.decided.get(&txn.id) {
            return soon(Ok(DryRun::Known(Decided { replayed: true, ..decided.clone() })));
        }
        let stale = txn.reads.iter().any(|read| state.rows.get(read.key.of(&txn.keys)).map(|row| row.1) != read.seen);
        let epoch = Epoch(state.epoch);
        soon(Ok(DryRun::Judged(match stale {
            true => Verdict::Aborted { epoch, reason: Reason::ReadConflict, conflicts: Vec::new() },
            false => Verdict::ReadOnly { epoch },
        })))
    }

    fn status(&self, query: StatusQuery) -> ServiceFuture<'_, TxnStatus> {
        let mut state = self.state.lock().unwrap();
        let epoch = Epoch(state.epoch);
        soon(Ok(match state.decided.get(&query.id) {
            Some((_, decided)) => TxnStatus::Decided(decided.clone()),
            None if query.fence => {
                let verdict = Verdict::Aborted { epoch, reason: Reason::Fenced, conflicts: Vec::new() };
                let phases = Phases::default();
                let decided = Decided { verdict, csn: None, replayed: false, applied: None, phases, traceparent: None };
                state.decided.insert(query.id, (BodyHash(0), decided.clone()));
                TxnStatus::Decided(decided)
            }
            None => TxnStatus::Unknown,
        }))
    }

    fn retry_after_ms(&self) -> u64 {
        1500
    }
}

impl StoreApi for FakeNode {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::new(Catalog::new(self.state.lock().unwrap().specs.clone(), Arc::new(toy_row)))
    }

    fn namespace_name(&self, namespace: NamespaceId) -> String {
        format!("namespace-{}", namespace.0)
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.principals.lock().unwrap().values().any(|principal| principal.namespace_name == name)
    }

    fn declare_store(&self, spec: StoreSpec) -> ServiceFuture<'_, Declared> {
        let mut state = self.state.lock().unwrap();
        if spec.adaptor.as_deref().is_some_and(|adaptor| adaptor != "kv" && adaptor != "redis") {
            let detail = "there is no such adaptor".to_owned();
            let pointer = "/adaptor".to_owned();
            return soon(Err(ServiceError::ClientMistake { code: "adaptor_invalid", pointer, detail }));
        }
        let id = StoreId(u32::try_from(state.specs.len()).unwrap() + 1);
        match state.specs.iter_mut().find(|known| known.name == spec.name) {
            Some(known) => {
                *known = StoreSpec { id: known.id, ..spec };
                soon(Ok(Declared { spec: known.clone(), created: false }))
            }
            None => {
                let spec = StoreSpec { id, ..spec };
                state.specs.push(spec.clone());
                soon(Ok(Declared { spec, created: true }))
            }
        }
    }

    fn store_status(&self, _: StoreId) -> Result<StoreStatus, ServiceError> {
        let watermarks = Watermarks { head: Lsn(3), ..Watermarks::default() };
        Ok(StoreStatus { watermarks, acked: Lsn(2), lag_ms: 5, push: PushState::Running, ..StoreStatus::default() })
    }

    fn is_out_of_reach(&self, _store: StoreId) -> bool {
        false
    }

    fn resume_push(&self, _store: StoreId) -> ServiceFuture<'_, ()> {
        soon(Ok(()))
    }

    fn skip_record(&self, request: SkipRequest) -> ServiceFuture<'_, ()> {
        let skip = Skip { store: request.store, lsn: request.lsn, at_ms: 7, by: request.by, reason: "no".into() };
        self.state.lock().unwrap().skips.push(skip);
        soon(Ok(()))
    }

    fn skips(&self, store: StoreId) -> Vec<Skip> {
        self.state.lock().unwrap().skips.iter().filter(|skip| skip.store == store).cloned().collect()
    }

    fn attach_push(&self, _store: StoreId, _loaded: Option<Lsn>) -> ServiceFuture<'_, ()> {
        soon(self.fail_next.lock().unwrap().take().map_or(Ok(()), Err))
    }

    fn read(&self, query: ReadQuery, freshness: Freshness) -> ServiceFuture<'_, ReadAnswer> {
        if query.stores().contains(&ORDERS) {
            let detail = "this store is not embedded".to_owned();
            let pointer = String::new();
            return soon(Err(ServiceError::ClientMistake { code: "not_embedded", pointer, detail }));
        }
        let state = self.state.lock().unwrap();
        if freshness.session.is_some_and(|session| session.0 > Epoch(state.epoch)) {
            return soon(Err(ServiceError::StoreLagging { store: query.stores()[0], retry_after_ms: 1500 }));
        }
        let row = |asked: &RowQuery| match state.rows.get(&asked.key) {
            None => RowState::Absent,
            Some((_, version)) if asked.known == Some(*version) => RowState::Unchanged(*version),
            Some((value, version)) => RowState::Found { value: value.clone(), version: *version },
        };
        let range = |asked: &RowsQuery| {
            let inside = state.rows.range(asked.start.clone()..);
            let inside = inside.filter(|(key, _)| asked.end.is_empty() || **key < asked.end);
            let mut rows: Vec<_> = inside
                .take(asked.limit + 1)
                .map(|(key, (value, version))| StoredRow { key: key.clone(), value: value.clone(), version: *version })
                .collect();
            let more = rows.len() > asked.limit;
            rows.truncate(asked.limit);
            RangeRows { rows, more }
        };
        let answer = ReadAnswer {
            applied: Epoch(state.epoch),
            rows: query.rows.iter().map(row).collect(),
            ranges: query.ranges.iter().map(range).collect(),
        };
        Box::pin(async move {
            if *self.reads_held.borrow() {
                self.reads_waiting.fetch_add(1, Ordering::SeqCst);
                let _ = self.reads_held.subscribe().wait_for(|held| !held).await;
            }
            Ok(answer)
        })
    }

    fn watermarks(&self, _: StoreId) -> Result<Watermarks, ServiceError> {
        let state = self.state.lock().unwrap();
        let (epoch, head) = (Epoch(state.epoch), Lsn(state.log.len() as u64));
        Ok(Watermarks { committed: epoch, durable: epoch, applied: epoch.prev(), head })
    }

    fn import(&self, _: NamespaceId, versions: Vec<ImportedVersion>) -> ServiceFuture<'_, u64> {
        let count = versions.len() as u64;
        self.state.lock().unwrap().imported.extend(versions);
        soon(Ok(count))
    }
}

impl LogApi for FakeNode {
    fn log_page(&self, query: LogQuery) -> ServiceFuture<'_, LogPage> {
        let state = self.state.lock().unwrap();
        let head = Lsn(state.log.len() as u64);
        if query.after.0 == 666 {
            return soon(Err(ServiceError::LogTruncated { oldest: Lsn(667), nodes: vec![NodeId(2), NodeId(3)] }));
        }
        if query.log.is_some_and(|log| log != LOG) {
            return soon(Err(ServiceError::LogReplaced { log: LOG }));
        }
        let mut records = RecordBatch { store: query.store, ..RecordBatch::default() };
        let first = usize::try_from(query.after.0).unwrap().min(state.log.len());
        for (index, (id, epoch, csn, version, txn)) in state.log.iter().enumerate().skip(first).take(query.limit) {
            if index > first && records.bytes.len() >= query.bytes_max {
                break;
            }
            for write in &txn.writes {
                let key = Span::push(&mut records.bytes, write.key.of(&txn.keys));
                let value = Span::push(&mut records.bytes, write.value.of(&txn.values));
                records.writes.push(RecordWrite { kind: write.kind, key, value });
            }
            let traceparent = txn.traceparent.as_deref().unwrap_or("");
            records.records.push(RecordHead {
                lsn: Lsn(index as u64 + 1),
                epoch: *epoch,
                csn: *csn,
                version: *version,
                txn_id: *id,
                writes_end: u32::try_from(records.writes.len()).unwrap(),
                traceparent: Span::push(&mut records.bytes, traceparent.as_bytes()),
            });
        }
        let next = records.bounds().map_or(query.after, |(_, last)| last);
        let last = records.records.last().map_or(Epoch(0), |last| last.epoch.prev());
        let epoch = if next == head { Epoch(state.epoch) } else { last };
        drop(state);
        Box::pin(async move {
            if records.records.is_empty() {
                tokio::time::sleep(Duration::from_millis(query.wait_ms)).await;
            }
            Ok(LogPage { log: LOG, records, next, epoch, head, durable_upto: head, oldest: Lsn(1), ending: false })
        })
    }

    fn log_id(&self) -> LogId {
        LOG
    }

    fn state(&self, store: StoreId) -> ServiceFuture<'_, StoreState> {
        let state = self.state.lock().unwrap();
        let lsn = Lsn(state.log.len() as u64);
        if store == DECLARED {
            return soon(Err(ServiceError::StateGone { oldest: Lsn(9) }));
        }
        if store == ORDERS {
            return soon(Ok(StoreState::Storage { lsn }));
        }
        let rows = state.rows.iter().map(|(key, (value, version))| StoredRow {
            key: key.clone(),
            value: value.clone(),
            version: *version,
        });
        soon(Ok(StoreState::Rows { lsn, rows: Box::new(Pages(rows.collect())) }))
    }

    fn set_offset(
        &self,
        _: NamespaceId,
        name: String,
        store: StoreId,
        lsn: Lsn,
        log: Option<LogId>,
    ) -> ServiceFuture<'_, ConsumerStatus> {
        if log.is_some_and(|log| log != LOG) {
            return soon(Err(ServiceError::LogReplaced { log: LOG }));
        }
        let head = Lsn(self.state.lock().unwrap().log.len() as u64);
        let position =
            ConsumerPosition { store, log: LOG, lsn, head, lag_ms: 7, truncated_below: None, updated_at_ms: 1 };
        let mut consumers = self.consumers.lock().unwrap();
        let positions = consumers.entry(name.clone()).or_default();
        positions.retain(|known| known.store != store);
        positions.push(position);
        soon(Ok(ConsumerStatus { name, log: LOG, positions: positions.clone() }))
    }

    fn consumers(&self, _: NamespaceId, name: Option<String>) -> ServiceFuture<'_, Vec<ConsumerStatus>> {
        let consumers = self.consumers.lock().unwrap();
        let wanted = consumers.iter().filter(|(known, _)| name.as_ref().is_none_or(|name| name == *known));
        let found = wanted.map(|(name, positions)| ConsumerStatus {
            name: name.clone(),
            log: LOG,
            positions: positions.clone(),
        });
        soon(Ok(found.collect()))
    }

    fn forget_consumer(&self, _: NamespaceId, name: String, store: Option<StoreId>) -> ServiceFuture<'_, bool> {
        let mut consumers = self.consumers.lock().unwrap();
        let Some(positions) = consumers.get_mut(&name) else { return soon(Ok(false)) };
        let before = positions.len();
        positions.retain(|known| store.is_some_and(|store| known.store != store));
        let found = positions.len() < before;
        if positions.is_empty() {
            consumers.remove(&name);
        }
        soon(Ok(found))
    }

    fn register_webhook(&self, store: StoreId, registration: Registration) -> ServiceFuture<'_, WebhookStatus> {
        let status = WebhookStatus {
            url: registration.url,
            records_max: registration.records_max,
            bytes_max: registration.bytes_max,
            timeout_ms: registration.timeout_ms,
            state: "idle",
            last_error: Some("open /etc/ssl/private/root.pem: permission denied".to_owned()),
            ..WebhookStatus::default()
        };
        self.webhooks.lock().unwrap().insert(store, status.clone());
        soon(Ok(status))
    }

    fn webhook(&self, store: StoreId) -> Option<WebhookStatus> {
        self.webhooks.lock().unwrap().get(&store).cloned()
    }

    fn remove_webhook(&self, store: StoreId) -> ServiceFuture<'_, bool> {
        soon(Ok(self.webhooks.lock().unwrap().remove(&store).is_some()))
    }
}

impl KeyApi for FakeNode {
    fn authenticate(&self, token: &str) -> Result<Arc<Principal>, Unauthenticated> {
        let principal = self.principals.lock().unwrap().get(token).cloned();
        principal.ok_or_else(|| Unauthenticated::unknown("nobody knows this key"))
    }

    fn create_key(&self, key: NewKey) -> ServiceFuture<'_, (ApiKey, String)> {
        let NewKey { name, namespace, roles, expires_in_s, .. } = key;
        let number = if namespace == "default" { NamespaceId(0) } else { NamespaceId(1) };
        let key = ApiKey {
            id: format!("id-{name}"),
            name,
            namespace: number,
            namespace_name: namespace,
            roles,
            secret_sha256: [0; 32],
            created_ms: 7,
            expires_ms: expires_in_s.map(|seconds| 7 + 1000 * u64::from(seconds)),
        };
        self.state.lock().unwrap().keys.push(KeyStatus {
            key: key.clone(),
            last_used_ms: Some(8),
            expired: false,
            lasts: true,
        });
        soon(Ok((key, "secret".to_owned())))
    }

    fn keys(&self) -> Vec<KeyStatus> {
        self.state.lock().unwrap().keys.clone()
    }

    fn revoke_key(&self, id: String, _by: String) -> ServiceFuture<'_, ()> {
        self.state.lock().unwrap().keys.retain(|status| status.key.id != id);
        soon(Ok(()))
    }
}

impl NodeApi for FakeNode {
    fn stats(&self) -> Stats {
        let us = Summary { count: 9, mean: 1.5, p50: 1, p90: 2, p99: 3, max: 4 };
        Stats {
            window_ms: 2_000,
            committed: 6,
            aborts: vec![("read_conflict".to_owned(), 2)],
            phases: vec![Timed { name: "sync", us }],
            ..Stats::default()
        }
    }

    fn ended(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let _ = self.stops.subscribe().wait_for(|stops| *stops).await;
        })
    }

    fn metrics(&self) -> String {
        "# TYPE double_up gauge\ndouble_up 1\n".to_owned()
    }

    fn tenant_stats(&self, _namespace: NamespaceId) -> TenantStats {
        TenantStats {
            window_ms: 2_000,
            committed: 1,
            aborts: vec![("row_exists".to_owned(), 1)],
            ..TenantStats::default()
        }
    }

    fn readiness(&self, names_stores: bool) -> Readiness {
        let reason = if names_stores { "replaying the log of kv" } else { "replaying the log" };
        Readiness { ready: false, reasons: vec![reason.to_owned()] }
    }

    fn cluster(&self) -> ClusterView {
        let nodes = vec![NodeView { node: NodeId(7), connected: true, ..NodeView::default() }];
        let push = PushView { namespace: "default".into(), store: "kv".into(), node: Some(NodeId(7)) };
        ClusterView { node: NodeId(7), takes_commits: true, nodes, pushes: vec![push], ..ClusterView::default() }
    }

    fn add_node(&self, name: String, _address: String) -> ServiceFuture<'_, NodeId> {
        let taken = ServiceError::ClientMistake {
            code: "node_name_taken",
            pointer: "/name".into(),
            detail: "another node has this name".into(),
        };
        Box::pin(async move { if name == "taken" { Err(taken) } else { Ok(NodeId(7)) } })
    }

    fn remove_node(&self, node: NodeId) -> ServiceFuture<'_, ()> {
        let unknown = ServiceError::NotFound { what: "node with this number; `GET /v1/cluster` lists them".into() };
        Box::pin(async move { if node == NodeId(7) { Ok(()) } else { Err(unknown) } })
    }

    fn drain_node(&self, node: NodeId, _: bool) -> ServiceFuture<'_, ()> {
        self.remove_node(node)
    }

    fn digest_at(&self, epoch: Epoch) -> Option<Digest> {
        (epoch == Epoch(7)).then_some(Digest(0xabc))
    }

    fn may_lag(&self) -> bool {
        self.others.lock().unwrap().is_some()
    }

    fn has_caught_up(&self) -> bool {
        true
    }

    fn catch_up(&self) -> ServiceFuture<'_, ()> {
        match &*self.others.lock().unwrap() {
            Some(Others { reachable: false, .. }) => {
                soon(Err(ServiceError::Unavailable { detail: "no majority".to_owned() }))
            }
            Some(Others { store, key: (token, principal), .. }) => {
                let mut state = self.state.lock().unwrap();
                if state.specs.iter().all(|spec| spec.name != *store) {
                    state.specs.push(spec(StoreId(77), store));
                }
                self.principals.lock().unwrap().insert((*token).to_owned(), Arc::clone(principal));
                soon(Ok(()))
            }
            None => soon(Ok(())),
        }
    }

    fn identity(&self) -> VersionInfo {
        VersionInfo { version: "0.1.0".into(), epoch_mode: "adaptive".into(), ..VersionInfo::default() }
    }
}

/// A server on its own port, stopped on drop.
pub struct Running {
    pub address: SocketAddr,
    pub node: Arc<FakeNode>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    /// Begins the shutdown and waits for its end.
    pub async fn stop(mut self) -> std::io::Result<()> {
        let _ = self.stop.take().unwrap().send(());
        self.task.take().unwrap().await.unwrap()
    }
}

pub async fn start_with(node: FakeNode, options: ServerOptions, router: RouterOptions) -> Running {
    // As in a node: connections on lanes, long work elsewhere.
    start_beside(node, options, router, tokio::runtime::Handle::current()).await
}

/// Starts a server without access control that is called by these names.
pub async fn start_named(node: FakeNode, names: HostNames) -> Running {
    let shared = tokio::runtime::Handle::current();
    let build = |fast_path: FastPath| fast_path.with_shared(shared).with_names(names);
    start_built(node, ServerOptions::default(), RouterOptions::default(), build).await
}

/// Starts a server whose long work runs on `shared`.
pub async fn start_beside(
    node: FakeNode,
    options: ServerOptions,
    router: RouterOptions,
    shared: tokio::runtime::Handle,
) -> Running {
    start_built(node, options, router, |fast_path| fast_path.with_shared(shared)).await
}

async fn start_built(
    node: FakeNode,
    options: ServerOptions,
    router: RouterOptions,
    build: impl FnOnce(FastPath) -> FastPath,
) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let node = Arc::new(node);
    let fast_path = build(FastPath::new(Service::of(&node), router));
    let carriers = Carriers { lanes: Some(Arc::new(Lanes::start(2).unwrap())), tls: None };
    let shutdown = async move {
        let _ = stopped.await;
    };
    let task = tokio::spawn(tribunal_http::serve_on(carriers, listener, fast_path, options, shutdown));
    Running { address, node, stop: Some(stop), task: Some(task) }
}

pub async fn start() -> Running {
    let router = RouterOptions { debug_routes: true, ..RouterOptions::default() };
    start_with(FakeNode::new(), ServerOptions::default(), router).await
}
