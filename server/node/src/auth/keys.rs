//! API keys and tenants, as looked up by the service: a view of the core's fold of the control log. Only a hash of a
//! key's secret is kept.
//!
//! A secret is 32 random bytes, so its plain SHA-256 is as hard to invert as any slow hash would be.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tribunal_core::control::Effect;
use tribunal_core::control::keys::KeyTable;
use tribunal_service::{KeyStatus, Principal};
use tribunal_types::{ApiKey, DEFAULT_NAMESPACE, NamespaceId, RevokedKey};

/// Prefix of every key, so that a leaked key is recognized.
const PREFIX: &str = "trb";
/// Minimum time between two warnings about one refused key, milliseconds.
const WARN_EVERY_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Remaining validity, in milliseconds, at which a key is reported.
const REPORTED_AT_MS: [u64; 3] = [30 * DAY_MS, 7 * DAY_MS, DAY_MS];

/// The keys that are not revoked, the most recently revoked ones, and the tenants that keys were ever created for.
#[derive(Debug, Default)]
pub struct Keys {
    keys: HashMap<String, Kept>,
    revoked: HashMap<String, Revoked>,
    namespaces: BTreeMap<String, NamespaceId>,
}

#[derive(Debug)]
struct Kept {
    key: ApiKey,
    /// Its principal, built once.
    principal: Arc<Principal>,
    /// 0 for never.
    last_used_ms: AtomicU64,
    warned_ms: AtomicU64,
    /// Number of reports that it expires soon or has expired.
    reports: AtomicUsize,
}

/// A revoked key, as far as needed to recognize its use.
#[derive(Debug)]
struct Revoked {
    name: String,
    secret_sha256: [u8; 32],
    warned_ms: AtomicU64,
}

/// The result of looking up a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A valid key.
    Valid(Arc<Principal>),
    /// A key that has expired.
    Expired(Refused),
    /// A key that was revoked.
    Revoked(Refused),
    /// No key.
    Unknown,
}

/// A key that is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name and id.
    pub name: String,
    /// Whether this use is to be logged: the first one per minute.
    pub warn: bool,
}

impl Kept {
    fn new(key: &ApiKey) -> Kept {
        let principal = Principal {
            namespace: key.namespace,
            namespace_name: key.namespace_name.clone(),
            roles: key.roles,
            name: full_name(&key.name, &key.id),
        };
        Kept {
            key: key.clone(),
            principal: Arc::new(principal),
            last_used_ms: AtomicU64::new(0),
            warned_ms: AtomicU64::new(0),
            reports: AtomicUsize::new(0),
        }
    }

    fn is_expired(&self, now_ms: impl FnOnce() -> u64) -> bool {
        self.key.expires_ms.is_some_and(|at| at <= now_ms())
    }

    /// Returns how often the key is to have been reported by now. A key that is valid for days only was created with its
    /// end in mind, so it is not reported at a bound that it never had.
    fn reports_due(&self, now_ms: u64) -> usize {
        let Some(at) = self.key.expires_ms else { return 0 };
        let (remaining, validity) = (at.saturating_sub(now_ms), at.saturating_sub(self.key.created_ms));
        let bounds = REPORTED_AT_MS.iter().filter(|bound| validity > **bound && remaining <= **bound).count();
        bounds + usize::from(remaining == 0)
    }
}

/// A key that expires soon, or has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// Its principal.
    pub principal: Arc<Principal>,
    /// Its remaining validity, milliseconds; 0 if it has expired.
    pub remaining_ms: u64,
}

impl Expiring {
    /// Returns the remaining validity as whole days, and the hours beyond.
    #[must_use]
    pub fn days_and_hours(&self) -> (u64, u64) {
        (self.remaining_ms / DAY_MS, self.remaining_ms % DAY_MS / (60 * 60 * 1000))
    }
}

impl Keys {
    /// Starts with the recovered keys.
    #[must_use]
    pub fn new(table: &KeyTable) -> Keys {
        let namespaces = table.tenants().map(|(name, namespace)| (name.to_owned(), namespace)).collect();
        let mut keys = Keys { namespaces, ..Keys::default() };
        table.held().for_each(|held| keys.created(&held.key));
        for RevokedKey { id, name, secret_sha256, .. } in table.revoked() {
            keys.note_revoked(id, full_name(name, id), *secret_sha256);
        }
        keys
    }

    /// Applies a control entry that had this effect.
    pub fn follow(&mut self, effect: &Effect) {
        match effect {
            Effect::KeyCreated { key, .. } => self.created(key),
            Effect::KeyRevoked { id, forgotten } => {
                forgotten.iter().for_each(|key| drop(self.revoked.remove(&key.id)));
                if let Some(Kept { key, principal, .. }) = self.keys.remove(id) {
                    self.note_revoked(id, principal.name.clone(), key.secret_sha256);
                }
            }
            _ => {}
        }
    }

