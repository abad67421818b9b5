//! Access control: keys and tokens become principals; the first operator finds its key in the data directory.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tribunal_core::control::Effect;
use tribunal_core::control::keys::KeyTable;
use tribunal_service::{KeyStatus, Principal, Unauthenticated};
use tribunal_types::{ApiKey, DEFAULT_NAMESPACE, NamespaceId, Role};

use crate::auth::jwt::JwtGate;
use crate::auth::keys::{Expiring, Found, Keys, draw};
use crate::auth::last_use::LastUseFile;
use crate::commit::epoch_clock::EpochClock;

/// File in the data directory with the initial key of a new service.
pub const OPERATOR_KEY_FILE: &str = "operator.key";

/// How often the last use of keys is written, in ticks of one second.
const WRITE_USES_EVERY: u64 = 60;

/// Keys and tokens.
pub struct Access {
    keys: RwLock<Keys>,
    jwt: Option<JwtGate>,
    clock: Arc<EpochClock>,
    /// The clock's time at the last tick, so that a request need not read it.
    about_ms: AtomicU64,
    ticks: AtomicU64,
    last_use: Mutex<LastUseFile>,
}

impl Access {
    /// Starts with the keys of the control log, and their use as recorded in the data directory.
    #[must_use]
    pub fn new(keys: &KeyTable, jwt: Option<JwtGate>, clock: Arc<EpochClock>, data: &Path) -> Access {
        let keys = Keys::new(keys);
        let last_use = Mutex::new(LastUseFile::open(data, &keys));
        let about_ms = AtomicU64::new(clock.now_ms());
        // Keys that expired before this start were logged when they did, or expired while the node was down.
        let (expired, expiring): (Vec<_>, Vec<_>) =
            keys.newly_expiring(clock.now_ms()).into_iter().partition(|key| key.remaining_ms == 0);
        expiring.iter().for_each(report_expiry);
        let expired = expired.len();
        if expired > 0 {
            tracing::info!(expired, "keys have expired; they are listed until they are revoked");
        }
        Access { keys: RwLock::new(keys), jwt, clock, about_ms, ticks: AtomicU64::new(0), last_use }
    }

    /// Returns the number of the tenant with this name, if one of its keys has been created.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<NamespaceId> {
        self.keys.read().namespace(name)
    }

    /// Logs keys that expire soon or have expired, and periodically writes the last use of keys. Called once a second.
    pub fn tick(&self) {
        let now_ms = self.clock.now_ms();
        self.about_ms.store(now_ms, Ordering::Relaxed);
        self.keys.read().newly_expiring(now_ms).iter().for_each(report_expiry);
        if self.ticks.fetch_add(1, Ordering::Relaxed) % WRITE_USES_EVERY == WRITE_USES_EVERY - 1 {
            self.write_uses();
        }
    }

    /// Writes the last use of keys.
    pub fn write_uses(&self) {
        let uses = self.keys.read().last_uses();
        if let Err(error) = self.last_use.lock().write(uses) {
            tracing::warn!(%error, "the last use of keys was not written; it is lost if the node stops now");
        }
    }

    /// Applies a control entry that had this effect.
    pub fn follow(&self, effect: &Effect) {
        if matches!(effect, Effect::KeyCreated { .. } | Effect::KeyRevoked { .. }) {
            self.keys.write().follow(effect);
        }
    }

    /// Returns the principal of a bearer token.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn authenticate(&self, token: &str) -> Result<Arc<Principal>, Unauthenticated> {
        let keys = self.keys.read();
        match keys.find(token, self.about_ms.load(Ordering::Relaxed), || self.clock.now_ms()) {
            Found::Valid(principal) => return Ok(principal),
            Found::Expired(refused) => {
                if refused.warn {
                    tracing::warn!(key = refused.name, "an expired key was used and rejected");
                }
                return Err(Unauthenticated::expired());
            }
            Found::Revoked(refused) => {
                if refused.warn {
                    tracing::warn!(key = refused.name, "a revoked key was used and rejected");
                }
                return Err(Unauthenticated::new("this key was revoked"));
            }
            Found::Unknown => {}
        }
        match &self.jwt {
            Some(jwt) if token.split('.').count() == 3 => {
                let mut is_unknown = false;
                let namespace = |name: &str| {
                    let number = keys.namespace(name);
                    is_unknown = number.is_none();
                    number
                };
                let checked = jwt.check(token, namespace);
                checked.map_err(|detail| Unauthenticated { is_unknown, ..Unauthenticated::new(detail) })
            }
            _ => Err(Unauthenticated::unknown("this key is unknown or was revoked")),
        }
    }

    /// Returns a tenant's name, or its number if nothing names it any more.
    pub fn tenant_name(&self, namespace: NamespaceId) -> String {
        self.namespace_name(namespace).unwrap_or_else(|| namespace.0.to_string())
    }

    /// Returns a tenant's name.
    pub fn namespace_name(&self, namespace: NamespaceId) -> Option<String> {
        self.keys.read().namespace_name(namespace).map(str::to_owned)
    }

    /// Returns whether there is a tenant of this name.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.keys.read().namespace(name).is_some()
    }

    /// Returns the keys that are not revoked.
    pub fn list(&self) -> Vec<KeyStatus> {
        self.keys.read().list(self.clock.now_ms())
    }

    /// Prepares the initial key of a service without an operator: returns the key to enter, and its token.
    ///
    /// # Errors
    /// If the operating system returns no random bytes.
    pub fn first_operator(&self) -> Result<Option<(ApiKey, String)>, String> {
        let now_ms = self.clock.now_ms();
        if self.keys.read().has_service_operator(now_ms) {
            return Ok(None);
        }
        let (id, token, secret_sha256) = draw()?;
        let key = ApiKey {
            id,
            name: "first-operator".into(),
            namespace: NamespaceId(0),
            namespace_name: DEFAULT_NAMESPACE.into(),
            roles: [Role::Operator].into_iter().collect(),
            secret_sha256,
            created_ms: now_ms,
            expires_ms: None,
        };
        Ok(Some((key, token)))
    }
}

/// Writes the first operator's token where only the owner of the process can read it.
///
/// # Errors
/// If it cannot be written.
pub fn write_operator_key(data: &Path, token: &str) -> Result<(), String> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = data.join(OPERATOR_KEY_FILE);
    let written = (|| {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(file, "{token}")?;
        file.sync_all()?;
        // The key becomes durable next: after that, its token must not be lost.
        std::fs::File::open(data)?.sync_all()
    })();
    written.map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

/// Logs that a key expires soon, or has expired.
fn report_expiry(key: &Expiring) {
    let (name, namespace) = (&key.principal.name, &key.principal.namespace_name);
    if key.remaining_ms == 0 {
        tracing::info!(key = name, namespace, "a key has expired");
    } else {
        let (days, hours) = key.days_and_hours();
        tracing::warn!(key = name, namespace, days, hours, "a key expires soon: create another one for its users");
    }
}
