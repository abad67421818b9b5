//! The identity of a component: the digest of its bytes.

/// SHA-256 of a component.
pub type ArtefactDigest = [u8; 32];

/// Encodes a digest or a signature in hexadecimal, as `tribunal_service::plugins` reads them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
