//! A stored record, and the end of a chain of records.

/// A record read back from its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub index: u64,
    /// See [`crate::frame::Part::link`].
    pub link: u64,
    pub payload: Vec<u8>,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    /// Chain hash after the record.
    pub chain: u64,
    /// Bytes written, frames included.
    pub bytes: u64,
}

/// End of a valid chain. Index 0 is the start of an empty chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    pub index: u64,
    pub chain: u64,
}
