//! The address of a store's database in its declaration: `postgres://role@host:port/database`.
//!
//! A declaration is stored, returned by the API and passed to a plugin, so a password in it is rejected.

use std::str::FromStr;

use percent_encoding::percent_decode_str;

const PORT: u16 = 5432;

/// A database's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlEndpoint {
    /// `host:port`.
    pub address: String,
    /// Name of the database.
    pub database: String,
    /// Role, if the address names one.
    pub user: Option<String>,
}

impl FromStr for SqlEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or("must look like postgres://role@host:port/database")?;
        let (authority, database) = rest.split_once('/').ok_or("names no database: postgres://host:port/database")?;
        if database.contains(['?', '/', '#']) {
            return Err("must not have parameters after the database".to_owned());
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(
                "holds a password, but declarations are not secret; an operator can set it in `push.credentials` \
                        of the configuration"
                    .to_owned(),
            );
        }
        let database = decoded(database)?;
        if database.is_empty() {
            return Err("names no database: postgres://host:port/database".to_owned());
        }
        let user = user.map(decoded).transpose()?.filter(|user| !user.is_empty());
        Ok(SqlEndpoint { address: with_port(host)?, database, user })
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| "is not UTF-8".to_owned())?;
    if decoded.contains('\0') { Err("contains a NUL".to_owned()) } else { Ok(decoded.into_owned()) }
}

fn with_port(host: &str) -> Result<String, String> {
    let end = host.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match host[end..].rfind(':') {
        Some(at) => (&host[..end + at], host[end + at + 1..].parse().map_err(|_| "has an invalid port")?),
        None => (host, PORT),
    };
    if name.is_empty() || name.contains(',') || (end == 0 && name.contains(':')) {
        return Err("must name one host; put an IPv6 address in brackets".to_owned());
    }
    Ok(format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, String, Option<String>), String> {
        text.parse::<SqlEndpoint>().map(|found| (found.address, found.database, found.user))
    }

    #[test]
    fn addresses_are_parsed_and_passwords_rejected() {
        let found = |address: &str, database: &str, user: Option<&str>| {
            Ok((address.to_owned(), database.to_owned(), user.map(str::to_owned)))
        };
        assert_eq!(parsed("postgres://shop@db:6000/orders"), found("db:6000", "orders", Some("shop")));
        assert_eq!(parsed("postgresql://[::1]/a%20b"), found("[::1]:5432", "a b", None));
        assert_eq!(parsed("postgres://[::1]:5/a"), found("[::1]:5", "a", None));
        for (text, reason) in [
            ("redis://h/d", "must look like"),
            ("postgres://h", "names no database"),
            ("postgres://h/", "names no database"),
            ("postgres:///d", "one host"),
            ("postgres://a:1,b:2/d", "one host"),
            ("postgres://::1/d", "one host"),
            ("postgres://h:x/d", "invalid port"),
            ("postgres://u:hunter2@h/d", "holds a password"),
            ("postgres://h/d?sslmode=require", "must not have parameters"),
        ] {
            let said = parsed(text).expect_err(text);
            assert!(said.contains(reason) && !said.contains("hunter2"), "{text}: {said}");
        }
    }
}
