//! The optional interface `record-ids` of a LogAdaptor: which record a storage has applied last.
//!
//! A host that supports the interface calls `last` after `read-watermark`, and stops the push if its log has another record
//! at that position. Other hosts do not call it.

use alloc::format;
use core::cell::RefCell;
use core::fmt;
use core::str::FromStr;

use crate::Fault;
use crate::adaptor::LogBatch;
pub use crate::bindings::record_ids::exports::tribunal::plugin_record_ids::record_ids::RecordId;

/// Bytes of a transaction's id.
const TXN_ID_BYTES: usize = 16;

impl LogBatch {
    /// Returns the id of record `record`.
    ///
    /// # Panics
    /// If there is no such record.
    #[must_use]
    pub fn id_of(&self, record: usize) -> RecordId {
        let txn_id = self.txn_ids[record * TXN_ID_BYTES..][..TXN_ID_BYTES].to_vec();
        RecordId { lsn: self.lsn[record], csn: self.csn[record], txn_id }
    }
}

/// Writes `<LSN> <arrival stamp> <transaction>`, the latter as 32 lower-case hexadecimal digits: a form in which a storage
/// can keep it.
impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.lsn, self.csn)?;
        self.txn_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads the form that `Display` writes.
impl FromStr for RecordId {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let no_id = || format!("`{text}` is no record's id");
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().ok_or_else(no_id);
        let number = |word: &str| word.parse().map_err(|_| no_id());
        let (lsn, csn, digits) = (number(word()?)?, number(word()?)?, word()?);
        let is_hex = digits.len() == 2 * TXN_ID_BYTES && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let txn_id = u128::from_str_radix(digits, 16).ok().filter(|_| is_hex).ok_or_else(no_id)?;
        Ok(RecordId { lsn, csn, txn_id: txn_id.to_be_bytes().into() })
    }
}

/// Holds the record that `read-watermark` found for `last`. Used by `export_adaptor!`.
#[derive(Debug, Default)]
pub struct LastRecord(RefCell<Option<RecordId>>);

// SAFETY: a plugin runs on a single thread; on other targets the macros define no `static` of this type.
#[cfg(target_arch = "wasm32")]
unsafe impl Sync for LastRecord {}

impl LastRecord {
    /// Creates an empty value.
    #[must_use]
    pub const fn new() -> Self {
        LastRecord(RefCell::new(None))
    }

    /// Replaces the record.
    pub fn set(&self, record: Option<RecordId>) {
        *self.0.borrow_mut() = record;
    }

    /// Takes the record.
    #[must_use]
    pub fn take(&self) -> Option<RecordId> {
        self.0.borrow_mut().take()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text() {
        let id = RecordId { lsn: 7, csn: 1_767_225_600_000_001, txn_id: (0..16).map(|n| n * 17).collect() };
        let text = id.to_string();
        assert_eq!(text, "7 1767225600000001 00112233445566778899aabbccddeeff");
        let read: RecordId = text.parse().expect("an id");
        assert_eq!((read.lsn, read.csn, &read.txn_id), (id.lsn, id.csn, &id.txn_id));
        for broken in
            ["", "7", "7 1", "7 x 00112233445566778899aabbccddeeff", "7 1 0011", "7 1 +0112233445566778899aabbccddeeff"]
        {
            assert!(broken.parse::<RecordId>().is_err(), "{broken}");
        }
    }

    #[test]
    fn a_record_is_told_once() {
        let last = LastRecord::new();
        last.set(Some(RecordId { lsn: 7, csn: 1, txn_id: [3; 16].into() }));
        assert_eq!(last.take().map(|record| record.lsn), Some(7));
        assert!(last.take().is_none(), "the next reply has its own record, or none");
    }
}
