//! The address of PostgreSQL: for the engine, which logs in itself, and for Tribunal, whose declarations must not
//! contain a password.

use std::str::FromStr;

use tokio::net::TcpStream;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, NoTls};

/// A database.
#[derive(Clone, Debug)]
pub struct Database {
    config: tokio_postgres::Config,
}

impl FromStr for Database {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let config = url.parse::<tokio_postgres::Config>();
        let database = Database { config: config.map_err(|e| format!("no address of a database: {e}"))? };
        database.endpoint().map(|_| database)
    }
}

impl Database {
    /// Returns `host:port`.
    ///
    /// # Errors
    /// If the address is not that of a single host on TCP.
    pub fn address(&self) -> Result<String, String> {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        match self.config.get_hosts() {
            [Host::Tcp(host)] if host.contains(':') => Ok(format!("[{host}]:{port}")),
            [Host::Tcp(host)] => Ok(format!("{host}:{port}")),
            _ => Err("must be of the form postgres://role:password@host:port/database, of one host".to_owned()),
        }
    }

    /// Returns the role.
    ///
    /// # Errors
    /// If the address names none.
    pub fn user(&self) -> Result<&str, String> {
        self.config.get_user().ok_or_else(|| "must name a role: postgres://role@host:port/database".to_owned())
    }

    /// Returns the password, if there is one.
    #[must_use]
    pub fn password(&self) -> Option<String> {
        self.config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the address for a declaration: without a password.
    ///
    /// # Errors
    /// If the address lacks something.
    pub fn endpoint(&self) -> Result<String, String> {
        let (user, name) = (self.user()?, self.config.get_dbname().unwrap_or_default());
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if name.is_empty() || !plain(name) || !plain(user) {
            return Err("must name a role and a database of letters, digits, `.`, `_` and `-`".to_owned());
        }
        Ok(format!("postgres://{user}@{}/{name}", self.address()?))
    }

    /// Connects, with the tables of one schema on the search path. The connection ends with the client.
    ///
    /// # Errors
    /// If the server is unreachable or rejects the role.
    pub async fn connect(&self, schema: &str) -> Result<Client, String> {
        let mut config = self.config.clone();
        config.options(format!("-c search_path={schema}")).application_name("tpcc");
        let address = self.address()?;
        let stream = TcpStream::connect(&address).await.map_err(|e| format!("PostgreSQL at {address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(said)?;
        tokio::spawn(async move {
            // The task that waits for a response receives the error.
            let _ = connection.await;
        });
        Ok(client)
    }
}

/// Formats an error in one line.
pub(crate) fn said(error: tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(refused) => format!("PostgreSQL: {}: {}", refused.code().code(), refused.message()),
        None => format!("PostgreSQL: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_gets_no_password() {
        let database: Database = "postgres://u:secret@[::1]:6000/d".parse().expect("an address");
        assert_eq!(database.endpoint().as_deref(), Ok("postgres://u@[::1]:6000/d"));
        assert_eq!(database.password().as_deref(), Some("secret"));
        for wrong in ["postgres://h/d", "postgres://u@h", "host=/tmp user=u dbname=d", "postgres://u@a,b/d", "x"] {
            assert!(wrong.parse::<Database>().is_err(), "{wrong}");
        }
    }
}
