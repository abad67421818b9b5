//! Pulls a copy of another member's state, while this node takes no part in the cluster.
//!
//! The members are tried one after another, the leader first, until one has supplied the whole copy. Their other frames
//! are dropped: their groups resend them when this node is back.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::Handle;
use tribunal_log::{Files, RealFiles, newest_image};
use tribunal_member::{Frame, groups_in};
use tribunal_peer::{Identity, PeerEvents, Peers, Received};
use tribunal_types::{Epoch, NodeId, StateImage};

use crate::cluster::first_start::REMOVED;
use crate::cluster::membership::Membership;
use crate::cluster::state_copy::incoming::Incoming;
use crate::cluster::state_copy::listing::{Listing, MADE, Place};
use crate::cluster::state_copy::{Lacks, Lag};
use crate::cluster::transfers::{InMemory, Transfers};
use crate::cluster::{first_start, links};
use crate::data_dir::log_dir;

/// How long a member may take to flush its memory before it offers a copy.
const OFFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two polls for the offer.
const OFFER_POLL: Duration = Duration::from_millis(100);
/// Time between two attempts.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time between two log lines about the progress.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// Maximum length of a listing in bytes: thousands of stores with dozens of files each.
const LISTING_BYTES_MAX: usize = 64 << 20;

/// Passes frames of transfers on, and drops the rest.
struct TransfersOnly {
    transfers: Arc<Transfers>,
    removed: AtomicBool,
}

impl PeerEvents for TransfersOnly {
    fn received(&self, received: Received) {
        if let Ok(frame) = Frame::decode(&received.frame) {
            let _ = self.transfers.take(received.from, frame);
        }
    }

    fn unreachable(&self, peer: NodeId) {
        self.transfers.unreachable(peer);
    }

    fn removed(&self, _: NodeId) {
        self.removed.store(true, Ordering::Relaxed);
    }
}

