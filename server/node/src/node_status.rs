//! Operators' queries about the node: metrics, readiness, version.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;

use tribunal_service::{
    ClusterView, NodeApi, PushState, PushView, Readiness, ServiceFuture as Reply, Stats, TenantStats, VersionInfo,
};
use tribunal_types::{Digest, Epoch, NamespaceId, NodeId, StoreId, StoreSpec};

use crate::cluster::view::{Joined, view_of};
use crate::config::EpochLength;
use crate::service::NodeService;
use crate::telemetry::metrics::{NamespaceLabel, StoreLabel};

/// What callers without a key get in place of the obstacle, which names other nodes.
const UNSPECIFIED: &str =
    "this node takes no commits now; `GET /v1/cluster`, or this request with the key of an operator, tells why";

impl NodeApi for NodeService {
    fn stats(&self) -> Stats {
        let node = self.joined.as_ref().map(|joined| joined.membership.node);
        Stats { node, ..self.window.stats(self.shared.progress.last()) }
    }

    fn tenant_stats(&self, namespace: NamespaceId) -> TenantStats {
        self.window.tenant_stats(namespace)
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let _ = self.shared.progress.ended().wait_for(|ended| *ended).await;
        })
    }

    fn metrics(&self) -> String {
        let metrics = &self.shared.metrics;
        metrics.plugins.set_health(&self.plugins.health());
        metrics.plugins.set_loads(self.plugins.loads());
        for store in self.stores.all() {
            let Some(progress) = self.shared.progress.store(store.spec.id) else { continue };
            let push = self.standing(store.spec.id).ok();
            let label = StoreLabel { namespace: self.tenant_name(store.spec.namespace), store: store.spec.name };
            if let Some(status) = push {
                if self.is_elsewhere(status.pushed_by) {
                    metrics.stores.forget_push(&label);
                } else {
                    let lag_ms = self.push_position(store.spec.id).map(|_| status.lag_ms);
                    metrics.stores.set_push(&label, status.push, lag_ms);
                }
            }
            metrics.stores.detached.get_or_create(&label).set(u64::from(progress.detached));
            metrics.stores.head.get_or_create(&label).set(progress.head.0);
            metrics.stores.acked.get_or_create(&label).set(progress.acked.0);
            metrics.stores.rows.get_or_create(&label).set(progress.rows);
        }
        for (namespace, counts) in metrics.txns.tenants.sample() {
            let label = NamespaceLabel { namespace: self.tenant_name(namespace) };
            metrics.tenants.set_committed(&label, counts.committed);
        }
        self.count_rows_of_tenants();
        self.count_stored_bytes_of_tenants();
        metrics.process.refresh();
        if let Some(space) = self.disk.space() {
            metrics.data_free_bytes.set(space.free);
            metrics.data_total_bytes.set(space.total);
        }
        metrics.ready.set(u64::from(self.readiness(false).ready));
        metrics.certificates.refresh();
        if let Some(Joined { membership, peers, .. }) = &self.joined {
            let (view, last) = (&self.shared.view, self.shared.progress.last());
            metrics.cluster.set(membership, view, &peers.status(), last);
        }
        self.count_readers();
        if let Some(tracing) = &self.tracing {
            metrics.set_spans(tracing.counts());
        }
        metrics.render()
    }

    fn readiness(&self, in_detail: bool) -> Readiness {
        if self.stopping.load(Ordering::Relaxed) {
            return Readiness { ready: false, reasons: vec!["the node is stopping".into()] };
        }
        // Commits continue under a wrong clock and without a storage: such reasons do not make the node unready. A
        // storage belongs to one tenant, and a load balancer would withdraw the node from all others.
        let mut reasons: Vec<String> = self.clock.check().problem().into_iter().collect();
        let unreported = self.unreported();
        // An embedded store belongs to the node: until it is open, the node cannot read it.
        let opening = unreported.iter().any(|(store, trying)| store.is_embedded() && *trying);
        if in_detail {
            reasons.extend(unreported.into_iter().map(|(spec, trying)| {
                let of = self.shown_store(&spec);
                if trying {
                    format!("the storage of store {of} has not reported its watermark yet")
                } else {
                    format!("the watermark of store {of} in its storage is not known; see the status of the store")
                }
            }));
        } else if !unreported.is_empty() {
            let which = match unreported.len() {
                1 => "the storage of one store has not reported its watermark".to_owned(),
                stores => format!("the storages of {stores} stores have not reported their watermarks"),
            };
            reasons.push(which);
        }
        reasons.extend(self.push_problems(in_detail));
        reasons.extend(self.damages(in_detail));
        let full = self.disk.full();
        let takes_commits = self.shared.view.takes_commits() && self.configured.load(Ordering::Relaxed);
        let alone = self.joined.is_some() && !takes_commits;
        if alone {
            reasons.push(if in_detail { self.obstacle() } else { UNSPECIFIED.to_owned() });
        }
        let ready = !opening && full.is_none() && !alone;
        reasons.extend(full);
        Readiness { ready, reasons }
    }

    fn cluster(&self) -> ClusterView {
        let (pushes, webhooks) = if self.joined.is_some() {
            (self.pushes_of_all(), self.webhooks_of_all())
        } else {
            (Vec::new(), Vec::new())
        };
        ClusterView { pushes, webhooks, ..view_of(&self.shared.view, self.joined.as_ref(), self.group) }
    }

    fn digest_at(&self, epoch: Epoch) -> Option<Digest> {
        self.shared.view.digest_at(epoch)
    }

    fn may_lag(&self) -> bool {
        self.joined.is_some()
    }

    fn has_caught_up(&self) -> bool {
        self.joined.is_none() || self.catch_up.has_caught_up()
    }

    fn failed_to_catch_up_lately(&self) -> bool {
        self.catch_up.failed_lately()
    }

    fn catch_up(&self) -> Reply<'_, ()> {
        Box::pin(self.catch_up_with_others())
    }

    fn add_node(&self, name: String, address: String) -> Reply<'_, NodeId> {
        Box::pin(self.admit_node(name, address))
    }

    fn remove_node(&self, node: NodeId) -> Reply<'_, ()> {
        Box::pin(self.begin_removal(node))
    }

    fn drain_node(&self, node: NodeId, drained: bool) -> Reply<'_, ()> {
        Box::pin(self.change_draining(node, drained))
    }

    fn identity(&self) -> VersionInfo {
        VersionInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            group: self.group,
            epoch: self.shared.progress.last().next(),
            epoch_mode: match self.epoch_length {
                EpochLength::Adaptive => "adaptive".into(),
                EpochLength::Fixed(ms) => format!("{ms}ms"),
            },
        }
    }
}

