//! Public keys from PEM files: parses as much of X.509's `SubjectPublicKeyInfo` as names an algorithm and contains a
//! key.
//!
//! Reads the operator's input, not clients'; still, it never panics.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Ed25519, RFC 8410.
    Ed25519,
    /// ECDSA over P-256, RFC 5480.
    P256,
    /// RSA, RFC 3279.
    Rsa,
}

const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OBJECT: u8 = 0x06;

impl Algorithm {
    /// Contents of the object identifier.
    fn identifier(self) -> &'static [u8] {
        match self {
            Algorithm::Ed25519 => &[0x2b, 0x65, 0x70],
            Algorithm::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01],
            Algorithm::Rsa => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01],
        }
    }
}

/// Returns the key in a PEM text, in ring's format.
///
/// # Errors
/// The problem with the text.
pub fn public_key(pem: &[u8], algorithm: Algorithm) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "this is not PEM".to_owned())?;
    let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(body, _)| body);
    let body = body.ok_or_else(|| format!("there is no `{BEGIN}` in it"))?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).map_err(|error| error.to_string())?;
    key_of(&der, algorithm).ok_or_else(|| format!("this is not a public key of {algorithm:?}"))
}

fn key_of(der: &[u8], algorithm: Algorithm) -> Option<Vec<u8>> {
    let (info, _) = element(der, SEQUENCE)?;
    let (identifier, rest) = element(info, SEQUENCE)?;
    if element(identifier, OBJECT)?.0 != algorithm.identifier() {
        return None;
    }
    // The first byte is the number of unused bits: none.
    let key = element(rest, BIT_STRING)?.0.strip_prefix(&[0])?;
    let fits = match algorithm {
        Algorithm::Ed25519 => key.len() == 32,
        Algorithm::P256 => key.len() == 65 && key[0] == 4,
        Algorithm::Rsa => !key.is_empty(),
    };
    fits.then(|| key.to_vec())
}

/// Splits off one DER element with this tag; returns its contents and the rest.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
        (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl ecparam -name prime256v1 -genkey | openssl ec -pubout`
    const EC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9
q9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==
-----END PUBLIC KEY-----";

    #[test]
    fn finds_a_key_of_the_right_algorithm_only() {
        assert_eq!(public_key(EC.as_bytes(), Algorithm::P256).map(|key| (key.len(), key[0])), Ok((65, 4)));
        assert!(public_key(EC.as_bytes(), Algorithm::Rsa).is_err());
        assert!(public_key(EC.as_bytes(), Algorithm::Ed25519).is_err());
    }

    #[test]
    fn truncated_and_corrupted_keys_never_panic() {
        let body: String = EC.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(body).expect("base64");
        for cut in 0..der.len() {
            assert_eq!(key_of(&der[..cut], Algorithm::P256), None, "cut at {cut}");
        }
        for at in 0..der.len() {
            for bit in 0..8 {
                let mut flipped = der.clone();
                flipped[at] ^= 1 << bit;
                let _ = key_of(&flipped, Algorithm::P256);
            }
        }
    }
}
