//! `tribunal config print`

use std::path::Path;

use crate::config::Config;

/// Prints the configuration in force: TOML that `tribunal serve --config` reads, or JSON.
///
/// # Errors
/// If the file or a variable is wrong.
pub fn print(file: Option<&Path>, json: bool) -> Result<(), String> {
    let config = Config::load(file)?;
    let text = if json {
        serde_json::to_string(&config).map(|line| line + "\n").map_err(|error| error.to_string())
    } else {
        toml::to_string(&config).map_err(|error| error.to_string())
    };
    print!("{}", text.map_err(|error| format!("cannot write the configuration: {error}"))?);
    Ok(())
}
