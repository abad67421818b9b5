//! Who is let in: keys and tokens become principals; operators give keys out and take them back; the first one finds its
//! key in the data directory.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use tribunal_service::Principal;
use tribunal_service::{NewKey, ServiceError};
use tribunal_types::{ApiKey, ControlChange, NamespaceId, Role};

use crate::auth::jwt::JwtGate;
use crate::auth::keys::{DEFAULT_NAMESPACE, Keys, draw};
use crate::service::NodeService;

/// File in the data directory with the key that a new service begins with.
pub const OPERATOR_KEY_FILE: &str = "operator.key";

/// Keys and tokens.
pub struct Access {
    keys: RwLock<Keys>,
    jwt: Option<JwtGate>,
}

impl Access {
    /// Starts with what the control log said until now.
    #[must_use]
    pub fn new(keys: Keys, jwt: Option<JwtGate>) -> Access {
        Access { keys: RwLock::new(keys), jwt }
    }

    /// Takes over a control entry.
    pub fn apply(&self, change: &ControlChange) {
        self.keys.write().apply(change);
    }

    /// Tells whom a bearer token belongs to.
    ///
    /// # Errors
    /// Why it is nobody's.
    pub fn authenticate(&self, token: &str) -> Result<Arc<Principal>, String> {
        let keys = self.keys.read();
        if let Some(principal) = keys.find(token) {
            return Ok(Arc::clone(principal));
        }
        match &self.jwt {
            Some(jwt) if token.split('.').count() == 3 => jwt.check(token, |name| keys.namespace(name)),
            _ => Err("nobody has this key, or it was revoked".to_owned()),
        }
    }

    /// Returns a tenant's name.
    pub fn namespace_name(&self, namespace: NamespaceId) -> Option<String> {
        self.keys.read().namespace_name(namespace).map(str::to_owned)
    }

    /// Returns the keys in force.
    pub fn list(&self) -> Vec<ApiKey> {
        self.keys.read().list()
    }

    /// Prepares the key that a service without an operator begins with: what is to be entered, and its token.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn first_operator(&self) -> Result<Option<(ApiKey, String)>, String> {
        if self.keys.read().has_service_operator() {
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
            created_ms: now_ms(),
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
        // The key becomes durable next: its token must not be lost after that.
        std::fs::File::open(data)?.sync_all()
    })();
    written.map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

impl NodeService {
    /// Makes a key; its tenant is there from then on.
    pub(crate) async fn make_key(&self, new: NewKey) -> Result<(ApiKey, String), ServiceError> {
        let turn = Arc::clone(&self.keying).lock_owned().await;
        let (namespace, full) = {
            let keys = self.access.keys.read();
            let namespace = keys.namespace(&new.namespace).unwrap_or_else(|| keys.next_namespace());
            (namespace, keys.is_full(namespace))
        };
        if let Some(detail) = full {
            return Err(ServiceError::ClientMistake { code: "too_many_keys", pointer: String::new(), detail });
        }
        let (id, token, secret_sha256) = draw().map_err(|detail| ServiceError::Unavailable { detail })?;
        let NewKey { name, namespace: namespace_name, roles } = new;
        let key = ApiKey { id, name, namespace, namespace_name, roles, secret_sha256, created_ms: now_ms() };
        self.control_in_turn(ControlChange::CreateKey(key.clone()), turn).await?;
        Ok((key, token))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
