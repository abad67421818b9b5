//! Signatures of uploaded components, Ed25519: authenticate a plugin's author, in addition to the API's caller.
//!
//! The signed message contains the plugin's name and its component's SHA-256, so that a signature is valid neither for
//! another component, nor for the same bytes under another name. Keys are PEM files as written by OpenSSL: PKCS#8 to
//! sign, `SubjectPublicKeyInfo` to verify. A node whose configuration names signers accepts and activates only
//! components signed by one of them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use tribunal_types::limits::NAME_BYTES_MAX;

use crate::auth::public_key::{Algorithm, public_key};
use crate::named_file::read_named;
use crate::plugins::digest::{ArtefactDigest, hex};

/// Maximum number of configured signers.
const SIGNERS_MAX: usize = 64;
/// DER prefix of a private key's 32 bytes, RFC 8410.
const PRIVATE_HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// DER prefix of a public key's 32 bytes, RFC 8410.
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// A signature.
pub type SignatureBytes = [u8; 64];

/// An accepted signer of plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignerConfig {
    /// Name of the signer in plugin lists.
    pub name: String,
    /// PEM file with the signer's public key.
    pub key_file: PathBuf,
}

impl SignerConfig {
    /// Reads `NAME=FILE`.
    ///
    /// # Errors
    /// If it has another form.
    pub fn from_flag(text: &str) -> Result<SignerConfig, String> {
        let (name, file) = text.split_once('=').ok_or_else(|| "must be NAME=FILE".to_owned())?;
        Ok(SignerConfig { name: name.to_owned(), key_file: file.into() })
    }
}

/// The signature of a component, as stored with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// The signer's name at the time of the upload.
    pub signer: String,
    /// The signature, hexadecimal.
    pub signature: String,
}

/// All accepted signers; if empty, no signature is required.
#[derive(Debug, Default)]
pub struct Signers(Vec<(String, Vec<u8>)>);

impl Signers {
    /// Reads the configured keys.
    ///
    /// # Errors
    /// All faults, each with its signer.
    pub fn read(config: &[SignerConfig]) -> Result<Signers, Vec<String>> {
        let mut faults = Vec::new();
        if config.len() > SIGNERS_MAX {
            faults.push(format!("configuration: `uploads.signers` names {}; {SIGNERS_MAX} are allowed", config.len()));
        }
        let mut names = BTreeSet::new();
        let mut signers = Vec::new();
        for SignerConfig { name, key_file } in config.iter().take(SIGNERS_MAX) {
            let failed = |why: String| format!("configuration: `uploads.signers`: {name}: {why}");
            let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
            if !fits || !names.insert(name) {
                faults.push(failed(format!("names must have 1 to {NAME_BYTES_MAX} bytes, and be different")));
            }
            let key = read_named("key_file", key_file).and_then(|pem| {
                public_key(&pem, Algorithm::Ed25519)
                    .map_err(|why| format!("{}: {why}; `tribunal plugin keygen` makes one", key_file.display()))
            });
            match key {
                Ok(key) => signers.push((name.clone(), key)),
                Err(why) => faults.push(failed(why)),
            }
        }
        if faults.is_empty() { Ok(Signers(signers)) } else { Err(faults) }
    }

    /// Returns whether signatures are required.
    #[must_use]
    pub fn required(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the signature of a component after verifying it; `None` if none is required.
    ///
    /// # Errors
    /// The reason for the refusal, and the remedy.
    pub fn check(
        &self,
        name: &str,
        digest: &ArtefactDigest,
        signature: Option<&SignatureBytes>,
    ) -> Result<Option<Signed>, String> {
        if !self.required() {
            return Ok(None);
        }
        let known = self.0.iter().map(|(signer, _)| signer.as_str()).collect::<Vec<_>>().join(", ");
        let Some(signature) = signature else {
            return Err(format!(
                "it is not signed, and this node takes only what {known} signed: `tribunal plugin push --sign KEYFILE`"
            ));
        };
        let message = message(name, digest);
        let signer = self
            .0
            .iter()
            .find(|(_, key)| UnparsedPublicKey::new(&ED25519, key).verify(message.as_bytes(), signature).is_ok());
        let Some((signer, _)) = signer else {
            return Err(format!(
                "none of {known} made this signature of \"{name}\" with component {}: sign these bytes under this name with \
                 one of their keys",
                &hex(digest)[..12]
            ));
        };
        Ok(Some(Signed { signer: signer.clone(), signature: hex(signature) }))
    }

    /// Checks a version that was stored earlier, perhaps under other signers.
    ///
    /// # Errors
    /// As for [`Signers::check`].
    pub fn check_kept(&self, name: &str, digest: &ArtefactDigest, signed: Option<&Signed>) -> Result<(), String> {
        let signature = signed.and_then(|signed| signature_of(&signed.signature));
        self.check(name, digest, signature.as_ref()).map(drop)
    }
}

/// Returns the signed message.
fn message(name: &str, digest: &ArtefactDigest) -> String {
    format!("tribunal plugin signature 1\n{name}\n{}\n", hex(digest))
}

/// Signs a component for the name that it will be uploaded under, with the private key in a PEM text.
///
/// # Errors
/// The problem with the key.
pub fn sign(pem: &str, name: &str, digest: &ArtefactDigest) -> Result<SignatureBytes, String> {
    let pair = key_pair(pem)?;
    let signature = pair.sign(message(name, digest).as_bytes());
    signature.as_ref().try_into().map_err(|_| "a signature of Ed25519 has 64 bytes".to_owned())
}

fn key_pair(pem: &str) -> Result<Ed25519KeyPair, String> {
    const WANTED: &str = "this is not an unencrypted Ed25519 private key in PEM (PKCS#8); `tribunal plugin keygen FILE` or \
                          `openssl genpkey -algorithm ed25519 -out FILE` makes one";
    let (begin, end) = edges("PRIVATE KEY");
    let body = pem.split_once(begin.as_str()).and_then(|(_, rest)| rest.split_once(end.as_str()));
    let (body, _) = body.ok_or_else(|| WANTED.to_owned())?;
    let der = STANDARD.decode(body.split_whitespace().collect::<String>()).map_err(|_| WANTED.to_owned())?;
    // The public half is optional: OpenSSL omits it.
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| WANTED.to_owned())
}

