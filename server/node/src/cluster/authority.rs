//! Fingerprints of the certificate authorities that the nodes of a cluster trust: all nodes refuse a certificate signed
//! by another authority, so none may be made for a new node.

use std::path::Path;

use sha2::{Digest, Sha256};
use tribunal_peer::certificates_in;

use crate::plugins::digest::hex;

/// Returns the SHA-256 of each certificate in a PEM file, in hexadecimal; empty if the file cannot be read.
#[must_use]
pub fn fingerprints(file: &Path) -> Vec<String> {
    let certificates = certificates_in(file).unwrap_or_default();
    certificates.iter().map(|certificate| hex(&Sha256::digest(certificate))).collect()
}
