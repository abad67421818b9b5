//! Copies of its state that a member offers to other nodes. Offered files stay readable until the offer ends: they are
//! held open even if the node has replaced or removed them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tribunal_log::ImageWriter;
use tribunal_push::StoreFile;
use tribunal_types::NodeId;
use tribunal_types::limits::PART_BYTES_MAX;

use crate::cluster::state_copy::listing::{ListedFile, Listing, MADE, Place, STATE, WANTED};
use crate::cluster::transfers::Source;
use crate::stores::pushes::Pushes;

/// How long an offer may be idle before it ends: it may keep files on disk that the node no longer needs.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// An offered file.
enum Offered {
    Image(File),
    Of(StoreFile),
    Listing(Vec<u8>),
}

struct Offer {
    /// The listing is the last file.
    files: Vec<Offered>,
    listing: Listing,
    used: Instant,
}

/// The offers of a member.
pub struct Offers {
    images: ImageWriter,
    pushes: Arc<Pushes>,
    /// Has this node take a new image.
    take_image: Box<dyn Fn() + Send + Sync>,
    /// By copying node.
    open: Mutex<BTreeMap<NodeId, Offering>>,
    this: Weak<Offers>,
}

/// The offer to a node, complete or in preparation.
struct Offering {
    /// The node's number of the copy.
    copy: u64,
    stage: Stage,
}

enum Stage {
    Preparing,
    Made(Arc<Mutex<Offer>>),
    Failed(String),
}

impl Offers {
    /// Offers nothing yet. `take_image` has this node take a new image, without waiting for it.
    #[must_use]
    pub fn new(images: ImageWriter, pushes: Arc<Pushes>, take_image: Box<dyn Fn() + Send + Sync>) -> Arc<Offers> {
        Arc::new_cyclic(|this| Offers { this: this.clone(), images, pushes, take_image, open: Mutex::default() })
    }

    /// Ends idle offers. Must be called periodically.
    pub fn end_idle(&self) {
        self.open.lock().retain(|_, offering| !offering.is_idle());
    }

    /// Returns whether the offer of a copy is made. Starts to make it if there is none, replacing an earlier one to the
    /// same node, but not before that one is prepared: at most one is in preparation for each node. A node that comes
    /// again so soon could not use the image that it was offered. A node without commits takes none by itself, so it is
    /// told to: the next copy has a newer one.
    fn is_made(&self, to: NodeId, copy: u64) -> Result<bool, String> {
        let mut open = self.open.lock();
        match open.get(&to).map(|offering| (&offering.stage, offering.copy == copy)) {
            Some((Stage::Preparing, _)) => return Ok(false),
            Some((Stage::Made(_), true)) => return Ok(true),
            Some((Stage::Failed(reason), true)) => return Err(reason.clone()),
            Some((_, false)) | None => {}
        }
        let replaced = open.insert(to, Offering { copy, stage: Stage::Preparing });
        drop(open);
        if replaced.is_some() {
            (self.take_image)();
        }
        let Some(this) = self.this.upgrade() else { return Ok(false) };
        let prepare = move || {
            let panicked = Stage::Failed("it panicked while it prepared its state".into());
            let mut prepared = Prepared { offers: &this, to, copy, stage: panicked };
            prepared.stage = match this.make(to) {
                Ok(offer) => Stage::Made(Arc::new(Mutex::new(offer))),
                Err(reason) => Stage::Failed(reason),
            };
        };
        let spawned = std::thread::Builder::new().name("state-offer".into()).spawn(prepare);
        spawned.map(|_| false).map_err(|error| {
            self.open.lock().remove(&to);
            format!("it has no thread to prepare its state: {error}")
        })
    }

    /// Makes an offer of the current state. Embedded stores flush their memory to disk, and this waits for them.
    fn make(&self, to: NodeId) -> Result<Offer, String> {
        // The image first: the rows must be those of its epoch, or later ones.
        let (epoch, path) = self.images.newest().ok_or("it has no state image yet")?;
        let unreadable = |error: std::io::Error| format!("its state image cannot be read: {error}");
        let image = File::open(&path).map_err(unreadable)?;
        let bytes = image.metadata().map_err(unreadable)?.len();
        let mut listing = Listing { epoch, files: vec![ListedFile { place: Place::Image, bytes }] };
        let mut files = vec![Offered::Image(image)];
        for (store, found) in self.pushes.flushed_files()? {
            for file in found {
                listing.files.push(ListedFile { place: Place::Store(store, file.name.clone()), bytes: file.bytes });
                files.push(Offered::Of(file));
            }
        }
        files.push(Offered::Listing(listing.encode()));
        tracing::info!(to = to.0, epoch = epoch.0, bytes = listing.bytes(), "another node copies this one's state");
        Ok(Offer { files, listing, used: Instant::now() })
    }

    fn part_of(&self, to: NodeId, rest: &str, offset: u64) -> Result<(u64, Bytes), String> {
        let (copy, file) = rest.split_once('/').ok_or("it is not the name of a file of its state")?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is not the number of a copy"));
        if copy == WANTED {
            let is_made = self.is_made(to, number(file)?)?;
            let content = if is_made { Bytes::from_static(MADE) } else { Bytes::new() };
            return Ok((content.len() as u64, content));
        }
        let copy = number(copy)?;
        let offer = match self.open.lock().get(&to) {
            Some(Offering { copy: made, stage: Stage::Made(offer) }) if *made == copy => Arc::clone(offer),
            _ => return Err("that copy of its state is no longer offered; begin again".into()),
        };
        let mut offer = offer.lock();
        offer.used = Instant::now();
        let at = match file {
            "listing" => offer.files.len() - 1,
            number => number.parse::<usize>().map_err(|_| "it is not the number of a file")?,
        };
        let total = match offer.files.get(at) {
            Some(Offered::Listing(bytes)) => bytes.len() as u64,
            Some(_) => offer.listing.files[at].bytes,
            None => return Err(format!("its state has no file {at}")),
        };
        let len = total.checked_sub(offset).ok_or("the part is past the end")?.min(PART_BYTES_MAX as u64);
        let mut part = vec![0; len as usize];
        let read = match &offer.files[at] {
            Offered::Image(image) => image.read_exact_at(&mut part, offset),
            Offered::Of(file) => file.read_exact_at(&mut part, offset),
            Offered::Listing(bytes) => {
                part.copy_from_slice(&bytes[offset as usize..][..len as usize]);
                Ok(())
            }
        };
        read.map_err(|error| format!("a file of its state cannot be read: {error}"))?;
        Ok((total, part.into()))
    }
}

/// The end of a preparation: notes its result when dropped, also by a panic.
struct Prepared<'a> {
    offers: &'a Offers,
    to: NodeId,
    copy: u64,
    stage: Stage,
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Some(offering) = self.offers.open.lock().get_mut(&self.to).filter(|offering| offering.copy == self.copy)
        {
            std::mem::swap(&mut offering.stage, &mut self.stage);
        }
    }
}

impl Offering {
    fn is_idle(&self) -> bool {
        match &self.stage {
            Stage::Preparing | Stage::Failed(_) => false,
            Stage::Made(offer) => offer.try_lock().is_some_and(|offer| offer.used.elapsed() >= IDLE_MAX),
        }
    }
}

impl Source for Offers {
    fn part(&self, to: NodeId, name: &str, offset: u64) -> Option<Result<(u64, Bytes), String>> {
        let rest = name.strip_prefix(STATE)?.strip_prefix('/')?;
        Some(self.part_of(to, rest, offset))
    }
}
