//! What stores in SQL databases need beside their declaration: the operator's credentials for the transport, and for
//! the adaptor whose rows it writes.

use serde::Deserialize;
use serde_json::{Map, Value};
use tribunal_push::{EgressPolicy, SqlEndpoint, SqlOptions};
use tribunal_types::{LogId, NamespaceId, StoreSpec};

use crate::stores::credentials::Credentials;

/// Built-in adaptors that keep the names of log and store beside their watermark.
const NAMING_LOGS: [&str; 2] = ["postgres", "redis"];

/// What the host reads of the adaptor's configuration; the adaptor reads the rest.
#[derive(Debug, Deserialize)]
struct Endpoint {
    endpoint: String,
}

/// See the file's head.
pub struct SqlStorages {
    credentials: Credentials,
    egress: EgressPolicy,
    /// Names the log, so that a storage that another one fills is recognized.
    log: String,
}

impl SqlStorages {
    /// Keeps what is needed to log in.
    #[must_use]
    pub fn new(credentials: Credentials, egress: EgressPolicy, log: LogId) -> SqlStorages {
        SqlStorages { credentials, egress, log: log.to_string() }
    }

    /// Returns the configuration that a store's adaptor gets: the built-in ones also get the log's name,
    /// and the store's name and number.
    #[must_use]
    pub fn adaptor_config(&self, spec: &StoreSpec) -> String {
        match serde_json::from_str::<Map<String, Value>>(&spec.adaptor_config) {
            Ok(mut config) if spec.adaptor.as_deref().is_some_and(|name| NAMING_LOGS.contains(&name)) => {
                config.insert("store".into(), spec.name.clone().into());
                // PostgreSQL's watermark is that of a store's name. The number tells those of other namespaces apart; that of
                // the first namespace stays as every release reads it.
                if spec.adaptor.as_deref() == Some("redis") || spec.namespace != NamespaceId::default() {
                    config.insert("store_id".into(), spec.id.0.into());
                }
                config.insert("log".into(), self.log.clone().into());
                Value::Object(config).to_string()
            }
            _ => spec.adaptor_config.clone(),
        }
    }

    /// Returns where a store's database is and how to log in there.
    ///
    /// # Errors
    /// If the declaration lacks it, or contains more.
    pub fn options(&self, spec: &StoreSpec) -> Result<SqlOptions, String> {
        let needs = |e: String| format!("needs \"endpoint\": \"postgres://role@host:port/database\": {e}");
        let config: Endpoint = serde_json::from_str(&spec.adaptor_config).map_err(|e| needs(e.to_string()))?;
        let endpoint: SqlEndpoint = config.endpoint.parse().map_err(needs)?;
        let (user, password) = self.credentials.of(&endpoint).map_err(needs)?;
        let options = SqlOptions::new(endpoint.address, endpoint.database, user, self.egress.clone());
        Ok(SqlOptions { password, ..options })
    }
}
