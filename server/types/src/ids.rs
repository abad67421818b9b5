//! Newtypes for every number that has a meaning, so that two of them are never confused.

use core::fmt;
use core::num::NonZeroU64;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Number of the epoch in which a transaction is decided (CCaaS, section 4.2: CEN). Epoch 0 is the empty database;
    /// the first sealed epoch is 1. Has at most [`Epoch::BITS`] bits.
    Epoch(u64)
);
number!(
    /// Commit sequence number (CCaaS, definition 1): the arrival stamp that identifies a transaction and breaks
    /// ties. 54 bits of hybrid microseconds above 10 bits of node id.
    Csn(u64)
);
number!(
    /// Dense position, from 1, of a transaction's record in one store's committed log. 0 is before the first record.
    Lsn(u64)
);
number!(
    /// A member node. Never reused; 10 bits, because a [`Csn`] carries it.
    NodeId(u16)
);
number!(
    /// Incarnation of a node that a group belongs to: a wiped disk returns under a new one.
    Incarnation(u32)
);
number!(
    /// A store, numbered once by the control log; numbers are never reused.
    StoreId(u32)
);
number!(
    /// A tenant. Part of every stored key.
    NamespaceId(u32)
);
number!(
    /// 64-bit hash of a canonical commit body: tells a retry from a different body under the same id.
    BodyHash(u64)
);
number!(
    /// Index of a transaction within its epoch: groups by ascending id, then the batch's own order.
    TxnIx(u32)
);
number!(
    /// Chained 64-bit digest of outcomes, with which replicas compare their state.
    Digest(u64)
);

impl Epoch {
    /// Width of an epoch number within a [`Version`].
    pub const BITS: u32 = 43;
    /// Largest epoch number: 2^43 - 1, some 278 years at a thousand epochs a second.
    pub const MAX: Epoch = Epoch((1 << Self::BITS) - 1);

    /// Returns the following epoch.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// Returns the preceding epoch; epoch 0 is its own predecessor.
    #[must_use]
    pub fn prev(self) -> Epoch {
        Epoch(self.0.saturating_sub(1))
    }
}

impl Lsn {
    /// Returns the following position. The last one, which no log reaches but a storage or receiver may report, is its
    /// own successor.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0.saturating_add(1))
    }
}

impl Csn {
    /// Width of the node id in the low bits.
    pub const NODE_BITS: u32 = 10;

    /// Builds a stamp from hybrid microseconds and the node that issues it.
    #[must_use]
    pub fn new(micros: u64, node: NodeId) -> Csn {
        Csn(micros << Self::NODE_BITS | u64::from(node.0 & ((1 << Self::NODE_BITS) - 1)))
    }

    /// Returns the hybrid microseconds of the stamp.
    #[must_use]
    pub fn micros(self) -> u64 {
        self.0 >> Self::NODE_BITS
    }
}

/// Version of a written row: its epoch (43 bits) and its position in the epoch's serial order (20 bits).
///
/// Increases along the log of a row. Never zero, so that `Option<Version>` takes eight bytes and "absent" needs no
/// sentinel. Two transactions that wrote no row in common may share a position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(NonZeroU64);

impl Version {
    /// Width of the position in the low bits.
    pub const POSITION_BITS: u32 = 20;
    /// Largest position.
    pub const POSITION_MAX: u32 = (1 << Self::POSITION_BITS) - 1;

    /// Builds a version; `None` for epoch 0 at position 0 and for numbers that do not fit.
    #[must_use]
    pub fn new(epoch: Epoch, position: u32) -> Option<Version> {
        if epoch > Epoch::MAX || position > Self::POSITION_MAX {
            return None;
        }
        Self::from_bits(epoch.0 << Self::POSITION_BITS | u64::from(position))
    }

    /// Restores a version from [`Version::bits`]; `None` for zero and for numbers of more than 63 bits.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Version> {
        if bits >> (Epoch::BITS + Self::POSITION_BITS) != 0 {
            return None;
        }
        NonZeroU64::new(bits).map(Version)
    }

    /// Returns the version as a number; numbers order like versions.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0.get()
    }

    /// Returns the epoch that wrote the row.
    #[must_use]
    pub fn epoch(self) -> Epoch {
        Epoch(self.bits() >> Self::POSITION_BITS)
    }

    /// Returns the position in that epoch's serial order.
    #[must_use]
    pub fn position(self) -> u32 {
        (self.bits() & u64::from(Self::POSITION_MAX)) as u32
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.position())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bits().fmt(f)
    }
}

/// A Raft group ("Txn Raft", CCaaS section 4.5): the log of one incarnation of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// The node whose transactions the group carries.
    pub node: NodeId,
    /// Incarnation of that node.
    pub incarnation: Incarnation,
}

impl GroupId {
    /// The control group of a cluster. It carries no node's transactions: nodes are numbered from 1.
    pub const CONTROL: Self = Self { node: NodeId(0), incarnation: Incarnation(0) };
}

/// Name of a log: 128 random bits, drawn when the log is created and again when it is salvaged.
///
/// Positions are meaningless without it: after a salvage, the same [`Lsn`] can name another record. Every stored
/// position in a log (the watermark of a storage, the offset of a consumer) includes the id.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub [u8; 16]);

impl fmt::Display for LogId {
    /// Writes 32 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for text that is not a [`LogId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidLogId;

impl core::str::FromStr for LogId {
    type Err = InvalidLogId;

    /// Parses exactly the [`fmt::Display`] form of [`LogId`].
    fn from_str(text: &str) -> Result<Self, InvalidLogId> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return Err(InvalidLogId);
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(LogId(id))
    }
}

fn digit(byte: u8) -> Result<u8, InvalidLogId> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(InvalidLogId),
    }
}

/// Transaction id: a UUIDv7, generated by Begin or by the client. It is the idempotency key.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub [u8; 16]);

impl TxnId {
    /// Returns the Unix milliseconds in the id's first 48 bits (RFC 9562, section 5.7).
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 80) as u64
    }

    /// Returns whether version and variant bits are those of a UUIDv7.
    #[must_use]
    pub fn is_v7(self) -> bool {
        self.0[6] >> 4 == 7 && self.0[8] >> 6 == 0b10
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 128-bit keyed hash of (namespace, store, key), which identifies a row in the resolver. The key is the same on all
/// replicas.
///
/// Two words instead of a `u128`, so that rows in columns are aligned to eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// High half; its top bits select the shard.
    pub hi: u64,
    /// Low half.
    pub lo: u64,
}

/// Position in the control log, starting at 1. 0 means that none is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlIndex(pub u64);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn no_position_follows_the_last_one() {
        assert_eq!((Lsn(7).next(), Lsn(u64::MAX).next()), (Lsn(8), Lsn(u64::MAX)));
    }

    #[test]
    fn a_log_id_is_read_as_it_is_written_and_in_no_other_form() {
        let id = LogId(core::array::from_fn(|n| n as u8 * 17));
        let text = id.to_string();
        assert_eq!(text, "00112233445566778899aabbccddeeff");
        assert_eq!(text.parse(), Ok(id));
        for other in ["", "00", "00112233445566778899AABBCCDDEEFF", &text[1..], "0011223344556677_899aabbccddeeff"] {
            assert_eq!(other.parse::<LogId>(), Err(InvalidLogId), "{other}");
        }
    }
}
