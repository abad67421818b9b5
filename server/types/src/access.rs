//! Authorization: keys and their roles. Secrets are never stored here, only their hashes.

use alloc::string::String;

use crate::ids::NamespaceId;

/// Name of the initial tenant, whose number is 0.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A set of permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Begin, commit, and read what a transaction needs.
    Engine = 1,
    /// Read logs and keep offsets, as storages and consumers do.
    Store = 2,
    /// Upload plugins and activate them.
    PluginAdmin = 4,
    /// Declare stores, control pushes, issue keys, read metrics and statistics.
    Operator = 8,
    /// Read metrics and statistics, and nothing else.
    Metrics = 16,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 5] = [Role::Engine, Role::Store, Role::PluginAdmin, Role::Operator, Role::Metrics];

    /// Returns the role's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Engine => "engine",
            Role::Store => "store",
            Role::PluginAdmin => "plugin-admin",
            Role::Operator => "operator",
            Role::Metrics => "metrics",
        }
    }

    /// Returns the role with the name `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// All roles.
    pub const ALL: Roles = Roles(31);

    /// Restores a set from [`Roles::bits`]; `None` if a bit is not a role's.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Roles> {
        (bits & !Roles::ALL.0 == 0).then_some(Roles(bits))
    }

    /// Returns the set as a number.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the role is in the set.
    #[must_use]
    pub fn has(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }

    /// Returns whether any of the roles is in the set.
    #[must_use]
    pub fn has_any(self, roles: Roles) -> bool {
        self.0 & roles.0 != 0
    }

    /// Returns the names of the roles.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Role::ALL.into_iter().filter(move |role| self.has(*role)).map(Role::name)
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Roles {
        Roles(roles.into_iter().fold(0, |bits, role| bits | role as u8))
    }
}

/// A key as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKey {
    /// Its public part, drawn by its creator. If two keys have the same id, only the first is created.
    pub id: String,
    /// Its owner's name for it.
    pub name: String,
    /// The tenant that it belongs to, whose number is the index of the control entry of the tenant's first key.
    pub namespace: NamespaceId,
    /// The tenant's name. A tenant exists from its first key on.
    pub namespace_name: String,
    /// Its permissions.
    pub roles: Roles,
    /// SHA-256 of its secret part.
    pub secret_sha256: [u8; 32],
    /// When it was created, Unix milliseconds; no decision depends on it.
    pub created_ms: u64,
    /// When it expires, Unix milliseconds; `None` if it is valid until revoked. A node compares it with its own clock
    /// when a request arrives; no verdict depends on it.
    pub expires_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_contain_what_was_inserted() {
        let roles: Roles = [Role::Engine, Role::Operator].into_iter().collect();
        assert!(roles.has(Role::Engine) && roles.has(Role::Operator) && !roles.has(Role::Store));
        assert!(roles.names().eq(["engine", "operator"]));
        assert_eq!(Roles::from_bits(roles.bits()), Some(roles));
        assert_eq!(Roles::from_bits(32), None);
        assert!(Role::ALL.iter().all(|role| Role::by_name(role.name()) == Some(*role)));
    }
}
