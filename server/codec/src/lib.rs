//! The binary format of records, on disk and between nodes. One module per kind of record; each record starts with a
//! kind byte and a version byte.
//!
//! Decoding never panics, whatever the input: before anything is allocated, every count is checked against the bytes
//! that remain (items that may take no byte, against the size limit of a batch), every span against its arena, and
//! every number against its type. A record does not contain its own identity (a batch's group, an outcome's epoch): the
//! caller passes it to the decoder. Checksums are up to the caller too; this crate validates meaning. No I/O and no
//! clock; encoding is deterministic.

mod batch;
mod conflict;
mod control;
mod control_image;
mod group_record;
mod image;
mod image_groups;
mod mark;
mod outcome;
mod reader;
mod readers;
mod section;
mod varint;

pub use batch::{BatchHead, batch_head, decode_batch, encode_batch};
pub use control::{decode_control, encode_control};
pub use control_image::{decode_control_image, encode_control_image};
pub use group_record::{
    EntryId, GroupRecord, GroupState, PROPOSED, decode_group_record, encode_group_record, proposed_in,
};
pub use image::{ImageAssembler, image_pieces};
pub use image_groups::{GroupCursor, GroupCursors, decode_group_cursors, encode_group_cursors};
pub use mark::{GroupMark, MARK_BYTES_MAX, Mark, decode_mark, encode_mark};
pub use outcome::{decode_outcome, encode_outcome};
pub use reader::{Malformed, Reader};
pub use readers::{Readers, decode_readers, encode_readers};
pub use varint::{put_bytes, put_signed, put_varint};

/// First byte of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// A [`tribunal_types::Batch`].
    Batch = 0xB1,
    /// A [`tribunal_types::EpochOutcome`].
    Outcome = 0xB2,
    /// A [`tribunal_types::ControlEntry`].
    Control = 0xB3,
    /// A piece of a [`tribunal_types::StateImage`].
    Image = 0xB4,
    /// A [`Mark`].
    Mark = 0xB5,
    /// [`Readers`].
    Readers = 0xB6,
    /// A [`tribunal_types::ControlImage`].
    ControlImage = 0xB7,
    /// A [`GroupRecord`].
    Group = 0xB8,
    /// [`GroupCursors`].
    ImageGroups = 0xB9,
}

impl Kind {
    /// Format version.
    fn version(self) -> u8 {
        match self {
            Kind::ControlImage => 6,
            Kind::Batch | Kind::Outcome => 4,
            Kind::Control => 3,
            Kind::Readers | Kind::Mark => 2,
            Kind::Image | Kind::Group | Kind::ImageGroups => 1,
        }
    }
}

/// Appends the kind and version bytes.
fn put_head(kind: Kind, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind as u8, kind.version()]);
}

/// Reads and checks the kind and version bytes.
fn take_head(kind: Kind, reader: &mut Reader<'_>) -> Result<(), Malformed> {
    take_head_since(kind, kind.version(), reader).map(drop)
}

/// Reads and checks the kind and version bytes of a record whose earlier versions are read too, from `oldest` on.
/// Returns the version.
fn take_head_since(kind: Kind, oldest: u8, reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    if reader.u8("record kind")? != kind as u8 {
        return Err(reader.malformed("record kind"));
    }
    let version = reader.u8("record version")?;
    if (oldest..=kind.version()).contains(&version) {
        return Ok(version);
    }
    Err(reader.malformed("record version: another release wrote it; use that release, or begin with another directory"))
}
