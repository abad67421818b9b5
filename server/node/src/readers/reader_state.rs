//! State of the log readers: on a single node in a file beside its log, in a cluster in the control log.

use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::Sender;
use tokio::runtime::Handle;
use tribunal_core::control::ReplicatedState;
use tribunal_core::control::effect::ReaderMoved;
use tribunal_types::{
    ConsumerOffset, ControlIndex, HeldWebhook, LogId, Lsn, NamespaceId, ReaderMove, StoreId, Webhook,
};

use crate::commit::message::Message;
use crate::readers::cluster_readers::ClusterReaders;
use crate::readers::consumer_state::{ConsumerState, Saver, Unsaved};
use crate::readers::earlier_file::EarlierFile;

/// The readers of this node's logs. Cheap to clone.
#[derive(Clone)]
pub enum ReaderState {
    /// State of a single node.
    Alone(Arc<ConsumerState>),
    /// State of a member of a cluster.
    Member(Arc<ClusterReaders>),
}

/// Wraps a webhook of a single node, which delivers everything itself.
fn held(webhook: Webhook) -> HeldWebhook {
    HeldWebhook { webhook, ..HeldWebhook::default() }
}

/// Shows a receiver that was found ahead of the log as one with a position of another log.
fn placed(mut held: HeldWebhook) -> HeldWebhook {
    if held.webhook.watermark == Webhook::AHEAD {
        (held.webhook.log, held.webhook.watermark) = (LogId::default(), Lsn(0));
    }
    held
}

impl ReaderState {
    /// Opens the state in `dir`; for a member of a cluster, the state of its control log, with changes sent to the
    /// sequencer through `member`.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub fn open(
        dir: &Path,
        member: Option<(&ReplicatedState, &Sender<Message>)>,
        runtime: &Handle,
    ) -> Result<(ReaderState, Option<Saver>), String> {
        let Some((replicated, messages)) = member else {
            let (file, saver) = ConsumerState::open(dir)?;
            return Ok((ReaderState::Alone(file), Some(saver)));
        };
        let cluster = Arc::new(ClusterReaders::new(replicated, EarlierFile::read(dir)?));
        runtime.spawn(Arc::clone(&cluster).propose(messages.clone()));
        Ok((ReaderState::Member(cluster), None))
    }

    /// Sets a consumer's offset, durably.
    ///
    /// # Errors
    /// See [`Unsaved`].
    pub async fn set(&self, offset: ConsumerOffset) -> Result<(), Unsaved> {
        match self {
            ReaderState::Alone(file) => file.set(offset).await,
            ReaderState::Member(cluster) => match cluster.change(ReaderMove::Offset(offset)).await {
                Ok(ReaderMoved::Full(max)) => Err(Unsaved::TooMany(max)),
                Ok(_) => Ok(()),
                Err(reason) => Err(Unsaved::Unknown(reason)),
            },
        }
    }

    /// Removes a consumer, or its offset in one store; returns whether there was one.
    ///
    /// # Errors
    /// [`Unsaved::NotDurable`], [`Unsaved::Unknown`].
    pub async fn forget(&self, namespace: NamespaceId, name: &str, store: Option<StoreId>) -> Result<bool, Unsaved> {
        match self {
            ReaderState::Alone(file) => file.forget(namespace, name, store).await,
            ReaderState::Member(cluster) => {
                match cluster.change(ReaderMove::Forget { namespace, name: name.into(), store }).await {
                    Ok(moved) => Ok(matches!(moved, ReaderMoved::Forgotten { stores, .. } if !stores.is_empty())),
                    Err(reason) => Err(Unsaved::Unknown(reason)),
                }
            }
        }
    }

    /// Returns the offsets of all consumers, by namespace and name.
    pub fn offsets(&self) -> Vec<ConsumerOffset> {
        match self {
            ReaderState::Alone(file) => file.offsets(),
            ReaderState::Member(cluster) => cluster.offsets(),
        }
    }

    /// Returns the registered webhooks.
    pub fn webhooks(&self) -> Vec<HeldWebhook> {
        let all: Vec<HeldWebhook> = match self {
            ReaderState::Alone(file) => file.webhooks().into_iter().map(held).collect(),
            ReaderState::Member(cluster) => cluster.webhooks(),
        };
        all.into_iter().map(placed).collect()
    }

    /// Returns a store's webhook.
    pub fn webhook(&self, store: StoreId) -> Option<HeldWebhook> {
        let found = match self {
            ReaderState::Alone(file) => file.webhook(store).map(held),
            ReaderState::Member(cluster) => cluster.webhook(store),
        };
        found.map(placed)
    }

    /// Moves the watermark of a webhook, possibly to [`Webhook::AHEAD`]. It becomes durable soon.
    pub fn acknowledged(&self, store: StoreId, delivery: ControlIndex, lsn: Lsn) {
        match self {
            ReaderState::Alone(file) => file.acknowledged(store, lsn),
            ReaderState::Member(cluster) => cluster.acknowledged(store, delivery, lsn),
        }
    }

    /// Returns the lowest position in `log` of the readers of every store that has one.
    pub fn slowest(&self, log: LogId) -> Vec<(StoreId, Lsn)> {
        match self {
            ReaderState::Alone(file) => file.slowest(log),
            ReaderState::Member(cluster) => {
                let mut all = Vec::new();
                cluster.each_position(|store, lsn, of| all.extend((of == log).then_some((store, lsn))));
                all.sort_unstable();
                all.dedup_by_key(|(store, _)| *store);
                all
            }
        }
    }
}