    fn created(&mut self, key: &ApiKey) {
        self.namespaces.entry(key.namespace_name.clone()).or_insert(key.namespace);
        self.keys.insert(key.id.clone(), Kept::new(key));
    }

    fn note_revoked(&mut self, id: &str, name: String, secret_sha256: [u8; 32]) {
        self.revoked.insert(id.to_owned(), Revoked { name, secret_sha256, warned_ms: AtomicU64::new(0) });
    }

    /// Finds the key of a token, and records its use at `about_ms`, which may be a second old. `now_ms` is only called
    /// if the result depends on it.
    #[must_use]
    pub fn find(&self, token: &str, about_ms: u64, now_ms: impl FnOnce() -> u64) -> Found {
        let mut parts = token.splitn(3, '_');
        let (Some(PREFIX), Some(id), Some(secret)) = (parts.next(), parts.next(), parts.next()) else {
            return Found::Unknown;
        };
        if let Some(kept) = self.keys.get(id) {
            if !matches(secret, &kept.key.secret_sha256) {
                return Found::Unknown;
            }
            if kept.is_expired(now_ms) {
                let name = kept.principal.name.clone();
                return Found::Expired(Refused { name, warn: first_in_a_minute(&kept.warned_ms, about_ms) });
            }
            // Store only on a change: many threads share this cache line.
            if kept.last_used_ms.load(Ordering::Relaxed) < about_ms {
                kept.last_used_ms.store(about_ms, Ordering::Relaxed);
            }
            return Found::Valid(Arc::clone(&kept.principal));
        }
        match self.revoked.get(id) {
            Some(revoked) if matches(secret, &revoked.secret_sha256) => {
                let name = revoked.name.clone();
                Found::Revoked(Refused { name, warn: first_in_a_minute(&revoked.warned_ms, about_ms) })
            }
            _ => Found::Unknown,
        }
    }

    /// Returns the keys that are to be reported: each a few times before it expires, and then once.
    #[must_use]
    pub fn newly_expiring(&self, now_ms: u64) -> Vec<Expiring> {
        let is_due = |kept: &&Kept| {
            let due = kept.reports_due(now_ms);
            kept.reports.fetch_max(due, Ordering::Relaxed) < due
        };
        let expiring = self.keys.values().filter(is_due).map(|kept| Expiring {
            principal: Arc::clone(&kept.principal),
            remaining_ms: kept.key.expires_ms.map_or(0, |at| at.saturating_sub(now_ms)),
        });
        expiring.collect()
    }

    /// Returns when keys were last used, by id.
    #[must_use]
    pub fn last_uses(&self) -> Vec<(String, u64)> {
        let used = self.keys.iter().map(|(id, kept)| (id.clone(), kept.last_used_ms.load(Ordering::Relaxed)));
        used.filter(|(_, at)| *at > 0).collect()
    }

    /// Restores a key's last use, as recorded before a restart.
    pub fn note_last_use(&self, id: &str, at_ms: u64) {
        if let Some(kept) = self.keys.get(id) {
            kept.last_used_ms.fetch_max(at_ms, Ordering::Relaxed);
        }
    }

    /// Returns a tenant's number.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<NamespaceId> {
        if name == DEFAULT_NAMESPACE { Some(NamespaceId(0)) } else { self.namespaces.get(name).copied() }
    }

    /// Returns a tenant's name.
    #[must_use]
    pub fn namespace_name(&self, namespace: NamespaceId) -> Option<&str> {
        if namespace == NamespaceId(0) {
            return Some(DEFAULT_NAMESPACE);
        }
        self.namespaces.iter().find(|(_, known)| **known == namespace).map(|(name, _)| name.as_str())
    }

    /// Returns the keys that are not revoked, by namespace and name, as of a time.
    #[must_use]
    pub fn list(&self, now_ms: u64) -> Vec<KeyStatus> {
        let status = |kept: &Kept| {
            let used = kept.last_used_ms.load(Ordering::Relaxed);
            // Uses are recorded by a clock that may be a second late, or by another node's.
            let last_used_ms = (used > 0).then(|| used.max(kept.key.created_ms));
            let lasts = !kept.is_expired(|| now_ms.saturating_add(DAY_MS));
            KeyStatus { key: kept.key.clone(), last_used_ms, expired: kept.is_expired(|| now_ms), lasts }
        };
        let mut keys: Vec<KeyStatus> = self.keys.values().map(status).collect();
        keys.sort_by(|KeyStatus { key: a, .. }, KeyStatus { key: b, .. }| {
            (&a.namespace_name, &a.name, &a.id).cmp(&(&b.namespace_name, &b.name, &b.id))
        });
        keys
    }

    /// Returns whether an operator of the service has a valid key.
    #[must_use]
    pub fn has_service_operator(&self, now_ms: u64) -> bool {
        let mut valid = self.keys.values().filter(|kept| !kept.is_expired(|| now_ms));
        valid.any(|kept| kept.principal.runs_the_service())
    }
}

