//! What nodes and storages send each other.

use tribunal_types::{ControlIndex, Lsn, StoreId};

/// A request to a storage.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub node: u16,
    pub start: u64,
    pub store: StoreId,
    pub push: ControlIndex,
    pub storage: String,
    /// The position before the first record, and that of the last one; without records, the request reads the
    /// watermark.
    pub records: Option<(Lsn, Lsn)>,
}

/// A storage's reply.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub node: u16,
    pub start: u64,
    pub store: StoreId,
    pub push: ControlIndex,
    /// The watermark, if it is reported, and whether the records were accepted.
    pub watermark: Option<Lsn>,
    pub moved: bool,
}
