//! Makes the files that a configuration names independent of the process's working directory.

use std::io;
use std::path::PathBuf;

use crate::config::{Config, Push};

impl Config {
    /// Makes the paths of all files except those of `cluster` absolute, so that the configuration means the same in any
    /// working directory.
    ///
    /// # Errors
    /// If the working directory is unknown, or a path is empty.
    pub fn make_files_absolute(&mut self) -> io::Result<()> {
        let Push { credentials, tenants, .. } = &mut self.push;
        let credentials = credentials.iter_mut().chain(tenants.values_mut().flat_map(|tenant| &mut tenant.credentials));
        let passwords = credentials.filter_map(|credential| credential.password_file.as_mut());
        let signers = self.uploads.signers.iter_mut().map(|signer| &mut signer.key_file);
        let tls = self.tls.iter_mut().flat_map(|tls| [&mut tls.cert_file, &mut tls.key_file]);
        let tokens = self.auth.jwt.iter_mut().map(|jwt| &mut jwt.key_file);
        let mut files = passwords.chain(signers).chain(tls).chain(tokens);
        files.try_for_each(|file: &mut PathBuf| {
            *file = std::path::absolute(&*file)?;
            Ok(())
        })
    }

    /// Returns where the configuration itself contains passwords, which are not printed with it.
    #[must_use]
    pub fn passwords(&self) -> Vec<String> {
        let tenants =
            self.push.tenants.iter().map(|(name, tenant)| (format!("push.tenants.{name}"), &tenant.credentials));
        let all = std::iter::once(("push".to_owned(), &self.push.credentials)).chain(tenants);
        let with_password = all.flat_map(|(key, credentials)| {
            let with_password = credentials.iter().filter(|credential| credential.password.is_some());
            with_password.map(move |credential| format!("`{key}.credentials` of {}", credential.endpoint))
        });
        with_password.collect()
    }
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format, Serialized, Toml};

    use super::*;
    use crate::named_file::read_named;

    #[test]
    fn a_file_is_named_with_its_setting() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key.pem");
        let told =
            || read_named("tls.key_file", &file).map_err(|fault| fault.replace(&*file.to_string_lossy(), "FILE"));
        assert!(told().unwrap_err().starts_with("`tls.key_file`: cannot read FILE: "));
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(told().unwrap_err(), "`tls.key_file`: FILE is empty");
        std::fs::write(&file, "key").unwrap();
        assert_eq!(told().unwrap(), b"key");
    }

    #[test]
    fn all_files_are_made_absolute() {
        let text = r#"
            [tls]
            cert_file = "files/cert.pem"
            key_file = "/etc/key.pem"
            [auth.jwt]
            algorithm = "HS256"
            audience = "a"
            key_file = "files/jwt"
            [uploads]
            signers = [{ name = "a", key_file = "files/signer.pem" }]
            [push]
            credentials = [
                { endpoint = "db:5432", user = "a", password_file = "files/password" },
                { endpoint = "db:5433", user = "a", password = "secret" },
            ]
            [push.tenants.shop]
            credentials = [{ endpoint = "db:5434", user = "b", password_file = "files/shop" }]
        "#;
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        let mut config: Config = defaults.merge(Toml::string(text)).extract().unwrap();
        config.make_files_absolute().unwrap();
        let written = toml::to_string(&config).unwrap();
        let here = std::env::current_dir().unwrap();
        for file in ["cert.pem", "jwt", "signer.pem", "password", "shop"] {
            let absolute = format!("\"{}\"", here.join("files").join(file).display());
            assert!(written.contains(&absolute), "{file}: {written}");
        }
        assert!(written.contains("\"/etc/key.pem\"") && !written.contains("\"files/"), "{written}");
        assert_eq!(config.passwords(), ["`push.credentials` of db:5433"]);
    }
}