impl NodeService {
    /// Returns all tenants' stores that some node pushes to.
    fn pushes_of_all(&self) -> Vec<PushView> {
        let pushed = self.stores.all().into_iter().filter(|store| store.is_external() && store.detached.is_none());
        let mut pushes: Vec<PushView> = pushed
            .map(|store| PushView {
                namespace: self.tenant_name(store.spec.namespace),
                store: store.spec.name.clone(),
                node: store.pusher.map(|pusher| pusher.node),
            })
            .collect();
        pushes.sort_by(|one, other| (&one.namespace, &one.store).cmp(&(&other.namespace, &other.store)));
        pushes
    }

    /// Returns all tenants' stores whose log some node delivers to a webhook.
    fn webhooks_of_all(&self) -> Vec<PushView> {
        let catalog = self.stores.catalog();
        let delivered = self.webhooks.readers.webhooks().into_iter().filter_map(|held| {
            let spec = catalog.by_id(held.webhook.store)?;
            let node = held.deliverer.map(|deliverer| deliverer.node);
            Some(PushView { namespace: self.tenant_name(spec.namespace), store: spec.name.clone(), node })
        });
        let mut webhooks: Vec<PushView> = delivered.collect();
        webhooks.sort_by(|one, other| (&one.namespace, &one.store).cmp(&(&other.namespace, &other.store)));
        webhooks
    }

    /// Returns the stores whose storages have not reported a watermark since the start, each with whether its push is
    /// still on its first attempt.
    fn unreported(&self) -> Vec<(StoreSpec, bool)> {
        let unknown = |store: &StoreId| self.shared.progress.store(*store).is_some_and(|progress| !progress.reported);
        let stores = self.stores.all().into_iter().map(|store| store.spec).filter(|spec| unknown(&spec.id));
        let trying = |spec: &StoreSpec| self.pushes.status(spec.id).state == PushState::Running;
        stores.map(|spec| (spec.clone(), trying(&spec))).collect()
    }
}
