//! Authorization: keys and the roles that they carry. Secrets are never here, only their hashes.

use alloc::string::String;

use crate::ids::NamespaceId;

/// Name of the tenant that exists from the start, under number 0.
pub const DEFAULT_NAMESPACE: &str = "default";

/// What a caller may do.
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

    /// Finds a role by its name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Every role there is.
    pub const ALL: Roles = Roles(31);

    /// Restores a set from [`Roles::bits`]; `None` if a bit is no role.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Roles> {
        (bits & !Roles::ALL.0 == 0).then_some(Roles(bits))
    }

    /// Returns the set as one number.
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

/// A key as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKey {
    /// Its public part, drawn by its creator. Of two keys with one id only the first is created.
    pub id: String,
    /// Its owner's name for it.
    pub name: String,
    /// The tenant that it belongs to; its number is the index of the control entry of its first key.
    pub namespace: NamespaceId,
    /// The tenant's name. The tenant exists from its first key on.
    pub namespace_name: String,
    /// What it may do.
    pub roles: Roles,
    /// SHA-256 of its secret part.
    pub secret_sha256: [u8; 32],
    /// When it was created, milliseconds since 1970; nothing is decided by it.
    pub created_ms: u64,
    /// When it expires, milliseconds since 1970; `None` if it is valid until it is revoked. A node compares it with its own
    /// time when a request comes in; no verdict depends on it.
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
