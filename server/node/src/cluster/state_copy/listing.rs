//! The files of a copy of a member's state, by name, each with its length.

use tribunal_codec::{Malformed, Reader, put_bytes, put_varint};
use tribunal_types::{Epoch, StoreId};

/// Prefix of the names of all contents that belong to copies.
pub const STATE: &str = "state";
/// Second part of the name of the content that starts a copy.
pub const WANTED: &str = "wanted";
/// Its content once the offer is made; empty before.
pub const MADE: &[u8] = b"made";

/// Destination of a file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The state image.
    Image,
    /// A file of this name in the directory of an embedded store.
    Store(StoreId, String),
}

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its destination.
    pub place: Place,
    /// Its length.
    pub bytes: u64,
}

/// The files of a copy, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Epoch of the image.
    pub epoch: Epoch,
    /// The files; those of a store end with its manifest.
    pub files: Vec<ListedFile>,
}

impl Listing {
    /// Returns the name of the content that starts the copy with the caller's number: [`MADE`], or empty while the copy
    /// is prepared.
    #[must_use]
    pub fn wanted(copy: u64) -> String {
        format!("{STATE}/{WANTED}/{copy}")
    }

    /// Returns the name of the listing of a copy.
    #[must_use]
    pub fn name(copy: u64) -> String {
        format!("{STATE}/{copy}/listing")
    }

    /// Returns the name of a file of a copy.
    #[must_use]
    pub fn file_name(copy: u64, number: usize) -> String {
        format!("{STATE}/{copy}/{number}")
    }

    /// Returns the total length of the files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Encodes the listing.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 32 * self.files.len());
        put_varint(self.epoch.0, &mut out);
        put_varint(self.files.len() as u64, &mut out);
        for file in &self.files {
            let (store, name) = match &file.place {
                Place::Image => (0, ""),
                Place::Store(store, name) => (u64::from(store.0) + 1, &**name),
            };
            put_varint(store, &mut out);
            put_bytes(name.as_bytes(), &mut out);
            put_varint(file.bytes, &mut out);
        }
        out
    }

    /// Decodes a listing.
    ///
    /// # Errors
    /// If it is not a listing, does not have exactly one image, or has a name that is not that of a file in its
    /// directory.
    pub fn decode(bytes: &[u8]) -> Result<Listing, Malformed> {
        let mut reader = Reader::new(bytes);
        let epoch = Epoch(reader.varint("epoch")?);
        let count = reader.count(3, "files")?;
        let mut files = Vec::with_capacity(count);
        for _ in 0..count {
            let (store, name) = (reader.varint("store")?, reader.text("name")?);
            let place = match store.checked_sub(1).map(u32::try_from) {
                None if name.is_empty() => Place::Image,
                Some(Ok(store)) if is_plain(&name) => Place::Store(StoreId(store), name),
                _ => return Err(reader.malformed("place of a file")),
            };
            files.push(ListedFile { place, bytes: reader.varint("length")? });
        }
        reader.finish("end of the listing")?;
        let images = files.iter().filter(|file| file.place == Place::Image).count();
        if images == 1 { Ok(Listing { epoch, files }) } else { Err(reader.malformed("number of images")) }
    }
}

/// Returns whether a name is a plain file name within a directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(place: Place) -> ListedFile {
        ListedFile { place, bytes: 1 << 40 }
    }

    #[test]
    fn a_listing_survives_a_round_trip_and_no_cut() {
        let store = |name: &str| file(Place::Store(StoreId(u32::MAX), name.into()));
        let listing = |files: &[ListedFile]| Listing { epoch: Epoch(1 << 40), files: files.to_vec() };
        for whole in [listing(&[file(Place::Image)]), listing(&[file(Place::Image), store("run-7"), store("manifest")])]
        {
            let bytes = whole.encode();
            assert_eq!(Listing::decode(&bytes), Ok(whole));
            assert!((0..bytes.len()).all(|cut| Listing::decode(&bytes[..cut]).is_err()));
        }
        for wrong in [
            listing(&[]),
            listing(&[file(Place::Image), file(Place::Image)]),
            listing(&[file(Place::Image), store("")]),
            listing(&[file(Place::Image), store("..")]),
            listing(&[file(Place::Image), store("a/b")]),
            listing(&[file(Place::Image), store(&"x".repeat(65))]),
        ] {
            assert!(Listing::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }
}