/// Returns the name of a key in logs.
fn full_name(name: &str, id: &str) -> String {
    format!("{name}/{id}")
}

/// Compares all bytes, regardless of the first difference: the duration reveals nothing.
fn matches(secret: &str, hash: &[u8; 32]) -> bool {
    let found = digest(&SHA256, secret.as_bytes());
    found.as_ref().iter().zip(hash).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn first_in_a_minute(warned_ms: &AtomicU64, now_ms: u64) -> bool {
    let last = warned_ms.load(Ordering::Relaxed);
    let due = last == 0 || now_ms.saturating_sub(last) >= WARN_EVERY_MS;
    due && warned_ms.compare_exchange(last, now_ms.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Draws a key: returns its public id, its token, and the hash of its secret.
///
/// # Errors
/// If the operating system returns no random bytes.
pub fn draw() -> Result<(String, String, [u8; 32]), String> {
    let mut random = [0; 40];
    SystemRandom::new().fill(&mut random).map_err(|_| "the operating system gives no random bytes".to_owned())?;
    let id: String = random[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let secret = URL_SAFE_NO_PAD.encode(&random[8..]);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    let token = format!("{PREFIX}_{id}_{secret}");
    Ok((id, token, hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::{ControlIndex, Roles, limits};

    fn key(id: &str, secret_sha256: [u8; 32], namespace: (u32, &str)) -> ApiKey {
        ApiKey {
            id: id.to_owned(),
            name: "jo".into(),
            namespace: NamespaceId(namespace.0),
            namespace_name: namespace.1.to_owned(),
            roles: Roles::ALL,
            secret_sha256,
            created_ms: 0,
            expires_ms: None,
        }
    }

    fn create(keys: &mut Keys, id: &str, hash: [u8; 32], expires_ms: Option<u64>) {
        let key = ApiKey { expires_ms, ..key(id, hash, (0, "default")) };
        keys.follow(&Effect::KeyCreated { key, founded: false });
    }

    fn revoke(keys: &mut Keys, id: &str) {
        keys.follow(&Effect::KeyRevoked { id: id.to_owned(), forgotten: None });
    }

    fn name(found: &Found) -> Option<&str> {
        if let Found::Valid(principal) = found { Some(&principal.name) } else { None }
    }

    #[test]
    fn a_key_is_valid_by_its_secret_until_it_is_revoked() {
        let mut keys = Keys::default();
        let (id, token, hash) = draw().expect("random bytes");
        create(&mut keys, &id, hash, None);
        assert_eq!(name(&keys.find(&token, 5, || 5)), Some(&*format!("jo/{id}")));
        let (_, other, _) = draw().expect("random bytes");
        let secret = other.splitn(3, '_').nth(2).expect("three parts");
        let wrong =
            [format!("trb_{id}_{secret}"), format!("{token}x"), token[1..].to_owned(), id.clone(), other.clone()];
        for wrong in &wrong {
            assert_eq!(keys.find(wrong, 5, || 5), Found::Unknown, "{wrong}");
        }
        assert!(keys.has_service_operator(5));
        revoke(&mut keys, &id);
        assert!(!keys.has_service_operator(5) && keys.list(5).is_empty());
        assert_eq!(keys.find(&wrong[0], 5, || 5), Found::Unknown, "only its owner learns that it was revoked");
        let revoked = |warn| Found::Revoked(Refused { name: format!("jo/{id}"), warn });
        assert_eq!(keys.find(&token, 5, || 5), revoked(true));
        assert_eq!(keys.find(&token, 6, || 6), revoked(false), "one warning a minute");
        assert_eq!(keys.find(&token, 6 + WARN_EVERY_MS, || 0), revoked(true));
    }

    #[test]
    fn a_key_expires_at_its_time_and_is_listed_until_it_is_revoked() {
        let mut keys = Keys::default();
        let (id, token, hash) = draw().expect("random bytes");
        create(&mut keys, &id, hash, Some(1_000));
        assert!(keys.has_service_operator(999) && !keys.has_service_operator(1_000));
        assert!(matches!(keys.find(&token, 5, || 999), Found::Valid(_)));
        assert!(keys.newly_expiring(999).is_empty(), "it was never valid for a day");
        let expired = |warn| Found::Expired(Refused { name: format!("jo/{id}"), warn });
        assert_eq!(keys.find(&token, 6, || 1_000), expired(true));
        assert_eq!(keys.find(&token, 7, || 1_001), expired(false));
        assert_eq!((keys.newly_expiring(1_000).len(), keys.newly_expiring(1_001).len()), (1, 0), "logged once");
        assert_eq!(keys.list(5)[0].last_used_ms, Some(5), "a refused use is none");
        assert_eq!([999, 1_000].map(|now_ms| keys.list(now_ms)[0].expired), [false, true]);
    }

    #[test]
    fn a_key_is_reported_as_its_end_comes_closer() {
        let reported = |validity_days: u64, at_days: &[u64]| -> Vec<(u64, u64)> {
            let mut keys = Keys::default();
            create(&mut keys, "a", [0; 32], Some(validity_days * DAY_MS));
            let at = |day: &u64| keys.newly_expiring(day * DAY_MS).first().map(|key| (*day, key.days_and_hours().0));
            at_days.iter().filter_map(at).collect()
        };
        let every: Vec<u64> = (0..=101).collect();
        assert_eq!(reported(100, &every), [(70, 30), (93, 7), (99, 1), (100, 0)]);
        assert_eq!(reported(30, &every), [(23, 7), (29, 1), (30, 0)], "it was never valid for longer than 30 days");
        assert_eq!(reported(1, &every), [(1, 0)]);
        assert_eq!(reported(100, &[98, 98, 100, 101]), [(98, 2), (100, 0)], "a start reports each once");
    }

    #[test]
    fn the_last_use_is_the_latest_one_known() {
        let mut keys = Keys::default();
        let (id, token, hash) = draw().expect("random bytes");
        create(&mut keys, &id, hash, None);
        assert_eq!(keys.list(5)[0].last_used_ms, None);
        keys.note_last_use(&id, 70);
        keys.note_last_use("another", 80);
        assert_eq!(keys.last_uses(), [(id.clone(), 70)]);
        let _ = keys.find(&token, 60, || 60);
        assert_eq!(keys.list(5)[0].last_used_ms, Some(70));
        let _ = keys.find(&token, 90, || 90);
        assert_eq!(keys.last_uses(), [(id, 90)]);
        // It was created after the clock reading that its first use was recorded with.
        let (id, token, hash) = draw().expect("random bytes");
        let key = ApiKey { created_ms: 700, ..key(&id, hash, (0, "default")) };
        keys.follow(&Effect::KeyCreated { key, founded: false });
        let _ = keys.find(&token, 600, || 700);
        let shown = keys.list(700).into_iter().find(|status| status.key.id == id).expect("it is listed");
        assert_eq!(shown.last_used_ms, Some(700));
    }

    #[test]
    fn a_view_of_the_table_is_what_its_effects_make() {
        let (mut table, mut keys) = (KeyTable::default(), Keys::default());
        let mut tokens = Vec::new();
        for number in 0..=limits::KEYS_REVOKED_KEPT as u64 {
            let (id, token, hash) = draw().expect("random bytes");
            let created = table.create(ControlIndex(2 * number + 1), &key(&id, hash, (0, "default")));
            keys.follow(&created.expect("there is room"));
            if number > 0 {
                keys.follow(&table.revoke(ControlIndex(2 * number + 2), &id));
            }
            tokens.push((id, token));
        }
        keys.follow(&table.revoke(ControlIndex(9_000), &tokens[0].0));
        for keys in [&keys, &Keys::new(&table)] {
            assert_eq!(keys.find(&tokens[1].1, 5, || 5), Found::Unknown, "forgotten: it was revoked first");
            for (_, token) in [&tokens[0], &tokens[2], &tokens[limits::KEYS_REVOKED_KEPT]] {
                assert!(matches!(keys.find(token, 5, || 5), Found::Revoked(_)));
            }
        }
    }

    #[test]
    fn tenants_outlive_their_keys() {
        let mut keys = Keys::default();
        keys.follow(&Effect::KeyCreated { key: key("a", [0; 32], (7, "shop")), founded: true });
        revoke(&mut keys, "a");
        assert_eq!((keys.namespace("shop"), keys.namespace("bank")), (Some(NamespaceId(7)), None));
        assert_eq!((keys.namespace_name(NamespaceId(7)), keys.namespace_name(NamespaceId(2))), (Some("shop"), None));
    }
}