/// Generates a key: the private and the public half, as PEM texts.
///
/// # Errors
/// If the system returns no random numbers.
pub fn generate() -> Result<(String, String), String> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(|_| "the system gives no random numbers".to_owned())?;
    let private = pem("PRIVATE KEY", &[&PRIVATE_HEAD[..], &seed].concat());
    let public = pem("PUBLIC KEY", &[&PUBLIC_HEAD[..], key_pair(&private)?.public_key().as_ref()].concat());
    Ok((private, public))
}

fn edges(what: &str) -> (String, String) {
    (format!("-----BEGIN {what}-----"), format!("-----END {what}-----"))
}

/// Encodes a key as PEM; short enough for one line.
fn pem(what: &str, der: &[u8]) -> String {
    let (begin, end) = edges(what);
    format!("{begin}\n{}\n{end}\n", STANDARD.encode(der))
}

/// Parses a signature in hexadecimal.
#[must_use]
pub fn signature_of(text: &str) -> Option<SignatureBytes> {
    tribunal_service::plugins::signature(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: ArtefactDigest = [7; 32];
    /// `openssl genpkey -algorithm ed25519`, and `openssl pkey -pubout` of it.
    const OPENSSL: [&str; 2] = [
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGCZBUsHow1Qri3hgrUyRo20nsq8AHTcxeual4Sd8k0q\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEASnhVc+NGOgou4XfSN3uDNTdwyxfVdkY9vXQr4qHxWSo=\n-----END PUBLIC KEY-----\n",
    ];

    fn signers(keys: &[(&str, &str)]) -> Result<Signers, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let config = keys.iter().enumerate().map(|(at, (name, pem))| {
            let key_file = folder.path().join(at.to_string());
            std::fs::write(&key_file, pem).expect("writes");
            SignerConfig { name: (*name).to_owned(), key_file }
        });
        Signers::read(&config.collect::<Vec<_>>()).map_err(|faults| faults.join("\n"))
    }

    #[test]
    fn a_signature_is_of_one_name_one_component_and_one_signer() {
        let (private, public) = generate().expect("a key");
        let signers = signers(&[("other", OPENSSL[1]), ("own", &public)]).expect("keys");
        let signature = sign(&private, "rule", &DIGEST).expect("signs");
        let signed = signers.check("rule", &DIGEST, Some(&signature)).expect("is good").expect("is asked for");
        assert_eq!((signed.signer.as_str(), signature_of(&signed.signature)), ("own", Some(signature)));
        assert_eq!(signers.check_kept("rule", &DIGEST, Some(&signed)), Ok(()));
        let refused = |name, digest, signature| signers.check(name, digest, signature).expect_err("is refused");
        assert!(refused("rule", &DIGEST, None).contains("it is not signed, and this node takes only what other, own"));
        assert!(
            refused("rule2", &DIGEST, Some(&signature)).contains("none of other, own made this signature of \"rule2\"")
        );
        assert!(refused("rule", &[8; 32], Some(&signature)).contains("with component 080808080808"));
        for at in 0..64 {
            let mut damaged = signature;
            damaged[at] ^= 0x10;
            assert!(signers.check("rule", &DIGEST, Some(&damaged)).is_err(), "byte {at}");
        }
        let stranger = sign(&generate().expect("a key").0, "rule", &DIGEST).expect("signs");
        assert!(signers.check("rule", &DIGEST, Some(&stranger)).is_err());
        assert_eq!(Signers::default().check("rule", &DIGEST, None), Ok(None));
    }

    #[test]
    fn keys_of_openssl_are_accepted() {
        let signers = signers(&[("them", OPENSSL[1])]).expect("a key");
        let signature = sign(OPENSSL[0], "rule", &DIGEST).expect("signs");
        assert!(signers.check("rule", &DIGEST, Some(&signature)).is_ok());
    }

    #[test]
    fn an_invalid_key_is_rejected_with_a_hint() {
        for text in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", OPENSSL[1]] {
            assert!(sign(text, "rule", &DIGEST).is_err_and(|why| why.contains("plugin keygen")), "{text}");
        }
        let refused = |keys: &[(&str, &str)]| signers(keys).expect_err("is refused");
        assert!(refused(&[("a", OPENSSL[0])]).contains("a: "), "a private key where a public one belongs");
        assert!(refused(&[("a", OPENSSL[1]), ("a", OPENSSL[1])]).contains("be different"));
        assert!(refused(&[("", OPENSSL[1])]).contains("1 to 64 bytes"));
    }
}
