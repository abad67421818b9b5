//! A row as reads of the store return it.

use tribunal_types::Version;

/// A row's value and version, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub version: Version,
    pub value: Box<[u8]>,
}

impl Stored {
    pub(super) fn of((version, value): (Version, &[u8])) -> Stored {
        Stored { version, value: value.into() }
    }
}
