//! A state image: everything a resolver needs to continue after an epoch, as plain columns.
//!
//! The resolver defines the meaning of a column; the codec only stores columns. So the image can gain a column without
//! a new file format.

use alloc::vec::Vec;

use crate::ids::Epoch;

/// Replicated state after epoch `epoch`, in columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateImage {
    /// Last epoch that the state includes.
    pub epoch: Epoch,
    /// Columns of numbers, ascending id.
    pub columns: Vec<Column>,
    /// Columns of bytes (keys of the range window, names), ascending id.
    pub blobs: Vec<Blob>,
}

/// A column of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Its meaning to the resolver.
    pub id: u16,
    /// The numbers.
    pub words: Vec<u64>,
}

/// A column of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob {
    /// Its meaning to the resolver.
    pub id: u16,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl StateImage {
    /// Appends a column of numbers.
    pub fn push_words(&mut self, id: u16, words: Vec<u64>) {
        self.columns.push(Column { id, words });
    }

    /// Appends a column of bytes.
    pub fn push_bytes(&mut self, id: u16, bytes: Vec<u8>) {
        self.blobs.push(Blob { id, bytes });
    }

    /// Returns the column of numbers with this id.
    #[must_use]
    pub fn words(&self, id: u16) -> Option<&[u64]> {
        self.columns.iter().find(|c| c.id == id).map(|c| c.words.as_slice())
    }

    /// Returns the column of bytes with this id.
    #[must_use]
    pub fn bytes(&self, id: u16) -> Option<&[u8]> {
        self.blobs.iter().find(|b| b.id == id).map(|b| b.bytes.as_slice())
    }

    /// Returns the bytes of memory that the columns occupy.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let words: usize = self.columns.iter().map(|c| c.words.len() * 8).sum();
        words + self.blobs.iter().map(|b| b.bytes.len()).sum::<usize>()
    }
}
