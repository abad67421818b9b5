//! Externally signed tokens: JWT with one configured algorithm, audience and public key.
//!
//! The algorithm and key in a token's header are compared, never followed. Signatures are checked by ring. A checked
//! token is cached until it expires, because checking costs more than a commit.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::{hmac, signature};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Role, Roles};

use crate::auth::public_key::{Algorithm, public_key};
use crate::named_file::read_named;

/// Maximum number of cached tokens.
const REMEMBERED_MAX: usize = 4096;
/// Maximum difference between clocks, seconds.
const LEEWAY_S: f64 = 30.0;
/// Minimum length of a shared secret in bytes.
const SECRET_BYTES_MIN: usize = 32;

/// Accepted tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// `EdDSA`, `ES256`, `RS256` or `HS256`: only this one is accepted.
    pub algorithm: String,
    /// Required audience in `aud`.
    pub audience: String,
    /// Required issuer in `iss`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// PEM file with the public key; for `HS256`, a file with the secret.
    pub key_file: std::path::PathBuf,
}

/// The relevant part of a token's header.
#[derive(Deserialize)]
struct Head {
    alg: String,
    /// Extensions that must be understood; none are supported.
    #[serde(default)]
    crit: Option<serde::de::IgnoredAny>,
}

/// The claims of a token.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    iss: Option<String>,
    aud: Audience,
    /// Name of the tenant. Never guessed: the operators of the default tenant run the service.
    namespace: String,
    roles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names(&self, audience: &str) -> bool {
        match self {
            Audience::One(one) => one == audience,
            Audience::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

enum Key {
    Public(&'static dyn signature::VerificationAlgorithm, Vec<u8>),
    Secret(hmac::Key),
}

/// The kind of key that an algorithm needs.
enum KeyKind {
    Public(Algorithm, &'static dyn signature::VerificationAlgorithm),
    Secret,
}

impl KeyKind {
    fn named(algorithm: &str) -> Option<KeyKind> {
        Some(match algorithm {
            "EdDSA" => KeyKind::Public(Algorithm::Ed25519, &signature::ED25519),
            "ES256" => KeyKind::Public(Algorithm::P256, &signature::ECDSA_P256_SHA256_FIXED),
            "RS256" => KeyKind::Public(Algorithm::Rsa, &signature::RSA_PKCS1_2048_8192_SHA256),
            "HS256" => KeyKind::Secret,
            _ => return None,
        })
    }

    /// Converts the content of a key file.
    fn key(self, bytes: &[u8], file: &Path) -> Result<Key, String> {
        match self {
            KeyKind::Public(algorithm, ring) => {
                let key = public_key(bytes, algorithm).map_err(|text| format!("`{}`: {text}", file.display()))?;
                Ok(Key::Public(ring, key))
            }
            KeyKind::Secret if bytes.trim_ascii().len() < SECRET_BYTES_MIN => {
                Err(format!("the secret has less than {SECRET_BYTES_MIN} bytes"))
            }
            KeyKind::Secret => Ok(Key::Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes.trim_ascii()))),
        }
    }
}

impl Key {
    fn checks(&self, message: &[u8], signed: &[u8]) -> bool {
        match self {
            Key::Public(algorithm, key) => {
                signature::UnparsedPublicKey::new(*algorithm, key).verify(message, signed).is_ok()
            }
            Key::Secret(key) => hmac::verify(key, message, signed).is_ok(),
        }
    }
}

/// Checks tokens.
pub struct JwtGate {
    key: Key,
    algorithm: String,
    audience: String,
    issuer: Option<String>,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
}

/// A checked token.
#[derive(Clone)]
struct Remembered {
    expires_s: f64,
    principal: Arc<Principal>,
}

impl JwtGate {
    /// Reads the key.
    ///
    /// # Errors
    /// All faults, for the operator.
    pub fn new(config: &JwtConfig) -> Result<JwtGate, Vec<String>> {
        let mut faults = Vec::new();
        let wrong = |text: String| format!("configuration: `auth.jwt`: {text}");
        if config.audience.is_empty() {
            faults.push(wrong("`audience` must not be empty".into()));
        }
        let bytes = read_named("auth.jwt.key_file", &config.key_file)
            .map_err(|fault| faults.push(format!("configuration: {fault}")))
            .ok();
        let kind = KeyKind::named(&config.algorithm);
        if kind.is_none() {
            faults.push(wrong(format!("`algorithm` is `{}`, not EdDSA, ES256, RS256 or HS256", config.algorithm)));
        }
        let key = kind.zip(bytes).and_then(|(kind, bytes)| {
            let key = kind.key(&bytes, &config.key_file);
            key.map_err(|fault| faults.push(wrong(fault))).ok()
        });
        let JwtConfig { algorithm, audience, issuer, .. } = config.clone();
        match key {
            Some(key) if faults.is_empty() => {
                Ok(JwtGate { key, algorithm, audience, issuer, remembered: Mutex::default() })
            }
            _ => Err(faults),
        }
    }

    /// Returns the principal of a token; `namespace` resolves tenant names.
    ///
    /// # Errors
    /// The reason why it is rejected.
    pub fn check(
        &self,
        token: &str,
        namespace: impl FnOnce(&str) -> Option<NamespaceId>,
    ) -> Result<Arc<Principal>, String> {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let remembered = self.remembered.lock().get(&hash).cloned();
        if let Some(remembered) = remembered.filter(|remembered| now_s < remembered.expires_s) {
            return Ok(remembered.principal);
        }
        let claims = self.claims(token, now_s)?;
        let number =
            namespace(&claims.namespace).ok_or_else(|| "the token names a namespace that does not exist".to_owned())?;
        let roles = claims.roles.iter().map(|role| Role::by_name(role)).collect::<Option<Roles>>();
        let roles = roles.ok_or_else(|| "the token names a role that does not exist".to_owned())?;
        let (namespace_name, name) = (claims.namespace, claims.sub.chars().take(128).collect());
        let principal = Arc::new(Principal { namespace: number, namespace_name, roles, name });
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, token| now_s < token.expires_s);
        }
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(hash, Remembered { expires_s: claims.exp, principal: Arc::clone(&principal) });
        }
        Ok(principal)
    }

    fn claims(&self, token: &str, now_s: f64) -> Result<Claims, String> {
        let refused = |text: &str| Err(format!("the token is not accepted: {text}"));
        let Some((message, signed)) = token.rsplit_once('.') else { return refused("it has no signature") };
        let Some((head, claims)) = message.split_once('.') else { return refused("it has no claims") };
        let (Some(head), Ok(signed)) = (part::<Head>(head), URL_SAFE_NO_PAD.decode(signed)) else {
            return refused("it cannot be read");
        };
        if head.alg != self.algorithm || head.crit.is_some() {
            return refused("another algorithm or extension than this service takes");
        }
        if !self.key.checks(message.as_bytes(), &signed) {
            return refused("its signature does not hold");
        }
        let Some(claims) = part::<Claims>(claims) else {
            return refused("it needs sub, exp, aud, namespace and roles");
        };
        if !claims.aud.names(&self.audience) {
            return refused("it is for another audience");
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return refused("somebody else issued it");
        }
        // Written so that NaN is refused, too.
        let begun = claims.nbf.is_none_or(|nbf| nbf <= now_s + LEEWAY_S);
        if !(now_s < claims.exp + LEEWAY_S && begun) {
            return refused("it has expired, or is not valid yet");
        }
        Ok(claims)
    }
}

fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