/// Copies the state of another member into the data directory `data`, in which nothing may be open. Each member is
/// tried once: if none can supply it, the node starts again without, and finds out again what it lacks. The node that
/// compacted the missing entries may be gone, and the new leader may have them. Dropping the future aborts the copy.
///
/// # Errors
/// If this node cannot listen for the others, or was removed from the cluster.
pub async fn copy_state(
    data: &Path,
    listener: TcpListener,
    membership: &Membership,
    identity: Identity,
    lag: &Lag,
) -> Result<(), String> {
    let transfers = Transfers::new(Handle::current());
    let mut settings = links::settings(membership);
    settings.peers.clone_from(&lag.others);
    let events = Arc::new(TransfersOnly { transfers: Arc::clone(&transfers), removed: AtomicBool::new(false) });
    let handler = Arc::clone(&events);
    let peers = Arc::new(Peers::start(settings, identity, listener, &Handle::current(), handler)?);
    transfers.connect(&peers);
    let leader = match &lag.lacks {
        Lacks::Entries { group, leader, at_least } => {
            tracing::info!(
                log_of = group.node.0,
                entry = at_least.index,
                "this node needs entries that the other nodes have truncated, as a node that was just added or was down for long does: \
                 it copies the state of one of them, and then continues by itself"
            );
            Some(*leader)
        }
        Lacks::Rows { store } => {
            tracing::warn!(
                store,
                "this node's copy of an embedded store is broken, and its log no longer has what the copy lacks: it copies the \
                 state of another node"
            );
            None
        }
    };
    let others = lag.others.keys().copied().filter(|node| Some(*node) != leader);
    let order: Vec<NodeId> = leader.into_iter().chain(others).collect();
    let own =
        newest_image(&(Arc::new(RealFiles) as Arc<dyn Files>), &log_dir(data)).map_err(|error| error.to_string())?;
    for from in &order {
        match copy_from(&transfers, *from, data, lag, own.unwrap_or_default()).await {
            Ok(()) => break,
            Err(_) if events.removed.load(Ordering::Relaxed) => {
                first_start::note_removed(data, membership)?;
                return Err(REMOVED.into());
            }
            Err(reason) => tracing::warn!(
                from = from.0,
                reason,
                "the state of that node was not copied; the next one is asked, and then all of them once more"
            ),
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
    peers.stop().await;
    Ok(())
}

async fn copy_from(transfers: &Transfers, from: NodeId, data: &Path, lag: &Lag, own: Epoch) -> Result<(), String> {
    let copy = offered(transfers, from).await?;
    let listing = small(transfers, from, &Listing::name(copy)).await?;
    let listing = Listing::decode(&listing).map_err(|malformed| format!("the listing of node {from}: {malformed}"))?;
    let total = listing.bytes();
    tracing::info!(from = from.0, epoch = listing.epoch.0, bytes = total, "copying the state of another node");
    let incoming = Incoming::begin(data)?;
    let (mut done, mut told) = (0_u64, Instant::now());
    for (number, listed) in listing.files.iter().enumerate() {
        let file = incoming.create(&listed.place)?;
        let mut take = |offset: u64, part: &[u8]| {
            done += part.len() as u64;
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                tracing::info!(from = from.0, bytes = done, of = total, "copying the state of another node");
            }
            file.write(offset, part)
        };
        let name = Listing::file_name(copy, number);
        let bytes = transfers.pull(from, &name, &mut take).await?;
        if bytes != listed.bytes {
            return Err(format!("file {number} of node {from} has {bytes} bytes, the listing says {}", listed.bytes));
        }
        file.sync()?;
        if listed.place == Place::Image {
            // Before the rows, which may be many.
            let image = incoming.image()?;
            check(&image, &listing, lag, own).map_err(|reason| format!("the image of node {from} {reason}"))?;
        }
    }
    incoming.complete()
}

/// Waits until another node offers a copy; returns its number.
async fn offered(transfers: &Transfers, from: NodeId) -> Result<u64, String> {
    // The node is polled repeatedly, and must recognize the same copy.
    let mut wanted = [0; 8];
    SystemRandom::new().fill(&mut wanted).map_err(|_| "the operating system gives no random bytes")?;
    let copy = u64::from_le_bytes(wanted);
    let begun = Instant::now();
    while begun.elapsed() < OFFER_TIMEOUT {
        if small(transfers, from, &Listing::wanted(copy)).await? == MADE {
            return Ok(copy);
        }
        tokio::time::sleep(OFFER_POLL).await;
    }
    Err(format!("node {from}: it does not offer its state within {} s", OFFER_TIMEOUT.as_secs()))
}

/// Pulls a content into memory.
async fn small(transfers: &Transfers, from: NodeId, name: &str) -> Result<Vec<u8>, String> {
    let mut small = InMemory::new(LISTING_BYTES_MAX);
    transfers.pull(from, name, &mut |offset, part| small.take(offset, part)).await?;
    Ok(small.content)
}

/// Checks that an image meets this node's needs. `own` is the epoch of its own newest image.
fn check(image: &StateImage, listing: &Listing, lag: &Lag, own: Epoch) -> Result<(), String> {
    if image.epoch != listing.epoch {
        return Err(format!("is of epoch {}, the listing says {}", image.epoch, listing.epoch));
    }
    // A node starts from its newest image, so an older one gives it no entries. Rows are copied with any image.
    if image.epoch < own && matches!(lag.lacks, Lacks::Entries { .. }) {
        return Err(format!("is of epoch {}, which is before this node's own of epoch {own}", image.epoch));
    }
    let groups = groups_in(image).map_err(|malformed| format!("cannot be used: {malformed}"))?;
    let lacking = match &lag.lacks {
        Lacks::Entries { group, at_least, .. } => Some((*group, at_least.index)),
        Lacks::Rows { .. } => None,
    };
    let needed = lacking.into_iter().chain(lag.compacted.iter().map(|(group, compacted)| (*group, *compacted)));
    for (group, needed) in needed {
        let included = groups.get(&group).map_or(0, |cursor| cursor.included.index);
        if included < needed {
            let node = group.node;
            return Err(format!("includes entry {included} of the group of node {node}, and entry {needed} is needed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tribunal_log::{EntryId, GroupCursor, GroupCursors};
    use tribunal_types::GroupId;

    use super::*;

    #[test]
    fn an_image_has_to_include_what_is_gone() {
        let (group, at) = (GroupId::default(), |index| EntryId { term: 1, index });
        let image = |index| {
            let cursor = GroupCursor { included: at(index), ..GroupCursor::default() };
            let mut image = StateImage { epoch: Epoch(9), ..StateImage::default() };
            tribunal_member::put_groups(&mut image, &GroupCursors::from([(group, cursor)]));
            image
        };
        let lag = Lag {
            lacks: Lacks::Entries { group, leader: NodeId(1), at_least: at(70) },
            compacted: BTreeMap::from([(group, 60)]),
            others: BTreeMap::new(),
        };
        let other = GroupId { node: NodeId(3), ..group };
        let listing = |epoch| Listing { epoch: Epoch(epoch), files: Vec::new() };
        assert_eq!(check(&image(70), &listing(9), &lag, Epoch(9)), Ok(()));
        assert!(check(&image(69), &listing(9), &lag, Epoch(9)).unwrap_err().contains("entry 70 is needed"));
        let older = check(&image(70), &listing(9), &lag, Epoch(10)).unwrap_err();
        assert!(older.contains("epoch 9, which is before this node's own of epoch 10"), "{older}");
        assert!(check(&image(70), &listing(8), &lag, Epoch(9)).unwrap_err().contains("epoch 9"));
        let lag = Lag { compacted: BTreeMap::from([(other, 5)]), ..lag };
        assert!(check(&image(70), &listing(9), &lag, Epoch(9)).unwrap_err().contains("entry 5 is needed"));
        let lag = Lag { lacks: Lacks::Rows { store: "kv".into() }, compacted: BTreeMap::from([(group, 60)]), ..lag };
        assert_eq!(check(&image(60), &listing(9), &lag, Epoch(9)), Ok(()), "all entries that its log has no more");
        assert_eq!(check(&image(60), &listing(9), &lag, Epoch(10)), Ok(()), "the rows are as recent as they are");
        assert!(check(&image(59), &listing(9), &lag, Epoch(9)).unwrap_err().contains("entry 60 is needed"));
    }
}
