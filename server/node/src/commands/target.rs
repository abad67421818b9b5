//! The service that a command calls.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tribunal_client::{Client, ClientOptions, Error};

/// Address of a node that was started with the defaults.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

/// The service to call.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// Address of the service; for several nodes, separated by commas.
    #[arg(long, env = "TRIBUNAL_URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// File with the API key; the default is the variable `TRIBUNAL_API_KEY`.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// PEM file with the certificate authority of an `https` service that the machine does not trust; the default is the
    /// variable `TRIBUNAL_CA_FILE`.
    // Not read by clap, which refuses every command if the variable is empty.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

impl Target {
    /// Creates a client of the service. A key is never taken from the command line, where other users can read it.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub fn client(&self) -> Result<Client, Error> {
        let api_key = self.api_key().map_err(Error::Misuse)?;
        let ca_file = self.ca_file.clone().or_else(|| ClientOptions::from_env().ca_file);
        Client::with_options(&self.url, ClientOptions { api_key, ca_file, ..ClientOptions::default() })
    }

    /// Creates a client of each node, with `timeout` for its requests, and returns them with their URLs.
    ///
    /// # Errors
    /// If the key cannot be read, or a URL is invalid.
    pub fn clients(&self, timeout: Duration) -> Result<Vec<(String, Client)>, Error> {
        let api_key = self.api_key().map_err(Error::Misuse)?;
        let ca_file = self.ca_file.clone().or_else(|| ClientOptions::from_env().ca_file);
        let options = ClientOptions { api_key, ca_file, timeout, ..ClientOptions::default() };
        let urls = self.url.split(',').map(str::trim).filter(|url| !url.is_empty());
        urls.map(|url| Ok((url.to_owned(), Client::with_options(url, options.clone())?))).collect()
    }

    /// Returns the same service with one more address.
    #[must_use]
    pub fn with_url(&self, url: &str) -> Target {
        if self.url.split(',').any(|known| known.trim().trim_end_matches('/') == url) {
            return self.clone();
        }
        Target { url: format!("{},{url}", self.url), ..self.clone() }
    }

    /// Returns the flags that select the same service and key in another command, each with a space before it.
    #[must_use]
    pub fn as_flags(&self) -> String {
        let mut flags = String::new();
        if self.url != DEFAULT_URL && std::env::var("TRIBUNAL_URL").as_ref() != Ok(&self.url) {
            flags.push_str(&format!(" --url {}", self.url));
        }
        for (flag, file) in [("--api-key-file", &self.api_key_file), ("--ca-file", &self.ca_file)] {
            if let Some(file) = file {
                flags.push_str(&format!(" {flag} {}", file.display()));
            }
        }
        flags
    }

    /// Returns the caller's API key, if there is one.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn api_key(&self) -> Result<Option<String>, String> {
        match &self.api_key_file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| format!("`{}`: {error}", file.display()))?;
                Ok(Some(text.trim().to_owned()))
            }
            None => Ok(ClientOptions::from_env().api_key),
        }
    }
}
