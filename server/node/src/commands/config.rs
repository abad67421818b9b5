//! `tribunal config print`

use std::path::Path;

use crate::config::Config;

/// Prints the configuration in force, as TOML that `tribunal serve --config` reads.
///
/// # Errors
/// If the file or a variable is wrong.
pub fn print(file: Option<&Path>) -> Result<(), String> {
    let config = Config::load(file)?;
    let text = toml::to_string(&config).map_err(|error| format!("cannot write the configuration: {error}"))?;
    print!("{text}");
    Ok(())
}
