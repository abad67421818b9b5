//! Fingerprints of the authorities whose certificates the nodes of a cluster trust: a certificate that another authority has
//! signed is refused by all of them, so it must not be made for a new node.

use std::path::Path;

use sha2::{Digest, Sha256};
use tribunal_peer::certificates_in;

use crate::plugins::plugin_store::hex;

/// Returns the SHA-256 of each certificate in a PEM file, in hexadecimal digits; none if the file cannot be read.
#[must_use]
pub fn fingerprints(file: &Path) -> Vec<String> {
    let certificates = certificates_in(file).unwrap_or_default();
    certificates.iter().map(|certificate| hex(&Sha256::digest(certificate))).collect()
}
