//! Keys as seen by the HTTP surface: operators issue and revoke them. Every event of a key is logged, never its secret.

use std::sync::Arc;

use tribunal_core::control::{Effect, Refusal};
use tribunal_service::{KeyApi, KeyStatus, NewKey, Principal, ServiceError, ServiceFuture as Reply, Unauthenticated};
use tribunal_types::{ApiKey, ControlChange};

use crate::auth::keys::draw;
use crate::commit::refusals::refused;
use crate::service::NodeService;

impl KeyApi for NodeService {
    fn authenticate(&self, token: &str) -> Result<Arc<Principal>, Unauthenticated> {
        self.access.authenticate(token)
    }

    fn create_key(&self, key: NewKey) -> Reply<'_, (ApiKey, String)> {
        Box::pin(self.create_api_key(key))
    }

    fn keys(&self) -> Vec<KeyStatus> {
        self.access.list()
    }

    fn revoke_key(&self, id: String, by: String) -> Reply<'_, ()> {
        Box::pin(self.revoke_api_key(id, by))
    }
}

impl NodeService {
    /// Creates a key; its tenant exists from then on.
    async fn create_api_key(&self, new: NewKey) -> Result<(ApiKey, String), ServiceError> {
        let NewKey { name, namespace: namespace_name, roles, expires_in_s, by } = new;
        let created_ms = self.clock.now_ms();
        let expires_ms = expires_in_s.map(|seconds| created_ms + 1000 * u64::from(seconds));
        // If the tenant has no number yet, the entry assigns one.
        let namespace = self.access.namespace(&namespace_name).unwrap_or_default();
        let mut key = ApiKey { name, namespace, namespace_name, roles, created_ms, expires_ms, ..ApiKey::default() };
        let (key, token) = loop {
            let token;
            (key.id, token, key.secret_sha256) = draw().map_err(|detail| ServiceError::Unavailable { detail })?;
            match self.control(ControlChange::CreateKey(key.clone())).await? {
                Ok(Effect::KeyCreated { key, .. } | Effect::KeyKnown(key)) => break (key, token),
                // Probability one in 2^64.
                Err(Refusal::KeyIdTaken) => {}
                Err(refusal) => return Err(refused(refusal)),
                Ok(effect) => unreachable!("a key was to be created, and the effect is {effect:?}"),
            }
        };
        let (created, namespace) = (format!("{}/{}", key.name, key.id), &key.namespace_name);
        let roles = key.roles.names().collect::<Vec<_>>().join(",");
        tracing::info!(key = created, namespace, roles, expires_ms, by, "a key was created");
        Ok((key, token))
    }

    /// Revokes a key.
    async fn revoke_api_key(&self, id: String, by: String) -> Result<(), ServiceError> {
        let listed = self.access.list().into_iter().find(|status| status.key.id == id);
        self.control(ControlChange::RevokeKey { id }).await?.map_err(refused)?;
        if let Some(KeyStatus { key, .. }) = listed {
            let (revoked, namespace) = (format!("{}/{}", key.name, key.id), key.namespace_name);
            tracing::info!(key = revoked, namespace, by, "a key was revoked");
        }
        Ok(())
    }
}
